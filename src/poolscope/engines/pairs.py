"""SOCM of a store on an engine: parts of the pairs are tallied by workers, and the tallies merge."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from poolscope.engines.base import Engine, as_engine, merged
from poolscope.errors import InputError, whole_number
from poolscope.metrics.socm.measure import socm_in_parts
from poolscope.metrics.socm.parts import PairsJob, WorstJob, merge_worst
from poolscope.metrics.socm.result import SocmResult, WorstPairs
from poolscope.metrics.socm.score import SocmFormula
from poolscope.metrics.socm.selection import AllPairs, ListedPairs, PairSelection
from poolscope.metrics.socm.tally import PairTally, TallyOptions
from poolscope.metrics.socm.worst import worst_result
from poolscope.stores.remote import located
from poolscope.stores.store import open_clouds

Told = Callable[[int], None]


def socm_with(
    engine: Engine | str | None,
    folder: str | os.PathLike[str],
    *,
    against: str | os.PathLike[str] | None = None,
    layer: int | None = None,
    progress: Told | None = None,
    **options: Any,
) -> SocmResult:
    """`socm` of a finished store (with another, `against`), its pairs on an engine; `options` are those of `socm`.

    Which pairs belong together is decided by the pairs alone, so that every engine gives the same bytes. The nearest
    texts of `neighbours` are searched by the process that asks.
    """
    clouds = open_clouds(folder, layer=layer)
    other = None if against is None else open_clouds(against, layer=layer)

    def in_parts(selection: PairSelection, wanted: TallyOptions) -> PairTally:
        pairs = selection.pairs if isinstance(selection, ListedPairs) else None
        places = located(folder), None if against is None else located(against)
        job, parts = PairsJob(*places, layer, wanted, pairs), range(selection.parts)
        each = max(1, selection.count // len(parts))
        tally: PairTally = merged(_told(as_engine(engine).run(job, parts), progress, each), parts, PairTally.merge)
        return tally

    return socm_in_parts(clouds, other, in_parts, **options)


def worst_with(
    engine: Engine | str | None,
    folder: str | os.PathLike[str],
    k: int = 100,
    *,
    layer: int | None = None,
    progress: Told | None = None,
    **formula: Any,
) -> WorstPairs:
    """`worst_pairs` of a finished store on an engine: blocks of texts are searched by workers."""
    clouds = open_clouds(folder, layer=layer)
    selection, chosen = AllPairs(clouds), SocmFormula(**formula)
    if not 1 <= (k := whole_number(k, "worst")) <= selection.count:
        raise InputError(f"worst: received k = {k}; allowed is 1 to {selection.count}, the number of pairs.")
    job, parts = WorstJob(located(folder), layer, chosen, k), range(selection.parts)
    each = max(1, selection.count // len(parts))
    largest, evaluated = merged(_told(as_engine(engine).run(job, parts), progress, each), parts, merge_worst)
    return worst_result(clouds, chosen, largest, evaluated)


def _told(outcomes: Iterator[tuple[int, Any]], progress: Told | None, each: int) -> Iterator[tuple[int, Any]]:
    """The outcomes, each told when it comes."""
    for part, outcome in outcomes:
        if progress is not None:
            progress(each)
        yield part, outcome
