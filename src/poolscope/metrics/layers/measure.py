"""The anatomy of the layers: where a model concentrates its token clouds, and what does it.

λ, r, C and the concentration ratio: Hara et al. 2026 (arXiv 2604.27398). σₐ and the high-frequency part: the work on
length collapse by Zhou et al. (ACL 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from poolscope.capture.model import LayerCapture, OpenModel, TextBatch, token_rows, weights_to_numpy
from poolscope.clouds import TokenClouds
from poolscope.encoders import Progress
from poolscope.encoders.base import as_progress, check_texts
from poolscope.errors import DegenerateCloudError, InputError, whole_number
from poolscope.metrics.layers.anatomy import (
    CloudMoments,
    CloudNumbers,
    LayerSums,
    centred_attention,
    cloud_numbers,
    contraction,
    sink_states,
    squared_norms,
    without_first,
)
from poolscope.metrics.layers.result import LayersResult, StateSocm
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.score import SocmFormula
from poolscope.metrics.socm.selection import AllPairs, TallyOptions, tallied
from poolscope.numbers.bures.pairs import kept_workers
from poolscope.numbers.cosines import largest_singular_values
from poolscope.numbers.intervals import Estimate
from poolscope.results import provenance
from poolscope.texts import Texts, as_texts

Array = NDArray[np.float64]

# Texts whose pairs are compared in every state: 4,950 pairs a state.
SOCM_TEXTS = 100
# Distance from 1 to the next number; numpy does not know bfloat16.
_PRECISION = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# Clouds of so many bytes stay in memory until their pairs are compared.
_MOST_IN_MEMORY = 64 * 2**20
# What rounding may add to d_Σ.
_ROUNDING = 1e-9


def layers(
    model: Any,
    texts: Any,
    *,
    ids: Sequence[Any] | None = None,
    socm_texts: int = SOCM_TEXTS,
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
    socm_texts : int
        SOCM compares all pairs of at most so many texts, drawn at random; 0 leaves it out.
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
    if whole_number(socm_texts, "socm_texts", least=0) == 1:
        raise InputError(f"socm_texts: received {socm_texts}; allowed: 0 (no SOCM), or 2 and more texts to compare.")
    opened = OpenModel(model, **options)
    with ExitStack() as stack:
        clouds = None
        if socm_texts and len(texts) > 1:
            clouds = stack.enter_context(StateClouds(names, socm_texts, seed=seed))
        stack.enter_context(threadpool_limits(1, user_api="blas"))  # the batches share out the cores
        tally = LayerTally(opened, names, clouds)
        shown = as_progress(progress, len(texts))
        for done in opened.run(texts, partial(BatchTally, tally), parallel=True, own=False, progress=shown):
            if opened.final_norm:
                done.visitor.add_output(done.output)
        by_state = None if clouds is None else clouds.socm(tally.states, tally.ratio, sink_states(tally.first))
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
        self.ratio, self.cosine, self.first = (np.empty((texts, len(self.states))) for _ in range(3))
        self.others, self.others_cosine = (np.empty((texts, len(self.states))) for _ in range(2))
        self.others_r, self.others_C = (np.empty((texts, depth)) for _ in range(2))
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
        return {
            "concentration_ratio": self.ratio,
            "cosine": self.cosine,
            "first_norm": self.first,
            "concentration_without_first": self.others,
            "cosine_without_first": self.others_cosine,
            "r_without_first": self.others_r,
            "C_without_first": self.others_C,
            "lambda": self.sums.contraction,
            "sigma_a": self.sums.sigma,
            **self.sums.quantities(),
        }


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
        kept = self._batch.pooled[self._batch.mask]
        if kept.all():
            self._add_cloud(state, rows, numbers)
        else:
            self._add_cloud(state, rows[kept])

    def _add_cloud(self, state: int, rows: NDArray[Any], numbers: CloudNumbers | None = None) -> None:
        at, offsets = self._batch.positions, _offsets(self._batch.pooled)
        numbers = numbers or cloud_numbers(rows, offsets)
        self._check_mean(numbers.moments, f"state {state}")
        self._tally.ratio[at, state] = numbers.moments.ratio
        self._tally.cosine[at, state] = numbers.cosine
        self._tally.first[at, state] = numbers.first_norm
        self._tally.others[at, state] = numbers.others.ratio
        self._tally.others_cosine[at, state] = numbers.others_cosine
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
            self._tally.others_r[at] = before.others.spread / middle.others.mean_square
            change = after.others.ratio / middle.others.ratio
            self._tally.others_C[at] = np.where(np.isfinite(change), change, np.nan)

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


def _offsets(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64)


def _by_head(norms: Sequence[Array], heads: int) -> Array:
    """One row a layer; NaN where a layer has fewer heads than the widest."""
    return np.stack([np.pad(row, (0, heads - len(row)), constant_values=np.nan) for row in norms])


# -- SOCM of every state ------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """Some texts in one state: their positions, where each begins, and their rows or the file that holds them."""

    positions: NDArray[np.int64]
    offsets: NDArray[np.int64]
    rows: NDArray[Any] | Path


class StateClouds:
    """The clouds of at most `count` of the texts in every state, as they come batch by batch.

    They are kept in memory up to `memory` bytes; what comes later lies in files, which are gone when the context ends.
    """

    def __init__(self, ids: Sequence[str], count: int, *, seed: int, memory: int = _MOST_IN_MEMORY) -> None:
        self._ids = ids
        self._chosen = np.zeros(len(ids), dtype=bool)
        self._chosen[np.random.default_rng(seed).permutation(len(ids))[:count]] = True
        self._folder = TemporaryDirectory(prefix="poolscope-layers-")
        self._parts: dict[int, list[_Part]] = {}
        self._kind: tuple[np.dtype[Any], int] = np.dtype(np.float64), 0  # type and dimension of the rows
        self._free = memory
        self._lock = Lock()

    def __enter__(self) -> StateClouds:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def add(self, state: int, rows: NDArray[Any], lengths: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
        """The clouds of some texts in one state, end to end; those that were not drawn are left aside."""
        drawn = self._chosen[positions]
        if not drawn.any():
            return
        offsets = np.concatenate([[0], np.cumsum(lengths[drawn])])
        kept = rows if drawn.all() else rows[np.repeat(drawn, lengths)]
        with self._lock:  # batches come from several threads
            parts = self._parts.setdefault(state, [])
            parts.append(_Part(positions[drawn], offsets, self._put(f"{state}-{len(parts)}", kept)))

    def _put(self, name: str, rows: NDArray[Any]) -> NDArray[Any] | Path:
        """A copy of the rows, since they may be the model's own numbers; in a file where memory is full."""
        self._kind = rows.dtype, rows.shape[1]
        self._free -= rows.nbytes
        if self._free >= 0:
            return rows.copy()
        rows.tofile(path := Path(self._folder.name) / name)
        return path

    def socm(self, states: Sequence[str], traces: Array, sinks: NDArray[np.bool_]) -> tuple[StateSocm, ...]:
        """SOCM by state over all pairs of the texts that were drawn; of states with sinks, without these too.

        traces (texts × states): tr Σ at unit mean, which is S/‖μ‖².
        """
        by_state = []
        with kept_workers():
            for k, name in enumerate(states):
                clouds, positions = self._clouds(k)
                by_state.append(_measure(clouds, name, traces[positions, k], sink=bool(sinks[k])))
        return tuple(by_state)

    def _clouds(self, state: int) -> tuple[TokenClouds, NDArray[np.int64]]:
        """The clouds of a state, and the positions of their texts; in the order of the plan, whichever came first."""
        parts = sorted(self._parts[state], key=lambda part: int(part.positions[0]))
        in_memory = [part for part in parts if isinstance(part.rows, np.ndarray)]
        if len(in_memory) == len(parts):  # one matrix is looked at faster than many
            parts = [_joined(in_memory)]
        clouds = [
            TokenClouds.from_matrix(self._rows(part), part.offsets, ids=[self._ids[k] for k in part.positions])
            for part in parts
        ]
        return TokenClouds.concatenate(clouds), np.concatenate([part.positions for part in parts])

    def _rows(self, part: _Part) -> NDArray[Any]:
        if not isinstance(part.rows, Path):
            return part.rows
        dtype, dimension = self._kind
        return np.memmap(part.rows, dtype=dtype, mode="r").reshape(-1, dimension)


def _joined(parts: Sequence[_Part]) -> _Part:
    """Parts in memory as one."""
    before = np.cumsum([0, *(part.offsets[-1] for part in parts)])
    offsets = [part.offsets[:-1] + start for part, start in zip(parts, before[:-1], strict=True)]
    rows = np.concatenate([np.asarray(part.rows) for part in parts])
    return _Part(np.concatenate([part.positions for part in parts]), np.concatenate([*offsets, before[-1:]]), rows)


def _measure(clouds: TokenClouds, state: str, traces: Array, *, sink: bool) -> StateSocm:
    others = without_first(clouds) if sink else None
    selection, formula = AllPairs(clouds), SocmFormula()
    tally = tallied(selection, selection.distances(eps=0.0), TallyOptions(formula, top=1, keep=True))
    pairs, _ = tally.columns(selection)
    assert pairs is not None  # all were kept
    trace_sum = traces[pairs.i] + traces[pairs.j]
    share, violations = _theorem_2(pairs.covariance_distance, trace_sum / 4)
    relative = SocmFormula(scale="trace").covariance_distance(4 * pairs.covariance_distance, trace_sum)
    return StateSocm(
        state=state,
        pairs=selection.count,
        estimate=Estimate(tally.total / selection.count, tally.interval(selection, pairs, positive=True)),
        mean_distance=tally.total_mean_distance / selection.count,
        covariance_distance=tally.total_covariance_distance / selection.count,
        above_trace=float((traces > 2).mean()),
        covariance_distance_over_trace=float(relative.mean()),
        largest_share=share,
        violations=violations,
        without_first=None if others is None else _without(others),
    )


def _without(clouds: TokenClouds) -> tuple[float, float, float, float]:
    """SOCM, d_μ, d_Σ and the share of texts above the trace, on average over the pairs of these clouds."""
    result = socm(clouds)
    return result.mean, result.mean_distance, result.covariance_distance, result.trace_check.share


def _theorem_2(covariance_distance: Array, bound: Array) -> tuple[float, int]:
    """Theorem 2 on every pair: the largest d_Σ relative to (tr Σ₁ + tr Σ₂)/4, and how many pairs exceed it."""
    share = np.divide(covariance_distance, bound, out=np.zeros_like(bound), where=bound > 0)
    return float(share.max()), int((covariance_distance > bound * (1 + _ROUNDING) + _ROUNDING).sum())
