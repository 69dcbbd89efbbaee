"""A metric is one object: its name, its words, its input, its function and its page.

`METRICS` is the table. The command line, the contract test and the documentation iterate over it. A package outside
poolscope adds a row with an entry point of the group `poolscope.extensions`, whose module calls `register`; who reads
the table calls `poolscope.extensions.load_extensions` first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from poolscope.errors import InputError
from poolscope.extensions import add_row, resolve, rows_of

if TYPE_CHECKING:
    from poolscope.results import Result

Need = Literal["clouds", "vectors", "captures", "texts"]
NEEDS: tuple[Need, ...] = ("clouds", "vectors", "captures", "texts")


@dataclass(frozen=True)
class Metric:
    """One metric: `measure` takes the input named by `needs` and returns a `Result` with figure and table.

    `measure` is the function, or where it stands ("package.module:name"), so that the table costs no import. Metrics
    measure; they do not judge. `page` is the page of the documentation that explains it.

    What `measure` takes first: token clouds, vectors (N × d), a transformer and texts (captures), or texts. `answered`
    is measured in its place where queries name the texts that answer them (`relevant`): it takes the vectors of both.

    Where the mathematics allows it, `part(shard)` gives something small, `merge` joins two of these, and
    `finish` makes the result: then one process, several processes and several machines run the same code. A `part`
    with an argument `start` is told at which text of the corpus its shard begins. A metric that is cut otherwise than
    text by text has a function of its own for engines (`on_engine`).

    `command` is the command that prints it together with others; by default it is printed by one of its own name.
    """

    name: str
    words: str
    needs: Need
    measure: str | Callable[..., Result]
    page: str
    part: str | Callable[..., Any] | None = None
    merge: str | Callable[[Any, Any], Any] | None = None
    finish: str | Callable[..., Result] | None = None
    on_engine: str | Callable[..., Result] | None = None
    answered: str | Callable[..., Result] | None = None
    command: str = ""

    def __post_init__(self) -> None:
        if self.needs not in NEEDS:
            raise InputError(f"metric {self.name}: needs {self.needs!r}; allowed: {', '.join(NEEDS)}.")

    def __call__(self, *inputs: Any, **options: Any) -> Result:
        """Measure."""
        result: Result = resolve(self.measure)(*inputs, **options)
        return result

    def takes(self, option: str) -> bool:
        """Has the function that measures an argument of this name?"""
        return _takes(self.measure, option)

    @property
    def takes_queries(self) -> bool:
        """Can queries be named?"""
        return self.answered is not None or self.takes("queries")

    def of_search(self, queries: Any, vectors: Any, relevant: Any, **options: Any) -> Result:
        """Measure queries among vectors; `relevant` are the pairs of a query and a text that answers it."""
        if self.answered is None:
            return self(vectors, queries=queries, **options)
        result: Result = resolve(self.answered)(queries, vectors, relevant, **options)
        return result

    def taken(self, options: dict[str, Any], *, answered: bool = False) -> dict[str, Any]:
        """Those of the options that the function takes, or with `answered` the one that is given queries."""
        function = self.answered if answered and self.answered is not None else self.measure
        return {name: value for name, value in options.items() if _takes(function, name)}

    def in_parts(self, shards: Iterable[Any], **options: Any) -> Result:
        """Measure shard by shard: `part` of each, merged and finished; `options` are those of both.

        One shard at a time is held, beside what was merged.
        """
        self.require_parts()
        merged, start = None, 0
        shared = {name: options.pop(name) for name in self.part_options() & options.keys()}
        for shard in shards:
            part = self.part_of(shard, start, **shared)
            merged = part if merged is None else resolve(self.merge or "")(merged, part)
            start += len(shard)
        return self.finished(merged, **options)

    def require_parts(self) -> None:
        """Refuse a metric that is measured in one call only."""
        if self.part is None or self.merge is None or self.finish is None:
            raise InputError(f"metric {self.name}: its parts cannot be merged. Measure all of the data in one call.")

    def part_of(self, shard: Any, start: int, **options: Any) -> Any:
        """The part of one shard, which begins at this text of the corpus; functions that do not ask are not told."""
        part = resolve(self.part or "")
        given = {"start": start} if "start" in inspect.signature(part).parameters else {}
        return part(shard, **given, **options)

    def part_options(self) -> set[str]:
        """Options that every part must be given, since `finish` cannot change them any more."""
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = inspect.signature(resolve(self.part or "")).parameters.values()
        return {each.name for each in parameters if each.kind is kind} - {"start"}

    def finished(self, merged: Any, **options: Any) -> Result:
        """The result of what was merged."""
        if merged is None:
            raise InputError(f"metric {self.name}: received no shards; at least one is needed.")
        result: Result = resolve(self.finish or "")(merged, **options)
        return result


def _takes(function: str | Callable[..., Any], option: str) -> bool:
    return option in inspect.signature(resolve(function)).parameters


# What takes more than these four needs is no row: `search_recall` a search to hold against looking at every vector,
# `retrieval_by_length` queries with their answers, `match_runtime` a second source of vectors.
_ROWS = (
    Metric(
        "socm",
        "Does averaging hide differences between texts? Means that agree while the token clouds differ.",
        needs="clouds",
        measure="poolscope.metrics.socm.measure:socm",
        page="socm.md",
    ),
    Metric(
        "pair",
        "Two texts side by side: their clouds in one plane, and their distances.",
        needs="clouds",
        measure="poolscope.metrics.socm.pair:pair",
        page="pair.md",
    ),
    Metric(
        "profile",
        "Do long texts look alike? One pass over clouds of any number.",
        needs="clouds",
        measure="poolscope.metrics.length.streamed:profile_of_clouds",
        page="length.md",
        part="poolscope.metrics.length.streamed:profile_part",
        merge="poolscope.metrics.length.streamed:ProfileSums.merge",
        finish="poolscope.metrics.length.streamed:profile_finish",
        command="length",
    ),
    Metric(
        "corpus",
        "How long are the texts, how many are truncated or duplicates?",
        needs="clouds",
        measure="poolscope.metrics.corpus:corpus_summary",
        page="corpus.md",
        part="poolscope.metrics.corpus:corpus_part",
        merge="poolscope.metrics.corpus:CorpusCounts.merge",
        finish="poolscope.metrics.corpus:corpus_finish",
    ),
    Metric(
        "scores",
        "What do unrelated texts score? Which threshold keeps them out?",
        needs="vectors",
        measure="poolscope.metrics.scores:score_distribution",
        answered="poolscope.metrics.queries:query_scores",
        page="corpus.md",
        part="poolscope.metrics.scores:scores_part",
        merge="poolscope.numbers.streaming:VectorDraw.merge",
        finish="poolscope.metrics.scores:scores_finish",
    ),
    Metric(
        "spread",
        "Are the vectors well spread, or do they crowd in one direction?",
        needs="vectors",
        measure="poolscope.metrics.spread:vector_spread",
        page="vectors.md",
    ),
    Metric(
        "cone",
        "How much of every vector is the same direction?",
        needs="vectors",
        measure="poolscope.metrics.scores:cone",
        page="corpus.md",
        command="spread",
    ),
    Metric(
        "hubs",
        "Which texts come back for everything, which never, which are duplicates?",
        needs="vectors",
        measure="poolscope.metrics.neighbourhood:hubs",
        page="corpus.md",
    ),
    Metric(
        "spectrum",
        "How many directions do vectors use, and does one dimension rule?",
        needs="vectors",
        measure="poolscope.metrics.spectrum:spectrum",
        page="vectors.md",
        command="spread",
    ),
    Metric(
        "norms",
        "How long are vectors, and which neighbours change with the distance?",
        needs="vectors",
        measure="poolscope.metrics.spectrum:norms",
        page="vectors.md",
        command="spread",
    ),
    Metric(
        "contrast",
        "Can the nearest be told from the rest, and is anything out of reach?",
        needs="vectors",
        measure="poolscope.metrics.neighbourhood:neighbourhood",
        page="vectors.md",
        command="spread",
    ),
)
METRICS = {row.name: row for row in (*_ROWS, *(Metric(**row) for row in rows_of("METRICS")))}


def register(metric: Metric) -> Metric:
    """Add a metric to the table; a name stands once."""
    added: Metric = add_row(METRICS, metric, "metric")
    return added
