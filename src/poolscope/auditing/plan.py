"""The audit of a large corpus: what is measured on all texts, what on a draw of them, and what it will cost.

Everything that merges is measured on all texts, shard by shard: lengths, what was cut, norms, repeated texts, the
profile by length. Pairs, trials and probes take a draw of the texts, by their ids, so large that intervals have the
half-width that was asked for. A first batch tells how wide they are and how long it will take.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from poolscope.auditing.progress import ENCODING, Watch, duration
from poolscope.clouds import TokenClouds
from poolscope.encoders import EncoderOptions, TokenEncoder
from poolscope.encoders.pooling import pooling_of
from poolscope.encoders.reports import TruncationReport
from poolscope.engines import Engine, encode_with, measure_with
from poolscope.errors import InputError
from poolscope.metrics.corpus import CorpusSummary
from poolscope.metrics.length.bins import LONG, QUANTILE_BINS
from poolscope.metrics.length.profile import LengthProfile
from poolscope.metrics.scores import cone
from poolscope.metrics.socm.measure import socm
from poolscope.numbers.bures.pairs import available_cores
from poolscope.numbers.intervals import Interval
from poolscope.numbers.streaming import marks_of
from poolscope.stores.cache import cached_store
from poolscope.stores.store import Store
from poolscope.texts import Texts

# From so many texts on an audit is planned without being asked, and the half-width of intervals that it then aims at.
PLANNED_FROM, PRECISION = 20_000, 0.02
# The first batch, the texts of it whose pairs are compared, and the bounds of the draw.
_BATCH, _COMPARED, LEAST, MOST = 256, 100, 1000, 20_000
_MOST_PAIRS = 100_000


@dataclass(frozen=True)
class Plan:
    """What will be done with how many texts, and about how long encoding takes.

    `sample` texts are drawn for pairs, trials and probes, and `pairs` of them are compared at most; `decides` names the
    number whose interval needs most texts (`needed`) for the `precision`, which is `reached` or not. `seconds` is what
    encoding takes, from `batch` texts encoded first; None where all are stored.
    """

    texts: int
    sample: int
    pairs: int
    precision: float
    reached: float
    decides: str
    batch: int
    needed: float
    seconds: float | None = None
    workers: int = 1

    def sentences(self) -> tuple[str, ...]:
        """The plan for people."""
        enough = f"for intervals of ±{self.precision:g} (--precision): {self.decides} needs most"
        if self.reached > self.precision and self.sample < self.texts:
            enough = f"fewer than ±{self.precision:g} needs: {self.decides} will be known to about ±{self.reached:.2g}"
        lines = (
            f"On all {self.texts:,} texts: what was cut off, lengths, norms, repeated texts and the profile by length.",
            f"On {self.sample:,} of them, drawn by their ids: pairs, trials and probes ({enough}).",
        )
        if self.seconds is None:
            return lines
        share = "" if self.workers == 1 else f", shared by {self.workers} workers"
        pace = f"at the pace of a first batch of {self.batch:,}; the questions come on top"
        return (*lines, f"Encoding all takes about {duration(self.seconds)}{share}, {pace}.")

    def to_dict(self) -> dict[str, Any]:
        """For the provenance."""
        return {"texts": self.texts, "sample": self.sample, "pairs": self.pairs, "precision": self.precision}


@dataclass(frozen=True)
class Whole:
    """What was measured on all texts of a planned audit."""

    plan: Plan
    corpus: CorpusSummary
    profile: LengthProfile
    positions: tuple[int, ...] = field(repr=False)  # of the drawn texts among all

    def truncation(self, drawn: TruncationReport) -> TruncationReport:
        """The report on the texts that were drawn, with the counts of all."""
        cut = int(self.corpus.cut_by_length.sum())
        counts: dict[str, Any] = {"texts": self.corpus.texts, "cut_texts": cut, "tokens_kept": self.corpus.tokens}
        return replace(drawn, **counts, tokens_lost=self.corpus.tokens_cut)


def is_planned(texts: Sized, precision: float | None) -> bool:
    """Is the audit of these texts planned: was that asked for, or are there many?"""
    if precision is not None and not (isinstance(precision, int | float) and 0 < precision < 1):
        raise InputError(
            f"precision: received {precision!r}; allowed: a half-width of intervals between 0 and 1, such as 0.02."
        )
    return len(texts) > LEAST and (precision is not None or len(texts) > PLANNED_FROM)


def make_plan(encoder: TokenEncoder, texts: Texts, precision: float | None, *, workers: int = 1) -> Plan:
    """The plan, from a first batch of the texts that would be drawn."""
    drawn = np.sort(np.argsort(marks_of(texts.ids), kind="stable")[:_BATCH])
    batch = [texts.texts[int(k)] for k in drawn]
    began, spent = time.perf_counter(), time.process_time()
    clouds = encoder.encode(batch)[-1]
    gone, spent = time.perf_counter() - began, time.process_time() - spent
    # Workers share the cores, so that each is slower than this process where that used several at once.
    cores = workers * max(1, available_cores() // workers)
    seconds = max(gone / workers, spent / cores) * sum(map(len, texts.texts)) / max(sum(map(len, batch)), 1)
    return replace(_plan(clouds, len(texts), precision), seconds=seconds, workers=workers)


def _plan(batch: TokenClouds, texts: int, precision: float | None) -> Plan:
    """The plan for so many texts of which some were drawn and encoded; those that are stored cost nothing more."""
    wanted = PRECISION if precision is None else precision
    needed, pairs = _needed(batch, wanted)
    decides = max(needed, key=lambda name: needed[name])
    sample = min(max(math.ceil(needed[decides] / 100) * 100, LEAST), MOST, texts)
    reached = wanted * math.sqrt(needed[decides] / sample)
    return Plan(texts, sample, pairs, wanted, reached, decides, len(batch), needed[decides])


def _needed(clouds: TokenClouds, precision: float) -> tuple[dict[str, float], int]:
    """How many texts each kind of number needs for its interval, and how many pairs; half-widths go as 1/√n."""
    needed = {"a share of the texts": (1.96 * 0.5 / precision) ** 2}
    mean_cosine = cone(pooling_of(clouds).pool(clouds)).mean_cosine.interval
    compared = socm(clouds[:_COMPARED])
    for name, interval, count in (
        ("the mean cosine", mean_cosine, len(clouds)),
        ("the mean SOCM", compared.interval, min(len(clouds), _COMPARED)),
    ):
        needed[name] = 0.0 if interval is None else count * (_half(interval) / precision) ** 2
    spread = 0.0 if compared.pairs is None else float(compared.pairs.socm.std())
    return needed, min(math.ceil((1.96 * spread / precision) ** 2), _MOST_PAIRS)


def _half(interval: Interval) -> float:
    return (interval.high - interval.low) / 2


def measure_whole(
    encoder: TokenEncoder,
    texts: Texts,
    plan: Plan,
    *,
    options: Mapping[str, Any],
    cache: bool,
    watch: Watch,
    engine: Engine | None = None,
) -> tuple[Whole, TokenClouds, dict[str, float]]:
    """Encode all texts, one vector each, with the tokens of the draw; measure what merges; the clouds of the draw."""
    began = time.perf_counter()
    with _store(encoder, texts, plan, options=options, cache=cache, watch=watch, engine=engine) as store:
        seconds = {ENCODING: time.perf_counter() - began}
        watch.opened(f"measuring all {len(texts):,} texts")
        began = time.perf_counter()
        merged = _merged(store, engine)
        seconds["all texts"] = time.perf_counter() - began
        clouds = store.clouds()
        positions = tuple(store.sampled(texts.ids))
    return Whole(plan, *merged, positions), clouds, seconds


def whole_of_store(
    folder: str | os.PathLike[str],
    clouds: TokenClouds,
    precision: float | None,
    *,
    engine: Engine | None,
    watch: Watch,
) -> tuple[Whole | None, TokenClouds]:
    """The same of a store that is there: None, and its clouds, where there are few texts and nothing was asked for."""
    store = Store.open(folder)
    if store.manifest.keep == "tokens":
        if not is_planned(clouds, precision):
            return None, clouds
        order = np.argsort(marks_of(clouds.ids), kind="stable")
        plan = _plan(clouds[np.sort(order[:_BATCH])], len(clouds), precision)
        positions = np.sort(order[: plan.sample])
        clouds = clouds.select(positions)
    else:
        plan = replace(_plan(clouds[:_BATCH], len(store), precision), sample=len(clouds))
        plan = replace(plan, reached=plan.precision * math.sqrt(plan.needed / max(len(clouds), 1)))
        positions = np.arange(len(clouds))
    watch.planned(plan.sentences())
    watch.opened(f"measuring all {len(store):,} texts")
    return Whole(plan, *_merged(store, engine), tuple(positions.tolist())), clouds


def _merged(store: Store, engine: Engine | None) -> tuple[CorpusSummary, LengthProfile]:
    """What is measured on all texts."""
    corpus = measure_with(engine, "corpus", store.place)
    if not isinstance(corpus, CorpusSummary):
        raise TypeError(f"the summary of a corpus was expected, not {type(corpus).__name__}")
    profile = measure_with(engine, "profile", store.place, bins=_edges(corpus))
    if not isinstance(profile, LengthProfile):
        raise TypeError(f"a profile by length was expected, not {type(profile).__name__}")
    return corpus, profile


def _edges(corpus: CorpusSummary) -> list[float] | None:
    """Fifths of the texts by length, where bins of 50 tokens would part them too coarsely; otherwise None."""
    if corpus.quantile(0.9) >= LONG:
        return None
    inner = {corpus.quantile(k / QUANTILE_BINS) + 1 for k in range(1, QUANTILE_BINS)}
    return [0.0, *map(float, sorted(inner)), float(len(corpus.lengths) + 1)]


@contextmanager
def _store(
    encoder: TokenEncoder,
    texts: Texts,
    plan: Plan,
    *,
    options: Mapping[str, Any],
    cache: bool,
    watch: Watch,
    engine: Engine | None,
) -> Iterator[Store]:
    """A store of one vector a text: an entry of the cache, or else one that is gone afterwards."""
    write: Callable[..., Store] = partial(encode_with, engine)
    choices: dict[str, Any] = {"options": EncoderOptions(**options), "progress": watch.encoded}
    choices |= {"keep": "vectors", "keep_tokens": plan.sample}
    kept = cached_store(encoder, texts, write=write, **choices) if cache else None
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory() as folder:  # what is mapped stays readable when the files are gone
        yield write(encoder, texts, Path(folder) / "store", **choices)
