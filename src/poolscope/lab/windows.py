"""Windows: what a text loses when its tokens are replaced by the means of adjacent windows (context compression)."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import combinations, pairwise
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds, check_clouds
from poolscope.errors import InputError, whole_number
from poolscope.metrics.socm.measure import socm
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import (
    Estimate,
    RatioParts,
    Units,
    chosen_units,
    mean_estimate,
    pair_estimate,
)
from poolscope.numbers.moments import Spans, exchangeable_share, second_order_loss, window_bounds, window_scatters
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.streaming import text_windows
from poolscope.results import Result, cells, origin, provenance
from poolscope.show.charts import GREY, curve, ratios_figure
from poolscope.texts.groups import document_of_id

Values = tuple[Array, Index, Index]  # SOCM of pairs, and the texts of their two windows
_NO_PAIRS: Values = (np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))

RATIOS = (2, 4, 8, 16, 32, 64, 128)
DOCUMENTS = 40  # texts between whose windows distances are taken
_DOCUMENT_TOKENS = 1024  # of each of these, from its beginning
_WINDOWS = 12  # of each of them, at most: they make 66 pairs
_WORST = 5  # windows of each ratio that are shown
# What is summed over texts, in this order.
_PLAIN, _SECOND, _ADAPTIVE, _SHUFFLED, _EXPECTED, _WITHOUT_FIRST, _SECOND_SHUFFLED, _ADAPTIVE_SHUFFLED = range(8)


@dataclass(frozen=True)
class WindowRatio:
    """Windows of `ratio` tokens, each kept as its mean.

    `lost` is the share of the variance of a text that lies inside its windows; its floor is what windows of tokens in
    random order lose on average, and `shuffled` what they lost in one random order. `without_first` is `lost` when the
    first token of every text is left out, which in a decoder may be a sink. `second_order` and `adaptive` are the share
    that is lost by other windows of the same storage, and `saved_…` how much less that is. Both choose by the tokens
    that they keep, and save something of pure noise too: their floors are the same for the tokens in random order.

    `within_socm` and `within_collapse` are SOCM and the share of pairs from `collapse_at` on among windows of one text;
    `nearest_…` those of a window with the nearest window of another text. Their floors are the same for windows of the
    tokens of each text in random order. No value where texts are too short to have two windows of two tokens.
    """

    ratio: int
    windows: float
    lost: Estimate
    shuffled: float | None
    without_first: Estimate
    second_order: Estimate
    adaptive: Estimate
    saved_second_order: Estimate
    saved_adaptive: Estimate
    within_socm: Estimate
    within_collapse: Estimate
    nearest_socm: Estimate
    nearest_collapse: Estimate


@dataclass(frozen=True)
class WorstWindow:
    """A window that loses much: tokens `start` to `stop` of the text `id`, and their words where they are known.

    `times` is its spread over the mean spread of all texts.
    """

    ratio: int
    id: str
    start: int
    stop: int
    times: float
    text: str | None


@dataclass(frozen=True, repr=False, kw_only=True)
class WindowsResult(Result):
    """What is lost when the tokens of texts are replaced by the means of adjacent windows.

    `largest_ratio` is the largest measured ratio up to which the whole interval of `lost` stays within `loss_limit`;
    None if there is none. `single` counts texts of one token, which have nothing to lose. `first_share` is the part of
    the variance that is gone without the first token of every text: near 0, or nearly all of it where that is a sink.
    `documents` texts were drawn for the distances between windows.
    """

    texts: int
    tokens: int
    single: int
    loss_limit: float
    largest_ratio: int | None
    first_share: Estimate
    collapse_at: float = field(repr=False)
    documents: int = field(repr=False)
    ratios: tuple[WindowRatio, ...] = field(repr=False)
    worst: tuple[WorstWindow, ...] = field(repr=False)
    provenance: Mapping[str, Any] = origin()

    def at(self, ratio: int) -> WindowRatio:
        """The numbers of one ratio."""
        return next(row for row in self.ratios if row.ratio == ratio)

    def in_words(self) -> tuple[str, ...]:
        """Sentences on the shortest windows, on the longest ones that lose little, and on the first token."""
        first, limit = self.ratios[0], f"{self.loss_limit:.0%}"
        chance = "" if first.lost.floor is None else f", {first.lost.floor:.1%} in random order"
        longer = f"The longest windows that lose {limit} or less have {self.largest_ratio} tokens."
        sentences = [
            f"Averaging every {first.ratio} tokens loses {first.lost.percent()} of a text's variance{chance}.",
            longer if self.largest_ratio else f"All windows lose more than {limit}.",
        ]
        if (self.first_share.value or 0) > 0.5:
            without = ", ".join(f"{row.without_first.percent()} at {row.ratio}" for row in self.ratios)
            sentences.append(
                f"The first token of a text makes {self.first_share.value_or_raise:.0%} of the variance (a sink) and "
                f"decides that. Without it windows lose {without}."
            )
        if self.single:
            sentences.append(f"{self.single:,} texts have a single token, which loses nothing.")
        return tuple(sentences)

    def rows(self) -> list[dict[str, Any]]:
        """One row a ratio, every estimate with its interval and its floor."""
        return [cells(vars(row)) for row in self.ratios]

    def figure(self) -> Any:
        """The share of variance that is lost by ratio, for every kind of window, beside random order."""
        ratios = [row.ratio for row in self.ratios]
        names = ("lost", "without_first", "second_order", "adaptive")
        words = ("windows", "without the first token", "mean and first direction", "cut where the vectors change")
        figure = ratios_figure(
            ratios,
            {word: [getattr(row, name) for row in self.ratios] for name, word in zip(names, words, strict=True)},
            title="What windows lose of the variance of a text",
            across="tokens a window",
            along="share of the variance lost",
        )
        floors = [row.lost.floor for row in self.ratios]
        figure.add_trace(curve(ratios, floors, "tokens in random order", GREY, dash="dash"))
        figure.update_yaxes(range=[0, 1.02])
        return figure


@dataclass(frozen=True)
class Window:
    """A window as it is ranked: its spread, which text it is in, where, and the ids of its tokens."""

    spread: float
    id: str
    start: int
    stop: int
    ids: tuple[int, ...] | None


@dataclass(frozen=True)
class Document:
    """A text that was drawn: its vectors, their digest, by which the draw goes, and its own document, where known."""

    digest: bytes
    tokens: NDArray[Any]
    name: str | None


@dataclass(frozen=True)
class WindowMoments:
    """What one shard of texts tells; two of them merge, and `finish_windows` makes the result.

    `lost` have for each text the scatter inside windows (kinds × ratios) over its own; `saved` that of plain
    windows minus second-order and adaptive ones; `first` the scatter that is gone without the first token.
    """

    ratios: tuple[int, ...]
    seed: int
    texts: int
    tokens: int
    single: int
    windows: Index
    lost: RatioParts
    saved: RatioParts
    first: RatioParts
    worst: tuple[tuple[Window, ...], ...]
    documents: tuple[Document, ...]
    provenance: dict[str, Any]

    def merge(self, other: WindowMoments) -> WindowMoments:
        """The texts of both."""
        if (self.ratios, self.seed) != (other.ratios, other.seed):
            raise InputError(
                f"windows: received parts of ratios {self.ratios} and {other.ratios}, seeds {self.seed} and "
                f"{other.seed}; all must have the same. Measure the parts again."
            )
        added = {name: getattr(self, name) + getattr(other, name) for name in ("texts", "tokens", "single", "windows")}
        merged = {name: getattr(self, name).merge(getattr(other, name)) for name in ("lost", "saved", "first")}
        clouds = [*self.provenance["clouds"], *other.provenance["clouds"]]
        return replace(
            self,
            **added,
            **merged,
            worst=tuple(_largest([*mine, *theirs]) for mine, theirs in zip(self.worst, other.worst, strict=True)),
            documents=_drawn([*self.documents, *other.documents]),
            provenance={**self.provenance, "clouds": clouds},
        )


def windows(
    clouds: TokenClouds,
    *,
    ratios: Sequence[int] = RATIOS,
    loss_limit: float = 0.5,
    collapse_at: float = 0.1,
    vocabulary: Any = None,
    seed: int = 0,
) -> WindowsResult:
    """What is lost when the tokens of texts are replaced by the means of adjacent windows of `ratio` tokens.

    Nothing is trained here: a model that was trained to read such means may do better.

    Parameters
    ----------
    clouds : TokenClouds
        Token vectors of texts, of any layer of a decoder or an encoder.
    ratios : list of int
        Tokens of a window, 2 or more each; rising.
    loss_limit : float
        `largest_ratio` of the result is the largest ratio that loses no more, with its whole interval.
    collapse_at : float
        From this SOCM on, two windows count as collapsed.
    vocabulary : Vocabulary, optional
        Names the tokens, to show windows as text: `as_encoder(model).vocabulary`.
    seed : int
        Of the random order of tokens, and of the draws of texts and windows.

    Returns
    -------
    WindowsResult
        For each ratio: the share of variance that is lost, with interval and floors, beside windows with a second
        vector and windows cut where the vectors change, of the same storage; SOCM between windows; the worst windows.

    Examples
    --------
    >>> pairs = np.repeat(np.random.default_rng(0).normal(size=(4, 6, 8)), 2, axis=1)     # every token stands twice
    >>> result = windows(TokenClouds.from_arrays(list(pairs)), ratios=[2, 12])
    >>> [round(row.lost.value, 6) for row in result.ratios], result.largest_ratio
    ([0.0, 1.0], 2)

    """
    moments = window_moments(clouds, ratios=ratios, seed=seed)
    return finish_windows(moments, loss_limit=loss_limit, collapse_at=collapse_at, vocabulary=vocabulary)


def window_moments(clouds: TokenClouds, *, ratios: Sequence[int] = RATIOS, seed: int = 0) -> WindowMoments:
    """What the texts of one shard tell about windows; see `windows`."""
    if isinstance(ratios, str) or not isinstance(ratios, Iterable):
        raise InputError(f"ratios: received {ratios!r}; allowed: rising whole numbers, 2 or more, such as [2, 8].")
    sizes = tuple(whole_number(ratio, "ratios", least=2) for ratio in ratios)
    if not sizes or list(sizes) != sorted(set(sizes)):
        raise InputError(f"ratios: received {list(ratios)}; allowed: rising whole numbers, 2 or more, such as [2, 8].")
    check_clouds(clouds, "windows")
    seed = whole_number(seed, "seed", least=0)
    if not len(clouds):
        raise InputError("windows: received no texts; at least one is needed.")
    settings = {"ratios": list(sizes), "seed": seed, "documents": DOCUMENTS, "document_tokens": _DOCUMENT_TOKENS}
    about = provenance(clouds, settings=settings)
    return reduce(WindowMoments.merge, (_part(clouds, block, sizes, seed, about) for block in clouds.blocks()))


def _part(clouds: TokenClouds, block: Any, ratios: tuple[int, ...], seed: int, about: dict[str, Any]) -> WindowMoments:
    tokens, offsets = block.tokens, block.offsets
    lengths, start = np.diff(offsets), int(offsets[0])
    bounds = offsets - start
    tokens = tokens[start : offsets[-1]]
    total = window_scatters(tokens, bounds)
    # Around the mean of a text, so that an offset of all tokens costs no digits.
    lost = np.zeros((len(lengths), 8, len(ratios)))
    worst, counts = [], []
    for column, ratio in enumerate(ratios):
        cuts, owner = text_windows(bounds, ratio)
        scatters = window_scatters(tokens, cuts)
        lost[:, _PLAIN, column] = np.bincount(owner, scatters, minlength=len(lengths))
        counts.append(len(owner))
        worst.append(_largest(_candidates(clouds, block.start, bounds, cuts, owner, scatters)))
        lost[:, _EXPECTED, column] = total * exchangeable_share(lengths, -(-lengths // ratio))
    without_first, documents = np.zeros(len(lengths)), []
    names = [document_of_id(name) for name in clouds.ids[block.start : block.start + len(lengths)]]
    for text in range(len(lengths)):
        cloud = tokens[bounds[text] : bounds[text + 1]]
        digest = hashlib.blake2b(np.ascontiguousarray(cloud).tobytes(), digest_size=8, key=str(seed).encode()).digest()
        documents.append(Document(digest, cloud[:_DOCUMENT_TOKENS], names[text]))
        if len(cloud) > 1:
            without_first[text] = _others(cloud, ratios, digest, lost[text])
    whole = np.broadcast_to(total[:, None, None], lost.shape).copy()
    whole[:, _WITHOUT_FIRST] = without_first[:, None]
    others = [_SECOND, _ADAPTIVE]
    return WindowMoments(
        ratios,
        seed,
        len(lengths),
        len(tokens),
        int((lengths == 1).sum()),
        np.array(counts),
        RatioParts(lost, whole, names),
        RatioParts(lost[:, [_PLAIN]] - lost[:, others], whole[:, others], names),
        RatioParts(total - without_first, total, names),
        tuple(worst),
        _drawn(documents),
        about,
    )


def _others(cloud: NDArray[Any], ratios: tuple[int, ...], digest: bytes, lost: Array) -> float:
    """Fill in what other windows of a text lose (kinds × ratios); the scatter of the text without its first token."""
    mixed = cloud[np.random.default_rng(int.from_bytes(digest)).permutation(len(cloud))]
    orders = ((cloud, _SECOND, _ADAPTIVE), (mixed, _SECOND_SHUFFLED, _ADAPTIVE_SHUFFLED))
    for tokens, second, adaptive in orders:
        spans = Spans.of(tokens)
        for column, ratio in enumerate(ratios):
            lost[second, column] = second_order_loss(tokens, ratio)
            lost[adaptive, column] = spans.losses[-(-len(tokens) // ratio) - 1]
    for column, ratio in enumerate(ratios):
        lost[_SHUFFLED, column] = window_scatters(mixed, window_bounds(len(cloud), ratio)).sum()
        lost[_WITHOUT_FIRST, column] = window_scatters(cloud[1:], window_bounds(len(cloud) - 1, ratio)).sum()
    return float(window_scatters(cloud[1:], np.array([0, len(cloud) - 1])).sum())


def _candidates(
    clouds: TokenClouds, first: int, bounds: Any, cuts: Any, owner: Any, scatters: Array
) -> Iterable[Window]:
    """The windows of a block that may be among the worst."""
    spreads = scatters / np.diff(cuts)
    for row in np.argsort(-spreads, kind="stable")[: 4 * _WORST].tolist():
        text = int(owner[row])
        start, stop = (int(place - bounds[text]) for place in cuts[row : row + 2])
        ids = clouds.token_ids(first + text)
        names = None if ids is None else tuple(ids[start:stop].tolist())
        yield Window(float(spreads[row]), clouds.ids[first + text], start, stop, names)


def _largest(candidates: Iterable[Window]) -> tuple[Window, ...]:
    """The first few by spread, whatever order they came in."""
    key: Callable[[Window], Any] = lambda window: (-window.spread, window.id, window.start)  # noqa: E731
    return tuple(heapq.nsmallest(_WORST, candidates, key=key))


def _drawn(documents: Iterable[Document]) -> tuple[Document, ...]:
    """Texts drawn by the digest of their vectors: the same ones in one part and in several."""
    long = (document for document in documents if len(document.tokens) > 1)
    return tuple(heapq.nsmallest(DOCUMENTS, long, key=lambda document: document.digest))


def finish_windows(
    moments: WindowMoments, *, loss_limit: float = 0.5, collapse_at: float = 0.1, vocabulary: Any = None
) -> WindowsResult:
    """The result of all texts that were merged; see `windows`."""
    for name, value in (("loss_limit", loss_limit), ("collapse_at", collapse_at)):
        if not isinstance(value, Real) or not 0 < value < 1:
            raise InputError(f"{name}: received {value!r}; allowed: a number between 0 and 1.")
    total = float(moments.first.bottom.sum())
    if total <= 0:
        raise InputError(
            f"windows: received {moments.texts} texts without two different tokens, {moments.single} of them of one "
            f"token; windows need texts of several tokens. Pass longer texts."
        )
    rows = tuple(
        _row(moments, column, between_windows(moments.documents, ratio, collapse_at=collapse_at, seed=moments.seed))
        for column, ratio in enumerate(moments.ratios)
    )
    within = [row.ratio for row in rows if _upper(row.lost) <= loss_limit]
    spread = total / moments.tokens
    settings = {**moments.provenance["settings"], "loss_limit": loss_limit, "collapse_at": collapse_at}
    return WindowsResult(
        texts=moments.texts,
        tokens=moments.tokens,
        single=moments.single,
        loss_limit=loss_limit,
        largest_ratio=max(within, default=None),
        first_share=moments.first.estimate(()),
        collapse_at=collapse_at,
        documents=len(moments.documents),
        ratios=rows,
        worst=tuple(
            WorstWindow(
                ratio,
                window.id,
                window.start,
                window.stop,
                window.spread / spread,
                None if vocabulary is None or window.ids is None else vocabulary.text(window.ids),
            )
            for ratio, listed in zip(moments.ratios, moments.worst, strict=True)
            for window in listed
        ),
        provenance={**moments.provenance, "settings": settings},
    )


def _upper(estimate: Estimate) -> float:
    return estimate.value_or_raise if estimate.interval is None else estimate.interval.high


def _row(moments: WindowMoments, column: int, between: Mapping[str, Estimate]) -> WindowRatio:
    lost, saved = moments.lost, moments.saved
    chance = {
        kind: lost.estimate((kind, column)).value_or_raise for kind in (_SHUFFLED, _SECOND_SHUFFLED, _ADAPTIVE_SHUFFLED)
    }
    plain = chance[_SHUFFLED]
    return WindowRatio(
        ratio=moments.ratios[column],
        windows=float(moments.windows[column] / moments.texts),
        lost=lost.estimate((_PLAIN, column), floor=lost.estimate((_EXPECTED, column)).value),
        shuffled=lost.estimate((_SHUFFLED, column)).value,
        without_first=lost.estimate((_WITHOUT_FIRST, column)),
        second_order=lost.estimate((_SECOND, column), floor=chance[_SECOND_SHUFFLED]),
        adaptive=lost.estimate((_ADAPTIVE, column), floor=chance[_ADAPTIVE_SHUFFLED]),
        saved_second_order=saved.estimate((0, column), floor=plain - chance[_SECOND_SHUFFLED]),
        saved_adaptive=saved.estimate((1, column), floor=plain - chance[_ADAPTIVE_SHUFFLED]),
        **between,
    )


# -- distances between windows: do their means agree while their tokens differ? ---------------------------------------


def between_windows(documents: Sequence[Document], ratio: int, *, collapse_at: float, seed: int) -> dict[str, Estimate]:
    """SOCM and the share of collapsed pairs, among windows of one text and with the nearest window of another.

    The floors are those of the tokens of each text in random order. A window needs two tokens. Of a text with more than
    a dozen windows a dozen are drawn. Intervals are over texts.
    """
    random = np.random.default_rng(seed)
    plain = [document.tokens for document in documents]
    chosen = [_choose_windows(len(tokens), ratio, random) for tokens in plain]
    mixed = [tokens[random.permutation(len(tokens))] for tokens in plain]
    measured, chance = (_scored(texts, chosen, ratio) for texts in (plain, mixed))
    units = chosen_units(len(plain), [document.name or f"#{k}" for k, document in enumerate(documents)])
    estimates = {}
    for name, (scores, left, right) in measured.items():
        both = (scores, chance[name][0])
        collapsed = tuple((values >= collapse_at).astype(np.float64) for values in both)
        for kind, (values, by_chance) in (("socm", both), ("collapse", collapsed)):
            floor = float(by_chance.mean()) if len(by_chance) else None
            estimates[f"{name}_{kind}"] = _estimate(values, left, right, units, floor=floor)
    return estimates


def _choose_windows(tokens: int, ratio: int, random: np.random.Generator) -> Index:
    """Choose windows of a text to compare: two tokens or more, at most a dozen."""
    sizes = np.diff(window_bounds(tokens, ratio))
    whole = np.flatnonzero(sizes > 1)
    return np.sort(random.choice(whole, _WINDOWS, replace=False)) if len(whole) > _WINDOWS else whole


def _scored(texts: Sequence[NDArray[Any]], chosen: Sequence[Index], ratio: int) -> dict[str, Values]:
    """SOCM of the windows within each text, and of each window with the nearest of another."""
    clouds, owner = [], []
    for number, (tokens, windows_of_text) in enumerate(zip(texts, chosen, strict=True)):
        cuts = list(pairwise(window_bounds(len(tokens), ratio).tolist()))
        clouds += [tokens[slice(*cuts[k])] for k in windows_of_text.tolist()]
        owner += [number] * len(windows_of_text)
    if len(clouds) < 2:
        return {"within": _NO_PAIRS, "nearest": _NO_PAIRS}
    texts_of, windows = np.array(owner), TokenClouds.from_arrays(clouds)
    numbers = [np.flatnonzero(texts_of == one).tolist() for one in np.unique(texts_of)]
    within = [pair for group in numbers for pair in combinations(group, 2)]
    nearest = _nearest(windows, texts_of)
    return {"within": _socm(windows, within, texts_of), "nearest": _socm(windows, nearest, texts_of)}


def _nearest(windows: TokenClouds, texts: Index) -> list[tuple[int, int]]:
    """Each window with the window of another text whose mean is nearest; a pair stands once."""
    if texts[0] == texts[-1]:
        return []
    unit = unit_rows(np.stack([np.asarray(cloud, dtype=np.float64).mean(axis=0) for cloud in windows]), "windows")
    cosines = np.asarray(unit @ unit.T, dtype=np.float64)
    cosines[texts[:, None] == texts] = -np.inf
    partner = cosines.argmax(axis=1)
    return sorted({(min(k, int(j)), max(k, int(j))) for k, j in enumerate(partner)})


def _socm(windows: TokenClouds, pairs: Sequence[tuple[int, int]], texts: Index) -> Values:
    if not pairs:
        return _NO_PAIRS
    columns = socm(windows, pairs=pairs).all_pairs()
    return columns.socm, texts[columns.i], texts[columns.j]


def _estimate(values: Array, left: Index, right: Index, units: Units, *, floor: float | None) -> Estimate:
    """The mean over pairs with its interval over the units of their texts: two-sided where pairs cross texts."""
    if not len(values):
        return Estimate(None)
    if np.array_equal(left, right):
        return replace(mean_estimate(values, units.among(left)), floor=floor)
    return pair_estimate(values, units.of[left], units.of[right], floor=floor, unit=units.name)
