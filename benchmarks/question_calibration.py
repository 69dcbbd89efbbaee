"""Every question of the audit on corpora with nothing to find, and with effects of three known sizes.

    python benchmarks/question_calibration.py [--runs 100] [--planted 30] [--question short …]
        [--state FILE --seconds 400]

The texts are docstrings, their clouds those of a static table, from which the effect is removed: lengths are shuffled,
places permuted, deviations of tokens handed to other texts, the mean taken off. Then it is put back in three sizes. A
false alarm is `watch` or `repair` where nothing is to be found; beside their share stands its 95 % interval
(Wilson's). Questions that a user's own queries change are asked with such queries too. What is counted (question 4) or
follows from the other answers (question 10) estimates nothing and has no row.

With `--state` every run is kept in a file, and the next call goes on from there, so that long calibrations can be made
in pieces (`--seconds`). The file belongs to the code that wrote it: with other code it is refused, as a table from two
versions would say nothing of either.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import poolscope
from poolscope.auditing.question import Thresholds
from poolscope.auditing.questions import averaging, cone, hubs, long, pooling, position, scores, short
from poolscope.auditing.searches import (
    Pieces,
    chunk_trial,
    cloud_trial,
    cut_in_two,
    cut_pieces,
    decided_by,
    query_pieces,
)
from poolscope.auditing.subject import Subject
from poolscope.encoders import as_encoder
from poolscope.evaluation import split_half
from poolscope.files import atomic_path
from poolscope.metrics.length.profile import length_profile
from poolscope.metrics.length.search import PositionProbe, retrieval_by_length, segment_row
from poolscope.metrics.neighbourhood import hubs as count_hubs
from poolscope.metrics.scores import score_distribution
from poolscope.numbers.intervals import share_of
from poolscope.numbers.ranking import unit_rows
from poolscope.texts import JudgedQueries, read_texts
from poolscope.verdicts import LEVELS, Verdict

Array = NDArray[np.float64]
Modify = Callable[[str, Array], Array]
MODEL, TEXTS, DRAWN, ON_TRIAL = "builtin:wordllama", 900, 240, 120
_LIMITS = Thresholds()


@dataclass(frozen=True)
class Simulation:
    """A question, what was removed, the sizes of what was put back in words, and the verdict at a size (0: none).

    `shown`: what the number of the verdict is, where its mean over the runs belongs into the table.
    """

    question: str
    removed: str
    sizes: Sequence[str]
    verdict: Callable[[int, int], Verdict]
    shown: str = ""


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
    return _crowded(task, size, seed)


def _crowded(task: Pieces, size: int, seed: int) -> Verdict:
    lengths = np.random.default_rng(seed).permutation(task.lengths)
    documents, queries = task.documents.astype(np.float64), task.queries.astype(np.float64)
    shared = _direction("short", documents.shape[1])
    documents[lengths <= np.quantile(lengths, 0.2)] += (0.0, 0.1, 0.2, 0.3)[size] * shared
    queries = queries + 0.5 * shared
    found = retrieval_by_length(queries, documents, task.relevant, lengths, bins=5, counted=task.counted, seed=seed)
    return short.judge(found, _LIMITS)


def long_verdict(size: int, seed: int) -> Verdict:
    """The longer a text, the more it has of one direction; without it lengths are shuffled."""
    places = drawn(seed)
    vectors, lengths = corpus()[1][places], np.random.default_rng(seed).permutation(corpus()[2][places])
    shared = _direction("long", vectors.shape[1])
    much = (0.0, 0.05, 0.1, 0.2)[size] * (np.log2(lengths) - np.log2(lengths).min())
    return long.judge(length_profile(vectors + much[:, None] * shared, lengths, seed=seed), _LIMITS)


def position_verdict(
    size: int, seed: int, *, cosines: tuple[float, float] = (0.3, 0.7), spread: float = 0.06
) -> Verdict:
    """Twelve answers of which the place is permuted; then those at the end lose a share of their lead over others."""
    random, queries, foils = np.random.default_rng(seed), 12, 36
    _, vectors, _ = corpus()
    places = drawn(seed, queries + foils)
    own = random.uniform(*cosines, queries)
    near = own[:, None] + random.normal(0, spread, (queries, 2))  # two places, and neither is the start by nature
    among = vectors[places[:queries]] @ vectors[places[queries:]].T
    unrelated = float(among.mean())
    near[:, 1] -= (0.0, 0.2, 0.4, 0.6)[size] * (near[:, 1] - unrelated)
    ranks = [1.0 + (among > column[:, None]).sum(axis=1) for column in near.T]
    base = (near[:, 0], ranks[0])
    rows = tuple(segment_row(float(k), near[:, k], ranks[k], base) for k in range(2))
    return position.judge(PositionProbe(queries, 64, 256, 1.0 + foils, rows, 0, unrelated), _LIMITS)


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
    """Deviations of tokens belong to another text; then both halves of a text spread in a direction of its own.

    The deviations have a length of 9 in this table: less than two thirds of that is lost among them, and re-ranking by
    such clouds wins nothing. The number of the verdict is what it wins.
    """
    return _judged_clouds(subject(seed, _own_spread(_parents(), (0.0, 6.0, 9.0, 12.0)[size])))


def _own_spread(parents: Mapping[str, str], strength: float, *, blur: float = 0.0) -> Modify:
    """Clouds that spread in the direction of their text; `blur`: noise in their means, as a multiple of these."""

    def modify(text: str, cloud: Array) -> Array:
        owner = parents.get(text, text)
        random = np.random.default_rng(zlib.crc32(text.encode()))
        strange = _cloud(corpus()[0][int(random.integers(len(corpus()[0])))])
        deviations = strange[random.integers(len(strange), size=len(cloud))]
        signs = random.choice([-1.0, 1.0], len(cloud))[:, None]
        spread = (
            deviations - deviations.mean(axis=0) + strength * (signs - signs.mean()) * _direction(owner, cloud.shape[1])
        )
        mean = cloud.mean(axis=0)
        mean = mean + blur * np.linalg.norm(mean) * _direction(f"blur {text}", len(mean))
        return np.asarray(mean + spread)

    return modify


def _judged_clouds(material: Subject) -> Verdict:
    trial = cloud_trial(material)
    return replace(averaging.judge(None, _LIMITS, trial), value=trial.change.mean)


def hubs_verdict(size: int, seed: int) -> Verdict:
    """Gaussian vectors of the mean and covariance of the real ones; then some texts lie near the centre."""
    return hubs.judge(count_hubs(_gaussian(size, seed), seed=seed), _LIMITS)


def _gaussian(size: int, seed: int) -> Array:
    vectors = corpus()[1]
    random = np.random.default_rng(seed)
    factor = np.linalg.cholesky(np.cov(vectors.T) + 1e-9 * np.eye(vectors.shape[1]))
    chosen = vectors.mean(axis=0) + random.normal(size=(DRAWN, vectors.shape[1])) @ factor.T
    moved = random.permutation(DRAWN)[:3]
    chosen[moved] = (1 - (keep := (1.0, 0.7, 0.4, 0.1)[size])) * vectors.mean(axis=0) + keep * chosen[moved]
    return np.asarray(chosen)


# -- the same with the user's own queries -----------------------------------------------------------------------------

ASKED, WORDS = 120, 8


def judged(queries: Sequence[str], relevant: Array) -> JudgedQueries:
    """Queries, each with the text that answers it."""
    pairs = np.stack([np.arange(len(queries)), relevant], axis=1)
    names = tuple(f"q{k}" for k in range(len(queries)))
    return JudgedQueries(names, tuple(queries), pairs, np.ones(len(queries)), "simulated queries", "")


def asked(seed: int) -> tuple[JudgedQueries, dict[str, str]]:
    """Eight words in a row of some of the drawn texts, which ask for their text; and the text of each query."""
    random, texts = np.random.default_rng([seed, 1]), [corpus()[0][k] for k in drawn(seed)]
    parents: dict[str, str] = {}
    relevant = []
    for place in random.permutation(len(texts)):
        words = texts[place].split()
        start = int(random.integers(len(words) - WORDS + 1))
        if len(parents) < ASKED and (piece := " ".join(words[start : start + WORDS])) not in parents:
            parents[piece] = texts[place]
            relevant.append(place)
    return judged(list(parents), np.array(relevant)), parents


def asked_vectors(seed: int, vectors: Array, lost: float) -> Subject:
    """Texts that are one vector each, and queries near their text, of which a share asks for something else."""
    random = np.random.default_rng([seed, 2])
    relevant = random.permutation(len(vectors))[:ASKED]
    noise = unit_rows(random.normal(size=(ASKED, vectors.shape[1])), "noise")
    near = unit_rows(vectors[relevant], "vectors") + 0.5 * noise
    queries = np.where((random.random(ASKED) < lost)[:, None], noise, near)
    rows = {f"text {k}": row for k, row in enumerate(vectors)} | {f"query {k}": row for k, row in enumerate(queries)}
    encoder = as_encoder(lambda batch: [rows[text][None] for text in batch])
    return Subject(
        clouds=encoder.encode([f"text {k}" for k in range(len(vectors))])[-1],
        encoder=encoder,
        thresholds=_LIMITS,
        source="",
        documents=tuple(map(str, range(len(vectors)))),
        queries=judged([f"query {k}" for k in range(ASKED)], relevant),
        seed=seed,
    )


_LOST = (0.1, 0.25, 0.4, 0.6)


def own_scores_verdict(size: int, seed: int) -> Verdict:
    """So many queries lie near anything rather than their text, so that a cut-off loses what answers them."""
    vectors = corpus()[1][drawn(seed)]
    return scores.answer(asked_vectors(seed, vectors - corpus()[1].mean(axis=0), _LOST[size])).verdict


def own_short_verdict(size: int, seed: int) -> Verdict:
    """As without queries; these ask for texts of any length, not for as many of each."""
    material = subject(seed, lambda _, cloud: cloud, queries=asked(seed)[0])
    task = material.query_task
    if task is None:
        raise SystemExit("no queries")
    return _crowded(query_pieces(material, task), size, seed)


def own_long_verdict(size: int, seed: int) -> Verdict:
    """The trial of smaller chunks: a text and its halves say the same; then the second half is about something else.

    A text and all that is asked or cut of it have its vector and noise of their own.
    """
    queries, parents = asked(seed)
    texts = [corpus()[0][k] for k in drawn(seed)]
    vectors = dict(zip(texts, corpus()[1][drawn(seed)] - corpus()[1].mean(axis=0), strict=True))
    others = np.setdiff1d(np.arange(len(corpus()[0])), drawn(seed))[: len(texts)]
    strange = dict(zip(texts, corpus()[1][others] - corpus()[1].mean(axis=0), strict=True))
    halves = {half: (text, place) for text in texts for place, half in enumerate(cut_in_two(text))}
    mixed = (0.0, 0.5, 1.0, 2.0)[size]

    def encode(text: str) -> Array:
        owner, place = halves.get(text, (parents.get(text, text), 0))
        said = vectors[owner]
        if text in vectors:
            said = said + mixed * strange[owner]
        elif place and mixed:
            said = strange[owner]
        return np.asarray(said / np.linalg.norm(said) + 1.2 * _direction(text, len(said)))[None]

    encoder = as_encoder(lambda batch: [encode(text) for text in batch])
    material = Subject(
        clouds=encoder.encode(texts)[-1], encoder=encoder, thresholds=_LIMITS, source="", queries=queries, seed=seed,
        trial_texts=DRAWN,
    )  # fmt: skip
    trial = chunk_trial(material)
    return replace(decided_by(trial, _LIMITS["length_gain"]), value=trial.change.mean)


def own_averaging_verdict(size: int, seed: int) -> Verdict:
    """A query spreads in the direction of its text, which its few tokens show if that is large. So that averages leave
    something to win, they are blurred.
    """
    queries, parents = asked(seed)
    spread = _own_spread(parents, (0.0, 10.0, 15.0, 20.0)[size], blur=1.5)
    return _judged_clouds(subject(seed, spread, queries=queries))


def own_hubs_verdict(size: int, seed: int) -> Verdict:
    """As without queries: texts near the centre come back for queries too."""
    return hubs.answer(asked_vectors(seed, _gaussian(size, seed), 0.0)).verdict


def own_missed_verdict(size: int, seed: int) -> Verdict:
    """So many queries lie near anything rather than their text, which they then do not find."""
    return hubs.answer(asked_vectors(seed, _gaussian(0, seed), _LOST[size])).verdict


SIMULATIONS = {
    "scores": Simulation("1 scores", "cut-off of all texts is 0.65", ("0.75", "0.85", "0.95"), scores_verdict),
    "cone": Simulation("2 one cone", "mean projected out", ("×1", "×2", "×4"), cone_verdict),
    "pooling": Simulation("3 pooling", "own vectors in float16", ("5 % max", "20 % max", "max"), pooling_verdict),
    "short": Simulation("5 short texts", "lengths shuffled", ("0.1", "0.2", "0.3"), short_verdict),
    "long": Simulation("6 long texts", "lengths shuffled", ("0.05", "0.1", "0.2"), long_verdict),
    "position": Simulation("7 position", "places permuted", ("−20 %", "−40 %", "−60 %"), position_verdict),
    "averaging": Simulation(
        "8 averaging", "deviations of other texts", ("6", "9", "12"), averaging_verdict, "nDCG@10 won"
    ),
    "hubs": Simulation("9 hubs", "Gaussian of the same covariance", ("30 %", "60 %", "90 %"), hubs_verdict),
    "own-scores": Simulation("1, queries", "10 % of them lost", ("25 %", "40 %", "60 %"), own_scores_verdict),
    "own-short": Simulation("5, queries", "lengths shuffled", ("0.1", "0.2", "0.3"), own_short_verdict),
    "own-long": Simulation(
        "6, queries: the trial", "halves say the same", ("0.5", "1", "2"), own_long_verdict, "nDCG@10 won"
    ),
    "own-position": Simulation(
        "7, queries", "places permuted", ("−20 %", "−40 %", "−60 %"),
        partial(position_verdict, cosines=(0.1, 0.6)),
    ),
    "own-averaging": Simulation(
        "8, queries", "deviations of other texts", ("10", "15", "20"), own_averaging_verdict, "nDCG@10 won"
    ),
    "own-hubs": Simulation(
        "9, queries", "Gaussian of the same covariance", ("30 %", "60 %", "90 %"), own_hubs_verdict
    ),
    "own-missed": Simulation("9, never found", "10 % of them lost", ("25 %", "40 %", "60 %"), own_missed_verdict),
}  # fmt: skip


Run = tuple[str, float | None]


def levels(runs: Sequence[Run]) -> dict[str, float]:
    """Share of the runs by level."""
    said = [level for level, _ in runs]
    return {level: said.count(level) / max(len(runs), 1) for level in LEVELS}


def code_digest() -> str:
    """SHA-256 of the package and of this file."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    package = Path(poolscope.__file__).parent
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return digest.hexdigest()


def read_state(path: Path | None, seed: int) -> dict[str, list[Run]]:
    """The runs so far, by question and size; none without a file."""
    if path is None or not path.exists():
        return {}
    content = json.loads(path.read_text("utf-8"))
    if (content["code"], content["seed"]) != (code_digest(), seed):
        raise SystemExit(f"{path} was written by other code or with another seed. Begin anew with another file.")
    return {cell: [(level, value) for level, value in runs] for cell, runs in content["runs"].items()}


def simulate(
    questions: Sequence[str], done: dict[str, list[Run]], *, runs: tuple[int, int], seed: int, until: float
) -> dict[str, list[Run]]:
    """Run after run over all cells, so that each has as many when the time ends; `runs`: without and with effect."""
    cells = [(name, size) for name in questions for size in range(4)]
    for run in range(max(runs)):
        for name, size in cells:
            rows = done.setdefault(f"{name}/{size}", [])
            if len(rows) > run or run >= runs[size > 0]:
                continue
            if time.monotonic() > until:
                return done
            verdict = SIMULATIONS[name].verdict(size, seed + run)
            rows.append((verdict.level, verdict.value))
    return done


def row_of(name: str, done: dict[str, list[Run]]) -> str:
    """One row of the table."""
    simulation, cells = SIMULATIONS[name], [done.get(f"{name}/{size}", []) for size in range(4)]
    null, power = levels(cells[0]), []
    alarms = null["watch"] + null["repair"]
    for words, runs in zip(simulation.sizes, cells[1:], strict=True):
        shares = levels(runs)
        values = [value for _, value in runs if value is not None]
        mean = f"{sum(values) / len(values):+.2f} {simulation.shown}, " if simulation.shown and values else ""
        seen = f"{shares['watch'] + shares['repair']:.0%}"
        power.append(f"{words}: {seen} ({mean}{shares['repair']:.0%} `repair`)")
    runs = f"{len(cells[0])}, {min(map(len, cells[1:]))}"
    ends = share_of(round(alarms * len(cells[0])), len(cells[0]), unit="runs").interval
    alarms_said = f"{alarms:.1%}" + ("" if ends is None else f" [{ends.low:.1%}, {ends.high:.1%}]")
    row = (simulation.question, runs, simulation.removed, alarms_said, f"{null['unchecked']:.0%}")
    return f"| {' | '.join(row)} | {', '.join(power)} |"


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=100)
    arguments.add_argument("--planted", type=int, default=30)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--question", nargs="*", choices=list(SIMULATIONS), default=list(SIMULATIONS))
    arguments.add_argument("--state", type=Path, default=None)
    arguments.add_argument("--seconds", type=float, default=float("inf"))
    options = arguments.parse_args()
    until = time.monotonic() + options.seconds
    done = read_state(options.state, options.seed)
    runs = options.runs, options.planted
    done = simulate(options.question, done, runs=runs, seed=options.seed, until=until)
    if options.state is not None:
        content = {"code": code_digest(), "seed": options.seed, "runs": done}
        with atomic_path(options.state) as temporary:
            Path(temporary).write_text(json.dumps(content), "utf-8")
    print("| question | runs | nothing to find | false alarms | unchecked | planted: at least `watch` |")
    print("|---|---|---|---|---|---|")
    for name in options.question:
        print(row_of(name, done), flush=True)


if __name__ == "__main__":
    main()
