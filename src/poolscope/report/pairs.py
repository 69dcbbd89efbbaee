"""The pairs that a page lets the reader look at: a thinned set, each with its texts, its tokens and its picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.analyses.pair import FlatCloud, project_pair
from poolscope.analyses.pair_tokens import token_contributions
from poolscope.analyses.socm import socm
from poolscope.analyses.socm_result import PairColumns, SocmResult
from poolscope.charts.pair import pair_figure
from poolscope.clouds import TokenClouds
from poolscope.encoders.vocabulary import Vocabulary
from poolscope.errors import InputError
from poolscope.report.data import figure_data, kept_text, packed
from poolscope.report.spans import token_spans

# Characters of each text and tokens of each cloud that are shown, and tokens of a text that are marked.
SHOWN_CHARACTERS, DRAWN_TOKENS, MARKED_TOKENS = 1000, 160, 6
# Coordinates are whole numbers of this share of the largest one.
_STEPS = 30_000

KINDS = ("highest SOCM", "nearest neighbours", "random")


@dataclass(frozen=True)
class PairExplorer:
    """The data behind the scatter of d_μ and d_Σ, and what was left out.

    `section` is the key of the section it stands in (None: one of its own, after all others).
    """

    thinning: str
    section: str | None
    data: dict[str, Any] = field(repr=False)

    def __len__(self) -> int:
        return len(self.data["pairs"]["i"])


def pair_explorer(
    clouds: TokenClouds,
    result: SocmResult,
    *,
    neighbours: SocmResult | None = None,
    vocabulary: Vocabulary | None = None,
    worst: int = 100,
    nearest: int = 100,
    random: int = 200,
    seed: int = 0,
    section: str | None = None,
) -> PairExplorer:
    """Choose pairs of one corpus for a page, and prepare what the page shows of each.

    Kept are the `worst` pairs of highest SOCM among those of `result`, the `nearest` pairs of a text and its nearest
    neighbour whose means are closest, and a `random` sample of the rest (`seed`). `neighbours` is the result over
    nearest-neighbour pairs if there is one already. `vocabulary` names the tokens (an encoder has it); without it no
    token is marked in the texts.
    """
    if result.left is not result.right or len(result.left) != len(clouds):
        raise InputError(
            f"result: received pairs of {len(result.left)} with {len(result.right)} texts, and {len(clouds)} clouds; "
            f"needed: pairs within one corpus, and its clouds. Pass socm(clouds) and the same clouds."
        )
    chosen, kind = _chosen(clouds, result, neighbours, (worst, nearest, random), seed)
    words = _Words()
    texts = {int(k): _text(clouds, int(k), vocabulary, words) for k in np.unique([chosen.i, chosen.j])}
    place = {k: position for position, k in enumerate(texts)}
    pairs = list(zip(chosen.i.tolist(), chosen.j.tolist(), strict=True))
    data = {
        "pairs": {
            "i": [place[i] for i, _ in pairs],
            "j": [place[j] for _, j in pairs],
            **{name: _digits(getattr(chosen, name)) for name in ("d_mu", "d_sigma", "socm")},
            "kind": kind,
        },
        "kinds": list(KINDS),
        "texts": [text.shown for text in texts.values()],
        "details": [_detail(clouds, (i, j), (texts[i], texts[j])) for i, j in pairs],
        "words": words.names,
        "figure": figure_data("two clouds", pair_figure(project_pair(*(clouds[k] for k in pairs[0])))),
        "exponents": [result.provenance["settings"][name] for name in ("a", "b")],
    }
    return PairExplorer(_thinning(kind, result), section, data)


# -- which pairs --------------------------------------------------------------------------------------------------


def _chosen(
    clouds: TokenClouds, result: SocmResult, neighbours: SocmResult | None, sizes: tuple[int, int, int], seed: int
) -> tuple[PairColumns, NDArray[np.int64]]:
    """The pairs, highest SOCM first, and the kind of each; a pair stands once, as the first kind that wants it."""
    formula = {name: result.provenance["settings"][name] for name in ("scale", "a", "b", "eps")}
    nearest = neighbours or socm(clouds, neighbours=1, **formula)
    others = result if result.pairs is not None else socm(clouds, sample=4 * sum(sizes), seed=seed, **formula)
    if nearest.pairs is None or others.pairs is None:
        raise InputError("neighbours: received a result that kept no pairs. Compute it with a larger keep.")
    closest = np.argsort(nearest.pairs.d_mu, kind="stable")
    mixed = np.random.default_rng(seed).permutation(len(others.pairs.i))[: 4 * sum(sizes)]
    sources = ((result.top, np.arange(len(result.top.i))), (nearest.pairs, closest), (others.pairs, mixed))
    seen: set[tuple[int, int]] = set()
    parts, kinds = [], []
    for kind, ((columns, order), size) in enumerate(zip(sources, sizes, strict=True)):
        rows = _new_rows(columns, order, size, seen)
        parts.append(np.array([getattr(columns, name)[rows] for name in _COLUMNS]))
        kinds += [kind] * len(rows)
    table = np.concatenate(parts, axis=1)
    order = np.argsort(-table[4], kind="stable")
    i, j = table[:2, order].astype(np.int64)
    return PairColumns(i, j, *table[2:, order]), np.array(kinds)[order]


_COLUMNS = ("i", "j", "d_mu", "d_sigma", "socm")


def _new_rows(columns: PairColumns, order: NDArray[Any], size: int, seen: set[tuple[int, int]]) -> list[int]:
    rows: list[int] = []
    for row in order.tolist():
        if len(rows) == size:
            break
        i, j = sorted((int(columns.i[row]), int(columns.j[row])))
        if i != j and (i, j) not in seen:
            seen.add((i, j))
            rows.append(row)
    return rows


def _thinning(kind: NDArray[np.int64], result: SocmResult) -> str:
    counts = np.bincount(kind, minlength=3)
    return (
        f"{len(kind):,} of {result.count:,} pairs are shown: the {counts[0]:,} of highest SOCM, {counts[1]:,} more "
        f"that are a text and its nearest neighbour by mean vector, and {counts[2]:,} drawn at random from the rest."
    )


# -- what is shown of each ----------------------------------------------------------------------------------------


def drawn_positions(tokens: int) -> NDArray[np.int64]:
    """Which tokens of a cloud are drawn: all, or DRAWN_TOKENS of them at even steps.

    >>> drawn_positions(3).tolist(), len(drawn_positions(1000)), int(drawn_positions(1000)[-1])
    ([0, 1, 2], 160, 993)
    """
    count = min(tokens, DRAWN_TOKENS)
    return np.arange(count) * tokens // count


class _Words:
    """Names of tokens, each once; a token is then the place of its name."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, name: str) -> int:
        return self._places.setdefault(name, len(self._places))

    @property
    def names(self) -> list[str]:
        return list(self._places)


@dataclass(frozen=True)
class _Text:
    """What the page shows of a text; and of each token the place of its name (−1: not known) and its span."""

    shown: dict[str, Any]
    words: list[int]
    spans: list[tuple[int, int] | None]


def _text(clouds: TokenClouds, index: int, vocabulary: Vocabulary | None, words: _Words) -> _Text:
    ids, length = clouds.token_ids(index), int(clouds.lengths[index])
    names = None if vocabulary is None or ids is None else vocabulary.names(ids)
    text = None if clouds.texts is None else clouds.texts[index]
    places = [-1] * length if names is None else [words.place(name) for name in names]
    spans: list[tuple[int, int] | None] = [None] * length
    if text is not None and names is not None:
        spans = token_spans(text[:SHOWN_CHARACTERS], names)
    shown = {
        "id": clouds.ids[index],
        "text": None if text is None else kept_text(text, SHOWN_CHARACTERS),
        "tokens": length,
        "truncated": int(clouds.truncated[index]),
        "words": None if names is None else packed([places[k] for k in drawn_positions(length)], "int32"),
    }
    return _Text(shown, places, spans)


def _detail(clouds: TokenClouds, pair: tuple[int, int], texts: tuple[_Text, _Text]) -> dict[str, Any]:
    """The picture of a pair in whole numbers of `unit`, and the tokens that add most to d_Σ."""
    X, Y = (clouds[k] for k in pair)
    picture = project_pair(X, Y)
    contributions = token_contributions(X, Y)
    total = sum(float(part.sum()) for part in contributions)
    flat = (picture.left, picture.right)
    unit = max(float(np.abs(cloud.points).max()) for cloud in flat) / _STEPS or 1.0
    return {
        "unit": float(f"{unit:.6g}"),
        "kept": float(f"{picture.kept:.3g}"),
        "sides": [_side(cloud, unit) for cloud in flat],
        "marked": [
            _marked(part / total if total > 0 else part * 0, text, cloud.points / unit)
            for part, text, cloud in zip(contributions, texts, flat, strict=True)
        ],
    }


def _side(cloud: FlatCloud, unit: float) -> dict[str, Any]:
    # A quarter of the ellipse apart lie its two half axes, which are all that is needed to draw it.
    axes = cloud.ellipse(steps=5)[:2] - cloud.mean
    drawn = cloud.points[drawn_positions(len(cloud.points))]
    return {
        "points": packed((drawn / unit).round(), "int16"),
        "mean": (cloud.mean / unit).round().astype(int),
        "axes": (axes / unit).round().astype(int),
    }


def _marked(shares: NDArray[Any], text: _Text, points: NDArray[Any]) -> list[list[int]]:
    """The tokens of largest share of d_Σ: name, start and end (−1: not found), share in thousandths, x, y."""
    return [
        [text.words[k], *(text.spans[k] or (-1, -1)), round(1000 * float(shares[k])), *points[k].round().astype(int)]
        for k in np.argsort(-shares, kind="stable")[:MARKED_TOKENS]
        if shares[k] > 0
    ]


def _digits(values: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]
