"""The anatomy of the layers: where a model concentrates its token clouds, and what does it.

λ, r, C and the concentration ratio: Hara et al., ACL 2026 (arXiv 2604.27398). σₐ and the high-frequency part: length
collapse by Zhou et al. (ACL 2025). Each quantity is one short function. Rows of several texts lie end to end:
text k is `rows[offsets[k]:offsets[k+1]]`. P = I − 11ᵀ/n centres the n tokens of a text. All sums run in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from poolscope.clouds import TokenClouds
from poolscope.encoders import Progress
from poolscope.encoders.base import as_progress, check_texts
from poolscope.errors import DegenerateCloudError, InputError, whole_number
from poolscope.lab.capture.model import LayerCapture, OpenModel, TextBatch, token_rows, weights_to_numpy
from poolscope.lab.layers.result import QUANTITIES, LayersResult, StateSocm, sink_states
from poolscope.metrics.socm.pair import SocmFormula, over_trace
from poolscope.metrics.socm.selection import (
    AllPairs,
    PairSelection,
    PairsInGroups,
    PairTally,
    TallyOptions,
    tallied,
)
from poolscope.numbers import Array, Index
from poolscope.numbers.bures.pairs import kept_workers
from poolscope.numbers.cosines import largest_singular_values
from poolscope.numbers.intervals import Units, chosen_units
from poolscope.numbers.moments import CloudMoments, text_moments
from poolscope.numbers.streaming import shuffled_order
from poolscope.results import provenance
from poolscope.texts import Texts, as_texts
from poolscope.texts.groups import groups_of_ids

# Texts whose pairs are compared in every state, how many of them are compared each with each, and the groups that more
# are compared in. All pairs of 100 texts cost several passes; those within five groups of 20, a fifth of them, have
# intervals of the same width and coverage (simulated on docstrings, three states of MiniLM).
_SOCM_TEXTS, _SOCM_ALL, _SOCM_GROUP = 100, 32, 20
# Distance from 1 to the next number; numpy does not know bfloat16.
_PRECISION = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# Clouds of so many bytes stay in memory until their pairs are compared.
_MOST_IN_MEMORY = 64 * 2**20
# What rounding may add to d_Σ.
_ROUNDING = 1e-9
# Below this share of what it is taken from, a difference of two sums is computed anew from vectors that are centred.
_CANCELLED = 1e-4


def layers(
    model: Any,
    texts: Any,
    *,
    ids: Sequence[Any] | None = None,
    socm_texts: int | None = None,
    seed: int = 0,
    progress: bool | Progress | None = None,
    **options: Any,
) -> LayersResult:
    """λ, r, C, concentration ratio, cosine, σₐ, high-frequency growth and SOCM of every layer, from one pass.

    Of a batch one layer is in memory at a time (on a CPU one batch a core is under way), and of the clouds that SOCM
    needs what exceeds 64 MB lies in a temporary folder. With a prompt that the pooling leaves out, the states are the
    pooled tokens, and what happens inside a layer is measured over all tokens that attend to each other.

    Parameters
    ----------
    model
        A transformer on torch, as `as_encoder` takes it: a name, a folder, a SentenceTransformer, or a pair (model,
        tokenizer).
    texts : list of str
        The texts, or what `read_texts` reads: a path, a data frame, an Arrow table, a data set.
    ids : list of str, optional
        One a text, for the table; if left out those that were read with the texts, else their positions.
    socm_texts : int, optional
        SOCM compares all pairs of at most so many texts, drawn at random; 0 leaves it out. By default up to 100 texts
        are drawn, and more than 32 are compared in random groups of at most 20: each pair is exact, the interval is as
        narrow as that of all pairs, and the cost is about that of the pass itself.
    seed : int
        Of that draw.
    progress : bool or callable, optional
        True for a bar on standard error; or what is called with the number of texts and tokens just done.
    **options
        The fields of `EncoderOptions`, such as `max_length`.

    Returns
    -------
    LayersResult
        Every quantity per text and layer, its mean with an interval, the checks of both theorems.

    Examples
    --------
    >>> result = layers("builtin:minilm", ["A man bites a dog.", "Dogs are often bitten by men."])
    >>> result
    LayersResult(sentence-transformers/all-MiniLM-L6-v2: 2 texts, 6 layers, post-norm)
    >>> result.means("concentration_ratio").mean.shape      # of the states 0 to 6
    (7,)

    """
    texts = as_texts(texts)
    if ids is None:
        ids = texts.ids if isinstance(texts, Texts) else [str(k) for k in range(len(texts))]
    texts, names = check_texts(texts), tuple(ids)
    if len(names) != len(texts) or len(set(names)) < len(names):
        raise InputError(f"ids: received {len(names)} for {len(texts)} texts; every text needs one of its own.")
    if socm_texts is not None and whole_number(socm_texts, "socm_texts", least=0) == 1:
        raise InputError(f"socm_texts: received {socm_texts}; allowed: 0 (no SOCM), or 2 and more texts to compare.")
    opened = OpenModel(model, **options)
    with ExitStack() as stack:
        clouds = None
        if socm_texts != 0 and len(texts) > 1:
            folder = stack.enter_context(TemporaryDirectory(prefix="poolscope-layers-"))
            clouds = StateClouds(texts, names, socm_texts, folder, seed=seed)
        stack.enter_context(threadpool_limits(1, user_api="blas"))  # the batches share out the cores
        tally = LayerTally(opened, names, clouds)
        shown = as_progress(progress, len(texts))
        for done in opened.run(texts, partial(BatchTally, tally), parallel=True, own=False, progress=shown):
            if opened.final_norm:
                done.visitor.add_output(done.output)
        by_state = None
        if clouds is not None:
            traces, times = tally.of_states["concentration_ratio"], tally.of_states["first_norm"]
            by_state = clouds.socm(tally.states, traces, sink_states(times))
    origin = provenance(settings={"socm_texts": socm_texts, "seed": seed, **opened.encoder.options.content()})
    del origin["clouds"]
    return LayersResult(
        model=opened.card.name,
        ids=names,
        lengths=tally.lengths,
        truncated=tally.truncated,
        states=tally.states,
        values=tally.values(),
        norms=tally.sums.norms,
        value_norms=tally.sums.value_norms,
        pre_norm=tuple(site.pre_norm for site in opened.sites),
        post_norm=tuple(site.post_norm for site in opened.sites),
        socm=by_state,
        provenance={**origin, "model": opened.card.to_dict()},
    )


# -- the quantities -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CloudNumbers:
    """Per text: moments; mean of the full n × n cosine matrix, ‖Σ xᵢ/‖xᵢ‖‖²/n² (NaN where a token is the zero vector);
    ‖x₁‖ over the median ‖xᵢ‖ of the other tokens; and moments and cosine of these others. NaN where there are none.
    """

    moments: CloudMoments
    others: CloudMoments
    cosine: Array
    others_cosine: Array
    first_norm: Array


def cloud_numbers(rows: NDArray[Any], offsets: Index, *, directions: bool = True) -> CloudNumbers:
    """All that is asked of the clouds of one state, text by text, so that each stays in the cache meanwhile.

    Without `directions`, the moments alone.

    >>> found = cloud_numbers(np.array([[6.0, 0.0], [2.0, 0.0], [4.0, 0.0], [1.0, 1.0]]), np.array([0, 3, 4]))
    >>> found.first_norm.tolist(), found.cosine.round(12).tolist(), found.others.ratio.round(6).tolist()
    ([2.0, nan], [1.0, 1.0], [0.111111, nan])
    """
    numbers = np.full((7, len(offsets) - 1), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        for text, (start, stop) in enumerate(pairwise(offsets.tolist())):
            X = rows[start:stop].astype(np.float64)
            squares = np.einsum("ij,ij->i", X, X)
            if directions:
                numbers[4:, text] = _directions(X, np.sqrt(squares))
            numbers[:4, text] = _moments(X, float(squares.sum()))
    return CloudNumbers(CloudMoments(*numbers[:2]), CloudMoments(*numbers[2:4]), *numbers[4:])


def _directions(X: Array, norms: Array) -> tuple[float, float, float]:
    """Mean cosine of the tokens, that of all but the first, and the length of the first beside theirs."""
    n, units = len(X), 1 / norms
    total = units @ X
    if n == 1:
        return float(total @ total), np.nan, np.nan
    others = total - units[0] * X[0]
    middle = float(np.median(norms[1:]))
    times = float(norms[0]) / middle if middle > 0 else np.nan
    return float(total @ total) / n**2, float(others @ others) / (n - 1) ** 2, times


def _moments(X: Array, squares: float) -> tuple[float, float, float, float]:
    """Spread and squared mean of the tokens, and of all but the first; `squares` is the sum of all ‖xᵢ‖²."""
    n = len(X)
    mean = np.full(n, 1 / n) @ X
    length = float(mean @ mean)
    if n == 1:
        return 0.0, length, np.nan, np.nan
    total = squares - n * length
    if not total > _CANCELLED * squares:
        total = float(np.vdot(X - mean, X - mean))
    apart = (X[0] - mean) / (n - 1)  # the others' mean is beyond that of all, on the other side
    rest = total - (n - 1) * n * float(apart @ apart)
    if not rest > _CANCELLED * total:
        centred = X[1:] - (mean - apart)
        rest = float(np.vdot(centred, centred)) if n > 2 else 0.0
    others = float((mean - apart) @ (mean - apart))
    return total / n, length, rest / (n - 1), others if others > 0 else np.nan


def centred_attention(A: NDArray[Any], n: int) -> NDArray[Any]:
    """PA of every head (heads × n × n) from padded weights: only the first n rows and columns count."""
    A = A[:, :n, :n]
    return np.asarray(A - np.full((1, n), 1 / n, dtype=A.dtype) @ A)  # the mean as a product: several times as fast


def squared_norms(M: NDArray[Any]) -> Array:
    """‖M‖_F² of every matrix of a stack."""
    flat = M.reshape(len(M), -1)
    return np.asarray((flat[:, None, :] @ flat[:, :, None])[:, 0, 0], dtype=np.float64)


def contraction(norms: Array, squares: Array, n: int) -> Array:
    """λ_h = ‖W_V W_O‖₂² · ‖PA‖_F²/(n − 1) of every head; 0 for one token.

    What a head does to the spread of tokens whose centred vectors have no preferred direction among the tokens;
    below 1 it concentrates.

    >>> contraction(np.array([2.0]), np.array([0.5]), 3), contraction(np.array([2.0]), np.array([0.0]), 1)
    (array([1.]), array([0.]))
    """
    return np.zeros_like(squares) if n == 1 else norms**2 * squares / (n - 1)


@dataclass(frozen=True)
class LayerSums:
    """What the quantities of a layer are made of, per text and layer (texts × layers, λ and σₐ × heads).

    `spread` and `mean_square` by letter: H, U, B (the output of W_O), Z, Y, X. `norms` and `value_norms` (layers ×
    heads) are ‖W_V W_O‖₂ and ‖W_V‖₂. `linear` (layers): is Z = B, with no norm between? `precision`: of the numbers
    that the model computes with, 1.2e-7 in float32.
    """

    spread: Mapping[str, Array]
    mean_square: Mapping[str, Array]
    contraction: Array
    sigma: Array
    norms: Array
    value_norms: Array
    linear: NDArray[np.bool_]
    precision: float

    def quantities(self) -> dict[str, Array]:
        """r, C, spreads, both slacks of theorem 1, and the growth of the high-frequency part with its bounds.

        C and the growths are ratios of spreads, and NaN where one of them is not beyond rounding.
        """
        S, sigma = self.spread, np.nan_to_num(self.sigma)
        seen = {letter: np.where(self._varies(letter), S[letter], np.nan) for letter in S}
        stretch = (sigma * np.nan_to_num(self.norms)).sum(axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            reached = seen["X"] / self.mean_square["X"]
            before = seen["Y"] / self.mean_square["Y"]
            heads = np.isfinite(self.sigma).sum(axis=2)
            published = sigma.max(axis=2) * heads * np.nan_to_num(self.value_norms).max(axis=1)
            return {
                "r": S["H"] / self.mean_square["Y"],
                "C": reached / before,
                "spread_input": S["H"],
                "spread_attention_input": S["U"],
                "spread_branch": S["Z"],
                "slack": self._slack(np.sqrt(np.nan_to_num(self.contraction)).sum(axis=2)),
                "slack_proven": self._slack(stretch),
                "high_frequency": np.log(seen["X"] / seen["H"]) / 2,
                "high_frequency_branch": np.log(seen["B"] / seen["U"]) / 2,
                "high_frequency_bound": _finite_log(stretch),
                "high_frequency_published": _finite_log(published),
            }

    def _slack(self, stretch: Array) -> Array:
        """How far S(Y) stays below (√S(H) + stretch·√S(U))², and so the ratio of X below its bound.

        The ratio of X is C·S(Y)/‖μ(Y)‖² and the bound C·(√S(H) + stretch·√S(U))²/‖μ(Y)‖²: C and ‖μ(Y)‖² cancel. What
        rounding can add to the deviations is granted. NaN for one token, where all tokens are one but for rounding, and
        where Z is not linear in U.
        """
        S = self.spread
        slack = (np.sqrt(S["H"]) + stretch * np.sqrt(S["U"]) + self._rounding("Y")) ** 2 / S["Y"]
        return np.where(self.linear & self._varies("Y"), slack, np.nan)

    def _varies(self, letter: str) -> NDArray[np.bool_]:
        """Do the tokens of a text differ by more than rounding?"""
        return np.asarray(np.sqrt(self.spread[letter]) > self._rounding(letter))

    def _rounding(self, letter: str) -> Array:
        """What rounding can add to √S: a few last bits of vectors of the size of the tokens."""
        return np.asarray(4 * self.precision * np.sqrt(self.spread[letter] + self.mean_square[letter]))


def _finite_log(values: Array) -> Array:
    return np.log(np.where(values > 0, values, np.nan))


# -- collecting the numbers of every text and layer while the batches go by ----------------------------------------


class LayerTally:
    """Numbers per text and layer, filled in batch by batch; clouds go to `clouds` on the way, if given.

    Batches may be filled in by several threads at once: they hold different texts, and so write to different rows.
    """

    def __init__(self, opened: OpenModel, ids: Sequence[str], clouds: StateClouds | None) -> None:
        projections = [site.projections for site in opened.sites]
        texts, depth, heads = len(ids), len(projections), max(p.heads for p in projections)
        self.states = (*(str(k) for k in range(depth + 1)), *(["output"] if opened.final_norm else []))
        self.lengths, self.truncated = (np.zeros(texts, dtype=np.int64) for _ in range(2))
        self.ids = ids
        self.clouds = clouds
        by_state = [name for name, quantity in QUANTITIES.items() if quantity.over == "states"]
        self.of_states = {name: np.empty((texts, len(self.states))) for name in by_state}
        self.without_first = {name: np.empty((texts, depth)) for name in ("r_without_first", "C_without_first")}
        self.sums = LayerSums(
            spread={letter: np.empty((texts, depth)) for letter in "HUBZYX"},
            mean_square={letter: np.empty((texts, depth)) for letter in "HUBZYX"},
            contraction=np.full((texts, depth, heads), np.nan),
            sigma=np.full((texts, depth, heads), np.nan),
            norms=_by_head([p.norms for p in projections], heads),
            value_norms=_by_head([p.value_norms for p in projections], heads),
            linear=np.array([not site.post_norm for site in opened.sites]),
            precision=_PRECISION[opened.card.dtype],
        )

    def values(self) -> dict[str, Array]:
        """All quantities by name."""
        of_heads = {"lambda": self.sums.contraction, "sigma_a": self.sums.sigma}
        return {**self.of_states, **self.without_first, **of_heads, **self.sums.quantities()}


class BatchTally:
    """Fills in one batch: `add` is given its layers one after the other."""

    def __init__(self, tally: LayerTally, batch: TextBatch) -> None:
        self._tally = tally
        self._batch = batch
        self._offsets = _offsets(batch.mask)
        self._input: CloudNumbers | None = None
        tally.lengths[batch.positions], tally.truncated[batch.positions] = batch.lengths, batch.truncated

    def add(self, layer: LayerCapture) -> None:
        """Everything that is measured of one layer."""
        before = self._input
        if before is None:
            rows = token_rows(layer.H, self._batch.mask)
            before = cloud_numbers(rows, self._offsets)
            self._add_state(0, rows, before)
        rows = token_rows(layer.X, self._batch.mask)
        output = cloud_numbers(rows, self._offsets)
        self._add_moments(layer, before, output)
        self._add_attention(layer)
        self._add_state(layer.number, rows, output)
        self._input = output  # the next layer's H

    def add_output(self, rows: NDArray[Any]) -> None:
        """The pooled tokens as the model hands them out, after its final norm."""
        self._add_cloud(len(self._tally.states) - 1, rows)

    def _add_state(self, state: int, rows: NDArray[Any], numbers: CloudNumbers) -> None:
        """A state from the rows of all tokens; those that the pooling leaves out (a prompt) are left out."""
        pooled = self._batch.pooled[self._batch.mask]
        if pooled.all():
            self._add_cloud(state, rows, numbers)
        else:
            self._add_cloud(state, rows[pooled])

    def _add_cloud(self, state: int, rows: NDArray[Any], numbers: CloudNumbers | None = None) -> None:
        at, offsets = self._batch.positions, _offsets(self._batch.pooled)
        numbers = numbers or cloud_numbers(rows, offsets)
        self._check_mean(numbers.moments, f"state {state}")
        measured = {
            "concentration_ratio": numbers.moments.ratio,
            "cosine": numbers.cosine,
            "first_norm": numbers.first_norm,
            "concentration_without_first": numbers.others.ratio,
            "cosine_without_first": numbers.others_cosine,
        }
        for name, values in measured.items():
            self._tally.of_states[name][at, state] = values
        if self._tally.clouds is not None:
            self._tally.clouds.add(state, rows, np.diff(offsets), at)

    def _add_moments(self, layer: LayerCapture, before: CloudNumbers, after: CloudNumbers) -> None:
        """The moments of every piece; and r and C without the first token of each text, which may be a sink."""
        known = {id(layer.H): before, id(layer.X): after}
        at = np.s_[self._batch.positions, layer.number - 1]
        tensors = (layer.H, layer.U, layer.projected, layer.Z, layer.Y, layer.X)
        for letter, tensor in zip("HUBZYX", tensors, strict=True):
            if id(tensor) not in known:  # U is often H, and Z the output of W_O
                rows = token_rows(tensor, self._batch.mask)
                known[id(tensor)] = cloud_numbers(rows, self._offsets, directions=False)
            moments = known[id(tensor)].moments
            self._tally.sums.spread[letter][at] = moments.spread
            self._tally.sums.mean_square[letter][at] = moments.mean_square
        middle = known[id(layer.Y)]
        self._check_mean(middle.moments, f"Y of layer {layer.number}")
        with np.errstate(divide="ignore", invalid="ignore"):
            self._tally.without_first["r_without_first"][at] = before.others.spread / middle.others.mean_square
            change = after.others.ratio / middle.others.ratio
            self._tally.without_first["C_without_first"][at] = np.where(np.isfinite(change), change, np.nan)

    def _add_attention(self, layer: LayerCapture) -> None:
        norms, sums, weights = layer.site.projections.norms, self._tally.sums, weights_to_numpy(layer.A)
        for row, (position, n) in enumerate(zip(self._batch.positions, self._batch.lengths, strict=True)):
            centred = centred_attention(weights[row], int(n))
            at = np.s_[position, layer.number - 1, : len(norms)]
            sums.contraction[at] = contraction(norms, squared_norms(centred), int(n))
            sums.sigma[at] = largest_singular_values(centred)

    def _check_mean(self, moments: CloudMoments, where: str) -> None:
        zero = np.flatnonzero(moments.mean_square == 0)
        if len(zero):
            text = self._tally.ids[self._batch.positions[int(zero[0])]]
            raise DegenerateCloudError(
                f"text '{text}': the mean of its tokens is the zero vector ({where}), so its concentration ratio is "
                f"not defined. Leave this text out."
            )


def _offsets(mask: NDArray[np.bool_]) -> Index:
    return np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64)


def _by_head(norms: Sequence[Array], heads: int) -> Array:
    """One row a layer; NaN where a layer has fewer heads than the widest."""
    return np.stack([np.pad(row, (0, heads - len(row)), constant_values=np.nan) for row in norms])


# -- SOCM of every state ------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """Some texts in one state: their positions, where each begins, and their rows or the file that holds them."""

    positions: Index
    offsets: Index
    rows: NDArray[Any] | Path


class StateClouds:
    """The clouds of at most `count` of the texts in every state, as they come batch by batch.

    All pairs of these are compared; if `count` is None, those within groups that are drawn at random, too. Words and
    seed decide the draw, not the place of a text. The clouds are kept in memory up to `memory` bytes; what comes later
    lies in files of the folder.
    """

    def __init__(
        self,
        texts: Sequence[str],
        ids: Sequence[str],
        count: int | None,
        folder: str,
        *,
        seed: int,
        memory: int = _MOST_IN_MEMORY,
    ) -> None:
        self._ids = ids
        drawn = shuffled_order(texts, seed=seed)[: _SOCM_TEXTS if count is None else count]
        groups = -(-len(drawn) // _SOCM_GROUP) if count is None and len(drawn) > _SOCM_ALL else 1
        self._group = np.full(len(ids), -1)  # of a text that was not drawn
        self._group[drawn] = np.arange(len(drawn)) % groups
        self._folder = Path(folder)
        self._parts: dict[int, list[_Part]] = {}
        self._free = memory
        self._lock = Lock()

    def add(self, state: int, rows: NDArray[Any], lengths: Index, positions: Index) -> None:
        """The clouds of some texts in one state, end to end; those that were not drawn are left aside."""
        drawn = self._group[positions] >= 0
        if not drawn.any():
            return
        offsets = np.concatenate([[0], np.cumsum(lengths[drawn])])
        drawn_rows = rows if drawn.all() else rows[np.repeat(drawn, lengths)]
        with self._lock:  # batches come from several threads
            parts = self._parts.setdefault(state, [])
            parts.append(_Part(positions[drawn], offsets, self._put(f"{state}-{len(parts)}", drawn_rows)))

    def _put(self, name: str, rows: NDArray[Any]) -> NDArray[Any] | Path:
        """A copy of the rows, since they may be the model's own numbers; in a file where memory is full."""
        self._free -= rows.nbytes
        if self._free >= 0:
            return rows.copy()
        np.save(path := self._folder / f"{name}.npy", rows)
        return path

    def socm(self, states: Sequence[str], traces: Array, sinks: NDArray[np.bool_]) -> tuple[StateSocm, ...]:
        """SOCM by state over pairs of the texts that were drawn; of states with sinks, without these too.

        traces (texts × states): tr Σ at unit mean, which is S/‖μ‖².
        """

        def one(k: int) -> StateSocm:
            clouds, positions = self._clouds(k)
            return _measure(clouds, self._group[positions], states[k], traces[positions, k], sink=bool(sinks[k]))

        # Two at a time, so that no core waits while a state is prepared or the last of its pairs are compared.
        with kept_workers(), ThreadPoolExecutor(2) as states_under_way:
            contexts = [copy_context() for _ in states]
            return tuple(states_under_way.map(lambda context, k: context.run(one, k), contexts, range(len(states))))

    def _clouds(self, state: int) -> tuple[TokenClouds, Index]:
        """The clouds of a state, and the positions of their texts; in the order of the plan, whichever came first."""
        parts = sorted(self._parts[state], key=lambda part: int(part.positions[0]))
        if not any(isinstance(part.rows, Path) for part in parts):  # one matrix is looked at faster than many
            parts = [_joined(parts)]
        clouds = [
            TokenClouds.from_matrix(_opened(part.rows), part.offsets, ids=[self._ids[k] for k in part.positions])
            for part in parts
        ]
        return TokenClouds.concatenate(clouds), np.concatenate([part.positions for part in parts])


def _opened(rows: NDArray[Any] | Path) -> NDArray[Any]:
    return np.load(rows, mmap_mode="r") if isinstance(rows, Path) else rows


def _joined(parts: Sequence[_Part]) -> _Part:
    before = np.cumsum([0, *(part.offsets[-1] for part in parts)])
    offsets = [part.offsets[:-1] + start for part, start in zip(parts, before[:-1], strict=True)]
    rows = np.concatenate([_opened(part.rows) for part in parts])
    return _Part(np.concatenate([part.positions for part in parts]), np.concatenate([*offsets, before[-1:]]), rows)


def _measure(clouds: TokenClouds, groups: Index, state: str, traces: Array, *, sink: bool) -> StateSocm:
    others = without_first(clouds, groups) if sink else None
    units = chosen_units(len(clouds), groups_of_ids(list(clouds.ids)))
    selection, tally = _tallied(clouds, groups, units)
    pairs, _ = tally.columns(selection)
    assert pairs is not None  # all were kept
    trace_sum = traces[pairs.i] + traces[pairs.j]
    _, mean_distance, covariance_distance = (tally.totals / selection.count).tolist()
    share, violations = _theorem_2(pairs.covariance_distance, trace_sum / 4)
    return StateSocm(
        state=state,
        pairs=selection.count,
        estimate=tally.estimate(selection, pairs, units, positive=True),
        mean_distance=mean_distance,
        covariance_distance=covariance_distance,
        above_trace=float((traces > 2).mean()),
        covariance_distance_over_trace=float(over_trace(pairs.covariance_distance, trace_sum).mean()),
        largest_share=share,
        violations=violations,
        without_first=None if others is None else _without(*others),
    )


def _tallied(clouds: TokenClouds, groups: Index, units: Units | None = None) -> tuple[PairSelection, PairTally]:
    """All pairs inside each group, and their sums; one group gives all pairs."""
    selection = PairsInGroups.of(clouds, groups) if groups.any() else AllPairs(clouds)
    wanted = TallyOptions(SocmFormula(), top=1, keep=True, units=units)
    return selection, tallied(selection, selection.distances(eps=0.0), wanted)


def without_first(clouds: TokenClouds, groups: Index) -> tuple[TokenClouds, Index] | None:
    """The clouds without their first tokens, and their groups; texts of one token are left out. None for no pair."""
    longer = clouds.lengths > 1
    if np.bincount(groups[longer]).max(initial=0) < 2:
        return None
    return TokenClouds.from_arrays([cloud[1:] for cloud in clouds[longer]]), groups[longer]


def _without(clouds: TokenClouds, groups: Index) -> tuple[float, float, float, float]:
    """SOCM, d_μ, d_Σ and the share of texts above the trace, on average over the pairs of these clouds."""
    selection, tally = _tallied(clouds, groups)
    mean, mean_distance, covariance_distance = (tally.totals / selection.count).tolist()
    return mean, mean_distance, covariance_distance, float((text_moments(clouds).traces > 2).mean())


def _theorem_2(covariance_distance: Array, bound: Array) -> tuple[float, int]:
    """Theorem 2 on every pair: the largest d_Σ relative to (tr Σ₁ + tr Σ₂)/4, and how many pairs exceed it."""
    share = np.divide(covariance_distance, bound, out=np.zeros_like(bound), where=bound > 0)
    return float(share.max()), int((covariance_distance > bound * (1 + _ROUNDING) + _ROUNDING).sum())
