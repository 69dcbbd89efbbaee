"""Vectors that were made elsewhere beside the model that is said to have made them: which cause explains them best?

Every cause is a hypothesis. It is computed from the reference, and its cosine with the vectors says how well it
explains them. Each vector is first matched to all texts (`match_rows`), and what can be pooled from clouds that are
there is tried on all of them. What must be encoded anew is tried on eight texts that differ, and only a cause that
comes near there on more: where none does, the search ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.connect.runtimes.asking import Form, read_form, row_cosines
from poolscope.connect.runtimes.causes import DECLARED, Cause, Reading, Reference
from poolscope.connect.runtimes.rows import FOREIGN, NEAR, SAME, STALE, RowMatches, match_rows
from poolscope.encoders.base import Progress, TokenEncoder
from poolscope.errors import InputError
from poolscope.numbers.intervals import Estimate, mean_estimate
from poolscope.numbers.lengths import NORMALISED, odd_lengths
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.streaming import smallest, text_marks
from poolscope.results import Result, bulk, cells, origin, transient
from poolscope.show.charts import dots_figure

Array = NDArray[np.float64]

# Texts on which every cause is tried: those that differ most, and the longest of those that differ.
_PROBED_WORST, _PROBED_LONGEST = 4, 4
# Texts that are encoded anew under a cause that comes near: the longest, those that differ most, and some at random.
_LONGEST, _WORST, _RANDOM = 10, 12, 18
_FEWEST_TOKENS, _PARTS = 3, 8
# Causes that come near and are tried on these; the best explanation and its runner-up are among them.
_PURSUED = 4
# Weights are rounded where vectors are as near as this: two bits a weight leave less of few models.
_ROUNDED_FROM = 0.8
# Below this share of the texts a cause is none: a few texts may differ for a reason of their own.
EXPLAINS = 0.95
# A vector as near as this is the model's own, computed from the same weights and the same text: 16 bits a number leave
# 1e-7. Weights rounded to 8 bits move every vector by 5e-5 or more, so that where a share of the vectors is exact the
# weights are not rounded, and what is left on average is left by the other vectors alone.
_EXACT = 1 - 1e-5
_EXACT_SHARE = 0.05
# The cause that comes nearest must explain this share of what the model as declared leaves.
_MUST_EXPLAIN = 0.5
_TIED = 1e-6
# Causes that the figure shows beside the model as declared.
_SHOWN = 8


@dataclass(frozen=True)
class Index:
    """All vectors of an index, the rows of those that are looked at, and the ids of all, where they are known."""

    vectors: NDArray[Any]
    rows: NDArray[np.int64]
    ids: Sequence[str] | None = None


@dataclass(frozen=True)
class Tested(Cause):
    """A cause, and how well it explains the vectors.

    `cosine` is the mean over texts with its interval, its floor that with the vector of another text; `least` the
    lowest; `share` how many of the texts it explains to SAME; `texts` on how many it was tried.
    """

    cosine: Estimate
    least: float
    share: float
    texts: int

    @property
    def mean(self) -> float:
        """The mean cosine."""
        return float(self.cosine.value or 0.0)

    @property
    def explains(self) -> bool:
        """Does it explain (almost) all texts?"""
        return self.share >= EXPLAINS


@dataclass(frozen=True, repr=False)
class RuntimeMatch(Result):
    """Vectors of a runtime beside a reference: the model as declared, and every other cause, best first.

    `alike` are causes that cannot be told from the best on these texts. `concerned` is the mean cosine with the model
    over the texts that the best cause changes. `by_row` says what each vector is, where some are not the model's own;
    `rounded` are numbers of bits and the mean cosine of the model with itself when its weights are
    rounded to so many; `constant` says whether all texts have one and the same vector. `repeated` is the lowest cosine
    of a text with itself when it was asked again, `batched` that when it stood among other texts (None: not asked).
    `differ` are the positions of texts whose vectors are not the model's; `rest` is the match of these alone, where a
    share of the others is exactly the model's own and no cause explains all: over all vectors they would be outvoted.
    `other_lengths` are the positions of vectors that do not have the length 1, where others do.
    """

    model: str
    texts: int
    dimension: int
    own: Tested
    others: tuple[Tested, ...]
    form: str
    coarse: bool
    cut: bool
    plain: float
    normalised: bool
    shortest: float
    longest: float
    whole: bool
    same: float = SAME
    concerned: float | None = None
    alike: tuple[str, ...] = ()
    by_row: RowMatches | None = field(default=None, repr=False)
    repeated: float | None = None
    batched: float | None = None
    untested: tuple[str, ...] = ()
    constant: bool = False
    rounded: tuple[tuple[int, float], ...] = ()
    differ: tuple[int, ...] = field(default=(), repr=False)
    other_lengths: tuple[int, ...] = field(default=(), repr=False)
    rest: RuntimeMatch | None = field(default=None, repr=False)
    near: tuple[Reading, ...] = transient()
    cosines: Array | None = bulk()
    provenance: Mapping[str, Any] = origin()

    @property
    def best(self) -> Tested | None:
        """The cause that explains best where the model as declared does not; None where it does."""
        if self.own.share == 1 or not self.others or self.others[0].mean <= self.own.mean:
            return None
        return self.others[0]

    @property
    def order(self) -> str | None:
        """Find the pooling under which (almost) all vectors match the texts in another order; None if there is none.

        Copies of a text that stand where they should have not moved.
        """
        by_row = self.by_row
        if by_row is None or not by_row.moved.value or (by_row.own.value or 0) + by_row.moved.value < EXPLAINS:
            return None
        return by_row.moved_pooling or self.provenance["pooling"]

    @property
    def cause(self) -> Tested | None:
        """What explains the vectors, or comes clearly nearer than the model as declared."""
        best = self.best
        if best is None or best.explains:
            return best
        left, declared = 1 - best.mean, 1 - self.own.mean
        return best if best.mean >= NEAR and left <= (1 - _MUST_EXPLAIN) * declared else None

    @property
    def bits(self) -> tuple[int, float] | None:
        """The bits a weight that would leave as much as is left here, and the cosine they leave; None if none do.

        What rounding leaves goes by the way it is done, of which there are many: so how much is left is compared, and
        up to twice as much or half counts as the same.
        """
        left = max(1 - self.own.mean, 1e-12)
        near = [(abs(np.log(max(1 - cosine, 1e-12) / left)), bits, cosine) for bits, cosine in self.rounded]
        apart, bits, cosine = min(near, default=(np.inf, 0, 0.0))
        return (bits, cosine) if apart <= np.log(2) else None

    @property
    def second(self) -> Tested | None:
        """The runner-up of the best explanation, which is the model as declared or another cause."""
        rest = [test for test in (self.own, *self.others) if test not in (self.best or self.own,)]
        rest = [test for test in rest if test.name not in self.alike]
        return max(rest, key=lambda test: test.mean, default=None)

    def headline(self) -> dict[str, Any]:
        """The cosine with the model as declared, and what explains best."""
        best = self.best or self.own
        return {"model": self.model, "texts": self.texts, "cosine": self.own.cosine, "best": best.name}

    def in_words(self) -> tuple[str, ...]:
        """How near the vectors are to the model, and what explains them better."""
        sentence = (
            f"The vectors have a mean cosine of {self.own.mean:.4f} with those of {self.model} as it declares itself"
        )
        best = self.best
        return (f"{sentence}." if best is None else f"{sentence}; {best.name} gives {best.mean:.4f}.",)

    def figure(self) -> Any:
        """The cosine under the first causes, the model as declared before them."""
        rows = {test.name: test.cosine for test in (self.own, *self.others[:_SHOWN])}
        return dots_figure(rows, title="What would explain the vectors", across="cosine with them", reference=1.0)

    def rows(self) -> list[dict[str, Any]]:
        """One row a cause, the model as declared first."""
        return [
            cells({"kind": t.kind, "cause": t.name, "cosine": t.cosine, "least": t.least, "share": t.share})
            | {"texts": t.texts}
            for t in (self.own, *self.others)
        ]


def match_runtime(
    reference: TokenEncoder,
    texts: Sequence[str] | None,
    vectors: Any,
    *,
    clouds: TokenClouds | None = None,
    batches: Sequence[Sequence[int]] | None = None,
    repeated: float | None = None,
    batched: float | None = None,
    same: float = SAME,
    seed: int = 0,
    progress: Progress | None = None,
) -> RuntimeMatch:
    """Which cause explains vectors that were made elsewhere?

    Parameters
    ----------
    reference
        The encoder that is said to have made them.
    texts
        The texts, in the order of the vectors; None where only `clouds` are there.
    vectors
        What the runtime gave (texts × d′).
    clouds
        The clouds of the texts by the reference, if they are there already.
    batches
        The positions of the texts of each request, where they are known: padding goes by them.
    repeated, batched
        The lowest cosine of a text with itself when asked again, and when asked among others, where it was asked.
    same
        From which cosine on two vectors are one but for rounding.
    seed
        Of the texts that are drawn, and of intervals.
    progress
        Called after every cause with the number of texts and of tokens that it was tried on.

    Returns
    -------
    RuntimeMatch
        The cosine with the model as declared, and that of every other cause, best first.

    Examples
    --------
    >>> from poolscope.encoders import as_encoder
    >>> tokens = [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 2.0]], [[2.0, 1.0], [1.0, 0.0]]]
    >>> encoder = as_encoder(tokens)
    >>> match_runtime(encoder, None, [cloud[0] for cloud in tokens], clouds=encoder.ready_clouds).best.name
    'cls'

    """
    return match_reference(
        Reference(reference, texts, clouds=clouds, batches=batches),
        vectors,
        repeated=repeated,
        batched=batched,
        same=same,
        seed=seed,
        progress=progress,
    )


def match_some(match: RuntimeMatch, reference: Reference, vectors: Any, rows: NDArray[np.int64]) -> RuntimeMatch:
    """`match_runtime` for some rows of a match, such as deviating ones, by the readings that came near for all."""
    return match_reference(
        reference.at(rows), np.asarray(vectors)[rows], same=match.same, near=match.near, seed=match.provenance["seed"]
    )


def match_reference(
    whole: Reference,
    vectors: Any,
    *,
    repeated: float | None = None,
    batched: float | None = None,
    same: float = SAME,
    seed: int = 0,
    progress: Progress | None = None,
    near: Sequence[Reading] | None = None,
    index: Index | None = None,
) -> RuntimeMatch:
    """`match_runtime`; `near` are the ways to read that came near for more texts: then no others are tried.

    `index`: these vectors are some rows of an index, in all of which each text is looked for.
    """
    form, received = _received(vectors, whole)
    matching = _Matching(whole, form, received, seed, same)
    own, row_values = matching.own()
    # Signs are exact by chance: rounded weights leave many of them as they are.
    exact = form.rounding != "binary" and (row_values >= _EXACT).mean() >= _EXACT_SHARE
    apart = exact and whole.whole
    differ = np.flatnonzero(row_values < same)
    by_row = None if own.share == 1 else matching.by_row(index)
    others = matching.poolings()
    tried: list[Tested] = []
    encoded_anew = 0
    # Rows that are found among the texts, or under another pooling, need no other reading.
    open_rows = differ if by_row is None else np.flatnonzero(np.isin(by_row.codes, (STALE, FOREIGN)))
    if len(open_rows) > (1 - EXPLAINS) * len(differ):
        if near is None:
            probes = matching.probes(row_values, open_rows)
            long_differ = matching.long_differ(differ)
            near, tried = matching.at(probes).near_readings(progress, rounded=not exact, long_differ=long_differ)
            encoded_anew = len(probes)
        if near:
            chosen = matching.few(row_values)
            others += matching.at(chosen).pursued(near)
            encoded_anew = max(encoded_anew, len(chosen))
    names = {test.name for test in others}
    ranked = (*_ranked(others, own), *_ranked([test for test in tried if test.name not in names], own))
    explained = own.share == 1 or (ranked and ranked[0].explains)
    lengths = np.linalg.norm(received, axis=1)
    found = RuntimeMatch(
        model=whole.card.name,
        texts=len(received),
        dimension=received.shape[1],
        own=own,
        others=ranked,
        form=form.words(),
        coarse=form.coarse,
        cut=form.cut,
        plain=matching.plain(),
        normalised=bool((np.abs(lengths - 1) < NORMALISED).all()),
        shortest=float(lengths.min()),
        longest=float(lengths.max()),
        whole=whole.whole,
        same=same,
        concerned=matching.concerned.get(ranked[0].name) if ranked else None,
        alike=tuple(t.name for t in ranked[1:] if t.mean > ranked[0].mean - _TIED),
        by_row=by_row,
        repeated=repeated,
        batched=batched,
        untested=whole.untested(),
        constant=len(received) > 1 and bool((received == received[0]).all()),
        rounded=tuple(sorted(matching.rounded.items(), reverse=True)),
        differ=tuple(differ.tolist()),
        other_lengths=tuple(odd_lengths(lengths).tolist()),
        cosines=row_values,
        near=tuple(near or ()),
        provenance={
            "reference": whole.card.to_dict(),
            "encoded_anew": encoded_anew or None,
            "pooling": whole.pooling,
            "seed": seed,
        },
    )
    if apart and not explained and found.order is None and 0 < len(differ) < len(received):
        return replace(found, rest=match_some(found, whole, vectors, differ))
    return found


def _received(vectors: Any, reference: Reference) -> tuple[Form, Array]:
    table = np.asarray(vectors)
    count = len(reference)
    if table.ndim != 2 or len(table) != count:
        raise InputError(
            f"vectors: received an array of shape {table.shape}; needed: one vector for each of the {count} texts, in "
            f"their order (texts × dimensions)."
        )
    unit_rows(table, "vectors")  # refuses a row that is zero or not finite, by its number
    dimension = reference.finished(np.zeros((1, reference.clouds.dimension))).shape[1]
    return read_form(table, dimension)


def _ranked(tests: Sequence[Tested], own: Tested) -> tuple[Tested, ...]:
    """Best first; two causes at once only where they explain what no single one does."""
    single = [test for test in tests if " and " not in test.kind]
    if own.explains or any(test.explains for test in single):
        tests = single
    order = {id(test): k for k, test in enumerate(tests)}
    return tuple(sorted(tests, key=lambda test: (-round(test.mean, 6), order[id(test)])))


class _Matching:
    """One comparison: the reference, the received vectors, and what was computed so far."""

    def __init__(self, reference: Reference, form: Form, received: Array, seed: int, same: float) -> None:
        self.reference, self.form, self.received, self.seed, self.same = reference, form, received, seed, same
        self.tables = reference.pooled(reference.clouds)
        self.own_table = reference.finished(self.tables[reference.pooling])
        self.concerned: dict[str, float] = {}
        self.values: dict[str, Array] = {}
        self.rounded: dict[int, float] = {}
        self.limits: dict[tuple[int, str], Array] = {}

    def at(self, positions: NDArray[np.int64]) -> _Matching:
        """The matching of the texts at these positions."""
        if len(positions) == len(self.received):
            return self
        part = _Matching(self.reference.at(positions), self.form, self.received[positions], self.seed, self.same)
        part.concerned, part.values, part.rounded = self.concerned, self.values, self.rounded
        return part

    def own(self) -> tuple[Tested, Array]:
        """The model as it declares itself, and the cosine of every text."""
        test, values = self._tested(DECLARED, self.own_table)
        if test is None and self.tables[self.reference.pooling].shape[1] == self.received.shape[1]:
            count = len(self.received)  # a module that is left out explains it
            unlike = Tested(**vars(DECLARED), cosine=Estimate(None), least=-1.0, share=0.0, texts=count)
            return unlike, np.full(count, -1.0)
        if test is None:
            raise InputError(
                f"vectors: received dimension {self.received.shape[1]}; {self.reference.card.name} gives "
                f"dimension {self.own_table.shape[1]} or less. A larger one is that of another model, or of several "
                f"poolings joined."
            )
        return test, values

    def plain(self) -> float:
        """The mean cosine with the model's own vectors as they are, not in the form of the received ones."""
        own = self.own_table[:, : self.form.dimension]
        return float(row_cosines(self.received, own)[0].mean()) if own.shape == self.received.shape else 0.0

    def poolings(self) -> list[Tested]:
        """Other poolings of the clouds that are there, and the modules after pooling left out."""
        return [test for cause, table in self._ways(self.tables, ()) if (test := self._tested(cause, table)[0])]

    def by_row(self, index: Index | None) -> RowMatches | None:
        """What each vector is, beside all texts under every pooling; None where a missing module changes them."""
        if self.own_table.shape[1] < self.form.dimension:
            return None
        finished = {name: self.reference.finished(table) for name, table in self.tables.items()}
        own = finished.pop(self.reference.pooling)
        where = index or Index(self.received, np.arange(len(own)))
        return match_rows(where.vectors, own, rows=where.rows, poolings=finished, ids=where.ids, same=self.same)

    def near_readings(
        self, progress: Progress | None, *, rounded: bool, long_differ: bool
    ) -> tuple[list[Reading], list[Tested]]:
        """The ways to read that come near these vectors, the nearest first, and all that were tried.

        A cause comes near if it leaves at most half of what the model as declared leaves. `rounded` weights are tried
        too, or not; `long_differ`: of all texts the long ones differ, as if they were cut.
        """
        declared = float(self.own()[1].mean())
        nearest: dict[str, tuple[float, Reading]] = {}
        tried: list[Tested] = []

        def attempt(reading: Reading) -> None:
            tests = list(self._read(reading))
            tried.extend(tests)
            if tests:
                nearest[reading.cause.name] = (max(test.mean for test in tests), reading)
            if progress is not None:
                progress(len(self.received), int(self.reference.clouds.lengths.sum()))

        for reading in self.reference.readings():
            if reading.bits is None or (rounded and self.plain() >= _ROUNDED_FROM):
                attempt(reading)
        limits = [reading.limit for _, reading in nearest.values() if reading.limit is not None]
        cut = [test for test in tried if test.kind.startswith("truncation")]
        solved = self._solved_limit(cut, limits, declared, long_differ=long_differ)
        if solved is not None:
            attempt(solved)
        least = 1 - (1 - _MUST_EXPLAIN) * (1 - declared)
        best = max((mean for mean, _ in nearest.values()), default=0.0)
        if best >= self.same:  # others are pursued only where they explain these texts as well
            least = max(least, best - (1 - self.same))
        near = sorted((best for best in nearest.values() if best[0] >= least), key=lambda best: -best[0])
        return [reading for _, reading in near[:_PURSUED]], tried

    def _solved_limit(
        self, tests: Sequence[Tested], tried: Sequence[int], declared: float, *, long_differ: bool
    ) -> Reading | None:
        """The number of tokens after which texts were cut, between two limits that were `tried`; None if one explains.

        None too where the texts that differ are not the long ones (`long_differ`) and no limit takes a fifth of what
        the model as `declared` leaves: then texts were not cut.
        """
        best = max(tests, key=lambda test: test.mean, default=None)
        if best is None or best.share == 1 or (1 - best.mean > 0.8 * (1 - declared) and not long_differ):
            return None
        cut, _, other = best.name.partition(" and ")
        centre = next(limit for limit in tried if cut == self.reference.cut_at(limit).cause.name)
        pooling = other or self.reference.pooling
        read = min(self.reference.longest_read, self.reference.most_tokens)
        if best.mean <= declared:  # the limit of the model itself is nearer than any other
            centre, pooling = read, self.reference.pooling
        if pooling not in self.tables:
            return None
        limits = sorted({*tried, _FEWEST_TOKENS, read})
        place = limits.index(centre)
        low, high = limits[max(place - 1, 0)], limits[min(place + 1, len(limits) - 1)]
        longest = np.argsort(-self.reference.clouds.lengths, kind="stable")
        some, one = self.at(np.sort(longest[:_PROBED_LONGEST])), self.at(longest[:1])
        limit = some._zoomed(low, high, pooling)
        if some._at_limit(limit, pooling).min() < self.same:
            limit = max(range(low, high + 1), key=lambda limit: float(one._at_limit(limit, pooling)[0]))
        return None if limit in tried else self.reference.cut_at(limit)

    def _zoomed(self, low: int, high: int, pooling: str) -> int:
        """The best limit from low to high: of the ends of eight parts, then between the neighbours of the best.

        The cosine grows with the limit up to the true one and falls after it, but for small steps.
        """
        while high - low > 2:
            ends = sorted(set(np.linspace(low, high, _PARTS + 1).round().astype(int).tolist()))
            place = 1 + int(np.argmax([self._at_limit(limit, pooling).mean() for limit in ends[1:-1]]))
            low, high = ends[place - 1], ends[place + 1]
        return (low + high) // 2

    def _at_limit(self, limit: int, pooling: str) -> Array:
        """The cosines of the texts cut at so many tokens, under a pooling."""
        if (limit, pooling) not in self.limits:
            clouds = self.reference.cut_at(limit).clouds(self.reference)
            table = self.reference.finished(self.reference.pooled(clouds)[pooling])
            self.limits[limit, pooling] = row_cosines(self.received, self.form.on(table, self.received))[0]
        return self.limits[limit, pooling]

    def pursued(self, readings: Sequence[Reading]) -> list[Tested]:
        """Try these ways to read the texts, each alone and under every other pooling."""
        return [test for reading in readings for test in self._read(reading)]

    def _read(self, reading: Reading) -> Iterator[Tested]:
        """One way to read the texts, alone and under every other pooling."""
        tables = self.reference.pooled(reading.clouds(self.reference))
        own = self.reference.finished(tables[self.reference.pooling])
        if reading.bits is not None:  # another pooling leaves more than rounding does: each alone
            self.rounded[reading.bits] = float(row_cosines(own, self.own_table)[0].mean())
        ways = [] if reading.bits is not None else self._ways(tables, (reading.cause,))
        for cause, table in [(reading.cause, own), *ways]:
            test, _ = self._tested(cause, table)
            if test is not None:
                yield test

    def _ways(self, tables: Mapping[str, Array], before: tuple[Cause, ...]) -> Iterator[tuple[Cause, Array]]:
        reference = self.reference
        for name, table in tables.items():
            if name != reference.pooling:
                yield _both(*before, reference.pooling_cause(name)), reference.finished(table)
        if reference.steps:
            yield _both(*before, reference.missing_cause()), tables[reference.pooling]

    def _tested(self, cause: Cause, table: Array) -> tuple[Tested | None, Array]:
        """The cause beside the received vectors; None where it gives too few dimensions, or what is declared."""
        if table.shape[1] < self.form.dimension:
            return None, np.zeros(0)
        own, other = row_cosines(self.received, self.form.on(table, self.received))
        if cause is not DECLARED and self.own_table.shape == table.shape:
            changed = row_cosines(table, self.own_table)[0] < self.same
            if not changed.any():
                return None, own
            declared = row_cosines(self.received, self.form.on(self.own_table, self.received))[0]
            self.concerned[cause.name] = float(declared[changed].mean())
        self.values[cause.name] = own
        cosine = _mean_cosine(own, float(other.mean()))
        share = float((own >= self.same).mean())
        return Tested(**vars(cause), cosine=cosine, least=float(own.min()), share=share, texts=len(own)), own

    def probes(self, cosines: Array, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Choose rows on which every cause is tried: the most deviating ones and the longest."""
        lengths = (self.reference.clouds.lengths + self.reference.clouds.truncated)[rows]
        longest = np.argsort(-lengths, kind="stable")[:_PROBED_LONGEST]
        worst = np.argsort(cosines[rows], kind="stable")
        worst = worst[~np.isin(worst, longest)][:_PROBED_WORST]
        return np.sort(rows[np.concatenate([longest, worst])])

    def long_differ(self, differ: NDArray[np.int64]) -> bool:
        """Are (almost) all texts that differ longer than (almost) all that agree?"""
        lengths = self.reference.clouds.lengths + self.reference.clouds.truncated
        agreeing = np.delete(lengths, differ)
        if not len(agreeing):
            return False
        return bool((lengths[differ] > np.quantile(agreeing, EXPLAINS)).mean() >= EXPLAINS)

    def few(self, cosines: Array) -> NDArray[np.int64]:
        """Texts enough to tell causes apart: long ones for truncation, those that differ most, and some at random."""
        lengths = self.reference.clouds.lengths + self.reference.clouds.truncated
        if len(cosines) <= _LONGEST + _WORST + _RANDOM or self.reference.batches is not None:
            return np.arange(len(cosines))
        marks = text_marks(self.reference.clouds, np.arange(len(cosines)), seed=self.seed)
        random = smallest(marks, _RANDOM)  # by the words of the texts, whatever their order
        longest, worst = np.lexsort((marks, -lengths))[:_LONGEST], np.lexsort((marks, cosines))[:_WORST]
        return np.unique(np.concatenate([longest, worst, random]))


def _mean_cosine(values: Array, floor: float) -> Estimate:
    """The mean of cosines, whose interval ends at 1."""
    found = replace(mean_estimate(values), floor=floor)
    if found.interval is None:
        return found
    return replace(found, interval=replace(found.interval, high=min(found.interval.high, 1.0)))


def _both(*causes: Cause) -> Cause:
    return Cause(*map(" and ".join, zip(*map(astuple, causes), strict=True)))
