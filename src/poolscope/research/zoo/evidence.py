"""What a zoo says of the papers' claims and of the audit's thresholds: statistics over models, no more than there are.

Every claim is a few tests. A test either asks on which side of a value a number lies, model by model, or whether two
numbers go together over the models of a corpus. What it says is counted; nothing is averaged over corpora.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from poolscope.auditing.compare import differences
from poolscope.auditing.question import QUESTIONS, Gauge, Question
from poolscope.auditing.result import Audit
from poolscope.charts import COLOURS, GREY, error_bars, save_figure, style
from poolscope.digests import check_seal, sealed
from poolscope.errors import InputError, require
from poolscope.files import atomic_path, check_folder, replaced_files, text_of, write_json
from poolscope.numbers.intervals import Estimate
from poolscope.numbers.items import is_constant
from poolscope.research.correlate.study import PValue, correlation_p, ranks
from poolscope.research.reproduce.experiment import MEASURED, attempt, markdown_table
from poolscope.research.zoo.numbers import COLUMNS, rank_correlation
from poolscope.research.zoo.run import AUDIT, JSON, MODELS, Zoo, folder_name, is_number
from poolscope.results import Result, origin, provenance
from poolscope.views import note

Side = Literal["above", "below"]
MIN_MODELS = 4  # fewer have no p-value below 0.08
QUALITY = "ndcg"


@dataclass(frozen=True)
class Beyond:
    """A number that a claim puts above or below a value (or another number of the same model)."""

    number: str
    side: Side
    than: float | str = 0.0


@dataclass(frozen=True)
class Together:
    """Two numbers that a claim lets rise together (above) or against each other (below) over models."""

    number: str
    other: str
    side: Side


@dataclass(frozen=True)
class Claim:
    """What a paper says, in words, and its tests. `children`: numbers of a model beside what was trained from it."""

    key: str
    title: str
    words: str
    tests: tuple[Beyond | Together, ...]
    children: tuple[str, ...] = ()


CLAIMS = (
    Claim(
        "contrastive",
        "Contrastive encoders collapse less",
        "A model that was fine-tuned with a contrastive loss has a smaller SOCM than the backbone it came from.",
        (),
        children=("socm", "socm_trace", "concentration_ratio"),
    ),
    Claim(
        "concentration",
        "Concentration explains it",
        "SOCM is small because the tokens of a text lie close to their mean: the two go together.",
        (
            Together("concentration", "socm", "above"),
            Together("concentration", "socm_trace", "above"),
            Beyond("spread_and_distance", "above", 0.5),
        ),
    ),
    Claim(
        "quality",
        "SOCM goes with quality",
        "Over models, a smaller SOCM goes with better results.",
        (
            Together("socm", QUALITY, "below"),
            Together("socm_trace", QUALITY, "below"),
            Together("concentration", QUALITY, "below"),
        ),
    ),
    Claim(
        "length",
        "Long texts collapse, and a temperature helps",
        "Vectors of long texts look alike, because σₐ falls with the length; a temperature below 1 makes up for it.",
        (
            Beyond("length_slope", "above", "length_slope_floor"),
            Beyond("averaging_excess", "above"),
            Beyond("sigma_and_length", "below"),
            Beyond("filter_and_length", "below"),
            Beyond("temperature", "above"),
        ),
    ),
    Claim(
        "norms",
        "Q = M + V: Q varies little, M and V trade off",
        "The mean square of a token type varies little over types, most of all in the middle layers, so that its mean "
        "and its variance must go against each other.",
        (
            Beyond("variation_middle", "below", 0.25),
            Beyond("variation", "below", 0.25),
            Beyond("mean_and_variance_middle", "below"),
            Beyond("mean_and_variance", "below"),
        ),
    ),
)


DRAWN = "quality"  # the claim that a notebook shows


@dataclass(frozen=True)
class TestRow:
    """What one test says on one corpus.

    Of `models`, so many lie on the side that the claim names with all of their interval (`agree`), on the other side
    (`disagree`), or across (`open`). Where numbers are correlated over models there is one `estimate` with its p-value.
    """

    claim: str
    corpus: str
    words: str
    models: int
    agree: tuple[str, ...] = ()
    disagree: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    estimate: Estimate | None = None
    p: PValue | None = None

    @property
    def side(self) -> str:
        """Agreement or not, in short: for the claim, against it, divided or open."""
        if self.reading == "cannot be told":
            return "open"
        return "divided" if self.agree and self.disagree else "for" if self.agree else "against"

    @property
    def reading(self) -> str:
        """Agreement or not, as far as these models tell."""
        if self.models == 0 or (self.p is not None and self.p.value > 0.05):
            return "cannot be told"
        if self.agree and not self.disagree:
            return "agrees" if not self.open else f"agrees in {len(self.agree)} of {self.models}"
        if self.disagree and not self.agree:
            return "disagrees" if not self.open else f"disagrees in {len(self.disagree)} of {self.models}"
        return "cannot be told" if not self.agree else f"agrees in {len(self.agree)}, disagrees in {len(self.disagree)}"


@dataclass(frozen=True)
class ThresholdRow:
    """A number that thresholds judge, over the models of one corpus, and the levels that the question gave.

    `quality` is the rank correlation with what a search is worth; where a threshold is about quality it is below 0.
    """

    question: str
    number: str
    corpus: str
    watch: float | None
    repair: float | None
    values: Mapping[str, float]
    levels: Mapping[str, str]
    quality: Estimate
    p: PValue | None


@dataclass(frozen=True, repr=False)
class Evidence(Result):
    """The tests of all claims on all corpora, and the thresholds beside the numbers that they judge."""

    corpora: tuple[str, ...]
    tests: tuple[TestRow, ...]
    thresholds: tuple[ThresholdRow, ...]
    zoos: tuple[Zoo, ...] = field(default=(), repr=False)
    provenance: Mapping[str, Any] = origin()

    def headline(self) -> dict[str, Any]:
        """How many claims, tests and corpora."""
        return {
            "claims": len({row.claim for row in self.tests}),
            "tests": len(self.tests),
            "corpora": len(self.corpora),
        }

    def seen(self) -> tuple[str, ...]:
        """How the tests came out."""
        counts = Counter(row.side for row in self.tests)
        corpora = f"{len(self.corpora)} {'corpus' if len(self.corpora) == 1 else 'corpora'}"
        return (
            f"Of {len(self.tests)} tests of {len({row.claim for row in self.tests})} claims on {corpora}, "
            f"{counts['for']} speak for the claim, {counts['against']} against it, {counts['divided']} differ between "
            f"models, and {counts['open']} cannot be told from these models.",
        )

    def _drawing(self) -> str:
        """The figure of one claim, and which one it is."""
        drawn = super()._drawing()
        title = next(claim.title for claim in CLAIMS if claim.key == DRAWN)
        return drawn and drawn + note(f"Drawn: {title}. figure(claim) draws another claim.")

    def rows(self) -> list[dict[str, Any]]:
        """One row a test and corpus."""
        return [
            {
                "claim": row.claim,
                "corpus": row.corpus,
                "test": row.words,
                "models": row.models,
                "agree": len(row.agree),
                "disagree": len(row.disagree),
                "value": None if row.estimate is None else row.estimate.value,
                "p": None if row.p is None else row.p.value,
                "reading": row.reading,
            }
            for row in self.tests
        ]

    def claim_markdown(self, key: str) -> str:
        """The tests of one claim as a Markdown table."""
        rows = [
            {
                "corpus": row.corpus,
                "test": row.words,
                "models": row.models,
                "seen": _seen(row),
                "reading": row.reading,
            }
            for row in self.tests
            if row.claim == key
        ]
        lines = markdown_table(rows) if rows else ["No model of these zoos was named as the child of another."]
        return "\n".join([*lines, ""])

    def threshold_markdown(self) -> str:
        """The thresholds beside the numbers as a Markdown table."""
        rows = (
            {
                "number": f"`{row.number}`",
                "corpus": row.corpus,
                "watch, repair": ", ".join("–" if at is None else f"{at:g}" for at in (row.watch, row.repair)),
                "smallest, median, largest": _spread(row.values),
                "levels": _counts(row.levels),
                "ρ with nDCG@10": "" if row.quality.value is None else f"{row.quality.value:+z.2f} (p {row.p})",
            }
            for row in self.thresholds
        )
        return "\n".join([*markdown_table(rows), ""])

    def figure(self, claim: str = DRAWN) -> Any:
        """The models in the numbers of a claim: a panel a test, a point a model, a colour a corpus."""
        chosen = next((known for known in CLAIMS if known.key == claim), None)
        if chosen is None:
            raise InputError(f"claim: received {claim!r}; allowed: {', '.join(known.key for known in CLAIMS)}.")
        tests = [(test.number, test.other) if isinstance(test, Together) else (test.number,) for test in chosen.tests]
        panels = tests or [(name,) for name in _BACKBONES]
        panels = [names for names in panels if any(zoo.having(*names) for zoo in self.zoos)]
        if not panels:
            raise InputError(f"claim: received {claim!r}, of which these zoos hold no number. Measure more models.")
        return _drawn(self.zoos, panels, chosen.title)


def evidence(
    folders: Sequence[str | os.PathLike[str]], *, children: Mapping[str, str] | None = None, seed: int = 0
) -> Evidence:
    """What the models of one zoo or several say of the papers' claims, and of the thresholds of the audit.

    Parameters
    ----------
    folders : sequence of path
        Folders that `zoo` wrote, one a corpus.
    children : mapping from name to name, optional
        Models by the name of the backbone that they were trained from; both are in the zoos.
    seed : int
        Of the permutations.

    Returns
    -------
    Evidence
        One row a test and corpus, one row a judged number and corpus; `claim_markdown`, `threshold_markdown` and
        `figure` show them.

    Examples
    --------
    >>> import tempfile
    >>> from poolscope import evidence, zoo
    >>> texts = [f"a short text about subject {k} and {k + 1}" for k in range(12)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = zoo({"table": "builtin:wordllama"}, texts, output=folder, cache=False)
    ...     result = evidence([folder])
    >>> result.corpora
    ('memory',)

    """
    if isinstance(folders, str | os.PathLike) or not len(folders):
        raise InputError("folders: received one path or none; needed: a list of folders that `zoo` wrote.")
    opened = [_Opened.of(Path(folder)) for folder in folders]
    names = [part.corpus for part in opened]
    if len(set(names)) < len(names):
        raise InputError(f"folders: received the corpora {', '.join(names)}; needed: every corpus once.")
    tests = [
        row
        for claim in CLAIMS
        for part in opened
        for row in (*part.tested(claim, seed), *part.trained(claim, children or {}))
    ]
    thresholds = [row for question in QUESTIONS.values() for part in opened for row in part.judged(question, seed)]
    made = provenance(settings={"folders": [os.fspath(folder) for folder in folders], "seed": seed})
    del made["clouds"]
    zoos = tuple(part.zoo for part in opened)
    return Evidence(tuple(names), tuple(tests), tuple(thresholds), zoos, provenance=made)


@dataclass(frozen=True)
class _Opened:
    """A folder of a zoo: its rows, and the audits of the models that were measured."""

    zoo: Zoo
    audits: Mapping[str, Audit]

    @classmethod
    def of(cls, folder: Path) -> _Opened:
        try:
            remedy = "Run `poolscope research zoo` again."
            result = Zoo.from_dict(check_seal(json.loads(text_of(folder / JSON)), folder / JSON, remedy))
            names = [run["model"] for run in result.runs if run["status"] == MEASURED and run["levels"]]
            if not all(is_number(number) for run in result.runs for number in run["numbers"].values()):
                raise ValueError("what stands for a number is none")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{folder}: holds no {JSON} that can be read ({type(error).__name__}); needed: a folder that "
                f"`poolscope research zoo` wrote. Run it first."
            ) from error
        return cls(result, {name: Audit.load(folder / MODELS / folder_name(name) / AUDIT) for name in names})

    @property
    def corpus(self) -> str:
        return str(self.zoo.corpus["source"])

    def tested(self, claim: Claim, seed: int) -> Iterable[TestRow]:
        """The tests of a claim on this corpus."""
        for test in claim.tests:
            if isinstance(test, Together):
                yield self._together(claim, test, seed)
            else:
                yield self._beyond(claim, test)

    def _together(self, claim: Claim, test: Together, seed: int) -> TestRow:
        both = self.zoo.having(test.number, test.other)
        estimate, p = correlated([(x.known, y.known) for x, y in both.values()], seed)
        words = f"ρ over models of {COLUMNS[test.number]} and {COLUMNS[test.other]}, {test.side} 0"
        lies = None if estimate.value is None else ("above" if estimate.value > 0 else "below")
        over = tuple(both) if lies else ()
        agree, disagree = (over, ()) if lies == test.side else ((), over)
        return TestRow(claim.key, self.corpus, words, len(both), agree, disagree, (), estimate, p)

    def _beyond(self, claim: Claim, test: Beyond) -> TestRow:
        sides: dict[str, list[str]] = {"above": [], "below": [], "across": []}
        for model, known in self.zoo.estimates.items():
            than = known.get(test.than) if isinstance(test.than, str) else Estimate(test.than)
            if than is not None and test.number in known:
                sides[_side(known[test.number], than.known)].append(model)
        other = "below" if test.side == "above" else "above"
        than_words = COLUMNS[test.than] if isinstance(test.than, str) else f"{test.than:g}"
        words = f"{COLUMNS[test.number]}, {test.side} {than_words}"
        agree, disagree, across = (tuple(sides[side]) for side in (test.side, other, "across"))
        models = sum(map(len, sides.values()))
        return TestRow(claim.key, self.corpus, words, models, agree, disagree, across)

    def trained(self, claim: Claim, children: Mapping[str, str]) -> Iterable[TestRow]:
        """Each child minus its backbone, paired over the same pairs or texts."""
        for parent, child in children.items() if claim.children else ():
            if missing := [name for name in (parent, child) if name not in self.audits]:
                raise InputError(
                    f"children: received {parent}={child}; audited in the zoo of {self.corpus} are "
                    f"{', '.join(self.audits)}, not {' and '.join(missing)}. Audit them too."
                )
            rows = differences((parent, self.audits[parent]), (child, self.audits[child]))
            for row in (row for row in rows if row.number in claim.children):
                estimate = Estimate(row.difference, row.interval)
                side = "across" if row.interval is None else _side(estimate, 0.0)
                words = f"{row.number} of {child} minus that of {parent}, below 0"
                below, above, across = ((child,) if name == side else () for name in ("below", "above", "across"))
                yield TestRow(claim.key, self.corpus, words, 1, below, above, across, estimate)

    def judged(self, question: Question, seed: int) -> Iterable[ThresholdRow]:
        """The numbers of a question that thresholds judge."""
        limits = {threshold.name: threshold.value for threshold in question.thresholds}
        for gauge in question.scales:
            judged = {name: _judged(audit, question, gauge) for name, audit in self.audits.items()}
            values = {name: value for name, value in judged.items() if value is not None}
            if values:
                qualities = self.zoo.having(QUALITY).items()
                paired = [(values[name], quality.known) for name, (quality,) in qualities if name in values]
                levels = {name: self.audits[name][question.key].verdict.level for name in values}
                yield ThresholdRow(
                    question.key,
                    gauge.number or question.judged_on or "",
                    self.corpus,
                    limits.get(gauge.watch),
                    limits.get(gauge.repair),
                    values,
                    levels,
                    *correlated(paired, seed),
                )


def correlated(points: Sequence[tuple[float, float]], seed: int) -> tuple[Estimate, PValue | None]:
    """Spearman's ρ of points over models with its permutation p-value; undefined for too few or constant ones."""
    rows = np.array(points, dtype=np.float64)
    if len(rows) < MIN_MODELS or is_constant(rows[:, 0]) or is_constant(rows[:, 1]):
        return Estimate(None), None
    x, y = rows.T
    return rank_correlation(x, y, interval=False), correlation_p(ranks(x), ranks(y), seed=seed)


def _judged(audit: Audit, question: Question, gauge: Gauge) -> float | None:
    if question.key not in audit:
        return None
    answer = audit[question.key]
    if not gauge.number:
        return answer.verdict.value
    value = answer.numbers.get(gauge.number)
    floor = answer.numbers.get(f"{gauge.number}_floor") if gauge.above_floor else None
    return None if value is None else float(value) - float(floor or 0.0)


def _side(number: Estimate, than: float) -> str:
    """Where a number lies with all of its interval; without one, with its value."""
    interval = number.interval
    low, high = (number.known, number.known) if interval is None else (interval.low, interval.high)
    return "above" if low > than else "below" if high < than else "across"


def _seen(row: TestRow) -> str:
    if row.p is not None and row.estimate is not None:
        return f"{row.estimate.value:+z.2f}, p = {row.p}"
    if row.estimate is not None and row.estimate.value is not None:
        interval = row.estimate.interval
        reach = "" if interval is None else f" [{interval.low:+.3g}, {interval.high:+.3g}]"
        return f"{row.estimate.value:+.3g}{reach}"
    parts = {"yes": row.agree, "no": row.disagree, "open": row.open}
    return "; ".join(f"{word}: {', '.join(names)}" for word, names in parts.items() if names)


def _spread(values: Mapping[str, float]) -> str:
    listed = list(values.values())
    return ", ".join(f"{value:.3g}" for value in (min(listed), float(np.median(listed)), max(listed)))


def _counts(levels: Mapping[str, str]) -> str:
    return ", ".join(f"{number} {level}" for level, number in Counter(levels.values()).items())


# -- the folder of the evidence, its tables in pages of documentation, and the figure of a claim -----------------------

MARKDOWN, SEALED, TABLE = "evidence.md", "evidence.json", "evidence.csv"
_MARKED = re.compile(r"(<!-- begin (?P<name>[^>]+?) -->\n).*?(<!-- end (?P=name) -->)", re.DOTALL)
_PANEL, _MARGINS = (360, 330), (120, 150)
_LOGARITHMIC = ("concentration", "socm", "socm_eps")
_BACKBONES = ("socm", "socm_trace", "concentration")
_WITHOUT_ZERO = (*_BACKBONES, "ndcg", "split_half", "anisotropy")  # zero is nothing to hold these against
_OVERVIEW = ("socm", "socm_trace", "ndcg", "split_half", "anisotropy", "length_slope", "position_lost")


def parts(result: Evidence) -> dict[str, str]:
    """Everything that a page can hold, by name."""
    tables = {f"zoo {zoo.corpus['source']}": zoo.to_markdown() for zoo in result.zoos}
    claims = {f"claim {claim.key}": result.claim_markdown(claim.key) for claim in CLAIMS}
    return {**tables, **claims, "thresholds": result.threshold_markdown()}


def save_evidence(result: Evidence, folder: str | os.PathLike[str], *, ending: str = ".html") -> Path:
    """Write the tables as Markdown, CSV and JSON, and a figure a claim."""
    from pyarrow import csv

    target = check_folder(folder)
    drawn = {claim.key: attempt(result.figure, claim.key)[0] for claim in CLAIMS}
    figures = {key: figure for key, figure in drawn.items() if figure is not None}  # no number, no figure
    titles = {f"claim {claim.key}": f"## {claim.title}\n\n{claim.words}\n" for claim in CLAIMS}
    sections = (f"{titles.get(name, f'## {name}' + chr(10))}\n{content}" for name, content in parts(result).items())
    with replaced_files(target, stale=(MARKDOWN, SEALED, TABLE)) as written:
        (written / MARKDOWN).write_text("\n".join(sections), encoding="utf-8")
        write_json(written / SEALED, sealed(result.to_dict()))
        csv.write_csv(result.to_table(), written / TABLE)
        for key, figure in figures.items():
            save_figure(figure, written / f"claim-{key}{ending}")
    return target


def put_into_pages(result: Evidence, folder: str | os.PathLike[str]) -> list[Path]:
    """Replace what stands between the marks of Markdown pages by the tables of their names; the pages that changed."""
    tables = parts(result)
    changed = []
    pages = sorted(Path(folder).rglob("*.md"))
    if not pages:
        raise InputError(f"pages: received {folder}, which holds no Markdown page. Name the folder of the pages.")

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in tables:
            raise InputError(f"{page}: marks a place for {name!r}; there is {', '.join(tables)}. Correct the mark.")
        return f"{match[1]}\n{tables[name]}\n{match[3]}"

    for page in pages:
        content = page.read_text(encoding="utf-8")
        new = _MARKED.sub(table, content)
        if new != content:
            with atomic_path(page) as path:
                path.write_text(new, encoding="utf-8")
            changed.append(page)
    return changed


def zoo_figure(zoo: Zoo) -> Any:
    """The models in a few numbers of one zoo: a panel a number, a line a model."""
    panels = [(name,) for name in _OVERVIEW if zoo.having(name)]
    if not panels:
        raise InputError("no model of this zoo has a number to draw; its reasons stand in to_table().")
    return _drawn([zoo], panels, f"{zoo.measured} models on {zoo.corpus['source']}")


def _drawn(zoos: Sequence[Zoo], panels: Sequence[tuple[str, ...]], title: str) -> Any:
    """A panel one number of the models, or two against each other."""
    models = list(dict.fromkeys(model for zoo in zoos for model in zoo.estimates))
    figure = require("plotly.subplots", "report").make_subplots(
        rows=1, cols=len(panels), horizontal_spacing=0.4 / len(panels)
    )
    for column, panel in enumerate(panels, start=1):
        for number, zoo in enumerate(zoos):
            figure.add_trace(_points(zoo, panel, COLOURS[number % len(COLOURS)], legend=column == 1), 1, column)
        _name_axes(figure, panel, column, models)
    width = len(panels) * _PANEL[0] + _MARGINS[0]
    return style(figure, title=f"{title} · bars: 95 % intervals", width=width, height=_PANEL[1] + _MARGINS[1])


def _points(zoo: Zoo, names: tuple[str, ...], colour: str, *, legend: bool) -> Any:
    known = zoo.having(*names)
    across, corpus = [numbers[0] for numbers in known.values()], str(zoo.corpus["source"])
    if len(names) == 1:
        more: dict[str, Any] = {"y": list(known), "mode": "markers"}
    else:
        along = [numbers[1] for numbers in known.values()]
        more = {"y": [estimate.value for estimate in along], "error_y": error_bars(along, colour)}
        look = {"textposition": "top center", "textfont": {"size": 9, "color": colour}}
        more |= {"mode": "markers+text", "text": list(known), **look}
    return require("plotly.graph_objects", "report").Scatter(
        x=[estimate.value for estimate in across],
        error_x=error_bars(across, colour),
        name=corpus,
        legendgroup=corpus,
        showlegend=legend,
        marker={"size": 8, "color": colour},
        **more,
    )


def _name_axes(figure: Any, names: tuple[str, ...], column: int, models: list[str]) -> None:
    if len(names) == 1:
        figure.update_xaxes(title_text=COLUMNS[names[0]], row=1, col=column)
        lines = {"type": "category", "categoryarray": models, "categoryorder": "array", "automargin": True}
        figure.update_yaxes(range=[-0.5, len(models) - 0.5], **lines, row=1, col=column)
        if names[0] not in _WITHOUT_ZERO:
            figure.add_vline(x=0, line={"color": GREY, "width": 1, "dash": "dot"}, row=1, col=column)
        return
    for axis, name in zip((figure.update_xaxes, figure.update_yaxes), names, strict=True):
        kind = {"type": "log"} if name in _LOGARITHMIC else {}
        axis(title_text=COLUMNS[name], row=1, col=column, **kind)
