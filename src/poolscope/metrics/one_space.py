"""Does an index hold vectors of one model? Asked of its vectors and texts alone, without any model.

Texts that share words have related vectors, in every model. So the vector of each text is predicted from those of texts
that share its words (ridge regression on pieces of words, each text left out in turn), and held against all vectors of
the index: vectors of one model stand far above chance there, a vector of another model, of another text or of noise
does not. No word of this is about a certain model, so it holds for any.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, special

from poolscope.errors import InputError, whole_number
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Estimate, share_estimate
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.streaming import marks_of, smallest
from poolscope.results import Result, bulk, column_rows, origin, provenance
from poolscope.show.charts import histogram_figure
from poolscope.texts.groups import checked_groups, plain_text

# Of more texts so many are drawn, by their words: the time grows with the cube of their number.
MOST_TEXTS = 1000
FEWEST_TEXTS = 100
"""Fewer texts predict each other too badly to tell a stray vector from an odd text."""
SEPARATION = 2.0
"""Below this many standard deviations above chance the words of a text do not tell whose its vector is."""

# What indexes of one model give, by benchmarks/one_space.py: odd texts such as tables, and of few texts one or two that
# no other text predicts.
_ODD_SHARE, _ODD_TEXTS = 0.004, 1.5

_PIECE = 4  # letters of a piece of a word
_RIDGE = 0.3
# Words that occur nowhere else explain nothing: whether such a text has the right vector, its words do not tell.
_LEAST_EXPLAINED = 0.1
# Of a part of the texts, those tell of a text that explain at least this share of what all of them do.
_LEAST_OF_ALL = 0.5
_ROUNDS, _STEPS = 8, 200
# Principal directions that two clusters begin from, and rows of a cluster that a mean needs.
_STARTS, _FEWEST_OF_SIDE = 3, 10


@dataclass(frozen=True, repr=False, kw_only=True)
class OneSpace(Result):
    """Vectors of an index that the words of their texts do not predict.

    `other` is the share of the vectors that belong to no text like theirs (another model, another text, noise); its
    floor is what odd texts give in indexes of one model. `separation` is how many standard deviations above chance the
    vectors of one origin stand: below 2 nothing can be told row by row, and `other` has a value only where a whole
    cluster is of another origin. `worded` is the share of the texts that share words with others.
    `scores` are those standard deviations for each of `positions`, NaN where words do not tell, and `probabilities`
    that its vector is another.
    """

    texts: int
    worded: float
    separation: float
    other: Estimate
    positions: Index = bulk(required=True)
    scores: Array = bulk(required=True)
    probabilities: Array = bulk(required=True)
    provenance: Mapping[str, Any] = origin()

    field_words: ClassVar[Mapping[str, str]] = {
        "worded": "texts that share words",
        "separation": "standard deviations above chance",
        "other": "vectors of another origin",
    }

    @property
    def above_floor(self) -> bool:
        """Does the whole interval lie above what odd texts of one model give?"""
        return self.other.interval is not None and self.other.interval.low > (self.other.floor or 0.0)

    @property
    def strays(self) -> Index:
        """Positions of the vectors that are rather of another origin than not, the surest first."""
        order = np.argsort(-self.probabilities, kind="stable")
        return self.positions[order[self.probabilities[order] > 0.5]]

    def in_words(self) -> tuple[str, ...]:
        """The share of vectors of another origin."""
        if self.other.value is None:
            return ("The words of these texts do not predict their vectors well enough to tell whose they are.",)
        return (
            f"{len(self.strays):,} of {self.texts:,} vectors ({self.other.value:.1%}) are not what the words of their "
            f"texts predict.",
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a text, the surest stray first."""
        order = np.argsort(-self.probabilities, kind="stable")
        columns = {"position": self.positions, "score": self.scores, "probability": self.probabilities}
        return column_rows(**{name: values[order] for name, values in columns.items()})

    def figure(self) -> Any:
        """Histogram of the scores."""
        hover = "%{x:.1f}: %{y} vectors<extra></extra>"
        words = {
            "title": "How far above chance vectors fit their words",
            "across": "standard deviations above chance (0: another origin)",
            "along": "vectors",
        }
        return histogram_figure(self.scores[np.isfinite(self.scores)], bins=60, hover=hover, **words)


def one_space(
    vectors: ArrayLike,
    texts: Sequence[str],
    *,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    most: int = MOST_TEXTS,
) -> OneSpace:
    """The share of vectors that are not of the one model that made the others.

    Each vector is predicted from the vectors of texts that share its words. z is how far the vector lies above the
    others on that prediction, in standard deviations: Gaussian around a mean well above 0 for vectors of one model, and
    standard normal for a vector that has nothing to do with its text. The share of the latter is fitted by expectation
    maximisation; vectors that are rather of another origin are then left out of the prediction, until none changes.
    That starts from all vectors and from the larger of two clusters, and the larger share counts. Where texts are too
    few to tell row by row, two clusters are held against each other: the smaller one is of another origin where the
    words that predict the larger do not predict it.

    Parameters
    ----------
    vectors : matrix
        One row a text (N × d); their lengths do not count.
    texts : list of str
        Their texts, at least 100.
    groups : list, optional
        The document of each text, where known: the interval is then over these.
    seed : int
        Of the draw of texts.
    most : int
        Of more texts that many are drawn.

    Returns
    -------
    OneSpace
        The share with its interval over texts, and the score of each vector.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> words = [f"{a}{b}" for a in "bdfgklm" for b in ("ane", "oru", "ithe", "eska")]
    >>> table = random.standard_normal((28, 32))
    >>> chosen = random.integers(28, size=(300, 8))
    >>> texts = [" ".join(words[k] for k in row) for row in chosen]
    >>> vectors = table[chosen].mean(axis=1)
    >>> one_space(vectors, texts).other.value < 0.01
    True
    >>> vectors[:30] = random.standard_normal((28, 32))[chosen[:30]].mean(axis=1)
    >>> round(one_space(vectors, texts).other.value, 1)
    0.1

    """
    unit = unit_rows(vectors, "vectors")
    if len(unit) != len(texts):
        raise InputError(f"received {len(unit)} vectors and {len(texts)} texts; needed: one text for each vector.")
    if len(unit) < FEWEST_TEXTS:
        raise InputError(f"texts: received {len(unit)}; needed: {FEWEST_TEXTS} or more.")
    drawn = smallest(marks_of(map(plain_text, texts), seed=seed), whole_number(most, "most", least=FEWEST_TEXTS))
    rows = unit[drawn].astype(np.float64)
    words = _shared_pieces([texts[k] for k in drawn])
    likeness = (words @ words.T).toarray()
    everywhere = np.ones(len(rows), dtype=bool)
    explained = _predicted(likeness, rows, everywhere).explained
    sides = _larger_sides(rows)
    fits = [fit for start in (everywhere, sides[0]) if (fit := _converged(likeness, rows, start, explained))]
    if not fits:  # too few texts to tell row by row: perhaps side by side
        fits = [fit for side in sides if (fit := _apart(likeness, rows, side, explained))]
    worded = float((explained >= _LEAST_EXPLAINED).mean())
    nothing = _Fit(0.0, np.full(len(rows), np.nan), np.zeros(len(rows)))
    fit = max(fits, key=lambda fit: float(fit.probabilities.sum()), default=nothing)
    known = np.isfinite(fit.scores)
    documents = None if groups is None else np.array(checked_groups(groups, len(unit)))[drawn][known]
    # Probabilities stand for yes or no, of as many texts: near 0 throughout they say no more than as many noes.
    settings: dict[str, Any] = {"units": documents, "each": "texts", "most": int(known.sum())}
    share = share_estimate(fit.probabilities[known], **settings) if fits else Estimate(None)
    share = replace(share, floor=_ODD_SHARE + _ODD_TEXTS / len(rows))
    return OneSpace(
        texts=len(rows),
        worded=worded,
        separation=fit.separation,
        other=share,
        positions=drawn,
        scores=fit.scores,
        probabilities=fit.probabilities,
        provenance=provenance(settings={"seed": seed, "most": most}),
    )


# -- words ------------------------------------------------------------------------------------------------------------


def _pieces(text: str) -> Iterator[str]:
    """Pieces of four letters of every word, which inflected forms share; of other scripts pairs of letters too.

    >>> list(_pieces("Open it"))
    [' ope', 'open', 'pen ', ' it ']
    """
    for word in re.findall(r"\w+", plain_text(text)):
        padded = f" {word} "
        yield from (padded[k : k + _PIECE] for k in range(max(1, len(padded) - _PIECE + 1)))
        if not word.isascii():
            yield from (word[k : k + 2] for k in range(len(word) - 1))


def _shared_pieces(texts: Sequence[str]) -> Any:
    """Texts × pieces that several texts have, weighted by (1 + log count)·log(N/texts with it), rows of length 1."""
    numbers: dict[str, int] = {}
    indices, counts, ends = [], [], [0]
    for text in texts:
        pieces = Counter(_pieces(text))
        indices += [numbers.setdefault(piece, len(numbers)) for piece in pieces]
        counts += list(pieces.values())
        ends.append(len(indices))
    table = sparse.csr_array(
        (1 + np.log(np.array(counts, dtype=np.float64)), indices, ends), (len(texts), len(numbers))
    )
    often = np.bincount(table.indices, minlength=len(numbers))
    table = table[:, often > 1] @ sparse.diags_array(np.log(len(texts) / often[often > 1]))
    lengths = sparse.linalg.norm(table, axis=1)
    return sparse.csr_array(sparse.diags_array(1 / np.where(lengths > 0, lengths, 1)) @ table)


# -- prediction -------------------------------------------------------------------------------------------------------


class _Prediction(NamedTuple):
    """Predicted vector of every text from other texts' vectors, and the share of its words that these explain."""

    vectors: Array
    explained: Array
    centre: Array


def _predicted(likeness: Array, rows: Array, taught: NDArray[np.bool_]) -> _Prediction:
    """Kernel ridge regression of the vectors of `taught` on their words; of a taught text as if it had been left out.

    With G = (K + λI)⁻¹, K the likeness of words and Y the centred vectors at length 1, the prediction of a text that is
    left out is y_i − (GY)_i/G_ii, and K_ii − (1/G_ii − λ) is the share of its words that the others explain.
    """
    inside = np.flatnonzero(taught)
    centre = rows[inside].mean(axis=0)
    known = _at_length_1(rows[inside] - centre)
    inverse = np.linalg.inv(likeness[np.ix_(inside, inside)] + _RIDGE * np.eye(len(inside)))
    diagonal = np.diag(inverse)
    weights = likeness[:, inside] @ inverse
    vectors, explained = weights @ known, np.einsum("ij,ij->i", weights, likeness[:, inside])
    vectors[inside] = known - inverse @ known / diagonal[:, None]
    explained[inside] = np.diag(likeness)[inside] - (1 / diagonal - _RIDGE)
    return _Prediction(vectors, explained, centre)


def _standing(prediction: _Prediction, rows: Array, taught: NDArray[np.bool_]) -> Array:
    """How far each vector lies above all taught ones on the prediction of its text, in standard deviations."""
    centred, expected = (_at_length_1(table) for table in (rows - prediction.centre, prediction.vectors))
    others = expected @ centred[taught].T
    own = np.einsum("ij,ij->i", expected, centred)
    spread = others.std(axis=1)
    return np.asarray((own - others.mean(axis=1)) / np.where(spread > 0, spread, 1))


def _at_length_1(table: Array) -> Array:
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(table / np.where(lengths > 0, lengths, 1))


# -- two kinds of vectors ---------------------------------------------------------------------------------------------


class _Fit(NamedTuple):
    """The mean standing of vectors of one origin, that of each vector, and how likely it is of another origin."""

    separation: float
    scores: Array
    probabilities: Array


def _mixture(scores: Array, taught: NDArray[np.bool_]) -> tuple[float, Array]:
    """The mean of the Gaussian of most scores, and how likely each is rather a draw of the standard normal one.

    Expectation maximisation with one component known: a vector of another origin stands where chance puts it. It begins
    with the scores of vectors that taught, where enough did.
    """
    first = scores[taught] if taught.sum() >= FEWEST_TEXTS // 4 else scores
    share, mean = max(0.05, 1 - len(first) / len(scores)), float(np.median(first))
    spread = max((float(np.quantile(first, 0.75)) - mean) / 0.6745, 1e-3)
    for _ in range(_STEPS):
        chance = np.log(share) - scores**2 / 2
        own = np.log1p(-share) - np.log(spread) - ((scores - mean) / spread) ** 2 / 2
        other = 1 / (1 + np.exp(np.clip(own - chance, -500, 500)))
        other[scores > mean] = 0  # better than most is no sign of another origin
        share, weight = float(np.clip(other.mean(), 1e-9, 1 - 1e-9)), 1 - other
        mean = float(weight @ scores / weight.sum())
        spread = max(float(np.sqrt(weight @ (scores - mean) ** 2 / weight.sum())), 1e-3)
    return mean, other


def _converged(likeness: Array, rows: Array, start: NDArray[np.bool_], explained: Array) -> _Fit | None:
    """Teach with `start`, then with all vectors that fit, until these stay the same; None where words tell nothing."""
    taught = start
    for _ in range(_ROUNDS):
        prediction = _predicted(likeness, rows, taught)
        tells = prediction.explained >= np.maximum(_LEAST_OF_ALL * explained, _LEAST_EXPLAINED)
        if tells.sum() < FEWEST_TEXTS // 2:
            return None
        scores = np.where(tells, _standing(prediction, rows, taught), np.nan)
        separation, other = _mixture(scores[tells], taught[tells])
        probabilities = np.zeros(len(rows))
        probabilities[tells] = other
        fitting = tells & (probabilities <= 0.5)
        if (fitting == taught).all() or fitting.sum() < FEWEST_TEXTS // 4:
            break
        taught = fitting
    return _Fit(separation, scores, probabilities) if separation >= SEPARATION else None


def _apart(likeness: Array, rows: Array, side: NDArray[np.bool_], explained: Array) -> _Fit | None:
    """The smaller side as vectors of another origin, where words that predict the larger side do not predict it.

    A mean over a side tells what single rows of few texts do not: it has to lie below half of what the larger side
    gives, with both ends of their intervals. Rows whose words the other side does not have, as those of another
    language, count for nothing.
    """
    prediction = _predicted(likeness, rows, side)
    tells = prediction.explained >= np.maximum(_LEAST_OF_ALL * explained, _LEAST_EXPLAINED)
    scores = np.where(tells, _standing(prediction, rows, side), np.nan)
    own, other = scores[side & tells], scores[~side & tells]
    if min(len(own), len(other)) < _FEWEST_OF_SIDE:
        return None
    lowest, highest = own.mean() - _reach(own), other.mean() + _reach(other)
    return _Fit(float(own.mean()), scores, (~side & tells).astype(float)) if highest < lowest / 2 else None


def _reach(scores: Array) -> float:
    """Half of the interval of a mean."""
    error = scores.std(ddof=1) / np.sqrt(len(scores))
    return float(special.stdtrit(len(scores) - 1, 0.975) * error)


def _larger_sides(rows: Array) -> list[NDArray[np.bool_]]:
    """The larger of two clusters, from each of the first principal directions; all rows where there is one."""
    centred = rows - rows.mean(axis=0)
    return [_larger_side(rows, centred @ axis > 0) for axis in np.linalg.svd(centred, full_matrices=False)[2][:_STARTS]]


def _larger_side(rows: Array, side: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The larger of two clusters that begin with one side; all where there is one."""
    for _ in range(_ROUNDS):
        if side.all() or not side.any():
            return np.ones(len(rows), dtype=bool)
        centres = _at_length_1(np.array([rows[side].mean(axis=0), rows[~side].mean(axis=0)]))
        side = rows @ (centres[0] - centres[1]) > 0
    return np.asarray(side if 2 * side.sum() >= len(side) else ~side)
