"""Intervals for a mean over texts, or over pairs of texts.

Pairs that share a text are not independent, and two questions have two answers. For *this corpus*, randomly sampled
pairs are independent draws. For the *population of texts* that the corpus came from, the texts are the draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from poolscope.numbers import Array, Index

CORPUS = "this corpus (sampled pairs as draws)"
POPULATION = "the population of texts (clustered by text)"
LEVEL = 0.95  # of the intervals that need no other
_KEPT_COUNTS = 2**21  # of bootstrap samples: up to 16 MB of them are kept for the next interval over as many units


@dataclass(frozen=True)
class Interval:
    """A confidence interval: for what, by which method, at which level."""

    low: float
    high: float
    level: float
    answers: str
    method: str

    def __str__(self) -> str:
        return f"[{self.low:.4f}, {self.high:.4f}]"


def signed(value: float) -> str:
    """A change in three decimals, with its sign; in one digit where these would be zeros, which have none.

    >>> signed(-0.02), signed(-0.000425), signed(0.0), signed(-1e-17)
    ('-0.020', '-0.0004', '+0.000', '+0.000')
    """
    return format(value, "+.1g" if 1e-6 <= abs(value) < 0.0005 else "+z.3f")


def score_text(value: float | None) -> str:
    """A cosine in two decimals; near 1 in as many as tell it from 1, rounded down, so that as a cut-off it lets pass.

    >>> [score_text(value) for value in (0.417, 0.994, 0.99985, 1.0)]
    ['0.42', '0.994', '0.9998', '1.00']
    """
    if value is None or not 0.98 < value < 1 - 1e-7:
        return "none" if value is None else f"{value:.2f}"
    digits = int(np.ceil(-np.log10(1 - value)))
    return f"{np.floor(value * 10**digits) / 10**digits:.{digits}f}"


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, and what the same statistic gives where there is nothing to find.

    value: None where it is not defined or could not be measured. interval: None where there is too little to give one;
    it says what it answers. floor: the mean over draws from a null (shuffled, permuted, a null model), and
    `floor_low`, `floor_high` hold 95 % of these draws; None where the number needs none or was not shuffled.

    >>> print(Estimate(0.25, Interval(0.2, 0.3, 0.95, "the population of texts", "bootstrap"), floor=0.1))
    0.250 [0.2000, 0.3000] (floor 0.1)
    """

    value: float | None
    interval: Interval | None = None
    floor: float | None = None
    floor_low: float | None = None
    floor_high: float | None = None

    def __str__(self) -> str:
        if self.value is None:
            return "undefined"
        parts = [f"{self.value:.3f}"]
        if self.interval is not None:
            parts.append(str(self.interval))
        if self.floor is not None:
            parts.append(f"(floor {self.floor:.3g})")
        return " ".join(parts)

    def percent(self, *, interval: bool = True) -> str:
        """The value in per cent, with the half of its interval; a dash where it is not defined.

        >>> Estimate(0.25, Interval(0.2, 0.3, 0.95, "the population of texts", "bootstrap")).percent()
        '25.0% ±5.0%'
        """
        if self.value is None:
            return "–"
        around = self.interval if interval else None
        return f"{self.value:.1%}" + ("" if around is None else f" ±{(around.high - around.low) / 2:.1%}")

    @property
    def known(self) -> float:
        """The value of an estimate that is always defined.

        >>> Estimate(0.25).known
        0.25
        """
        if self.value is None:
            raise ValueError("the estimate is not defined")
        return self.value

    @property
    def excess(self) -> float:
        """How far a defined value lies above its floor; without a floor, the value.

        >>> Estimate(0.25, floor=0.125).excess
        0.125
        """
        return self.known - (self.floor or 0.0)

    def scaled(self, factor: float) -> Estimate:
        """The estimate of `factor` times the number; a negative factor swaps the ends."""

        def times(number: float | None) -> float | None:
            return None if number is None else number * factor

        interval = self.interval
        if interval is not None:
            low, high = sorted((interval.low * factor, interval.high * factor))
            interval = replace(interval, low=low, high=high)
        ends = (times(self.floor_low), times(self.floor_high))
        low_end, high_end = ends if factor >= 0 else ends[::-1]
        return Estimate(times(self.value), interval, times(self.floor), low_end, high_end)


def corpus_interval(values: Array, *, positive: bool = False) -> Interval | None:
    """Plain interval of the mean of independent draws; None for fewer than two. positive: see `jackknife_interval`."""
    if len(values) < 2:
        return None
    error = float(values.std(ddof=1)) / np.sqrt(len(values))
    return _around(float(values.mean()), error, len(values) - 1, CORPUS, "pairs as independent draws", positive)


def jackknife_interval(
    sums: Sequence[Array],
    pairs_per_text: Sequence[int | Array],
    total: float,
    pairs: int,
    *,
    positive: bool = False,
) -> Interval | None:
    """Interval of the mean over all pairs, leaving out one text at a time; None where a text is in every pair.

    sums: for each corpus (one, or two if crossed) the sum of the values over the pairs of each text; pairs_per_text: in
    how many pairs a text of that corpus is, one number or one a text. positive: no value is below 0, so the interval is
    made for the logarithm of the mean; it stays above 0, and from few texts of a skewed corpus it covers better.
    """
    variance, smallest = 0.0, min(len(s) for s in sums)
    for text_sums, each in zip(sums, pairs_per_text, strict=True):
        if np.any(pairs - each <= 0):
            return None
        without = (total - text_sums) / (pairs - each)
        variance += (len(without) - 1) / len(without) * float(((without - without.mean()) ** 2).sum())
    return _around(total / pairs, np.sqrt(variance), smallest - 1, POPULATION, "jackknife over texts", positive)


def dyadic_interval(values: Array, i: Index, j: Index, *, crossed: bool, positive: bool = False) -> Interval | None:
    """Interval of the mean over some pairs, robust to dependence between pairs that share a text.

    Var = Σ_t D_t² − Σ_p D_p², up to (n − 1)/n: how far the mean moves when text t with all its pairs, or pair p alone,
    is left out. None for fewer than three texts, or where a text is in every pair. positive: see `jackknife_interval`.
    """
    m = len(values)
    deviations = values - values.mean()
    sides = [i, j] if crossed else [np.concatenate([i, j])]
    texts = min(len(np.unique(side)) for side in sides)
    counts = [np.bincount(side) for side in sides]
    if texts < 3 or any(count.max() >= m for count in counts):
        return None
    moved = [
        np.bincount(side, np.resize(deviations, len(side))) / (m - count)
        for side, count in zip(sides, counts, strict=True)
    ]
    alone = float(deviations @ deviations) / (m - 1) ** 2
    shared = sum(float(move @ move) for move in moved) - alone
    # With few texts the clustered sum can fall below what independent pairs would give; the larger one is shown.
    error = np.sqrt(max(shared, alone) * (texts - 1) / texts)
    return _around(float(values.mean()), error, texts - 1, POPULATION, "clustered by text (dyadic)", positive)


@dataclass(frozen=True)
class RegressionEstimate:
    """The mean over all pairs of this corpus, predicted from covariates that are known for every pair."""

    mean: float
    interval: Interval
    explained: float


def regression_estimate(values: Array, covariates: Array, population_means: Array) -> RegressionEstimate | None:
    """Correct the sample mean by what the covariates say about the pairs that were not drawn.

    values (m), covariates (m × p), population_means (p): the means of the covariates over all pairs. `explained` is the
    share of the sample variance that the covariates explain. None if m is too small to fit them.

    The estimate is a weighted sum Σ aₖ vₖ, and its error √Σ (aₖ eₖ/(1 − hₖ))² (HC3): each residual e on its own, as
    pairs with large covariates have large ones, and raised by its leverage h, as they bend the fit to themselves.
    """
    m, p = covariates.shape
    if m < 5 * (p + 1):
        return None
    spreads = covariates.std(axis=0)
    spreads[spreads == 0] = 1.0
    basis, sizes, turn = np.linalg.svd((covariates - covariates.mean(axis=0)) / spreads, full_matrices=False)
    kept = sizes > 1e-10 * sizes[0]  # covariates may say the same, or nothing
    basis, sizes, turn = basis[:, kept], sizes[kept], turn[kept]
    deviations = values - values.mean()
    residuals = deviations - basis @ (basis.T @ deviations)
    shift = turn @ ((population_means - covariates.mean(axis=0)) / spreads) / sizes
    weights = 1 / m + basis @ shift
    leverage = 1 / m + (basis**2).sum(axis=1)
    # A pair that alone decides a slope has leverage 1 and residual 0, so it says nothing about the error.
    known = leverage < 1 - 1e-9
    error = np.sqrt(float(((weights * residuals)[known] ** 2 / (1 - leverage[known]) ** 2).sum()))
    total = float(deviations @ deviations)
    explained = 1 - float(residuals @ residuals) / total if total > 0 else 0.0
    estimate, freedom = float(weights @ values), m - len(sizes) - 1
    interval = _around(estimate, error, freedom, CORPUS, "regression on covariates known for all pairs")
    return RegressionEstimate(estimate, interval, explained)


def regression_slopes(values: Array, covariates: Array) -> tuple[list[Estimate], float]:
    """What one standard deviation of each covariate adds while the others are held fixed, and the share explained.

    values (n), covariates (n × p). Errors are HC3, as in `regression_estimate`. A slope has no value where a covariate
    does not vary or follows from the others.

    >>> x = np.array([[0.0, 1], [1, 0], [2, 1], [3, 0], [4, 2], [5, 0]])
    >>> slopes, explained = regression_slopes(2 * x[:, 0] / x[:, 0].std(), x)
    >>> round(slopes[0].known, 6), abs(round(slopes[1].known, 6)), round(explained, 6)
    (2.0, 0.0, 1.0)
    """
    count, number = covariates.shape
    spreads = covariates.std(axis=0)
    if (spreads == 0).any() or count <= number + 1:
        return [Estimate(None)] * number, 0.0
    design = np.column_stack([np.ones(count), (covariates - covariates.mean(axis=0)) / spreads])
    basis, sizes, turn = np.linalg.svd(design, full_matrices=False)
    if sizes[-1] < 1e-6 * sizes[0]:
        return [Estimate(None)] * number, 0.0
    weights = (turn.T / sizes) @ basis.T
    slopes = weights @ values
    residuals = values - design @ slopes
    leverage = np.minimum((basis**2).sum(axis=1), 1 - 1e-9)
    errors = np.sqrt(((weights * residuals / (1 - leverage)) ** 2).sum(axis=1))
    deviations = values - values.mean()
    total = float(deviations @ deviations)
    estimates = [
        Estimate(
            float(slope),
            _around(float(slope), float(error), count - number - 1, "the population of texts", "regression, HC3"),
        )
        for slope, error in zip(slopes[1:], errors[1:], strict=True)
    ]
    return estimates, 1 - float(residuals @ residuals) / total if total > 0 else 0.0


def bootstrap_interval(
    values: Array, *, level: float = 0.95, draws: int = 2000, seed: int = 0, unit: str = "texts"
) -> Interval | None:
    """Percentile bootstrap interval of the mean of `values`, one a unit (text, query); None for fewer than two.

    For differences before and after a repair, which are few and mostly 0, `paired_interval` holds its level, and for
    values with bounds, such as scores from 0 to 1, `bounded_interval`.
    """
    if len(values) < 2:
        return None
    means = bootstrap_sums(values, draws=draws, seed=seed) / len(values)
    return percentile_interval(means, level=level, unit=unit)


# Differences that must go against a gain (or a loss) before the sample itself knows how far they go.
_FEWEST_AGAINST = 3
_FURTHER = 10  # times as far as those that were seen


def paired_interval(
    differences: Array,
    *,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
    unit: str = "queries",
    unseen: float | None = None,
    most: float | None = None,
) -> Interval | None:
    """Interval of the mean of paired differences that holds its level from about 20 on; None for fewer than two.

    At each end the wider of two: Student's t, which holds where most differences are 0 and the others go both ways, and
    the studentised bootstrap, which holds where a few are large. Each alone misses the other case, and percentiles of
    a bootstrap both (`benchmarks/calibration.py`). A draw without spread tells nothing of its error and is left out.

    No sample shows what none of its units did: if one query in ten wins much, every tenth sample of 20 holds none of
    these. Where an end would exclude 0 and fewer than three differences lie on the other side of 0, one more is
    therefore supposed there: ten times as far off as the others on average, at most `unseen` (None: none is supposed).

    Where one difference makes nearly all of the spread, draws without it have next to none, and the studentised
    bootstrap ends anywhere. If no difference can be larger than `most`, neither end is further off than Gaffke's bound
    for such numbers: where one query in ten loses 0.6 and the others hardly change, intervals of 20 to 39 queries were
    2.8 to 14 wide, and are 0.15 to 0.32, with the same share that holds the mean.

    >>> print(paired_interval(np.array([0.0, 0.0, 0.1, 0.2] * 5)))
    [0.0352, 0.1172]
    >>> print(paired_interval(np.array([0.0, 0.0, 0.1, 0.2] * 5), unseen=0.5))
    [-0.0306, 0.1172]
    """
    count = len(differences)
    if count < 2:
        return None
    centre, error = float(differences.mean()), float(differences.std(ddof=1)) / np.sqrt(count)
    reach = float(special.stdtrit(count - 1, (1 + level) / 2))
    ends = np.array([centre - reach * error, centre + reach * error])
    # About the centre, so that the variance of a draw is not lost in a large mean.
    moved = differences - centre
    means, squares = bootstrap_sums(np.stack([moved, moved**2], axis=1), draws=draws, seed=seed).T / count
    variances = (squares - means**2) / (count - 1)
    spread = variances > 1e-12 * error**2
    if error > 0 and spread.any():
        quantiles = np.quantile(means[spread] / np.sqrt(variances[spread]), [(1 + level) / 2, (1 - level) / 2])
        ends = np.array([min(ends[0], centre - quantiles[0] * error), max(ends[1], centre - quantiles[1] * error)])
    sides = [] if unseen is None else [(0, 1.0), (1, -1.0)]
    for end, sign in sides:
        if sign * ends[end] > 0 and (sign * differences < 0).sum() < _FEWEST_AGAINST:
            further = min(unseen or 0.0, _FURTHER * float(np.abs(differences[differences != 0]).mean()))
            low = _with_one_more(sign * differences, -further, level=level, draws=draws, seed=seed)
            ends[end] = sign * min(sign * ends[end], low)
    method = f"wider of Student's t and studentised bootstrap over {unit}"
    if most is not None:
        low, high = (
            sign * _with_one_more(sign * differences, -most, level=level, draws=draws, seed=seed) for sign in (1, -1)
        )
        if low > ends[0] or high < ends[1]:
            ends, method = np.array([max(ends[0], low), min(ends[1], high)]), f"{method}, within bounds"
    return Interval(float(ends[0]), float(ends[1]), level, f"the population of {unit}", method)


def _with_one_more(differences: Array, further: float, *, level: float, draws: int, seed: int) -> float:
    """The lower end of the mean with one further difference, where each counts as much as chance has it.

    Weights are uniform among those that add up to 1 (as in Gaffke's bound for means of bounded numbers).
    """
    random = np.random.default_rng(seed)
    values = np.append(differences, further)
    step = max(1, 2**23 // len(values))
    means = []
    for start in range(0, draws, step):
        weights = random.standard_exponential((min(step, draws - start), len(values)))
        means.append(weights @ values / weights.sum(axis=1))
    return float(np.quantile(np.concatenate(means), (1 - level) / 2))


def bounded_interval(
    values: Array,
    least: float,
    most: float,
    *,
    level: float = LEVEL,
    draws: int = 2000,
    seed: int = 0,
    unit: str = "queries",
) -> Interval | None:
    """Interval of the mean of values that by definition lie within `least` and `most`; None for fewer than two.

    Each value weighs as much as chance has it (weights uniform among those that add up to 1), and either bound half as
    much as a value: what no unit did others may do. Of values that are all at the bounds this is Jeffreys' interval of
    a share. It stays within the bounds, and where hardly a value differs from 0 it leaves the room that their number
    leaves. There `paired_interval` divides by the spread of draws that have next to none, and its ends mean nothing.
    Of 10 to 50 scores of queries, many of them 1 or 0, it held the mean in 92 to 99 % (a bootstrap in 80 to 99 %).

    >>> print(bounded_interval(np.zeros(60), -1.0, 1.0))
    [-0.0329, 0.0328]
    """
    count = len(values)
    if count < 2:
        return None
    random = np.random.default_rng(seed)
    step = max(1, 2**23 // count)
    means = []
    for start in range(0, draws, step):
        rows = min(step, draws - start)
        weights, ends = random.standard_exponential((rows, count)), random.standard_gamma(0.5, (rows, 2))
        sums = weights @ values + ends @ np.array([least, most])
        means.append(sums / (weights.sum(axis=1) + ends.sum(axis=1)))
    drawn, mean = percentile_interval(np.concatenate(means), level=level, unit=unit), float(values.mean())
    method = f"random weights over {unit}, half a one at either bound"
    # Where all values lie at one bound, the mean is that bound, which no draw reaches.
    return replace(drawn, low=min(drawn.low, mean), high=max(drawn.high, mean), method=method)


def bootstrap_sums(values: Array, *, draws: int = 2000, seed: int = 0) -> Array:
    """Sums of `values` (n, or n × columns) over bootstrap samples of the n units; columns share their samples.

    A statistic of sums, such as a ratio, keeps its bounds in every draw.
    """
    # Multinomial counts instead of copied values: one small product a block of draws.
    if len(values) * draws <= _KEPT_COUNTS:
        return np.asarray(_kept_counts(len(values), draws, seed) @ values)
    return np.concatenate([counts @ values for counts in _resampling_counts(len(values), draws, seed)])


def _resampling_counts(units: int, draws: int, seed: int) -> Iterator[Array]:
    """How often each of the units is in each bootstrap sample (draws × units), in blocks of samples."""
    random = np.random.default_rng(seed)
    share, step = np.full(units, 1 / units), max(1, 2**23 // units)
    for start in range(0, draws, step):
        yield random.multinomial(units, share, size=min(step, draws - start)).astype(np.float64)


@lru_cache(maxsize=2)
def _kept_counts(units: int, draws: int, seed: int) -> Array:
    """All in one block. Drawing them takes longer than using them, and many intervals are over the same units."""
    counts = np.concatenate(list(_resampling_counts(units, draws, seed)))
    counts.flags.writeable = False
    return counts


def percentile_interval(draws: Array, *, level: float = 0.95, unit: str = "texts") -> Interval:
    """The central part of bootstrap draws over units."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), level, f"the population of {unit}", f"bootstrap over {unit}")


def leave_one_out_interval(
    value: float,
    without: Array,
    *,
    texts: int | None = None,
    size: int = 1,
    method: str = "jackknife over texts",
) -> Interval | None:
    """Interval of a statistic from its values without each text in turn, or without groups of `size` of `texts` texts.

    Var = (N − s)²/(N s) · variance of the values; for a mean this is the t interval. All groups must have one size.
    None for fewer than three.

    >>> x = np.array([1.0, 2.0, 4.0, 5.0])
    >>> print(leave_one_out_interval(3.0, (12 - x) / 3))
    [0.0948, 5.9052]
    """
    count = len(without)
    if count < 3 or not np.isfinite(without).all():
        return None
    whole = count if texts is None else texts
    error = (whole - size) * np.sqrt(float(without.var(ddof=1)) / (whole * size))
    return _around(value, error, count - 1, "the population of texts", method)


@dataclass
class RatioSums:
    """Sums over texts of a numerator and a denominator, each an array of one shape: what a ratio of totals needs.

    Two of them merge by addition, so the ratio and its interval are the same in one part and in several.

    >>> sums = RatioSums.of(np.array([[1.0], [2.0], [2.0]]), np.array([[4.0], [4.0], [2.0]]))
    >>> print(sums.estimate(0))
    0.500 [-0.2452, 1.2452]
    """

    texts: int
    top: Array
    bottom: Array
    top_squares: Array
    products: Array
    bottom_squares: Array

    @classmethod
    def of(cls, top: Array, bottom: Array) -> RatioSums:
        """From one row a text of each."""
        pairs = ((top, top), (top, bottom), (bottom, bottom))
        return cls(len(top), top.sum(0), bottom.sum(0), *((one * other).sum(0) for one, other in pairs))

    def merge(self, other: RatioSums) -> RatioSums:
        """Of the texts of both."""
        mine, theirs = vars(self).values(), vars(other).values()
        return RatioSums(*(one + two for one, two in zip(mine, theirs, strict=True)))

    def estimate(self, index: Any, *, floor: float | None = None) -> Estimate:
        """Σ top/Σ bottom at that place of the arrays; its interval is that of the linearised ratio over texts."""
        top, bottom = float(self.top[index]), float(self.bottom[index])
        if bottom <= 0:
            return Estimate(None)
        ratio = top / bottom
        if self.texts < 3:
            return Estimate(ratio, floor=floor)
        squares = float(
            self.top_squares[index] - 2 * ratio * self.products[index] + ratio**2 * self.bottom_squares[index]
        )
        rounding = 1e-13 * float(self.top_squares[index] + ratio**2 * self.bottom_squares[index])
        error = np.sqrt((squares if squares > rounding else 0.0) * self.texts / (self.texts - 1)) / bottom
        interval = _around(ratio, error, self.texts - 1, "the population of texts", "linearised ratio over texts")
        return Estimate(ratio, interval, floor)


def lost_interval(part: Array, whole: Array) -> Interval | None:
    """Interval of Σ part/Σ whole over texts, of which few may have a part: within 0 and 1; None where none has one.

    That of the linearised ratio, made for its logit, with one degree of freedom less than texts that have a part. A
    bootstrap of 200 texts of which 6 have one covers 80 %, since it hardly ever draws more of them; this covers 98 %.

    >>> print(lost_interval(np.repeat([0.0, 2.0], [40, 10]), np.full(50, 8.0)))
    [0.0260, 0.0941]
    """
    texts, total, some = len(part), float(whole.sum()), int((part > 0).sum())
    ratio = float(part.sum()) / total if total > 0 else 0.0
    if texts < 2 or not 0 < ratio < 1:
        return None
    error = np.sqrt(float(((part - ratio * whole) ** 2).sum()) * texts / (texts - 1)) / total
    reach = float(special.stdtrit(max(some - 1, 1), (1 + LEVEL) / 2)) * error / (ratio * (1 - ratio))
    low, high = (float(special.expit(special.logit(ratio) + way * reach)) for way in (-1, 1))
    return Interval(low, high, LEVEL, POPULATION, "linearised ratio over texts, on the logit scale")


def grouped_interval(value: float, without: Array, sizes: Array) -> Interval | None:
    """Interval of a statistic from its values without each group of texts in turn; groups may differ in size.

    With n texts, group j of m_j of them and h_j = n/m_j, the pseudo-value of a group is h_j θ − (h_j − 1) θ_j, and the
    variance is the mean over groups of its squared deviation over h_j − 1 (Busing, Meijer and van der Leeden 1999).
    Empty groups count for nothing. None for fewer than ten groups: the interval would say little of itself.

    >>> x = np.arange(20.0)
    >>> by_one = leave_one_out_interval(9.5, (x.sum() - x) / 19)
    >>> by_group = grouped_interval(9.5, (x.sum() - x) / 19, np.ones(20))
    >>> print(by_one, by_group)
    [6.7312, 12.2688] [6.7312, 12.2688]
    """
    kept = sizes > 0
    without, shares = without[kept], sizes[kept] / sizes.sum()
    count = len(without)
    if count < 10 or not np.isfinite(without).all():
        return None
    times = 1 / shares
    pseudo = times * value - (times - 1) * without
    centre = count * value - float(((1 - shares) * without).sum())
    error = np.sqrt(float(((pseudo - centre) ** 2 / (times - 1)).mean()))
    return _around(value, error, count - 1, "the population of texts", f"jackknife over {count} groups of texts")


def mean_estimate(values: Array) -> Estimate:
    """Mean over texts with its t interval; no value for none."""
    if not len(values):
        return Estimate(None)
    mean = float(values.mean())
    without = (values.sum() - values) / max(len(values) - 1, 1)
    return Estimate(mean, leave_one_out_interval(mean, without))


def share_estimate(values: Array, *, unit: str = "queries") -> Estimate:
    """Mean of values in [0, 1], one a unit (found or not), with the interval of Wilson; no value for none.

    >>> print(share_estimate(np.ones(3)), share_estimate(np.array([1.0, 0.0] * 50)))
    1.000 [0.4385, 1.0000] 0.500 [0.4038, 0.5962]
    """
    return share_of(float(values.sum()), len(values), unit=unit)


def share_of(number: float, count: int, *, unit: str = "queries") -> Estimate:
    """The share of `number` among `count` units with the interval of Wilson; no value for none.

    It stays within 0 and 1, and of few units that were all found it says that others may not be.
    """
    if not count:
        return Estimate(None)
    share, z = number / count, float(special.ndtri((1 + LEVEL) / 2))
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = z / (1 + z * z / count) * np.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    ends = (min(max(centre - reach, 0.0), share), max(min(centre + reach, 1.0), share))
    return Estimate(share, Interval(float(ends[0]), float(ends[1]), LEVEL, f"the population of {unit}", "Wilson"))


def difference_of_means(left: Array, right: Array, *, unit: str = "texts") -> Estimate:
    """Mean of one group minus that of another, with the interval of Welch; no value for groups of fewer than two."""
    if len(left) < 2 or len(right) < 2:
        return Estimate(None)
    value = float(left.mean() - right.mean())
    squares = np.array([group.var(ddof=1) / len(group) for group in (left, right)])
    if squares.sum() == 0:  # nothing varies, so nothing is known of the error
        return Estimate(value)
    freedom = squares.sum() ** 2 / (squares**2 / [len(left) - 1, len(right) - 1]).sum()
    error = np.sqrt(squares.sum())
    return Estimate(value, _around(value, error, freedom, f"the population of {unit}", "Welch"))


def with_floor(estimate: Estimate, chance: Array) -> Estimate:
    """The estimate beside what chance gives: mean and central 95 % over the draws of a null."""
    if estimate.value is None or not np.isfinite(chance).all():
        return estimate
    low, high = np.quantile(chance, [0.025, 0.975])
    return Estimate(estimate.value, estimate.interval, float(chance.mean()), float(low), float(high))


def _around(centre: float, error: float, freedom: float, answers: str, method: str, positive: bool = False) -> Interval:
    """By Student's t; `positive`: of a mean of values ≥ 0, made for its logarithm, whose error is error/centre."""
    reach = float(special.stdtrit(freedom, (1 + LEVEL) / 2)) * float(error)
    if not positive or not centre > 0:
        return Interval(centre - reach, centre + reach, LEVEL, answers, method)
    times = np.exp(reach / centre)
    return Interval(float(centre / times), float(centre * times), LEVEL, answers, f"{method}, on the log scale")
