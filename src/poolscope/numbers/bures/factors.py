"""From clouds to reduced factors: all that the distances of a text need, in as few rows as its covariance has rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import DegenerateCloudError
from poolscope.numbers.bures.native import LANES, Array, Index
from poolscope.numbers.moments import stacks_of_equal_length, unit_mean_factors

Rows = NDArray[np.float32]

# A little room, so that rounding in the float32 product cannot push a singular value above 1.
_HEADROOM = 1 + 1e-6
# The same where the largest singular value itself comes from float32 products.
_SINGLE_HEADROOM = 1 + 1e-5
# Texts of equal length are reduced together, in stacks of at most so many numbers.
_STACK_SIZE = 100_000
# A shared direction: texts and steps to find it, the step by which half of it must be found, the share of the spread
# that it must have, and the least scale of what is left, relative to it.
_LOOKED_AT, _POWER_STEPS, _FIRST_LOOK, _SHARED, _SMALLEST_REST = 16, 12, 3, 0.97, 1e-9


@dataclass(frozen=True, slots=True)
class ReducedText:
    """A text, ready to be compared: unit mean (d), tr Σ, and the factor as `scale · rows` (rank × d).

    roughness: √(tr Σ · √rank), of the whole factor: rounding of float32 products moves BW² of a pair in proportion to
    the roughness of both its texts. corner: where a direction that all texts share was taken out of `rows`, what it had
    in the first of them; the factor is then `scale · (rows + corner·e₁uᵀ)`, and tr Σ in the roughness is without it.
    """

    mean: Array
    trace: float
    scale: float
    roughness: float
    rows: Rows
    corner: float = 0.0


def reduce_rows(factors: Array, *, scaled: bool = True) -> tuple[Sequence[Array], Array]:
    """Rotate the rows of each factor of a stack (texts × n × d) so that most rows become zero, and drop these.

    `F = U S Vᵀ` becomes `S Vᵀ`: the covariance `FᵀF`, and every nuclear norm with another factor, stay as they are.
    Returns the reduced rows (rank × d a text) by rising singular value, scaled to a largest one of just under 1 unless
    told otherwise, and the scales. Uses the n × n side, or the d × d side where n > d.
    """
    _, n, d = factors.shape
    transposed = factors.transpose(0, 2, 1)
    eigenvalues, vectors = np.linalg.eigh(factors @ transposed if n <= d else transposed @ factors)
    largest = eigenvalues[:, -1].clip(min=0)
    scales = np.sqrt(largest) * _HEADROOM
    vectors = vectors.transpose(0, 2, 1)
    if scaled:
        vectors = vectors * np.divide(1.0, scales, out=np.zeros_like(scales), where=scales > 0)[:, None, None]
    rows = vectors @ factors if n <= d else vectors * np.sqrt(eigenvalues.clip(min=0))[:, :, None]
    # Eigenvalues of a Gram matrix are known to about n·ε of the largest; what is below is rounding (repeated tokens,
    # the direction removed by centring). They rise, so what is kept is the end.
    dropped = (eigenvalues <= 4 * n * np.finfo(float).eps * largest[:, None]).sum(axis=1)
    return [part[start:] for part, start in zip(rows, dropped.tolist(), strict=True)], scales


def drop_centre(factors: Array) -> tuple[Array, Array]:
    """Factors with one row less, divided by scales, and the scales; rows of the stack (texts × n × d) sum to zero.

    The mirror that turns (1, …, 1) to the first axis makes the first row zero: the covariance stays as it is. A scale
    is at least the largest singular value, by the norm of the Gram matrix. A fraction of the cost of `reduce_rows`,
    whose rows are orthogonal and as few as possible.
    """
    rows = factors[:, 1:] - factors[:, :1] / (1 + math.sqrt(factors.shape[1]))
    short = rows.astype(np.float32)
    gram = short @ short.transpose(0, 2, 1)
    scales = np.sqrt(np.linalg.norm(gram, axis=(1, 2)).astype(np.float64)) * _SINGLE_HEADROOM
    rows *= np.divide(1.0, scales, out=np.zeros_like(scales), where=scales > 0)[:, None, None]
    return rows, scales


def reduce_texts(
    clouds: TokenClouds,
    texts: Index,
    pool: Executor,
    *,
    rank: int | None = None,
    direction: Array | None = None,
    orthogonal: bool = False,
) -> list[ReducedText]:
    """Reduce some texts, in parallel; to their `rank` largest directions only, if given.

    `direction`: what `shared_direction` gave for the corpus. `orthogonal`: rows that are, as the published trace needs
    them. A degenerate text is an error that names it.
    """
    reduced: list[ReducedText | None] = [None] * len(texts)
    turned = orthogonal or rank is not None or direction is not None

    def fill(places: Sequence[int]) -> None:
        stack = np.stack([np.asarray(clouds[int(texts[k])], dtype=np.float64) for k in places])
        means, factors, traces = _checked_factors(stack, texts[places], clouds)
        few = turned or factors.shape[1] > factors.shape[2]
        rotated, scales = reduce_rows(factors, scaled=direction is None) if few else drop_centre(factors)
        rest = traces if direction is None else traces - ((factors @ direction) ** 2).sum(axis=1)
        for entry, k in enumerate(places):
            rows, scale, corner = rotated[entry], float(scales[entry]), 0.0
            roughness = math.sqrt(max(0.0, float(rest[entry])) * math.sqrt(len(rows)))
            if rank is not None:
                rows = rows[-rank:]
            if direction is not None and len(rows):
                rows, scale, corner = _without(direction, rows)
            short = rows.astype(np.float32)
            reduced[k] = ReducedText(means[entry], float(traces[entry]), scale, roughness, short, corner)

    for _ in pool.map(fill, stacks_of_equal_length(clouds.lengths[texts], clouds.dimension, _STACK_SIZE)):
        pass
    return [text for text in reduced if text is not None]


def shared_direction(*corpora: TokenClouds) -> Array | None:
    """The direction u (d) along which nearly all of the spread of nearly all texts lies, or None for ordinary corpora.

    So it is where all texts begin with one token that is far longer than the rest (an attention sink). Beside it, what
    the texts differ by would drown in the rounding of float32 products. Looked for in a few texts of each corpus.
    """
    factors = []
    for clouds in corpora:
        for text in np.linspace(0, len(clouds) - 1, min(_LOOKED_AT, len(clouds)), dtype=np.int64).tolist():
            (factor,), (trace,) = unit_mean_factors(np.asarray(clouds[text], dtype=np.float64)[None], clouds.dtype)[1:]
            if np.isfinite(trace) and trace > 0:
                factors.append(factor / math.sqrt(trace))
    if not factors:
        return None
    rows = np.concatenate(factors)
    starts = np.cumsum([0, *map(len, factors[:-1])])
    direction = rows[int(np.argmax(np.einsum("ij,ij->i", rows, rows)))]
    for step in range(_POWER_STEPS + 1):
        parts = rows @ direction
        shares = np.add.reduceat(parts**2, starts)  # of the spread of each text
        if step == _FIRST_LOOK and np.median(shares) < _SHARED / 2:
            return None
        if step < _POWER_STEPS:
            direction = parts @ rows
            direction = direction / np.linalg.norm(direction)
    return direction if np.median(shares) > _SHARED else None


def _without(direction: Array, rows: Array) -> tuple[Array, float, float]:
    """Rows of which only the first had a part along the direction, without it, scaled; the scale; the part, scaled.

    A reflection gathers all parts in the first row: the covariance stays as it is. Exact to float64.
    """
    parts = rows @ direction
    size = float(np.linalg.norm(parts))
    mirror = parts.copy()
    mirror[0] += math.copysign(size, parts[0])
    length2 = float(mirror @ mirror)
    if length2:
        rows = rows - np.outer(2 / length2 * mirror, mirror @ rows)
        rows[0] *= -math.copysign(1.0, parts[0])
    rows[0] -= size * direction
    rest = math.sqrt(max(0.0, float(np.linalg.eigvalsh(rows @ rows.T)[-1])))
    scale = max(rest * _HEADROOM, _SMALLEST_REST * size)
    return rows / scale, scale, size / scale


@dataclass(frozen=True)
class Panel:
    """Reduced texts, laid out for the matrix product.

    Texts stand in groups of LANES; row `(offsets[g] + t)·LANES + lane` of `rows` is row t of the lane-th text of
    group g, zero where that text has fewer rows. texts: positions in the corpus; means (texts × d), traces, scales,
    roughness, ranks and corners: one entry a text. Their number is a multiple of LANES: what is missing stands in
    front, as texts −1 without rows.
    """

    texts: Index
    means: Array
    traces: Array
    scales: Array
    roughness: Array
    ranks: Index
    corners: Array
    offsets: Index
    rows: Rows

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def row_offsets(self) -> Index:
        """Where the rows of each text begin in `rows_by_text`, and where the last ends."""
        return np.concatenate([[0], np.cumsum(self.ranks)])

    @cached_property
    def rows_by_text(self) -> Rows:
        """The rows one text after the other, without the interleaving and its zeros."""
        places = [(self.offsets[k // LANES] + np.arange(rank)) * LANES + k % LANES for k, rank in enumerate(self.ranks)]
        return np.asarray(self.rows[np.concatenate(places)])

    def groups(self, first: int, last: int) -> Panel:
        """The texts of groups first … last − 1: a view, nothing is copied."""
        texts = slice(first * LANES, last * LANES)
        return Panel(
            self.texts[texts],
            self.means[texts],
            self.traces[texts],
            self.scales[texts],
            self.roughness[texts],
            self.ranks[texts],
            self.corners[texts],
            self.offsets[first : last + 1] - self.offsets[first],
            self.rows[self.offsets[first] * LANES : self.offsets[last] * LANES],
        )


def make_panel(texts: Index, reduced: Sequence[ReducedText]) -> Panel:
    """Lay out reduced texts. Neighbours should be of similar length: each group is padded to its longest.

    The shortest should come first: their group is the one that may not be full.
    """
    free, dimension = -len(texts) % LANES, reduced[0].rows.shape[1]
    nothing = ReducedText(np.zeros(dimension), 0.0, 0.0, 0.0, np.zeros((0, dimension), dtype=np.float32))
    texts, reduced = np.concatenate([np.full(free, -1), texts]), [nothing] * free + list(reduced)
    ranks = np.array([len(text.rows) for text in reduced], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(ranks.reshape(-1, LANES).max(axis=1))])
    rows = np.zeros((int(offsets[-1]), LANES, dimension), dtype=np.float32)
    for k, text in enumerate(reduced):
        start = offsets[k // LANES]
        rows[start : start + ranks[k], k % LANES] = text.rows
    return Panel(
        texts=texts,
        means=np.stack([text.mean for text in reduced]),
        traces=np.array([text.trace for text in reduced]),
        scales=np.array([text.scale for text in reduced]),
        roughness=np.array([text.roughness for text in reduced]),
        ranks=ranks,
        corners=np.array([text.corner for text in reduced]),
        offsets=offsets,
        rows=rows.reshape(-1, dimension),
    )


def reduced_bytes(clouds: TokenClouds) -> Index:
    """Memory of each reduced text: float32 rows and a float64 mean."""
    return np.asarray((np.minimum(clouds.lengths, clouds.dimension) * 4 + 8) * clouds.dimension)


class ReducedCache:
    """Reduced texts of a corpus, kept while they fit a budget of bytes, so that a text is rarely reduced twice."""

    def __init__(
        self, clouds: TokenClouds, budget: int, direction: Array | None = None, *, orthogonal: bool = False
    ) -> None:
        self.clouds = clouds
        self.direction = direction
        self.orthogonal = orthogonal
        self.bytes = reduced_bytes(clouds)
        self._budget = budget
        self._by_text: dict[int, ReducedText] = {}

    def fetch(self, texts: Index, pool: Executor) -> dict[int, ReducedText]:
        """Reduced texts by position; those of this call are all there, whatever the budget."""
        missing = np.array([text for text in texts.tolist() if text not in self._by_text], dtype=np.int64)
        if self.bytes[missing].sum() + self.bytes[list(self._by_text)].sum() > self._budget:
            self._by_text = {text: self._by_text[text] for text in texts.tolist() if text in self._by_text}
        reduced = reduce_texts(self.clouds, missing, pool, direction=self.direction, orthogonal=self.orthogonal)
        self._by_text.update(zip(missing.tolist(), reduced, strict=True))
        return self._by_text


def _checked_factors(stack: Array, texts: Index, clouds: TokenClouds) -> tuple[Array, Array, Array]:
    """Unit means, factors and traces of a stack of equal-length clouds, or an error that names the text."""
    means, factors, traces = unit_mean_factors(stack, clouds.dtype)
    sound = np.isfinite(traces) & np.isfinite(means).all(axis=1)
    if not sound.all():
        k = int(np.flatnonzero(~sound)[0])
        text = int(texts[k])
        problem = (
            "the zero vector as its mean, up to rounding" if np.isfinite(stack[k]).all() else "NaN or infinite values"
        )
        raise DegenerateCloudError(
            f"text {text} (id '{clouds.ids[text]}') has {problem}; a cloud needs finite vectors with a mean other than "
            f"zero. Leave this text out, or encode it again."
        )
    return means, factors, traces
