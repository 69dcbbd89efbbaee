"""`calibrate`: how often the audit is wrong, on worlds made from the user's own texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from poolscope.auditing.material import as_corpus, read_judged
from poolscope.auditing.result import Audit
from poolscope.auditing.run import MODEL
from poolscope.auditing.words import fill, percent
from poolscope.auditing.worlds import WORLDS, Source, World
from poolscope.encoders import as_encoder
from poolscope.errors import InputError
from poolscope.numbers.intervals import Estimate, share_of
from poolscope.results import Result, origin, provenance

_NULL = "Nothing to find: fix was said in {wrong:count} of {runs:count run}."
_PLANTED = "A planted cause: it was named first in {right:count} of {runs:count run}."
CALIBRATION_WORDS = (_NULL, _PLANTED)


@dataclass(frozen=True, repr=False, kw_only=True)
class WorldCount(Result):
    """The runs of one world.

    `cause` is what was planted; "" in a null world. `count` is how many runs said `fix` in a null world, or named the
    planted cause first in another, and `share` has its interval. `first` counts what was named first: a cause that is
    `fix` or `look`, or "nothing". `places` counts the place of the planted cause on the screen; 0: it was not looked
    at, or is called `ok` or unchecked.
    """

    world: str
    cause: str
    runs: int
    count: int
    share: Estimate
    first: Mapping[str, int]
    places: Mapping[int, int] = field(default_factory=dict)

    def in_words(self) -> tuple[str, ...]:
        """The count in words."""
        if self.cause:
            return (fill(_PLANTED, {"right": self.count, "runs": self.runs}),)
        return (fill(_NULL, {"wrong": self.count, "runs": self.runs}),)

    def rows(self) -> list[dict[str, Any]]:
        """One row."""
        around = self.share.interval
        low, high = (None, None) if around is None else (around.low, around.high)
        named = ", ".join(f"{name} {count}" for name, count in self.first.items())
        words = {"world": self.world, "planted": self.cause, "runs": self.runs, "count": self.count}
        return [{**words, "share": self.share.value, "low": low, "high": high, "named_first": named}]


@dataclass(frozen=True, repr=False, kw_only=True)
class Calibration(Result):
    """How often the audit says `fix` where there is nothing, and names a planted cause first."""

    model: str
    texts: int
    queries: int
    self_made: str
    worlds: tuple[WorldCount, ...]
    provenance: Mapping[str, Any] = origin()

    def __getitem__(self, world: str) -> WorldCount:
        return next(each for each in self.worlds if each.world == world)

    @property
    def false_fix(self) -> Estimate:
        """The share of runs of null worlds that say `fix`."""
        return _together([each for each in self.worlds if not each.cause])

    @property
    def named_first(self) -> Estimate:
        """The share of runs of planted worlds that name the planted cause first."""
        return _together([each for each in self.worlds if each.cause])

    def headline(self) -> dict[str, Any]:
        """Both shares."""
        return {"model": self.model, "false_fix": self.false_fix, "named_first": self.named_first}

    def in_words(self) -> tuple[str, ...]:
        """Both counts in words."""
        nulls, planted = ([w for w in self.worlds if bool(w.cause) is is_planted] for is_planted in (False, True))
        counts = [(sum(w.count for w in some), sum(w.runs for w in some)) for some in (nulls, planted)]
        return (
            *((fill(_NULL, {"wrong": counts[0][0], "runs": counts[0][1]}),) if nulls else ()),
            *((fill(_PLANTED, {"right": counts[1][0], "runs": counts[1][1]}),) if planted else ()),
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a world."""
        return [row for each in self.worlds for row in each.rows()]


def calibration_cells(world: WorldCount) -> tuple[str, ...]:
    """One row of the screen: the world, the planted cause, the runs, and the share that counts with its interval."""
    around = world.share.interval
    share = f"{world.count} ({percent(world.share.value_or_raise)})"
    shown = share if around is None else f"{world.count} [{percent(around.low)}, {percent(around.high)}]"
    return (world.world, world.cause, str(world.runs), *(("", shown) if world.cause else (shown, "")))


def _together(worlds: Sequence[WorldCount]) -> Estimate:
    runs = sum(world.runs for world in worlds)
    return share_of(sum(world.count for world in worlds), runs, each="runs") if runs else Estimate(None)


def calibrate(
    texts: Any,
    model: Any = MODEL,
    *,
    queries: Any = None,
    text_count: int = 300,
    query_count: int = 100,
    runs: int = 20,
    worlds: Sequence[str] | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Calibration:
    """Run the audit on worlds made from your texts: some with nothing to find, some with a planted cause.

    Parameters
    ----------
    texts
        Anything `read_texts` takes. Each text keeps its first 200 words.
    model
        Anything `as_encoder` takes.
    queries
        Queries with the ids of the texts that answer them, as `read_queries` takes them; without any, some are made
        from the texts.
    text_count, query_count
        How many texts and queries each run draws; all where there are fewer.
    runs
        How many times each world is made, with other draws.
    worlds
        The names of the worlds, keys of `WORLDS`; by default all.
    seed
        Of the first run.
    progress
        Called with 1 after every run.
    **options
        Those of the encoder.

    Returns
    -------
    Calibration
        One `WorldCount` a world: how many runs said `fix` in a null world, or named the planted cause first.

    Examples
    --------
    >>> texts = [f"part {k} has {k % 7} screws of kind {k % 11}" for k in range(60)]
    >>> queries = {f"screws of part {k}": str(k) for k in range(60)}
    >>> worlds = ["random relevance", "copies"]
    >>> result = calibrate(texts, "builtin:wordllama", queries=queries, query_count=30, runs=1, worlds=worlds)
    >>> result["random relevance"].count, result["copies"].count
    (0, 1)

    """
    chosen = _chosen(worlds)
    for name, value in {"text_count": text_count, "query_count": query_count, "runs": runs}.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name}: received {value!r}; allowed is a whole number, 1 or more, such as 20.")
    made_of = _texts_and_relevant(texts, queries, seed)  # what cannot be used is said before the model is opened
    source = Source.of(as_encoder(model, **options), *made_of).pool(3 * text_count, 3 * query_count, seed)
    tallies = {world.name: _Tally() for world in chosen}
    for run in range(runs):  # all worlds of a draw after each other, so that its texts are encoded once
        for world in chosen:
            tallies[world.name].add(world, world.make(source.drawn(text_count, query_count, seed + run)))
            if progress is not None:
                progress(1)
    return Calibration(
        model=source.encoder.card.name,
        texts=min(text_count, len(source.texts)),
        queries=min(query_count, len(source.relevant)),
        self_made=source.self_made,
        worlds=tuple(tallies[world.name].counted(world, runs) for world in chosen),
        provenance=provenance(settings={"seed": seed, "runs": runs}),
    )


@dataclass
class _Tally:
    """What the runs of one world said."""

    count: int = 0
    first: Counter[str] = field(default_factory=Counter)
    places: Counter[int] = field(default_factory=Counter)

    def add(self, world: World, found: Audit) -> None:
        """Count one run."""
        named = [finding.cause for finding in found.looked if finding.level in ("fix", "look")]
        self.first[named[0] if named else "nothing"] += 1
        if world.cause:
            self.places[named.index(world.cause) + 1 if world.cause in named else 0] += 1
            self.count += named[:1] == [world.cause]
        else:
            self.count += any(finding.level == "fix" for finding in found.findings)

    def counted(self, world: World, runs: int) -> WorldCount:
        """All runs."""
        return WorldCount(
            world=world.name,
            cause=world.cause,
            runs=runs,
            count=self.count,
            share=share_of(self.count, runs, each="runs"),
            first=dict(self.first.most_common()),
            places=dict(sorted(self.places.items())),
        )


def _chosen(names: Sequence[str] | None) -> list[World]:
    if unknown := [name for name in names or () if name not in WORLDS]:
        raise InputError(f"worlds: received {', '.join(map(repr, unknown))}; allowed: {', '.join(WORLDS)}.")
    return [world for name, world in WORLDS.items() if names is None or name in names]


def _texts_and_relevant(texts: Any, queries: Any, seed: int) -> tuple[list[str], dict[str, list[int]] | None]:
    """The texts, and the positions of the texts that answer each query; None where queries are to be made."""
    if queries is None:
        return list(as_corpus(texts).texts), None
    corpus, judged = read_judged(texts, queries, None, seed)
    relevant: dict[str, list[int]] = {}
    for query, text in judged.relevant.tolist():
        relevant.setdefault(judged.texts[query], []).append(text)
    return list(corpus.texts), relevant
