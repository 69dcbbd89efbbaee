"""What stands at the top of a page: the numbers of all answers between floor and thresholds, and a map of the texts."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.report.sections import kept_text, packed
from poolscope.results import plain


@dataclass(frozen=True)
class OverviewGauge:
    """One number on the common scale, all places in per cent of its width.

    `value` is where it lies, `low` and `high` the ends of its interval (None where it has none), `floor`, `watch` and
    `repair` the marks that it is judged by (None where there is none); `written` and `limits` say the same in words.
    """

    words: str
    written: str
    limits: str
    value: float
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    watch: float | None = None
    repair: float | None = None


@dataclass(frozen=True)
class OverviewRow:
    """One answer: the key of its section, its number and title, its level, its gauges, or why it has none."""

    key: str
    ordinal: str
    title: str
    level: str
    note: str = ""
    gauges: Sequence[OverviewGauge] = ()
    # Thresholds on the scale of the number of the verdict, by their words.
    limits: Mapping[str, float] = field(default_factory=dict)


# -- the map ------------------------------------------------------------------------------------------------------

# More texts than this make a picture slow and no clearer: so many are drawn, marked ones first.
MOST_POINTS = 2000
_SNIPPET = 70  # characters of a text that the map keeps
_STEPS = 10_000  # coordinates are whole numbers of this share of the largest


@dataclass(frozen=True)
class MapColour:
    """What the texts are coloured by: `values` has one entry a text, a number, a name, or True and False."""

    named: str
    values: Sequence[Any]

    @property
    def kind(self) -> str:
        """`flag`, `number` or `name`."""
        known = [value for value in self.values if value is not None]
        if all(isinstance(value, bool | np.bool_) for value in known):
            return "flag"
        return "number" if all(isinstance(value, int | float | np.number) for value in known) else "name"


@dataclass(frozen=True)
class CorpusMap:
    """Texts as points of a plane, with what they are coloured by, and an honest note of what the plane leaves out."""

    note: str
    data: dict[str, Any] = field(repr=False)

    def __len__(self) -> int:
        return len(self.data["ids"])


def corpus_map(
    vectors: NDArray[Any],
    ids: Sequence[str],
    texts: Sequence[str] | None,
    colours: Sequence[MapColour],
    *,
    seed: int = 0,
) -> CorpusMap | None:
    """A map of the texts by their vectors (texts × d); None where there are fewer than three.

    The plane is that of the two largest principal components, or that of UMAP where `umap` is installed.
    """
    if len(vectors) < 3:
        return None
    chosen = _drawn(len(vectors), colours, seed)
    points, note = projected(np.asarray(vectors, dtype=np.float64)[chosen], seed=seed)
    unit = float(np.abs(points).max()) / _STEPS or 1.0
    names = [colour.named for colour in colours]
    data = {
        "points": packed((points / unit).round(), "int16"),
        "ids": [ids[k] for k in chosen],
        "texts": None if texts is None else [_snippet(texts[k]) for k in chosen],
        "colours": [
            {"named": colour.named, "kind": colour.kind, "values": plain([colour.values[k] for k in chosen])}
            for colour in colours
        ],
    }
    if len(chosen) < len(vectors):
        marked = " and ".join(names[:1]) if names else ""
        note += f" Drawn are {len(chosen):,} of {len(vectors):,} texts{', marked ones first' if marked else ''}."
    return CorpusMap(note, data)


def _snippet(text: str) -> str:
    kept = kept_text(" ".join(text.split()), _SNIPPET)
    return kept if isinstance(kept, str) else f"{kept['text']}…"


def _drawn(count: int, colours: Sequence[MapColour], seed: int) -> NDArray[np.int64]:
    """All texts, or MOST_POINTS of them: half of the places for texts that a flag marks, the others at random."""
    if count <= MOST_POINTS:
        return np.arange(count)
    order = np.random.default_rng(seed).permutation(count)
    flagged = np.zeros(count, dtype=bool)
    for colour in colours:
        if colour.kind == "flag":
            flagged |= np.array([bool(value) for value in colour.values])
    marked = order[flagged[order]][: MOST_POINTS // 2]
    others = order[~np.isin(order, marked)][: MOST_POINTS - len(marked)]
    return np.sort(np.concatenate([marked, others]))


def projected(vectors: NDArray[np.float64], *, seed: int = 0) -> tuple[NDArray[np.float64], str]:
    """The vectors in a plane, and what a reader must know of it.

    >>> points, note = projected(np.eye(4))
    >>> points.shape, note.startswith("A projection")
    ((4, 2), True)
    """
    warning = "neighbours here need not be neighbours there, and distances are not the model's."
    here = importlib.util.find_spec("umap") is not None and len(vectors) > 15
    umap = getattr(importlib.import_module("umap"), "UMAP", None) if here else None  # a folder of that name has none
    if umap is not None:
        points = umap(random_state=seed, n_jobs=1, metric="cosine").fit_transform(vectors)
        return np.asarray(points) - np.mean(points, axis=0), f"A projection by UMAP: {warning}"
    centred = vectors - vectors.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    total = float((values**2).sum())
    share = float((values[:2] ** 2).sum()) / total if total > 0 else 1.0
    plane = np.zeros((len(vectors), 2))
    plane[:, : min(2, left.shape[1])] = (left * values)[:, :2]
    return plane, f"A projection on the two largest principal components, with {share:.0%} of the variance: {warning}"
