"""Intervals: the units they are over, and one cited method for each kind of number.

| number | method | file, which names the sources |
|---|---|---|
| mean | its error by unit (CR2, Satterthwaite), and Hall's transformation against skewness | means |
| share, score between 0 and 1 | Clopper and Pearson's, at the effective number of units of Korn and Graubard | means |
| ratio of two means | Fieller | means |
| slope, difference of means | least squares with errors by unit: CR2 with Satterthwaite's degrees of freedom | slopes |
| paired difference | Johnson's modified t, with the error by unit; p from flipping the signs of whole units | paired |
| mean over pairs | jackknife over units, or dyadic errors for a list of pairs; Hall's transformation | pairs |
| any other statistic | jackknife over units | left_out |

Without documents every value is a unit of its own, and means, shares and slopes are Student's, the binomial one and
Welch's. Pairs that share a text are not independent, and two questions have two answers. For *this corpus*, randomly
sampled pairs are independent draws. For the *population of texts* that the corpus came from, the texts are the draws.
"""

from __future__ import annotations

from poolscope.numbers.intervals.estimate import (
    CORPUS,
    LEVEL,
    POPULATION,
    Estimate,
    Interval,
    score_text,
    signed,
    with_floor,
)
from poolscope.numbers.intervals.left_out import (
    leave_one_out_interval,
    left_out_estimate,
    left_out_share,
    percentile_interval,
)
from poolscope.numbers.intervals.means import (
    RatioParts,
    mean_estimate,
    ratio_estimate,
    share_estimate,
    share_of,
)
from poolscope.numbers.intervals.paired import (
    ONE_PLACE,
    PairedDifference,
    paired_difference,
    sign_flip_p,
    smallest_gain,
)
from poolscope.numbers.intervals.pairs import (
    RegressionEstimate,
    corpus_interval,
    dyadic_interval,
    jackknife_interval,
    pair_estimate,
    population_of_pairs,
    regression_estimate,
    unit_jackknife,
)
from poolscope.numbers.intervals.slopes import difference_of_means, rate_difference, regression_slopes
from poolscope.numbers.intervals.units import (
    FEWEST_CHANGED,
    FEWEST_DOCUMENTS,
    FEWEST_OF_PAIRS,
    FEWEST_PAIRED,
    FEWEST_PAIRED_DOCUMENTS,
    FEWEST_UNITS,
    ON_THESE_TEXTS,
    Units,
    answers,
    chosen_units,
    not_by_documents,
    query_units,
    too_few,
)

__all__ = [
    "CORPUS",
    "FEWEST_CHANGED",
    "FEWEST_DOCUMENTS",
    "FEWEST_OF_PAIRS",
    "FEWEST_PAIRED",
    "FEWEST_PAIRED_DOCUMENTS",
    "FEWEST_UNITS",
    "LEVEL",
    "ONE_PLACE",
    "ON_THESE_TEXTS",
    "POPULATION",
    "Estimate",
    "Interval",
    "PairedDifference",
    "RatioParts",
    "RegressionEstimate",
    "Units",
    "answers",
    "chosen_units",
    "corpus_interval",
    "difference_of_means",
    "dyadic_interval",
    "jackknife_interval",
    "leave_one_out_interval",
    "left_out_estimate",
    "left_out_share",
    "mean_estimate",
    "not_by_documents",
    "pair_estimate",
    "paired_difference",
    "percentile_interval",
    "population_of_pairs",
    "query_units",
    "rate_difference",
    "ratio_estimate",
    "regression_estimate",
    "regression_slopes",
    "score_text",
    "share_estimate",
    "share_of",
    "sign_flip_p",
    "signed",
    "smallest_gain",
    "too_few",
    "unit_jackknife",
    "with_floor",
]
