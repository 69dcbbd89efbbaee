"""Long, or mixed? How much a text changes its subject, beside its length.

A text that says one thing ten times is long; one that says ten things is mixed. Both have ten sentences. With the unit
vectors u₁ … u_k of the sentences, each encoded alone and in order, L is the mean of 1 − cos of neighbours, D the mean
of 1 − cos of all pairs, and the shift is L·D. A plain average of the sentences has length ‖m‖, with
‖m‖² = 1 − (k − 1)/k · D: the more a text shifts, the less of each sentence its average keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.chunks.splitting import BLANK_LINE, SENTENCE, find_units
from poolscope.errors import InputError
from poolscope.metrics.length.bins import LengthPart, Panel, row_panels
from poolscope.numbers import Array
from poolscope.numbers.cosines import pair_cosine
from poolscope.numbers.intervals import (
    Estimate,
    Units,
    chosen_units,
    mean_estimate,
    not_by_documents,
    regression_slopes,
)
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.streaming import shuffled_order
from poolscope.results import bulk

# Texts whose sentences are encoded, the fewest that a regression on two numbers is made of, and sentences a made text.
TEXTS, MIN_TEXTS, TOGETHER = 120, 20, 4
_MOST_SENTENCES = 32  # of one text: the sums need no more
_LEAST_WORDS = 3  # what is shorter is a heading, and goes with what follows


@dataclass(frozen=True)
class MadeTexts:
    """Texts of as many sentences, put together in one way: mean words, mean shift, and mean cosine of their pairs."""

    label: str
    texts: int
    words: float
    shift: Estimate
    cosine: Estimate


@dataclass(frozen=True, repr=False)
class SemanticShift(LengthPart):
    """How much texts change their subject, and what that and their length have to do with how alike they are.

    `local` (L), `dispersion` (D) and `shift` (L·D) are means over texts. `by_length` and `by_shift` are slopes of one
    regression: what one standard deviation of log₂ length, or of the shift, adds to a text's mean cosine with the
    other texts while the other of the two is held fixed. `together` is the correlation of the two. `made` are texts of
    `sentences` sentences: in a row from one text, from several texts of one document, each from another text, and one
    repeated; `mixing` is the mean cosine of those from several texts minus that of those from one. `encoded_tokens` is
    what all that cost, where it was counted.
    """

    texts: int
    local: Estimate
    dispersion: Estimate
    shift: Estimate
    by_length: Estimate
    by_shift: Estimate
    together: float
    explained: float
    sentences: int
    made: tuple[MadeTexts, ...]
    mixing: Estimate
    encoded_tokens: int = 0
    lengths: Array | None = bulk()
    shifts: Array | None = bulk()
    cosines: Array | None = bulk()

    table_of = "made"

    @property
    def cause(self) -> str:
        """What goes with texts that look alike: "long", "mixed", "both", or "" where neither can be told.

        Length alone is named only where texts are of one subject each: where sentences that are put together from
        several texts make surely more of a likeness. In a corpus whose long texts are all mixed, length and mixing are
        one and the same, and no regression can part them.
        """
        mixed, long = (_above_zero(slope) for slope in (self.by_shift, self.by_length))
        if mixed:
            return "both" if long else "mixed"
        return "long" if long and _above_zero(self.mixing) else ""

    def sentence(self) -> str:
        """What the regression says, in words."""
        slopes = (
            f"{_signed(self.by_length)} per standard deviation of length, {_signed(self.by_shift)} per standard "
            f"deviation of shift, {self.texts} texts"
        )
        apart = " rather than" if self._apart else ", and perhaps"
        words = {
            "mixed": f"This goes with mixed subjects{apart} length: at equal length, mixed texts are more alike",
            "long": f"This goes with length{apart} mixed subjects: equally mixed, longer texts are more alike",
            "both": "This goes with length and with mixed subjects: each by itself makes texts more alike",
            "": f"Length and mixed subjects cannot be separated here{self._as_mixed}",
        }[self.cause]
        return f"{words}. Mean cosine: {slopes}."

    @property
    def _as_mixed(self) -> str:
        """Why not, where length would be named but for the subjects of the texts."""
        if not _above_zero(self.by_length) or not self.made:
            return ""
        return ": longer texts are more alike, but they may also be more mixed"

    @property
    def _apart(self) -> bool:
        """Does the one that goes with likeness surely go with it more than the other?"""
        ends = sorted(
            (slope.interval.low, slope.interval.high) for slope in (self.by_length, self.by_shift) if slope.interval
        )
        return len(ends) == 2 and ends[0][1] < ends[1][0]

    def sentences_made(self) -> tuple[str, ...]:
        """Sentences on texts that differ only in changes of subject; empty without such texts."""
        if not self.made:
            return ()
        ways = ", ".join(f"{row.cosine.value:.3f} ({row.label})" for row in self.made)
        return (
            f"Experiment: we built texts of {self.sentences} sentences, about {self.made[0].words:.0f} words each, "
            f"from sentences of one text or of several.",
            f"Their mean cosine is {ways}. The difference is {self.mixing}.",
        )

    def in_words(self) -> tuple[str, ...]:
        """What the regression and the experiment say."""
        return (self.sentence(), *self.sentences_made())

    def figure_title(self) -> str:
        return f"Texts of {self.sentences} sentences: only the change of subject differs"

    def panels(self) -> list[Panel]:
        shift = ("How much does the subject change?", "shift L·D")
        shown = {"shift": shift, "cosine": ("Are they alike?", "mean cosine")}
        labels, across = [row.label for row in self.made], f"{self.sentences} sentences of"
        return row_panels(self.made, labels, across, shown) if labels else []

    def figure(self) -> Any:
        """Shift and likeness of the texts that were made; an error where none were."""
        return super().figure() if self.made else super(LengthPart, self).figure()


def _above_zero(slope: Estimate) -> bool:
    return slope.interval is not None and slope.interval.low > 0


def _signed(slope: Estimate) -> str:
    return "undefined" if slope.value is None else f"{slope.value:+z.4f} {slope.interval or ''}".rstrip()


def sentences_of(text: str) -> list[str]:
    r"""The sentences of a text in order, each of three words or more; line breaks inside a paragraph part none.

    >>> sentences_of("Returns. It opens the file\nfor reading. It closes it again.")
    ['Returns. It opens the file\nfor reading.', 'It closes it again.']
    """
    units = find_units(text)
    parts, first = [], 0
    for last, kind in enumerate(units.kinds):
        if last == len(units) - 1 or (kind in (BLANK_LINE, SENTENCE) and last + 1 - first >= _LEAST_WORDS):
            parts.append(text[units.starts[first] : units.ends[last]])
            first = last + 1
    return parts


def shift_of(unit: ArrayLike) -> tuple[float, float]:
    """L and D of the unit vectors of a text's sentences, in order.

    >>> shift_of([[1, 0], [1, 0], [0, 1], [0, 1]])
    (0.33333333333333337, 0.6666666666666667)
    """
    rows = np.asarray(unit, dtype=np.float64)
    count = len(rows)
    local = 1 - float(np.einsum("ij,ij->i", rows[:-1], rows[1:]).mean())
    total = rows.sum(axis=0)
    return local, 1 - float((total @ total - np.einsum("ij,ij->", rows, rows)) / (count * (count - 1)))


def semantic_shift(
    vectors: ArrayLike,
    lengths: ArrayLike,
    texts: Sequence[str],
    encode: Callable[[list[str]], ArrayLike],
    *,
    groups: ArrayLike | None = None,
    read: ArrayLike | None = None,
    limit: int = TEXTS,
    repeated: bool = True,
    seed: int = 0,
) -> SemanticShift:
    """Shift of a draw of texts of two sentences or more, and the regression of their likeness on length and shift.

    vectors (texts × d) and lengths of all texts; `encode` gives the vectors of other texts, here of sentences; groups:
    the document of each text, where known; read: the share of each text that the model read, if it cut some. Without
    `repeated` no sentence is repeated to a text: that is shown beside the others, and decides nothing.
    """
    unit, sizes = unit_rows(vectors, "vectors").astype(np.float64), np.asarray(lengths, dtype=np.float64)
    share = np.ones(len(unit)) if read is None else np.asarray(read, dtype=np.float64)
    parts = [
        sentences_of(text[: int(len(text) * part)])[:_MOST_SENTENCES] for text, part in zip(texts, share, strict=True)
    ]
    random = np.random.default_rng(seed)
    several = [k for k in shuffled_order(texts, seed=seed).tolist() if len(parts[k]) > 1]
    drawn = np.array(several[:limit], dtype=np.int64)
    if len(drawn) < MIN_TEXTS:
        raise InputError(
            f"texts: received {len(parts)}, of which {len(drawn)} have two sentences or more; {MIN_TEXTS} are needed "
            f"to tell length from a change of subject. Give more texts."
        )
    flat = [sentence for k in drawn for sentence in parts[k]]
    documents = None if groups is None else np.asarray(groups)[drawn]
    ways = _ways([parts[k] for k in drawn], documents, random, repeated=repeated)
    made_texts = [" ".join(row) for made in ways.values() for row in made]
    encoded = np.asarray(encode([*flat, *made_texts]))  # all at once: few texts at a time take longer
    spoken = unit_rows(encoded[: len(flat)], "sentences")
    edges = np.cumsum([len(parts[k]) for k in drawn])[:-1]
    measured = np.array([shift_of(rows) for rows in np.split(spoken, edges)])
    shifts = measured.prod(axis=1)
    alike = (unit[drawn] @ unit.sum(axis=0) - 1) / (len(unit) - 1)
    slopes, explained = regression_slopes(alike, np.stack([np.log2(sizes[drawn]), shifts], axis=1), documents)
    known = chosen_units(len(drawn), documents)
    made, mixing = _made(ways, encoded[len(flat) :], dict(zip(flat, spoken, strict=True)), known)
    varies = np.ptp(shifts) > 0 and np.ptp(sizes[drawn]) > 0
    return SemanticShift(
        texts=len(drawn),
        local=mean_estimate(measured[:, 0], documents),
        dispersion=mean_estimate(measured[:, 1], documents),
        shift=mean_estimate(shifts, documents),
        by_length=slopes[0],
        by_shift=slopes[1],
        together=float(np.corrcoef(np.log2(sizes[drawn]), shifts)[0, 1]) if varies else 0.0,
        explained=explained,
        sentences=TOGETHER,
        made=made,
        mixing=mixing,
        lengths=sizes[drawn],
        shifts=shifts,
        cosines=alike,
    )


def _ways(
    parts: Sequence[Sequence[str]], documents: NDArray[Any] | None, random: np.random.Generator, *, repeated: bool
) -> dict[str, list[list[str]]]:
    """The same sentences put together in several ways, so that texts are of one length and shift more or less."""
    long = [k for k, rows in enumerate(parts) if len(rows) >= TOGETHER]
    if len(long) < MIN_TEXTS:
        return {}
    runs = []
    for k in long:
        start = int(random.integers(len(parts[k]) - TOGETHER + 1))
        runs.append(list(parts[k][start : start + TOGETHER]))
    across = [
        [runs[(number + 7 * place) % len(runs)][place] for place in range(TOGETHER)] for number in range(len(runs))
    ]
    ways = {"one text": runs, "several texts": across}
    if repeated:
        ways["one sentence repeated"] = [[row[0]] * TOGETHER for row in runs]
    if documents is not None and len(inside := _of_one_document(parts, documents, random)) >= MIN_TEXTS:
        ways["one document"] = inside
    return ways


def _made(
    ways: Mapping[str, Sequence[Sequence[str]]],
    vectors: NDArray[Any],
    spoken: Mapping[str, NDArray[Any]],
    documents: Units,
) -> tuple[tuple[MadeTexts, ...], Estimate]:
    """How alike the texts of each way are; `vectors` are theirs, way after way, `spoken` those of the sentences.

    A text made of several has several documents, so that nothing of them has an interval where documents are known.
    """
    if not ways:
        return (), Estimate(None)
    rows, cosines = [], {}
    edges = np.cumsum([len(made) for made in ways.values()])[:-1]
    for (label, made), own in zip(ways.items(), np.split(vectors, edges), strict=True):
        cosines[label] = pair_cosine(unit_rows(own, label))
        shifts = np.array([np.prod(shift_of([spoken[sentence] for sentence in row])) for row in made])
        words = float(np.mean([len(" ".join(row).split()) for row in made]))
        shown = (not_by_documents(one, documents) for one in (mean_estimate(shifts), cosines[label].estimate))
        rows.append(MadeTexts(label, len(made), words, *shown))
    return tuple(rows), not_by_documents(cosines["several texts"].minus(cosines["one text"]), documents)


def _of_one_document(
    parts: Sequence[Sequence[str]], documents: NDArray[Any], random: np.random.Generator
) -> list[list[str]]:
    """A sentence each of several texts of one document, for every document that has so many."""
    made = []
    for name in dict.fromkeys(documents.tolist()):
        members = random.permutation(np.flatnonzero(documents == name))
        for start in range(0, len(members) - TOGETHER + 1, TOGETHER):
            chosen = members[start : start + TOGETHER]
            made.append([parts[k][int(random.integers(len(parts[k])))] for k in chosen])
    return made
