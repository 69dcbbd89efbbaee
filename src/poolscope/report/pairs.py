"""The pairs that a page lets the reader look at: a thinned set, each with its texts, its tokens and its picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders.tokens import Vocabulary
from poolscope.errors import InputError
from poolscope.metrics.pair.figure import pair_figure
from poolscope.metrics.pair.measure import FlatCloud, PairProjection, project_pair
from poolscope.metrics.pair.tokens import token_contributions
from poolscope.metrics.socm.result import SocmResult
from poolscope.numbers.bures.pairs import workers
from poolscope.report.choice import Sizes, choose_pairs
from poolscope.report.data import figure_data, kept_text, packed
from poolscope.report.excerpts import characters_each, excerpt_start
from poolscope.report.spans import token_spans

# Tokens of each cloud that are drawn, and tokens of a text that are marked.
DRAWN_TOKENS, MARKED_TOKENS = 160, 6
# Coordinates are whole numbers of this share of the largest one.
_STEPS = 30_000


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

    Kept are the `worst` pairs of highest SOCM among those of `result`, the `nearest` pairs of highest SOCM among texts
    and their nearest neighbours, and a `random` sample of the rest (`seed`). `neighbours` is the result over
    nearest-neighbour pairs if there is one already. `vocabulary` names the tokens (an encoder has it); without it no
    token is marked in the texts.
    """
    if result.left is not result.right or len(result.left) != len(clouds):
        raise InputError(
            f"result: received pairs of {len(result.left)} with {len(result.right)} texts, and {len(clouds)} clouds; "
            f"needed: pairs within one corpus, and its clouds. Pass socm(clouds) and the same clouds."
        )
    chosen = choose_pairs(clouds, result, neighbours, sizes=Sizes(worst, nearest, random), seed=seed)
    pairs = list(zip(chosen.pairs.i.tolist(), chosen.pairs.j.tolist(), strict=True))
    words = _Words()
    texts = {k: _Text(clouds, k, vocabulary, words) for k in np.unique(pairs).tolist()}
    with workers() as pool:
        measured = list(pool.map(lambda pair: _Measured.of(*(clouds[k] for k in pair)), pairs))
    details = [_detail(found, (texts[i], texts[j])) for found, (i, j) in zip(measured, pairs, strict=True)]
    place = {k: position for position, k in enumerate(texts)}
    limit = characters_each(len(texts))
    data = {
        "pairs": {
            "i": [place[i] for i, _ in pairs],
            "j": [place[j] for _, j in pairs],
            **{name: _digits(getattr(chosen.pairs, name)) for name in ("d_mu", "d_sigma", "socm")},
            "reasons": chosen.reasons,
        },
        "kinds": list(chosen.kinds),
        "texts": [text.shown(limit) for text in texts.values()],
        "details": details,
        "words": words.names,
        "figure": figure_data("two clouds", pair_figure(project_pair(*(clouds[k] for k in pairs[0])))),
        "exponents": [result.provenance["settings"][name] for name in ("a", "b")],
    }
    return PairExplorer(chosen.thinning, section, data)


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


class _Text:
    """A text of the page: of each token the place of its name (−1: not known) and its span; and all marks in it."""

    def __init__(self, clouds: TokenClouds, index: int, vocabulary: Vocabulary | None, words: _Words) -> None:
        ids, self._length = clouds.token_ids(index), int(clouds.lengths[index])
        names = None if vocabulary is None or ids is None else vocabulary.names(ids)
        self._text = None if clouds.texts is None else clouds.texts[index]
        self._facts = {"id": clouds.ids[index], "truncated": int(clouds.truncated[index])}
        self._named = names is not None
        self.words = [-1] * self._length if names is None else [words.place(name) for name in names]
        self.spans: list[tuple[int, int] | None] = [None] * self._length
        if self._text is not None and names is not None:
            self.spans = token_spans(self._text, names)
        self.marks: list[tuple[int, int, float]] = []

    def shown(self, limit: int) -> dict[str, Any]:
        """What the page keeps of it: at most `limit` characters, those around the marks of its pairs."""
        drawn = [self.words[k] for k in drawn_positions(self._length)]
        text = self._text
        start = 0 if text is None else excerpt_start(len(text), limit, self.marks)
        return {
            **self._facts,
            "text": None if text is None else kept_text(text, limit, start=start),
            "tokens": self._length,
            "words": packed(drawn, "int32") if self._named else None,
        }


@dataclass(frozen=True)
class _Measured:
    """What of a pair takes time to compute."""

    picture: PairProjection
    contributions: tuple[NDArray[np.float64], NDArray[np.float64]]

    @classmethod
    def of(cls, X: NDArray[Any], Y: NDArray[Any]) -> _Measured:
        return cls(project_pair(X, Y), token_contributions(X, Y))


def _detail(measured: _Measured, texts: tuple[_Text, _Text]) -> dict[str, Any]:
    """The picture of a pair in whole numbers of `unit`, and the tokens that add most to d_Σ."""
    picture, contributions = measured.picture, measured.contributions
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
    most = [k for k in np.argsort(-shares, kind="stable")[:MARKED_TOKENS] if shares[k] > 0]
    text.marks += [(*span, float(shares[k])) for k in most if (span := text.spans[k]) is not None]
    return [
        [text.words[k], *(text.spans[k] or (-1, -1)), round(1000 * float(shares[k])), *points[k].round().astype(int)]
        for k in most
    ]


def _digits(values: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]
