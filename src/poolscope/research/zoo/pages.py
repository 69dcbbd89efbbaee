"""The folder of the evidence, its tables in pages of documentation, and the figure of a claim."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from poolscope.charts import COLOURS, GREY, error_bars, save_figure, style
from poolscope.digests import sealed
from poolscope.errors import InputError, require
from poolscope.files import atomic_path, check_folder, replaced_files, write_json
from poolscope.research.reproduce.experiment import attempt
from poolscope.research.zoo.evidence import CLAIMS, Claim, Evidence, Together
from poolscope.research.zoo.numbers import COLUMNS
from poolscope.research.zoo.run import Zoo

MARKDOWN, JSON, TABLE = "evidence.md", "evidence.json", "evidence.csv"
_MARKED = re.compile(r"(<!-- begin (?P<name>[^>]+?) -->\n).*?(<!-- end (?P=name) -->)", re.DOTALL)
_PANEL, _MARGINS = (360, 330), (120, 150)
_LOGARITHMIC = ("concentration", "socm", "socm_eps")
_BACKBONES = ("socm", "socm_trace", "concentration")
_WITHOUT_ZERO = (*_BACKBONES, "ndcg", "split_half", "anisotropy")  # zero is nothing to hold these against
_OVERVIEW = ("socm", "socm_trace", "ndcg", "split_half", "anisotropy", "length_slope", "position_drop")


def parts(evidence: Evidence) -> dict[str, str]:
    """Everything that a page can hold, by name."""
    tables = {f"zoo {zoo.corpus['source']}": zoo.to_markdown() for zoo in evidence.zoos}
    claims = {f"claim {claim.key}": evidence.claim_markdown(claim.key) for claim in CLAIMS}
    return {**tables, **claims, "thresholds": evidence.threshold_markdown()}


def save_evidence(evidence: Evidence, folder: str | os.PathLike[str], *, ending: str = ".html") -> Path:
    """Write the tables as Markdown, CSV and JSON, and a figure a claim."""
    from pyarrow import csv

    target = check_folder(folder)
    drawn = {claim.key: attempt(evidence.figure, claim.key)[0] for claim in CLAIMS}
    figures = {key: figure for key, figure in drawn.items() if figure is not None}  # no number, no figure
    titles = {f"claim {claim.key}": f"## {claim.title}\n\n{claim.words}\n" for claim in CLAIMS}
    sections = (f"{titles.get(name, f'## {name}' + chr(10))}\n{content}" for name, content in parts(evidence).items())
    with replaced_files(target, stale=(MARKDOWN, JSON, TABLE)) as written:
        (written / MARKDOWN).write_text("\n".join(sections), encoding="utf-8")
        write_json(written / JSON, sealed(evidence.to_dict()))
        csv.write_csv(evidence.to_table(), written / TABLE)
        for key, figure in figures.items():
            save_figure(figure, written / f"claim-{key}{ending}")
    return target


def put_into_pages(evidence: Evidence, folder: str | os.PathLike[str]) -> list[Path]:
    """Replace what stands between the marks of Markdown pages by the tables of their names; the pages that changed."""
    tables = parts(evidence)
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


def claim_figure(evidence: Evidence, key: str) -> Any:
    """The models in the numbers of a claim: a panel a test, a point a model, a colour a corpus."""
    claim = next((claim for claim in CLAIMS if claim.key == key), None)
    if claim is None:
        raise InputError(f"claim: received {key!r}; allowed: {', '.join(claim.key for claim in CLAIMS)}.")
    panels = [panel for panel in _panels(claim) if any(_has(zoo, panel) for zoo in evidence.zoos)]
    if not panels:
        raise InputError(f"claim: received {key!r}, of which these zoos hold no number. Measure more models.")
    return _drawn(evidence.zoos, panels, claim.title)


def zoo_figure(zoo: Zoo) -> Any:
    """The models in a few numbers of one zoo: a panel a number, a line a model."""
    panels = [name for name in _OVERVIEW if _has(zoo, name)]
    if not panels:
        raise InputError("no model of this zoo has a number to draw; its reasons stand in to_table().")
    return _drawn([zoo], panels, f"{zoo.measured} models on {zoo.corpus['source']}")


def _drawn(zoos: Sequence[Zoo], panels: Sequence[Any], title: str) -> Any:
    models = list(dict.fromkeys(model for zoo in zoos for model in zoo.estimates))
    figure = require("plotly.subplots", "report").make_subplots(
        rows=1, cols=len(panels), horizontal_spacing=0.4 / len(panels)
    )
    for column, panel in enumerate(panels, start=1):
        for number, zoo in enumerate(zoos):
            draw = _add_scatter if isinstance(panel, Together) else _add_dots
            figure.add_trace(draw(zoo, panel, COLOURS[number % len(COLOURS)], legend=column == 1), 1, column)
        _name_axes(figure, panel, column, models)
    width = len(panels) * _PANEL[0] + _MARGINS[0]
    return style(figure, title=f"{title} · bars: 95 % intervals", width=width, height=_PANEL[1] + _MARGINS[1])


def _panels(claim: Claim) -> list[Any]:
    """Pairs of numbers, or single ones by name."""
    tests = [test if isinstance(test, Together) else test.number for test in claim.tests]
    return tests or list(_BACKBONES)


def _has(zoo: Zoo, panel: Any) -> bool:
    names = [panel] if isinstance(panel, str) else [panel.number, panel.other]
    return any(all(name in known for name in names) for known in zoo.estimates.values())


def _add_scatter(zoo: Zoo, panel: Together, colour: str, *, legend: bool) -> Any:
    both = (panel.number, panel.other)
    points = {model: known for model, known in zoo.estimates.items() if all(name in known for name in both)}
    sides = [[known[name] for known in points.values()] for name in both]
    return require("plotly.graph_objects", "report").Scatter(
        x=[estimate.value for estimate in sides[0]],
        y=[estimate.value for estimate in sides[1]],
        error_x=error_bars(sides[0], colour),
        error_y=error_bars(sides[1], colour),
        mode="markers+text",
        text=list(points),
        textposition="top center",
        textfont={"size": 9, "color": colour},
        **_look(zoo, colour, legend),
    )


def _add_dots(zoo: Zoo, panel: str, colour: str, *, legend: bool) -> Any:
    points = {model: known[panel] for model, known in zoo.estimates.items() if panel in known}
    return require("plotly.graph_objects", "report").Scatter(
        x=[estimate.value for estimate in points.values()],
        y=list(points),
        error_x=error_bars(list(points.values()), colour),
        mode="markers",
        **_look(zoo, colour, legend),
    )


def _look(zoo: Zoo, colour: str, legend: bool) -> dict[str, Any]:
    name = str(zoo.corpus["source"])
    return {"name": name, "legendgroup": name, "showlegend": legend, "marker": {"size": 8, "color": colour}}


def _name_axes(figure: Any, panel: Any, column: int, models: list[str]) -> None:
    if isinstance(panel, str):
        figure.update_xaxes(title_text=COLUMNS[panel], row=1, col=column)
        names = {"type": "category", "categoryarray": models, "categoryorder": "array", "automargin": True}
        figure.update_yaxes(range=[-0.5, len(models) - 0.5], **names, row=1, col=column)
        if panel not in _WITHOUT_ZERO:
            figure.add_vline(x=0, line={"color": GREY, "width": 1, "dash": "dot"}, row=1, col=column)
        return
    for axis, name in ((figure.update_xaxes, panel.number), (figure.update_yaxes, panel.other)):
        kind = {"type": "log"} if name in _LOGARITHMIC else {}
        axis(title_text=COLUMNS[name], row=1, col=column, **kind)
