"""Smaller vectors: fewer dimensions and fewer bits a number, tried on the same queries, beside their bytes.

Nothing is encoded again. All ways are tried on the same queries, so their intervals hold for all of them together
(`evaluation/paired.py`). A way is free where a loss that matters is excluded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from poolscope.clouds import as_matrix
from poolscope.encoders import as_encoder
from poolscope.encoders.base import Progress
from poolscope.encoders.sources import as_vector_source, is_vector_source
from poolscope.errors import InputError, whole_number
from poolscope.evaluation import RetrievalTask
from poolscope.evaluation.outcome import Block, Judgements, Outcome
from poolscope.evaluation.paired import Attempt, CureTrial, run_trials
from poolscope.evaluation.run import PooledModel
from poolscope.numbers import Array
from poolscope.numbers.intervals import FEWEST_CHANGED, Estimate
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.streaming import marks_of, numbered_by_words
from poolscope.results import Result, cells, origin, provenance
from poolscope.show.charts import COLOURS, GREY, dots, error_bars, panel

Storage = Literal["float32", "float16", "int8", "binary"]
Cut = Literal["", "first", "PCA"]
Rescoring = Literal["", "query", "whole"]
Standing = Literal["free", "costs", "unclear"]

STORAGES: dict[Storage, float] = {"float32": 4.0, "float16": 2.0, "int8": 1.0, "binary": 1 / 8}
"""Bytes of one number."""
CANDIDATES = 50
"""Texts that are found by small vectors and ordered again by larger ones."""
MATTERS = 0.01
_PARTS = (2, 4, 8)
_FEWEST_DIMENSIONS = 8
_BLOCK = 256


@dataclass(frozen=True)
class SmallVectors:
    """How vectors are made smaller: `dimension` of their numbers, by `cut`, each in `storage`.

    `rescoring` says what orders the first candidates again: nothing, the whole query against the small texts, or the
    whole vectors, which must be kept beside the small ones.
    """

    dimension: int
    storage: Storage = "float32"
    cut: Cut = ""
    rescoring: Rescoring = ""

    @property
    def name(self) -> str:
        """A label such as "first 96, int8, rescored"."""
        cut = f"{self.cut} {self.dimension}" if self.cut else ""
        again = {"": "", "query": "rescored by the query", "whole": "rescored"}[self.rescoring]
        stored = "" if self.cut and self.storage == "float32" else self.storage
        return ", ".join(filter(None, (cut, stored, again)))

    @property
    def searched_bytes(self) -> int:
        """Bytes of one text that are searched."""
        return int(np.ceil(self.dimension * STORAGES[self.storage]))

    def kept_bytes(self, whole: int) -> int:
        """Bytes of one text that are kept, with the whole vectors (float32) where candidates are ordered by them."""
        return self.searched_bytes + (4 * whole if self.rescoring == "whole" else 0)


@dataclass(frozen=True)
class ShrinkStep:
    """One way to make vectors smaller, and what it changes.

    `trial` has both scores and the paired gain; its interval holds for all ways together. `standing` is "free" where a
    loss that matters is excluded, "costs" where a loss is proven, else "unclear".
    """

    way: SmallVectors
    searched_bytes: int
    kept_bytes: int
    trial: CureTrial
    standing: Standing

    @property
    def name(self) -> str:
        """The label of the way."""
        return self.way.name


@dataclass(frozen=True, repr=False, kw_only=True)
class Shrinkage(Result):
    """Search by smaller vectors, on the same queries; `steps` has one row a way, the fewest bytes last.

    `ndcg` is that of the whole vectors in float32; `left_out` names ways that were not tried, and why.
    """

    model: str
    queries: int
    texts: int
    dimension: int
    k: int
    matters: float
    candidates: int
    unit: str
    ndcg: float
    found: int
    steps: tuple[ShrinkStep, ...] = field(repr=False)
    left_out: Mapping[str, str] = field(default_factory=dict, repr=False)
    provenance: Mapping[str, Any] = origin()

    def __getitem__(self, name: str) -> ShrinkStep:
        """One way by its name."""
        for step in self.steps:
            if step.name == name:
                return step
        raise InputError(f"way: received {name!r}; tried were {', '.join(step.name for step in self.steps)}.")

    @property
    def whole_bytes(self) -> int:
        """Bytes of one text in float32."""
        return 4 * self.dimension

    def free(self, *, stored: bool = False) -> ShrinkStep | None:
        """The free way that searches the fewest bytes, or with `stored` stores the fewest; None where none is free."""
        ways = [step for step in self.steps if step.standing == "free"]
        sizes = {step.name: (step.kept_bytes if stored else step.searched_bytes) for step in ways}
        smaller = [step for step in ways if sizes[step.name] < self.whole_bytes]
        return min(smaller, key=lambda step: (sizes[step.name], -step.trial.after), default=None)

    def headline(self) -> dict[str, Any]:
        """Queries, texts, quality of the whole vectors, and the smallest free way."""
        free = self.free(stored=True)
        return {
            "queries": self.queries,
            "texts": self.texts,
            "ndcg": self.ndcg,
            "free": "" if free is None else free.name,
            "bytes": self.whole_bytes if free is None else free.kept_bytes,
        }

    def in_words(self) -> tuple[str, ...]:
        """Which step is free here, and what the smallest one costs."""
        whole = f"Whole vectors take {self.whole_bytes:,} bytes a text and score nDCG@{self.k} {self.ndcg:.3f}."
        stored, searched = self.free(stored=True), self.free()
        sentences = [whole]
        if stored is None:
            least = min(step.trial.smallest for step in self.steps)
            sentences.append(
                f"No smaller vectors are proven free: {self.queries:,} queries show losses from {least:.3f}."
            )
        else:
            sentences.append(_told("Free here", stored, stored.kept_bytes, self.whole_bytes))
        if searched is not None and stored is not None and searched.searched_bytes < stored.kept_bytes:
            sentences.append(_told("Free in memory", searched, searched.searched_bytes, self.whole_bytes))
            if searched.way.rescoring == "whole":
                sentences.append("That needs the whole vectors on disk, to order the first candidates again.")
        last = min(self.steps, key=lambda step: step.kept_bytes)
        if last.standing == "costs":
            sentences.append(f"The smallest, {last.name}, costs {gain_text(last.trial)} nDCG@{self.k}.")
        return tuple(sentences)

    def legend(self) -> tuple[str, ...]:
        """What the columns mean."""
        return (
            f"free: a loss of {self.matters:g} or more is excluded. Intervals hold for all ways together.",
            f"searched: bytes of a text in memory. kept: with what orders the first {self.candidates} again.",
            *(f"Skipped {name}: {why}." for name, why in self.left_out.items()),
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a way."""
        return [
            {
                "way": step.name,
                "dimension": step.way.dimension,
                "storage": step.way.storage,
                "cut": step.way.cut,
                "rescoring": step.way.rescoring,
                "searched_bytes": step.searched_bytes,
                "kept_bytes": step.kept_bytes,
                **cells({"ndcg": step.trial.after, "gain": step.trial.gain, "p": step.trial.p}, ends=True),
                "found": step.trial.found_after,
                "changed": step.trial.changed,
                "standing": step.standing,
            }
            for step in self.steps
        ]

    def figure(self) -> Any:
        """Quality against the bytes that are searched, with paired intervals; a colour for each kind of cut."""
        curves = []
        hover = "%{text}<br>%{x:,.0f} bytes searched, %{y:.3f}<extra></extra>"
        for (label, wanted), colour in zip(_FAMILIES.items(), COLOURS, strict=False):
            steps = [step for step in self.steps if wanted(step.way)]
            if not steps:
                continue
            places = [step.searched_bytes for step in steps], [step.trial.after for step in steps]
            drawn = dots(*places, label, colour, hover, text=[step.name for step in steps])
            drawn.marker.update(size=9)
            drawn.error_y = error_bars([_around(step.trial) for step in steps], colour)
            curves.append(drawn)
        figure = panel(
            *curves,
            title=f"Quality against bytes: {self.queries:,} queries, {self.texts:,} texts",
            across="bytes of a text that are searched",
            along=f"nDCG@{self.k}",
            height=480,
            x={"type": "log"},
        )
        figure.add_hline(self.ndcg, line={"color": GREY, "dash": "dash", "width": 1})
        return figure


_FAMILIES: dict[str, Any] = {
    "all dimensions": lambda way: not way.cut and not way.rescoring,
    "first dimensions": lambda way: way.cut == "first" and not way.rescoring,
    "PCA": lambda way: way.cut == "PCA" and not way.rescoring,
    "rescored": lambda way: bool(way.rescoring),
}


def _around(trial: CureTrial) -> Estimate:
    """The score after, with the paired interval of its change around it."""
    interval = trial.gain.interval
    if interval is None:
        return Estimate(trial.after)
    moved = type(interval)(
        trial.before + interval.low,
        trial.before + interval.high,
        interval.level,
        interval.answers,
        interval.method,
        interval.unit,
    )
    return Estimate(trial.after, moved)


def gain_text(trial: CureTrial) -> str:
    """A gain with its interval, such as "−0.012 [−0.020, −0.004]"."""
    around = trial.gain.interval
    ends = "" if around is None else f" [{around.low:+.3f}, {around.high:+.3f}]"
    return f"{trial.gain.value_or_raise:+z.3f}{ends}".replace("-", "−")


def _told(begin: str, step: ShrinkStep, size: int, whole: int) -> str:
    times = whole / size
    return f"{begin}: {step.name}, {size:,} bytes a text ({times:.0f} times smaller), {gain_text(step.trial)} nDCG."


def standing_of(trial: CureTrial, largest: float, matters: float = MATTERS) -> Standing:
    """Is a step free, does it cost, or do the queries not tell?

    Where too few queries change for an interval, the step is free if as many as a sign test needs would lose less than
    what matters, even if each lost `largest`: the largest change of a query that was seen.
    """
    interval = trial.gain.interval
    if interval is None:
        return "free" if FEWEST_CHANGED / trial.queries * largest < matters else "unclear"
    return "free" if interval.low > -matters else "costs" if interval.high < 0 else "unclear"


def default_ways(dimension: int, texts: int) -> tuple[list[SmallVectors], dict[str, str]]:
    """The ways that are tried with vectors of that dimension, and those that are not, with the reason.

    >>> [way.name for way in default_ways(16, 100)[0]][:4]
    ['float16', 'int8', 'int8, rescored', 'binary']
    """
    left_out = {}
    ways = [
        SmallVectors(dimension, "float16"),
        SmallVectors(dimension, "int8"),
        SmallVectors(dimension, "int8", rescoring="whole"),
        SmallVectors(dimension, "binary"),
        SmallVectors(dimension, "binary", rescoring="query"),
        SmallVectors(dimension, "binary", rescoring="whole"),
    ]
    for part in _PARTS:
        size = dimension // part
        if size < _FEWEST_DIMENSIONS:
            continue
        cuts: tuple[Cut, ...] = ("first", "PCA")
        for cut in cuts:
            if cut == "PCA" and size >= texts:
                left_out[f"PCA {size}"] = f"it needs more than {size:,} texts, and there are {texts:,}"
                continue
            ways += [SmallVectors(size, storage, cut) for storage in ("float32", "int8")]
            ways.append(SmallVectors(size, "float32", cut, "whole"))
    return ways, left_out


def shrink(
    model: Any,
    task: RetrievalTask,
    *,
    vectors: Any = None,
    ways: Sequence[SmallVectors] | None = None,
    matters: float = MATTERS,
    candidates: int = CANDIDATES,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Shrinkage:
    """Try smaller vectors on the queries of a task: fewer dimensions, fewer bits, with and without rescoring.

    Parameters
    ----------
    model
        What encodes: a name, a folder or an encoder, as `as_encoder` takes it, or the address of a server.
    task
        Queries, texts and which of them answer: `RetrievalTask`, or what `query_task` makes of files.
    vectors
        Stored vectors of the texts, in their order; then only the queries are encoded.
    ways
        What to try; by default float16, int8 and binary, and the first and the principal half, quarter and eighth of
        the dimensions.
    matters
        The loss in nDCG that is worth avoiding.
    candidates
        How many texts are ordered again where a way rescores.
    seed
        Of the sign flips behind the intervals.
    progress
        Called while texts are encoded.
    **options
        Those of `as_encoder`.

    Returns
    -------
    Shrinkage
        One row a way with its bytes, its paired gain, and whether it is free here.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> table = random.standard_normal((60, 32))
    >>> task = RetrievalTask([f"q{k}" for k in range(60)], [f"t{k}" for k in range(60)], [(k, k) for k in range(60)])
    >>> encode = lambda texts: table[[int(text[1:]) for text in texts]]
    >>> shrink(encode, task)["float16"].standing
    'free'

    """
    if not isinstance(task, RetrievalTask):
        raise InputError(
            f"task: received {type(task).__name__}; allowed: a RetrievalTask. Queries and texts of files become one "
            f"with poolscope.evaluation.query_task(texts, queries)."
        )
    whole_number(candidates, "candidates")
    if not isinstance(matters, int | float) or not 0 < matters < 1:
        raise InputError(f"matters: received {matters!r}; allowed: a loss in nDCG between 0 and 1, such as 0.01.")
    stored = None if vectors is None else as_matrix(vectors, name="vectors")
    name, queries, documents = _encoded(model, task, stored, options, progress)
    if queries.shape[1] != documents.shape[1]:
        raise InputError(
            f"vectors: the texts have dimension {documents.shape[1]}, the queries {queries.shape[1]}; needed: one "
            f"model for both. Name the model that made the vectors."
        )
    dimension = documents.shape[1]
    chosen, left_out = default_ways(dimension, len(documents)) if ways is None else (list(ways), {})
    if not chosen or not all(isinstance(way, SmallVectors) and way.dimension <= dimension for way in chosen):
        raise InputError(f"ways: received {ways!r:.60}; allowed: SmallVectors of at most {dimension} dimensions.")
    search = _Search(task, queries, documents, candidates, seed)
    before = search.outcome(SmallVectors(dimension))
    units = task.query_units
    attempts = [Attempt(way.name, before, search.outcome(way)) for way in chosen]
    of = numbered_by_words(units.of, task.queries, seed=seed)
    trials = run_trials(attempts, of, unit=units.name, seed=seed)
    changes = [float(np.abs(attempt.after.ndcg - before.ndcg).max()) for attempt in attempts]
    steps = [
        ShrinkStep(way, way.searched_bytes, way.kept_bytes(dimension), trial, standing_of(trial, largest, matters))
        for way, trial, largest in zip(chosen, trials, changes, strict=True)
    ]
    steps.sort(key=lambda step: (-step.searched_bytes, step.kept_bytes))
    return Shrinkage(
        model=name,
        queries=task.units,
        texts=len(documents),
        dimension=dimension,
        k=task.k,
        matters=matters,
        candidates=candidates,
        unit=units.name,
        ndcg=float(before.ndcg.mean()),
        found=int((before.found >= 0.5).sum()),
        steps=tuple(steps),
        left_out=left_out,
        provenance=provenance(settings={"matters": matters, "candidates": candidates, "seed": seed}),
    )


def _encoded(
    model: Any, task: RetrievalTask, vectors: Any, options: Mapping[str, Any], progress: Progress | None
) -> tuple[str, Array, Array]:
    """The name of the model, and the vectors of queries and texts at length 1."""
    stored = None if vectors is None else as_matrix(vectors, name="vectors")
    if stored is not None and len(stored) != len(task.documents):
        raise InputError(
            f"vectors: received {len(stored):,} for {len(task.documents):,} texts; needed: one for each text, in "
            f"their order."
        )
    to_encode = task.sides if stored is None else task.sides[:1]
    if is_vector_source(model):
        source = as_vector_source(model, **options).resolved()
        name = source.name
        sides = [source.vectors(side.texts) for side in to_encode]
    elif callable(model) and not hasattr(model, "card"):
        name = getattr(model, "__name__", type(model).__name__)
        sides = [np.asarray(model(list(side.texts))) for side in to_encode]
    else:
        pooled = PooledModel(as_encoder(model, **options))
        name = pooled.card.name
        sides = [pooled.encode(side.texts, role=side.role, progress=progress) for side in to_encode]
    if stored is not None:
        sides.append(stored)
    queries, documents = (unit_rows(side, words).astype(np.float32) for side, words in zip(sides, _SIDES, strict=True))
    return name, queries, documents  # type: ignore[return-value]


_SIDES = ("vectors of queries", "vectors of texts")


class _Search:
    """The queries of a task among its texts, by smaller vectors."""

    def __init__(self, task: RetrievalTask, queries: Array, documents: Array, candidates: int, seed: int) -> None:
        self.task, self.queries, self.documents = task, queries, documents
        self.candidates = min(candidates, len(documents))
        self.by_words = np.argsort(marks_of(task.documents, seed=seed), kind="stable")
        self.judgements = Judgements.of(
            task.units, len(documents), task.relevant, grade=task.grades, answer=task.answers
        )
        self._axes: Array | None = None

    @property
    def axes(self) -> Array:
        """The principal axes of the texts around 0, the largest first: all of them leave every cosine as it is."""
        if self._axes is None:
            values, axes = np.linalg.eigh(self.documents.T.astype(np.float64) @ self.documents)
            self._axes = np.ascontiguousarray(axes[:, np.argsort(-values)], dtype=np.float32)
        return self._axes

    def cut(self, table: Array, way: SmallVectors) -> Array:
        """The kept numbers of each vector, at length 1."""
        if way.cut == "PCA":
            table = table @ self.axes[:, : way.dimension]
        elif way.cut == "first":
            table = table[:, : way.dimension]
        else:
            return table
        lengths = np.linalg.norm(table, axis=1, keepdims=True)
        return np.asarray(table / np.where(lengths > 0, lengths, 1))

    def outcome(self, way: SmallVectors) -> Outcome:
        """Search with some vectors, and score the result."""
        return self.judgements.outcome(self._blocks(way), k=self.task.k)

    def _blocks(self, way: SmallVectors) -> Iterator[Block]:
        queries, documents = self.cut(self.queries, way), self.cut(self.documents, way)
        stored = rounded(documents, way.storage)
        asking = rounded(queries, "binary") if way.storage == "binary" else queries
        again = {
            "": None,
            "query": (queries, stored),
            "whole": (self.queries, self.documents),
        }[way.rescoring]
        for start in range(0, len(queries), _BLOCK):
            rows = slice(start, start + _BLOCK)
            scores = asking[rows] @ stored.T
            yield start, scores if again is None else self._rescored(scores, again[0][rows] @ again[1].T)

    def _rescored(self, scores: Array, again: Array) -> Array:
        """The first candidates in the order of other scores, before all other texts in their own.

        Small codes often score alike: which of the last ones are candidates goes by the words of the texts.
        """
        last = np.partition(scores, -self.candidates, axis=1)[:, -self.candidates, None]
        first = scores > last
        tied = (scores == last)[:, self.by_words]
        room = self.candidates - first.sum(axis=1, keepdims=True)
        first[:, self.by_words] |= tied & (tied.cumsum(axis=1) <= room)
        apart = 1 + float(scores.max()) - float(again.min())
        return np.where(first, again + apart, scores.astype(np.float64))


def rounded(table: Array, storage: Storage) -> Array:
    """Vectors as a store gives them back: in 16 bits, in 256 steps between the ends of each dimension, or as signs.

    >>> rounded(np.array([[0.2, -1.0], [0.4, 1.0]]), "binary").tolist()
    [[1.0, -1.0], [1.0, 1.0]]
    """
    if storage == "float16":
        return table.astype(np.float16).astype(np.float32)
    if storage == "int8":
        low, high = table.min(axis=0), table.max(axis=0)
        step = np.where(high > low, (high - low) / 255, 1).astype(table.dtype)
        return np.asarray(np.round((table - low) / step) * step + low)
    if storage == "binary":
        return np.where(table > 0, 1.0, -1.0).astype(np.float32)
    return table
