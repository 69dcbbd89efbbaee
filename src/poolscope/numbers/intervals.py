"""Intervals: the units they are over, and one cited method for each kind of number.

| number | method |
|---|---|
| mean | its error by unit, CR2 with Satterthwaite's degrees of freedom, and Hall's transformation against skewness |
| slope, difference of means | least squares with errors by unit: CR2 with Satterthwaite's degrees of freedom |
| share, score between 0 and 1 | Clopper and Pearson's, at the effective number of units of Korn and Graubard |
| paired difference | Johnson's modified t, with the error by unit; p from flipping the signs of whole units |
| ratio of two means | Fieller |
| mean over pairs | jackknife over units, or dyadic errors for a list of pairs; Hall's transformation |
| any other statistic | jackknife over units |

Without documents every value is a unit of its own, and the first three are Student's, Welch's and the binomial one.
Pairs that share a text are not independent, and two questions have two answers. For *this corpus*, randomly sampled
pairs are independent draws. For the *population of texts* that the corpus came from, the texts are the draws.

References
----------
Welch (1947), The generalization of Student's problem. Biometrika 34.
Bell, McCaffrey (2002), Bias reduction in standard errors for linear regression with multi-stage samples. Survey
Methodology 28.
Pustejovsky, Tipton (2018), Small-sample methods for cluster-robust variance estimation. JBES 36.
Johnson (1978), Modified t tests and confidence intervals for asymmetrical populations. JASA 73.
Hall (1992), On the removal of skewness by transformation. JRSS B 54.
Cameron, Gelbach, Miller (2011), Robust inference with multiway clustering. JBES 29.
Clopper, Pearson (1934), The use of confidence or fiducial limits illustrated in the case of the binomial. Biometrika
26. Korn, Graubard (1998), Confidence intervals for proportions with small expected number of positive counts estimated
from survey data. Survey Methodology 24.
Fieller (1954), Some problems in interval estimation. JRSS B 16.
Fisher (1935), The design of experiments, section 21: sign flips. Phipson, Smyth (2010): p-values are never zero.
Arvesen (1969), Jackknifing U-statistics. Ann. Math. Statist. 40. MacKinnon, Nielsen, Webb (2023), Fast and reliable
jackknife and bootstrap methods for cluster-robust inference. J. Applied Econometrics 38. Aronow, Samii, Assenova
(2015), Cluster-robust variance estimation for dyadic data. Political Analysis 23.

"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from poolscope.numbers import Array, Index

CORPUS = "this corpus (sampled pairs as draws)"
POPULATION = "the population of texts (clustered by text)"
LEVEL = 0.95  # of the intervals that need no other


@dataclass(frozen=True)
class Interval:
    """A confidence interval: for what, by which method, at which level, and what the independent draws are (`unit`)."""

    low: float
    high: float
    level: float
    answers: str
    method: str
    unit: str

    def __str__(self) -> str:
        """Both ends; where documents are the unit, which no count beside a number says, that too."""
        ends = f"[{self.low:.4f}, {self.high:.4f}]"
        return f"{ends} over documents" if self.unit == "documents" else ends


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

    value: None where it is not defined or could not be measured. interval: None where there is too little to give one,
    and `no_interval` says why; it names its unit. floor: the mean over draws from a null (shuffled, permuted, a null
    model), and `floor_low`, `floor_high` hold 95 % of these draws; None where the number needs none or was not
    shuffled.

    >>> print(Estimate(0.25, Interval(0.2, 0.3, 0.95, "the population of texts", "bootstrap", "texts"), floor=0.1))
    0.250 [0.200, 0.300] (floor 0.1)
    """

    value: float | None
    interval: Interval | None = None
    floor: float | None = None
    floor_low: float | None = None
    floor_high: float | None = None
    no_interval: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return "undefined"
        parts = [f"{self.value:.3f}"]
        if self.interval is not None:
            over = " over documents" if self.interval.unit == "documents" else ""
            parts.append(f"[{self.interval.low:.3f}, {self.interval.high:.3f}]{over}")
        elif self.no_interval:
            parts.append(f"({self.no_interval})")
        if self.floor is not None:
            parts.append(f"(floor {self.floor:.3g})")
        return " ".join(parts)

    def percent(self, *, interval: bool = True) -> str:
        """The value in per cent, with the half of its interval; a dash where it is not defined.

        >>> Estimate(0.25, Interval(0.2, 0.3, 0.95, "the population of texts", "bootstrap", "texts")).percent()
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
        return Estimate(times(self.value), interval, times(self.floor), low_end, high_end, self.no_interval)


# -- the units behind an interval -------------------------------------------------------------------------------------

FEWEST_UNITS = 10
"""Of fewer independent units a number has no interval; `benchmarks/interval_coverage.py` says how intervals cover."""
FEWEST_DOCUMENTS = 30
"""The same for the mean of values without bounds over documents, whose skewness is not told from their sizes."""
FEWEST_PAIRED = 30
"""The same for a mean of paired differences, which are mostly 0 and skewed."""
FEWEST_PAIRED_DOCUMENTS = 50
"""The same for paired differences over documents, whose skewness is not told from their sizes either."""
FEWEST_OF_PAIRS = 30
"""The same for a mean over pairs of texts, each of which is in many of them."""
FEWEST_CHANGED = 6
"""The fewest units that a two-sided sign test at 5 % tells from chance: all alike, 2/2⁶ = 0.03, but 2/2⁵ = 0.06."""


@dataclass(frozen=True, eq=False)
class Units:
    """The independent draws behind a number: what they are (`name`), and the unit of each value (`of`, from 0)."""

    name: str
    of: Index

    @property
    def sizes(self) -> Array:
        """How many values each unit has."""
        return np.bincount(self.of).astype(np.float64)

    def sums(self, values: Array) -> Array:
        """The sum of the values of each unit."""
        return np.asarray(np.bincount(self.of, values, len(self)), dtype=np.float64)

    def among(self, chosen: NDArray[np.bool_] | Index) -> Units:
        """The units of the chosen values."""
        return Units(self.name, np.unique(self.of[chosen], return_inverse=True)[1].ravel())

    def shuffled(self, random: np.random.Generator) -> Index:
        """Deal the values anew, whole units at a time: the position of the value that comes to each place.

        The values of a unit stay together, in their order. Units of unequal size meet at other places than before, so
        that a few are cut there.

        >>> dealt = chosen_units(4, ["a", "b", "a", "b"]).shuffled(np.random.default_rng(3))
        >>> dealt.tolist() in ([0, 1, 2, 3], [1, 0, 3, 2])
        True
        """
        order, sizes = np.argsort(self.of, kind="stable"), self.sizes.astype(np.int64)
        drawn = random.permutation(len(self))
        ends = np.cumsum(sizes[drawn])
        starts = (np.cumsum(sizes) - sizes)[drawn]
        dealt = np.empty_like(order)
        dealt[order] = order[np.repeat(starts - ends + sizes[drawn], sizes[drawn]) + np.arange(len(order))]
        return dealt

    def __len__(self) -> int:
        return int(self.of.max()) + 1 if len(self.of) else 0


def chosen_units(count: int, documents: ArrayLike | Units | None = None, *, each: str = "texts") -> Units:
    """Choose the unit of an interval: the document where documents are known, otherwise each value is one.

    This is the one place that decides it. Documents that all hold one value each change nothing, so the unit is then
    named by what the values are (`each`). Units are numbered as they come, whatever they are called. Units that were
    chosen before stay as they are.

    >>> chosen_units(3, ["a", "a", "b"]).name, chosen_units(3).name, chosen_units(2, ["a", "b"], each="queries").name
    ('documents', 'texts', 'queries')
    >>> chosen_units(3, ["b", "a", "b"]).of.tolist()
    [0, 1, 0]
    """
    if documents is None:
        return Units(each, np.arange(count))
    if isinstance(documents, Units):
        return documents
    names = np.asarray(documents)
    if names.shape != (count,):
        raise ValueError(f"units: received shape {names.shape}; needed: one for each of the {count} values.")
    _, first, of = np.unique(names, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return Units("documents" if len(first) < count else each, number[of.ravel()])


def not_by_documents(estimate: Estimate, units: Units) -> Estimate:
    """The estimate without its interval where the unit is the document, which its interval cannot go by.

    >>> not_by_documents(Estimate(2.0), chosen_units(3, ["a", "a", "b"])).no_interval
    'no interval: the texts are of 2 documents, and for this number none is known by documents'
    """
    if units.name != "documents":
        return estimate
    why = f"no interval: the texts are of {len(units):,} documents, and for this number none is known by documents"
    return replace(estimate, interval=None, no_interval=why)


def too_few(count: int, unit: str, needed: int = FEWEST_UNITS) -> str:
    """Say why so few units have no interval; empty where they suffice.

    >>> too_few(4, "documents")
    'no interval: 4 documents, 10 are needed'
    """
    return f"no interval: {count:,} {unit}, {needed:,} are needed" if count < needed else ""


# -- means and slopes, by unit ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fit:
    """A number with its standard error and the degrees of freedom of that error."""

    value: float
    error: float
    freedom: float
    skewness: float = 0.0  # of what the units add to the number, where the interval shall follow it

    def interval(self, units: Units, *, level: float = LEVEL, method: str = "", needed: int = FEWEST_UNITS) -> Estimate:
        """The estimate with the interval of Student's t, or with the reason for none."""
        why = too_few(len(units), units.name, needed)
        if not why and not self.error > 0:
            why = f"no interval: all {len(units):,} {units.name} have one value"
        if why:
            return Estimate(self.value, no_interval=why)
        t = float(special.stdtrit(self.freedom, (1 + level) / 2))
        low, high = (self.value - self.error * self.unskewed(end) for end in (t, -t))
        name = method or ("CR2, Satterthwaite" if units.sizes.max() > 1 else "Student's t")
        name = f"{name}, skewness removed" if self.skewness else name
        return Estimate(self.value, Interval(low, high, level, f"the population of {units.name}", name, units.name))

    def unskewed(self, t: float) -> float:
        """Where Student's ratio stands when its transformation without skewness is at t (Hall 1992, equation 2.3)."""
        root = float(np.sqrt(self.freedom + 1))
        if abs(self.skewness) < 1e-6:
            return t
        inner = 1 + self.skewness / root * (t - self.skewness / (6 * root))
        return float(3 * root / self.skewness * (np.cbrt(inner) - 1))


def _mean_of_units(sums: Array, sizes: Array) -> _Fit:
    """The mean Σ sums/Σ sizes over units with its CR2 error, in closed form.

    With m the mean and w the share of a unit in all sizes, Var = Σ (sum − m·size)²/(1 − w)/(Σ sizes)². For units of one
    size this is the error of Student's t, and the degrees of freedom are units − 1.
    """
    total = float(sizes.sum())
    mean, shares = float(sums.sum()) / total, sizes / total
    if len(sizes) < 2 or shares.max() >= 1:
        return _Fit(mean, 0.0, 1.0)
    deviations = sums - mean * sizes
    rounding = 1e-13 * (np.abs(sums) + np.abs(mean) * sizes)
    deviations[np.abs(deviations) <= rounding] = 0.0
    error = float(np.sqrt((deviations**2 / (1 - shares)).sum())) / total
    # Satterthwaite: (tr B)²/tr B² of the quadratic form that the variance is, for independent values of one variance.
    cross = shares**2 / (1 - shares)
    squares = float((shares**2).sum() + cross.sum() ** 2 - (cross**2).sum())
    return _Fit(mean, error, 1 / squares)


def mean_estimate(
    values: Array, units: ArrayLike | Units | None = None, *, each: str = "texts", level: float = LEVEL
) -> Estimate:
    """Mean of values with its interval over units (the document of each value, where known); no value for none.

    >>> print(mean_estimate(np.arange(10.0)))
    4.500 [2.334, 6.666]
    >>> mean_estimate(np.arange(10.0), ["a"] * 6 + list("bcde")).no_interval
    'no interval: 5 documents, 30 are needed'
    """
    if not len(values):
        return Estimate(None)
    chosen = chosen_units(len(values), units, each=each)
    sums, sizes = chosen.sums(values), chosen.sizes
    fit = _mean_of_units(sums, sizes)
    if sizes.max() > 1:
        return fit.interval(chosen, level=level, needed=FEWEST_DOCUMENTS)
    return replace(fit, skewness=_skewness(sums - fit.value * sizes)).interval(chosen, level=level)


def _skewness(deviations: Array) -> float:
    """The adjusted Fisher–Pearson coefficient of values whose mean is 0; 0 for fewer than three, or equal ones."""
    count, square = len(deviations), float((deviations**2).mean())
    if count < 3 or not square > 0:
        return 0.0
    return float((deviations**3).mean() / square**1.5 * np.sqrt(count * (count - 1)) / (count - 2))


def share_estimate(
    part: Array,
    whole: Array | None = None,
    units: ArrayLike | Units | None = None,
    *,
    each: str = "queries",
    level: float = LEVEL,
    most: int | None = None,
) -> Estimate:
    """Σ part/Σ whole of 0 ≤ part ≤ whole (1, if left out), with its interval over units; no value for none.

    A share of units that have something or not, a mean of scores from 0 to 1, the share of the tokens that were cut.
    The interval is that of Clopper and Pearson for the number of independent draws that would give the variance by unit
    (CR2) that these have (Korn and Graubard): it stays within 0 and 1, and of few units that were all found it says
    that others may not be. These draws are at most as many as there are values that are 0 or 1, or units whose parts
    are of unequal wholes; scores, which differ less than zeros and ones, count for more. Where all values are 0, or all
    are whole, each unit counts as one draw. `most`: how many values there are, where these are sums of several.

    >>> print(share_estimate(np.array([1.0, 0.0] * 50)), share_estimate(np.ones(10)))
    0.500 [0.398, 0.602] 1.000 [0.692, 1.000]
    """
    total = float(len(part) if whole is None else whole.sum())
    if not total > 0:
        return Estimate(None)
    chosen = chosen_units(len(part), units, each=each)
    sizes = chosen.sizes if whole is None else chosen.sums(whole)
    fit = _mean_of_units(chosen.sums(part), sizes)
    share = min(max(fit.value, 0.0), 1.0)
    if why := too_few(len(chosen), chosen.name):
        return Estimate(share, no_interval=why)
    count, spread = most or len(part), share * (1 - share)
    effective = float(len(chosen))
    if spread > 0:
        if not fit.error > 0:
            return fit.interval(chosen, level=level)  # which says why there is none
        freedom, binary = fit.freedom, whole is None and bool(np.isin(part, (0.0, 1.0)).all())
        if not binary:
            # Units that have nothing of it say nothing of how far those that have some differ, and the other way round.
            parts = chosen.sums(part)
            freedom = min(freedom, max(min((parts > 0).sum(), (parts < sizes).sum()) - 1, 1))
        wider = float(special.stdtrit(count - 1, (1 + level) / 2) / special.stdtrit(freedom, (1 + level) / 2))
        effective = (1 + spread / fit.error**2) * wider**2
        if whole is None and len(chosen) == len(part):
            # No values from 0 to 1 differ more than zeros and ones do, so independent ones count for so many at least.
            effective = max(effective, count)
        if whole is not None and most is None:
            # A unit of great size that is all cut, or not at all, may not have been drawn yet.
            effective = min(effective, len(chosen))
        elif most is not None or binary:
            effective = min(effective, count)
    low, high = _clopper_pearson(share, effective, level)
    answers, method = f"the population of {chosen.name}", "Clopper-Pearson, at the effective number of units"
    return Estimate(share, Interval(low, high, level, answers, method, chosen.name))


def share_of(number: float, count: int, *, each: str = "queries") -> Estimate:
    """The share of `number` among `count` independent units, by Clopper and Pearson; no value for none."""
    if not count:
        return Estimate(None)
    share = number / count
    if why := too_few(count, each):
        return Estimate(share, no_interval=why)
    low, high = _clopper_pearson(share, count, LEVEL)
    return Estimate(share, Interval(low, high, LEVEL, f"the population of {each}", "Clopper-Pearson", each))


def _clopper_pearson(share: float, count: float, level: float) -> tuple[float, float]:
    """The shares that a binomial test of so many draws, also of a broken number of them, does not reject."""
    tail, found = (1 - level) / 2, share * count
    low = float(special.betaincinv(found, count - found + 1, tail)) if found > 0 else 0.0
    high = float(special.betaincinv(found + 1, count - found, 1 - tail)) if found < count else 1.0
    return min(low, share), max(high, share)


def ratio_estimate(
    top: Array, bottom: Array, units: ArrayLike | None = None, *, each: str = "queries", level: float = LEVEL
) -> Estimate:
    """The ratio of two means over the same units, both estimated, with the interval of Fieller; no value for none.

    The interval holds every ratio θ for which the mean of top − θ·bottom is not told from 0. None where the mean below
    is not told from 0: then no ratio is excluded on one side.

    >>> print(ratio_estimate(np.arange(1.0, 13), np.full(12, 2.0)))
    3.250 [2.105, 4.395]
    """
    if not len(top) or not np.mean(bottom):
        return Estimate(None)
    chosen = chosen_units(len(top), units, each=each)
    value = float(np.mean(top) / np.mean(bottom))
    if why := too_few(len(chosen), chosen.name):
        return Estimate(value, no_interval=why)
    above, below, sizes = chosen.sums(top), chosen.sums(bottom), chosen.sizes
    fit = _mean_of_units(above - value * below, sizes)
    if not fit.error > 0:
        return fit.interval(chosen, level=level)
    # Variances and the covariance of both means, by unit.
    shares = sizes / sizes.sum()
    moved = [(part - part.sum() * shares) / np.sqrt(1 - shares) / sizes.sum() for part in (above, below)]
    (tt, tb), (_, bb) = (np.array(moved) @ np.array(moved).T).tolist()
    square = float(special.stdtrit(fit.freedom, (1 + level) / 2)) ** 2
    t, b = float(np.mean(top)), float(np.mean(bottom))
    a, half, c = b * b - square * bb, t * b - square * tb, t * t - square * tt
    if a <= 0:
        return Estimate(value, no_interval=f"no interval: the {chosen.name} do not tell what is divided by from 0")
    reach = float(np.sqrt(max(half * half - a * c, 0.0)))
    ends = (half - reach) / a, (half + reach) / a
    return Estimate(value, Interval(*ends, level, f"the population of {chosen.name}", "Fieller", chosen.name))


def _least_squares(design: Array, values: Array, of: Index) -> tuple[Array, Array, Array]:
    """Coefficients of least squares, their CR2 variances by unit, and Satterthwaite's degrees of freedom.

    design (n × p, of full rank), values (n), of (n): the unit of each row. With X the design, M = (XᵀX)⁻¹, e the
    residuals and A = (I − X_g M X_gᵀ)^(−1/2) of a unit g, Var = Σ_g (M X_gᵀ A e_g)². The degrees of freedom are
    (tr B)²/tr B² of that quadratic form, for independent values of one variance.
    """
    basis, sizes, turn = np.linalg.svd(design, full_matrices=False)
    back = turn.T / sizes  # M = back backᵀ, and `basis` is X M^(1/2)
    coefficients = back @ (basis.T @ values)
    residuals = values - design @ coefficients
    counts = np.bincount(of)
    adjusted = np.empty_like(basis)  # A X M^(1/2), unit by unit
    alone = counts[of] == 1
    adjusted[alone] = basis[alone] * _inverse_root(1 - (basis[alone] ** 2).sum(axis=1))[:, None]
    order = np.argsort(of, kind="stable")
    bounds = np.append(0, np.cumsum(counts))
    for unit in np.flatnonzero(counts > 1):
        rows = order[bounds[unit] : bounds[unit + 1]]
        left, strengths, right = np.linalg.svd(basis[rows], full_matrices=False)
        adjusted[rows] = (left * (strengths * _inverse_root(1 - strengths**2))) @ right
    weights = adjusted @ back.T  # of each residual in each coefficient
    moved = _by_unit(weights * residuals[:, None], of)
    variances = (moved**2).sum(axis=0)
    squares = _by_unit(weights**2, of)
    freedoms = np.empty(len(variances))
    for number in range(len(variances)):
        onto = _by_unit(basis * weights[:, number : number + 1], of)
        lost = (onto**2).sum(axis=1)
        own = squares[:, number]
        trace = float(own.sum() - lost.sum())
        both = float((own**2).sum() - 2 * (own * lost).sum() + ((onto.T @ onto) ** 2).sum())
        freedoms[number] = trace**2 / both if both > 0 else 1.0
    return coefficients, variances, np.maximum(freedoms, 1.0)


def _inverse_root(values: Array) -> Array:
    """1/√v, and 0 where nothing is left: a unit that alone decides a coefficient says nothing of its error."""
    return np.where(values > 1e-9, 1 / np.sqrt(np.maximum(values, 1e-9)), 0.0)


def _by_unit(rows: Array, of: Index) -> Array:
    return np.stack([np.bincount(of, column) for column in rows.T], axis=1)


def regression_slopes(
    values: Array, covariates: Array, units: ArrayLike | None = None, *, each: str = "texts"
) -> tuple[list[Estimate], float]:
    """What one standard deviation of each covariate adds while the others are held fixed, and the share explained.

    values (n), covariates (n × p), units (n): the document of each. Errors are CR2 by unit. A slope has no value where
    a covariate does not vary or follows from the others.

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
    sizes = np.linalg.svd(design, compute_uv=False)
    if sizes[-1] < 1e-6 * sizes[0]:
        return [Estimate(None)] * number, 0.0
    chosen = chosen_units(count, units, each=each)
    slopes, variances, freedoms = _least_squares(design, values, chosen.of)
    residuals, deviations = values - design @ slopes, values - values.mean()
    total = float(deviations @ deviations)
    fits = zip(slopes[1:], np.sqrt(variances[1:]), freedoms[1:], strict=True)
    estimates = [_Fit(*map(float, fit)).interval(chosen, method="regression, CR2") for fit in fits]
    return estimates, 1 - float(residuals @ residuals) / total if total > 0 else 0.0


def difference_of_means(
    left: Array,
    right: Array,
    left_units: ArrayLike | None = None,
    right_units: ArrayLike | None = None,
    *,
    each: str = "texts",
) -> Estimate:
    """Mean of one group minus that of another; no value for groups of fewer than two.

    Without units this is Welch's interval; with them, a unit may have values in both groups.

    >>> print(difference_of_means(np.arange(10.0) + 5, np.arange(10.0)))
    5.000 [2.155, 7.845]
    """
    if len(left) < 2 or len(right) < 2:
        return Estimate(None)
    named = None if left_units is None or right_units is None else np.concatenate([left_units, right_units])
    affected = np.repeat([1.0, 0.0], [len(left), len(right)])
    return rate_difference(np.concatenate([left, right]), affected, named, each=each)


def rate_difference(
    values: ArrayLike, affected: ArrayLike, *units: ArrayLike | None, each: str = "texts", level: float = LEVEL
) -> Estimate:
    """Mean of the affected values minus that of the others; no value where one side has fewer than two.

    values (n) are rates or anything else, affected (n) 1 or 0. `units`: none, one, or two names of units for each value
    (its query and its document); with two the errors are clustered both ways, V = V₁ + V₂ − V₁₂.

    >>> missed, short = np.tile([1.0, 0, 0, 1], 10), np.tile([1.0, 1, 0, 0], 10)
    >>> rate_difference(missed, short).value
    0.0
    """
    numbers, sides = np.asarray(values, dtype=np.float64), np.asarray(affected, dtype=np.float64)
    if min(sides.sum(), (1 - sides).sum()) < 2:
        return Estimate(None)
    design = np.column_stack([np.ones(len(sides)), sides])
    known = [np.unique(np.asarray(names), return_inverse=True)[1] for names in units if names is not None]
    value = float(numbers[sides > 0].mean() - numbers[sides == 0].mean())
    if not known:
        chosen = chosen_units(len(numbers), each=each)
        fit, few = _welch(numbers[sides > 0], numbers[sides == 0]), int(min(sides.sum(), (1 - sides).sum()))
    elif len(known) < 2:
        chosen = chosen_units(len(numbers), known[0], each=each)
        _, variances, freedoms = _least_squares(design, numbers, chosen.of)
        fit = _Fit(value, _error(variances[1], numbers), float(freedoms[1]))
        few = min(len(np.unique(chosen.of[sides == side])) for side in (0, 1))
    else:
        both = np.unique(np.stack(known), axis=1, return_inverse=True)[1].ravel()
        fits = [_least_squares(design, numbers, of) for of in (*known, both)]
        first, second, shared = (float(variances[1]) for _, variances, _ in fits)
        variance = max(first + second - shared, first, second)
        chosen = Units("queries and documents", min(known, key=lambda of: int(of.max())))
        fit = _Fit(value, _error(variance, numbers), min(float(freedoms[1]) for _, _, freedoms in fits[:2]))
        few = min(len(np.unique(of[sides == side])) for of in known for side in (0, 1))
    if few < FEWEST_UNITS // 2:
        why = f"no interval: {few} {chosen.name} on one side, {FEWEST_UNITS // 2} are needed"
        return Estimate(value, no_interval=why)
    method = "CR2, Satterthwaite" if known else "Welch"
    return fit.interval(chosen, level=level, method=method)


def _welch(left: Array, right: Array) -> _Fit:
    squares = np.array([group.var(ddof=1) / len(group) for group in (left, right)])
    value, total = float(left.mean() - right.mean()), float(squares.sum())
    error = _error(total, np.concatenate([left, right]))
    freedom = total**2 / float((squares**2 / [len(left) - 1, len(right) - 1]).sum()) if error else 1.0
    return _Fit(value, error, freedom)


def _error(variance: float, values: Array) -> float:
    """The root of a variance, 0 where it is rounding."""
    return float(np.sqrt(variance)) if variance > 1e-24 * float(np.abs(values).max()) ** 2 else 0.0


# -- paired differences -----------------------------------------------------------------------------------------------

_FLIPS = 9999
_EXACT_FLIPS = 13  # up to so many units that changed, all their signs are gone through
ONE_PLACE = 0.37
"""What a query wins in nDCG when its document goes from the second place to the first: 1 − 1/log₂ 3."""


@dataclass(frozen=True)
class PairedDifference:
    """After minus before over the same units: `change` with its interval, and the `p_value` of no change.

    `smallest_gain` is the smallest gain that units as many and as different as these would have shown in four of five
    cases. `count` values were compared, over `units` units named `unit`, of which `changed` changed.
    """

    change: Estimate
    p_value: float
    smallest_gain: float
    count: int
    unit: str
    units: int
    changed: int


def paired_difference(
    before: ArrayLike,
    after: ArrayLike,
    units: ArrayLike | Units | None = None,
    *,
    each: str = "queries",
    level: float = LEVEL,
) -> PairedDifference:
    """The mean of after − before, value by value, with its interval over units (the document of each, where known).

    There is no interval where no unit changed, and of fewer than 30 units (50 documents), whose differences are too
    skewed for one; p, from flipping the signs of whole units, is there for any number of them.

    >>> found = paired_difference(np.zeros(40), np.tile([0.0, 0.0, 0.1, 0.2], 10))
    >>> print(found.change, found.p_value, round(found.smallest_gain, 3))
    0.075 [0.048, 0.102] 0.0001 0.079
    >>> paired_difference(np.ones(40), np.ones(40)).change.no_interval
    'no interval: none of the 40 queries changed'
    """
    first, second = (np.asarray(side, dtype=np.float64) for side in (before, after))
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise ValueError(f"received {first.shape} and {second.shape} values; needed: two equal lists of numbers.")
    differences = second - first
    chosen = chosen_units(len(differences), units, each=each)
    sums, changed = chosen.sums(differences), int((chosen.sums((differences != 0).astype(float)) > 0).sum())
    fit = _mean_of_units(sums, chosen.sizes)
    if changed:
        # Johnson's modified t. Hall's transformation, which means have, covers 0.89 of differences that are mostly 0.
        shift = _skewness(sums - fit.value * chosen.sizes) * fit.error / 6 / float(np.sqrt(fit.freedom + 1))
        moved = replace(fit, value=fit.value + shift)
        needed = FEWEST_PAIRED_DOCUMENTS if chosen.sizes.max() > 1 else FEWEST_PAIRED
        change = replace(moved.interval(chosen, level=level, needed=needed), value=fit.value)
    else:
        change = Estimate(0.0, no_interval=f"no interval: none of the {len(chosen):,} {chosen.name} changed")
    gain = smallest_gain(fit.error, fit.freedom, len(chosen), changed, level=level)
    return PairedDifference(change, sign_flip_p(sums), gain, len(differences), chosen.name, len(chosen), changed)


def sign_flip_p(sums: Array) -> float:
    """The share of sign flips of the units whose total is as far from 0 as that of `sums`: two-sided, never 0.

    All flips of up to 13 units that changed, 9,999 random ones of more. The units go by the size of their sums, so that
    their order changes nothing.

    >>> sign_flip_p(np.ones(6)), sign_flip_p(np.zeros(6))
    (0.03125, 1.0)
    """
    sizes = np.sort(np.abs(sums[sums != 0]))
    if not len(sizes):
        return 1.0
    reached = abs(float(sums.sum())) - 1e-9 * float(sizes.sum())
    if len(sizes) <= _EXACT_FLIPS:
        flips = 1 - 2 * (np.arange(2 ** len(sizes))[:, None] >> np.arange(len(sizes)) & 1)
        return float((np.abs(flips @ sizes) >= reached).mean())
    random, beyond, step = np.random.default_rng(0), 0, max(1, 2**22 // len(sizes))
    for start in range(0, _FLIPS, step):
        signs = random.integers(2, size=(min(step, _FLIPS - start), len(sizes)), dtype=np.int8)
        beyond += int((np.abs((2.0 * signs - 1) @ sizes) >= reached).sum())
    return (beyond + 1) / (_FLIPS + 1)


def smallest_gain(
    error: float, freedom: float, count: int, changed: int, *, level: float = LEVEL, power: float = 0.8
) -> float:
    """The smallest gain that `count` units with this error prove with this probability; infinite for one unit.

    g = (t + t_power)·error. A gain comes by steps, of units that go from the second place to the first, and these
    spread the differences further: g(s − g)/n is added to the squared error for a step s. Where fewer units changed
    than could prove anything, it is as many such steps as a sign test needs.
    """
    if count < 2:
        return float("inf")
    t = float(special.stdtrit(freedom, (1 + level) / 2)) + float(special.stdtrit(freedom, power))
    each = t**2 / count
    root = np.sqrt((each * ONE_PLACE) ** 2 + 4 * (1 + each) * (t * error) ** 2)
    gain = float((each * ONE_PLACE + root) / 2 / (1 + each))
    steps = float(np.ceil(np.log2(2 / (1 - level))))
    return gain if changed >= FEWEST_CHANGED else max(gain, steps / count * ONE_PLACE)


# -- pairs, and any statistic: leaving out units ----------------------------------------------------------------------


def population_of_pairs(unit: str) -> str:
    """Say what an interval of a mean over pairs answers: for other texts, of which whole units were drawn.

    >>> population_of_pairs("texts") == POPULATION, population_of_pairs("documents")
    (True, 'the population of texts (clustered by document)')
    """
    return f"the population of texts (clustered by {'query' if unit == 'queries' else unit[:-1]})"


def corpus_interval(values: Array, *, positive: bool = False) -> Interval | None:
    """Interval of the mean of independent draws; None for fewer than two. positive: see `jackknife_interval`."""
    if len(values) < 2:
        return None
    error = float(values.std(ddof=1)) / np.sqrt(len(values))
    return _around(
        float(values.mean()),
        error,
        len(values) - 1,
        CORPUS,
        "pairs as independent draws",
        positive,
        unit="pairs",
        skewness=_skewness(values - values.mean()),
    )


def jackknife_interval(
    sums: Sequence[Array],
    pairs_per_text: Sequence[int | Array],
    total: float,
    pairs: int,
    *,
    unit: str = "texts",
    positive: bool = False,
) -> Interval | None:
    """Interval of the mean over all pairs, leaving out one unit at a time; None where one is in every pair.

    sums: for each corpus (one, or two if crossed) the sum of the values over the pairs of each text, or other `unit`;
    pairs_per_text: in how many pairs it is, one number or one each. positive: no value is below 0, so no end is.
    """
    moved, smallest = [], min(len(s) for s in sums)
    for text_sums, each in zip(sums, pairs_per_text, strict=True):
        if np.any(pairs - each <= 0):
            return None
        without = (total - text_sums) / (pairs - each)
        moved.append((without.mean() - without) * np.sqrt((len(without) - 1) / len(without)))
    each_moved = np.concatenate(moved)
    error = float(np.sqrt((each_moved**2).sum()))
    # Two corpora have more texts than the smaller one, whose number the transformation of skewness goes by.
    skewness = _skewness(each_moved) * float(np.sqrt(smallest / len(each_moved)))
    answers, method = population_of_pairs(unit), f"jackknife over {unit}"
    return _around(total / pairs, error, smallest - 1, answers, method, positive, unit=unit, skewness=skewness)


def unit_jackknife(
    sums: Array, inside: Array, units: Units, total: float, pairs: int, *, positive: bool = False
) -> Estimate:
    """The mean over all pairs of texts, with its interval from leaving out one unit with all its texts at a time.

    sums: over the pairs of each text; inside: over the pairs within each unit, which `sums` counts twice.
    """
    if why := too_few(len(units), units.name, FEWEST_OF_PAIRS):
        return Estimate(total / pairs, no_interval=why)
    sizes, texts = units.sizes, len(units.of)
    gone = sizes * (texts - 1) - sizes * (sizes - 1) / 2
    if np.any(pairs - gone <= 0):
        return Estimate(total / pairs, no_interval=f"no interval: without one of the {units.name} no pair is left")
    mean, without = total / pairs, (total - units.sums(sums) + inside) / (pairs - gone)
    fit = _Fit(mean, _left_out_error(mean, without), len(units) - 1, _skewness(without.mean() - without))
    found = fit.interval(units, method=f"jackknife over {units.name}")
    if found.interval is None:
        return found
    answers = population_of_pairs(units.name)
    low = max(found.interval.low, 0.0) if positive else found.interval.low
    return replace(found, interval=replace(found.interval, low=low, answers=answers))


def dyadic_interval(
    values: Array, i: Index, j: Index, *, crossed: bool, positive: bool = False, unit: str = "texts"
) -> Interval | None:
    """Interval of the mean over some pairs, robust to dependence between pairs that share a text.

    i and j (m) number the texts of each pair, or their documents (`unit`); a pair may be within one. Var = Σ_t D_t², up
    to (n − 1)/n: how far the mean moves when t with all its pairs is left out. A pair that shares no text with another
    counts once, any other for both of its texts: to count all of them once covers 0.90 of skewed values. None for fewer
    than 30, or where one is in every pair. positive: see `jackknife_interval`.
    """
    m = len(values)
    deviations = values - values.mean()
    inside = np.zeros(m, bool) if crossed else i == j
    # A pair within one unit is gone with it once.
    sides = [(i, deviations), (j, deviations)]
    if not crossed:
        sides = [(np.concatenate([i, j[~inside]]), np.concatenate([deviations, deviations[~inside]]))]
    count = min(len(np.unique(side)) for side, _ in sides)
    counts = [np.bincount(side) for side, _ in sides]
    if count < FEWEST_OF_PAIRS or any(count.max() >= m for count in counts):
        return None
    moved = [np.bincount(side, parts) / (m - gone) for (side, parts), gone in zip(sides, counts, strict=True)]
    each = np.concatenate([move[gone > 0] for move, gone in zip(moved, counts, strict=True)])
    # With few units the clustered sum can fall below what independent pairs would give; the larger one is shown.
    alone = float(deviations @ deviations) / (m - 1) ** 2
    lonely = ~inside & (counts[0][i] == 1) & (counts[-1][j] == 1)
    twice = float(deviations[lonely] @ deviations[lonely]) / (m - 1) ** 2
    error = np.sqrt(max(float(each @ each) - twice, alone) * (count - 1) / count)
    answers, method = population_of_pairs(unit), f"clustered by {unit[:-1]} (dyadic)"
    skewness = _skewness(each) * float(np.sqrt(count / len(each)))
    return _around(float(values.mean()), error, count - 1, answers, method, positive, unit=unit, skewness=skewness)


def pair_estimate(values: Array, i: Index, j: Index, *, floor: float | None = None, unit: str = "texts") -> Estimate:
    """The mean over pairs of texts of one corpus, with the interval of `dyadic_interval` or why it has none."""
    interval = dyadic_interval(values, i, j, crossed=False, unit=unit)
    count = len(np.unique(np.concatenate([i, j])))
    why = too_few(count, unit, FEWEST_OF_PAIRS) or f"no interval: one of the {unit} is in every pair"
    return Estimate(float(values.mean()), interval, floor, no_interval="" if interval else why)


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
    interval = _around(estimate, error, freedom, CORPUS, "regression on covariates known for all pairs", unit="pairs")
    return RegressionEstimate(estimate, interval, explained)


def percentile_interval(draws: Array, *, unit: str, level: float = LEVEL) -> Interval:
    """The central part of bootstrap draws over units."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), level, f"the population of {unit}", f"bootstrap over {unit}", unit)


def leave_one_out_interval(
    value: float,
    without: Array,
    *,
    texts: int | None = None,
    size: int = 1,
    unit: str = "texts",
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
    method = f"jackknife over {unit}" if size == 1 else f"jackknife over {count} groups of {size} {unit}"
    return _around(value, error, count - 1, f"the population of {unit}", method, unit=unit)


@dataclass
class RatioSums:
    """Sums over texts of a numerator and a denominator, each an array of one shape: what a ratio of totals needs.

    Two of them merge by addition, so the ratio and its interval are the same in one part and in several.

    >>> sums = RatioSums.of(np.array([[1.0], [2.0], [2.0]]), np.array([[4.0], [4.0], [2.0]]))
    >>> print(sums.estimate(0))
    0.500 [-0.245, 1.245]
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
        interval = _around(
            ratio, error, self.texts - 1, "the population of texts", "linearised ratio over texts", unit="texts"
        )
        return Estimate(ratio, interval, floor)


def left_out_estimate(
    value: float, without: Array, sizes: Array | None = None, *, unit: str = "texts", method: str = ""
) -> Estimate:
    """A statistic with its interval from its values without each unit in turn; units may differ in size.

    With θ_j the value without unit j of G, the variance is (G − 1)/G · Σ (θ_j − θ)² (MacKinnon, Nielsen and Webb 2023,
    CV3), whatever the units have in common. Units of size 0 count for nothing. There is no interval for fewer than ten
    units, and where the statistic is not defined without one of them.

    >>> x = np.arange(20.0)
    >>> print(left_out_estimate(9.5, (x.sum() - x) / 19), mean_estimate(x))
    9.500 [6.731, 12.269] 9.500 [6.731, 12.269]
    """
    if not np.isfinite(value):
        return Estimate(None)
    sizes = np.ones(len(without)) if sizes is None else sizes
    without = without[sizes > 0]
    count = len(without)
    if why := too_few(count, unit):
        return Estimate(value, no_interval=why)
    if not np.isfinite(without).all():
        return Estimate(value, no_interval=f"no interval: without some {unit} the number is not defined")
    error = _left_out_error(value, without)
    method = method or f"jackknife over {unit}"
    return Estimate(value, _around(value, error, count - 1, f"the population of {unit}", method, unit=unit))


def left_out_share(value: float, without: Array, *, unit: str) -> Estimate:
    """A number from 0 to 1 with its interval from its values without each unit in turn.

    The error is that of `left_out_estimate`, and the interval Clopper and Pearson's for as many draws as would have
    it, so it stays within 0 and 1. Where the number is 0 or 1, each unit counts as one draw.

    >>> x = np.tile([1.0, 0.0], 50)
    >>> print(left_out_share(0.5, (x.sum() - x) / 99, unit="queries"), share_estimate(x))
    0.500 [0.398, 0.602] 0.500 [0.398, 0.602]
    """
    count = len(without)
    if why := too_few(count, unit):
        return Estimate(value, no_interval=why)
    if not np.isfinite(without).all():
        return Estimate(value, no_interval=f"no interval: without some {unit} the number is not defined")
    spread, error = value * (1 - value), _left_out_error(value, without)
    if spread > 0 and not error > 0:
        return Estimate(value, no_interval=f"no interval: all {count:,} {unit} have one value")
    low, high = _clopper_pearson(value, 1 + spread / error**2 if spread > 0 else count, LEVEL)
    method = f"Clopper-Pearson, by jackknife over {unit}"
    return Estimate(value, Interval(low, high, LEVEL, f"the population of {unit}", method, unit))


def _left_out_error(value: float, without: Array) -> float:
    """The standard error from the values without each unit, of any size."""
    return float(np.sqrt(((without - value) ** 2).sum() * (len(without) - 1) / len(without)))


def with_floor(estimate: Estimate, chance: Array) -> Estimate:
    """The estimate beside what chance gives: mean and central 95 % over the draws of a null."""
    if estimate.value is None or not np.isfinite(chance).all():
        return estimate
    low, high = np.quantile(chance, [0.025, 0.975])
    return replace(estimate, floor=float(chance.mean()), floor_low=float(low), floor_high=float(high))


def _around(
    centre: float,
    error: float,
    freedom: float,
    answers: str,
    method: str,
    positive: bool = False,
    *,
    unit: str,
    skewness: float = 0.0,
) -> Interval:
    """By Student's t; `positive`: of a mean of values ≥ 0; `skewness`: of what units add to it, removed (Hall 1992)."""
    fit, t = _Fit(centre, float(error), freedom, skewness), float(special.stdtrit(freedom, (1 + LEVEL) / 2))
    low, high = (float(centre - fit.error * fit.unskewed(end)) for end in (t, -t))
    low = max(low, 0.0) if positive else low
    return Interval(low, high, LEVEL, answers, f"{method}, skewness removed" if skewness else method, unit)
