"""Every question of the audit on corpora with nothing to find, and with effects of three known sizes.

    python benchmarks/question_calibration.py [--runs 40] [--seed 0] [--question short …]

The texts are docstrings, their clouds those of a static table, from which the effect is removed: lengths are shuffled,
places permuted, deviations of tokens handed to other texts, the mean taken off. Then it is put back in three sizes. A
false alarm is `watch` or `repair` where nothing is to be found. What is counted (question 4) or follows from the other
answers (question 10) estimates nothing and has no row.
"""

from __future__ import annotations

import argparse
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.questions import averaging, cone, hubs, long, pooling, position, scores, short
from poolscope.auditing.subject import Subject
from poolscope.auditing.thresholds import Thresholds
from poolscope.auditing.trials import cloud_trial, cut_pieces
from poolscope.encoders import as_encoder
from poolscope.evaluation import split_half
from poolscope.metrics.hubs import hubs as count_hubs
from poolscope.metrics.length.profile import length_profile
from poolscope.metrics.length.search import PositionProbe, retrieval_by_length, segment_row
from poolscope.metrics.scores import score_distribution
from poolscope.numbers.ranking import unit_rows
from poolscope.texts import read_texts
from poolscope.verdicts import LEVELS, Verdict

Array = NDArray[np.float64]
Modify = Callable[[str, Array], Array]
MODEL, TEXTS, DRAWN, ON_TRIAL = "builtin:wordllama", 900, 240, 120
_LIMITS = Thresholds()


@dataclass(frozen=True)
class Simulation:
    """A question, what was removed, the sizes of what was put back in words, and the verdict at a size (0: none)."""

    question: str
    removed: str
    sizes: Sequence[str]
    verdict: Callable[[int, int], Verdict]


# -- the material -------------------------------------------------------------------------------------------------


@cache
def _table() -> Any:
    return as_encoder(MODEL)


@cache
def _cloud(text: str) -> Array:
    return np.asarray(_table().encode([text])[-1][0], dtype=np.float64)


@cache
def corpus() -> tuple[tuple[str, ...], Array, Array]:
    """Texts of twelve words or more, their vectors and their lengths."""
    read = read_texts("builtin:docstrings", limit=2 * TEXTS, seed=0).texts
    texts = tuple(dict.fromkeys(text for text in read if 12 <= len(text.split()) <= 400))[:TEXTS]
    clouds = [np.asarray(cloud, dtype=np.float64) for cloud in _table().encode(list(texts))[-1]]
    vectors = unit_rows(np.array([cloud.mean(axis=0) for cloud in clouds]), "vectors").astype(np.float64)
    return texts, vectors, np.array([len(cloud) for cloud in clouds])


def drawn(seed: int, count: int = DRAWN) -> NDArray[np.int64]:
    """Positions of some texts."""
    return np.random.default_rng(seed).permutation(len(corpus()[0]))[:count]


def subject(seed: int, modify: Modify, *, trial: int | None = ON_TRIAL, **settings: Any) -> Subject:
    """Some texts, and a model that gives their clouds changed."""
    texts = [corpus()[0][k] for k in drawn(seed)]
    encoder = as_encoder(lambda batch: [modify(text, _cloud(text)) for text in batch])
    clouds = encoder.encode(texts)[-1]
    return Subject(
        clouds=clouds, encoder=encoder, thresholds=_LIMITS, source="", trial_texts=trial, seed=seed, **settings
    )


def _direction(name: str, dimension: int) -> Array:
    found = np.random.default_rng(zlib.crc32(name.encode())).normal(size=dimension)
    return np.asarray(found / np.linalg.norm(found))


def _scale(text: str) -> float:
    return float(np.random.default_rng(zlib.crc32(text.encode())).uniform())


# -- the questions ------------------------------------------------------------------------------------------------

_CUT_OFFS = (0.65, 0.75, 0.85, 0.95)


@cache
def _with_cut_off(target: float) -> Array:
    """All vectors with so much of one direction that a hundredth of all pairs scores `target` or more."""
    vectors = corpus()[1] - corpus()[1].mean(axis=0)
    shared = _direction("scores", vectors.shape[1])
    low, high = 0.0, 20.0
    for _ in range(20):
        middle = (low + high) / 2
        unit = unit_rows(vectors + middle * shared, "vectors")
        reached = np.quantile((unit @ unit.T)[np.triu_indices(len(unit), 1)], 0.99)
        low, high = (middle, high) if reached < target else (low, middle)
    return np.asarray(unit_rows(vectors + low * shared, "vectors"), dtype=np.float64)


def scores_verdict(size: int, seed: int) -> Verdict:
    """The cut-off of a draw where that of all texts is known, and every text is a document of its own."""
    chosen = _with_cut_off(_CUT_OFFS[size])[drawn(seed)]
    return scores.judge(score_distribution(chosen, groups=np.arange(len(chosen)), seed=seed), _LIMITS)


def cone_verdict(size: int, seed: int) -> Verdict:
    """The direction of the mean projected out; then tokens share another one, more or less of it by text."""
    mean, strength = corpus()[1].mean(axis=0), (0.0, 1.0, 2.0, 4.0)[size]
    mean, shared = mean / np.linalg.norm(mean), _direction("cone", len(mean))

    def modify(text: str, cloud: Array) -> Array:
        return np.asarray(cloud - np.outer(cloud @ mean, mean) + strength * (0.5 + _scale(text)) * shared)

    return cone.answer(subject(seed, modify)).verdict


def pooling_verdict(size: int, seed: int) -> Verdict:
    """Vectors of a runtime: the model's own in half precision, or with so much of the largest token in them."""
    plain = subject(seed, lambda _, cloud: cloud, trial=0)
    largest = np.array([cloud.max(axis=0) for cloud in plain.clouds])
    share = (0.0, 0.05, 0.2, 1.0)[size]
    runtime = ((1 - share) * plain.raw_vectors + share * largest).astype(np.float16).astype(np.float64)
    return pooling.answer(replace(plain, runtime=runtime)).verdict


def short_verdict(size: int, seed: int) -> Verdict:
    """The shortest fifth has more of a direction that all queries share; without it lengths are shuffled."""
    task = cut_pieces(subject(seed, lambda _, cloud: cloud, trial=None))
    if isinstance(task, str):
        raise SystemExit(task)
    lengths = np.random.default_rng(seed).permutation(task.lengths)
    documents, queries = task.documents.astype(np.float64), task.queries.astype(np.float64)
    shared = _direction("short", documents.shape[1])
    documents[lengths <= np.quantile(lengths, 0.2)] += (0.0, 0.1, 0.2, 0.3)[size] * shared
    queries = queries + 0.5 * shared
    return short.judge(retrieval_by_length(queries, documents, task.relevant, lengths, bins=5, seed=seed), _LIMITS)


def long_verdict(size: int, seed: int) -> Verdict:
    """The longer a text, the more it has of one direction; without it lengths are shuffled."""
    places = drawn(seed)
    vectors, lengths = corpus()[1][places], np.random.default_rng(seed).permutation(corpus()[2][places])
    shared = _direction("long", vectors.shape[1])
    much = (0.0, 0.05, 0.1, 0.2)[size] * (np.log2(lengths) - np.log2(lengths).min())
    return long.judge(length_profile(vectors + much[:, None] * shared, lengths, bins=5, seed=seed), _LIMITS)


def position_verdict(size: int, seed: int) -> Verdict:
    """Twelve answers of which the place is permuted; then those at the end lose a share of their cosine."""
    random, queries, foils = np.random.default_rng(seed), 12, 36
    _, vectors, _ = corpus()
    places = drawn(seed, queries + foils)
    own = random.uniform(0.3, 0.7, queries)
    cosines = own[:, None] + random.normal(0, 0.06, (queries, 2))  # two places, and neither is the start by nature
    cosines[:, 1] *= 1 - (0.0, 0.1, 0.2, 0.3)[size]
    among = vectors[places[:queries]] @ vectors[places[queries:]].T
    ranks = [1.0 + (among > column[:, None]).sum(axis=1) for column in cosines.T]
    base = (cosines[:, 0], ranks[0])
    rows = tuple(segment_row(float(k), cosines[:, k], ranks[k], base) for k in range(2))
    return position.judge(PositionProbe(queries, 64, 256, 1.0 + foils, rows, 0), _LIMITS)


@cache
def _parents() -> dict[str, str]:
    """The text that a half was cut from."""
    texts = corpus()[0]
    halves = split_half(texts)
    by_half = {half: half for half in (*halves.queries, *halves.documents)}
    for start, end in zip(halves.queries, halves.documents, strict=True):
        by_half[end] = start
    return by_half


def averaging_verdict(size: int, seed: int) -> Verdict:
    """Deviations of tokens belong to another text; then both halves of a text spread in a direction of its own."""
    parents, strength = _parents(), (0.0, 1.5, 3.0, 6.0)[size]

    def modify(text: str, cloud: Array) -> Array:
        owner = parents.get(text, text)
        random = np.random.default_rng(zlib.crc32(text.encode()))
        strange = _cloud(corpus()[0][int(random.integers(len(corpus()[0])))])
        deviations = strange[random.integers(len(strange), size=len(cloud))]
        signs = random.choice([-1.0, 1.0], len(cloud))[:, None]
        spread = (
            deviations - deviations.mean(axis=0) + strength * (signs - signs.mean()) * _direction(owner, cloud.shape[1])
        )
        return np.asarray(cloud.mean(axis=0) + spread)

    trial = cloud_trial(subject(seed, modify))
    return averaging.judge(None, _LIMITS, trial)


def hubs_verdict(size: int, seed: int) -> Verdict:
    """Gaussian vectors of the mean and covariance of the real ones; then some texts lie near the centre."""
    vectors = corpus()[1]
    random = np.random.default_rng(seed)
    factor = np.linalg.cholesky(np.cov(vectors.T) + 1e-9 * np.eye(vectors.shape[1]))
    chosen = vectors.mean(axis=0) + random.normal(size=(DRAWN, vectors.shape[1])) @ factor.T
    moved = random.permutation(DRAWN)[:3]
    chosen[moved] = (1 - (keep := (1.0, 0.7, 0.4, 0.1)[size])) * vectors.mean(axis=0) + keep * chosen[moved]
    return hubs.judge(count_hubs(chosen, seed=seed), _LIMITS)


SIMULATIONS = {
    "scores": Simulation("1 scores", "cut-off of all texts is 0.65", ("0.75", "0.85", "0.95"), scores_verdict),
    "cone": Simulation("2 one cone", "mean projected out", ("×1", "×2", "×4"), cone_verdict),
    "pooling": Simulation("3 pooling", "own vectors in float16", ("5 % max", "20 % max", "max"), pooling_verdict),
    "short": Simulation("5 short texts", "lengths shuffled", ("0.1", "0.2", "0.3"), short_verdict),
    "long": Simulation("6 long texts", "lengths shuffled", ("0.05", "0.1", "0.2"), long_verdict),
    "position": Simulation("7 position", "places permuted", ("−10 %", "−20 %", "−30 %"), position_verdict),
    "averaging": Simulation("8 averaging", "deviations of other texts", ("1.5", "3", "6"), averaging_verdict),
    "hubs": Simulation("9 hubs", "Gaussian of the same covariance", ("30 %", "60 %", "90 %"), hubs_verdict),
}


def levels(simulation: Simulation, size: int, *, runs: int, seed: int = 0) -> dict[str, float]:
    """Share of the runs by level."""
    counted = Counter(simulation.verdict(size, seed + run).level for run in range(runs))
    return {level: counted[level] / runs for level in LEVELS}


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=40)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--question", nargs="*", choices=list(SIMULATIONS), default=list(SIMULATIONS))
    options = arguments.parse_args()
    print(
        "| question | nothing to find | false alarms | unchecked | planted: at least `watch` |\n|---|---|---|---|---|"
    )
    for name in options.question:
        simulation = SIMULATIONS[name]
        null = levels(simulation, 0, runs=options.runs, seed=options.seed)
        power = []
        for size, words in enumerate(simulation.sizes, 1):
            shares = levels(simulation, size, runs=options.runs, seed=options.seed)
            power.append(f"{words}: {shares['watch'] + shares['repair']:.0%} ({shares['repair']:.0%} `repair`)")
        alarms = null["watch"] + null["repair"]
        row = f"{simulation.question} | {simulation.removed} | {alarms:.1%} | {null['unchecked']:.0%}"
        print(f"| {row} | {', '.join(power)} |", flush=True)


if __name__ == "__main__":
    main()
