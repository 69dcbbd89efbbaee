"""Small held-out trials: does a repair help on these texts, before anyone pays for it?

The task is split-half self-retrieval: the first half of a text shall find its second half among the second halves of
the other texts on trial and all texts that are not on trial. The repair is fitted on the latter only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.evaluation import Difference, Evaluation, Halves, compare_scores, split_half
from poolscope.numbers.ranking import rank_documents, tied_rank, unit_rows
from poolscope.verdicts import Verdict

if TYPE_CHECKING:
    from poolscope.auditing.subject import Subject

Array = NDArray[Any]

# Fewer queries than this give an interval that excludes nothing.
MIN_QUERIES = 10
# Texts on trial: this share of all, but neither fewer nor more than these.
_SHARE, _FEWEST, _MOST = 1 / 20, 40, 200
_K = 10
# Of the intervals of differences: an audit makes up to four trials, of which none shall pass by chance.
_LEVEL = 0.99
# Of BW² beside the squared distance of the means, which is smaller in most models: a whole one would drown it.
_CLOUD_WEIGHT = 0.25


@dataclass(frozen=True)
class Trial:
    """nDCG@10 before and after a repair, query by query; without a difference `sentence` says why there is none."""

    name: str
    sentence: str
    before: Evaluation | None = None
    after: Evaluation | None = None
    difference: Difference | None = None
    evidence: tuple[str, ...] = ()

    @property
    def gain(self) -> float:
        """What was won, 0 where that is not proven."""
        return self.difference.mean if self.difference is not None and self.difference.proves_gain else 0.0

    def numbers(self, name: str) -> dict[str, Any]:
        """The difference under a name, for `audit.json`."""
        if self.difference is None:
            return {f"{name}_gain": None}
        return {f"{name}_gain": self.difference.mean, f"{name}_gain_interval": self.difference.interval}

    def table(self, name: str, subject: Subject) -> Mapping[str, pa.Table]:
        """The scores query by query, as a table; none where nothing was tried.

        A digest names the query, so that two audits are paired only where they asked the same.
        """
        if self.before is None or self.after is None or isinstance(subject.halves, str):
            return {}
        columns = {"before": self.before.scores, "after": self.after.scores}
        names = [hashlib.sha256(query.encode()).hexdigest()[:16] for query in subject.halves.halves.queries]
        return {name: pa.table({"query": names, **columns})}


@dataclass(frozen=True)
class HalvesTask:
    """The halves of some texts, encoded once, and the vectors of all other texts as further documents."""

    subject: Subject
    halves: Halves
    others: Array
    other_lengths: NDArray[np.int64]

    @cached_property
    def clouds(self) -> tuple[TokenClouds, TokenClouds]:
        """The clouds of first and second halves, as the model is."""
        return self.encode()

    @cached_property
    def vectors(self) -> tuple[Array, Array]:
        """The vectors of first and second halves, as the model pools."""
        return self.pooled(self.clouds)

    def encode(self) -> tuple[TokenClouds, TokenClouds]:
        """First and second halves through the model, with whatever has been done to it in the meantime."""
        queries = len(self.halves.queries)
        clouds = self.subject.encoder.encode([*self.halves.queries, *self.halves.documents])[-1]  # cores wait once
        return clouds[:queries], clouds[queries:]

    def pooled(self, clouds: tuple[TokenClouds, TokenClouds]) -> tuple[Array, Array]:
        """The vectors of both sides."""
        return self.subject.pooled(clouds[0]), self.subject.pooled(clouds[1])

    def evaluate(self, queries: Array, documents: Array, others: Array | None = None) -> Evaluation:
        """nDCG@10 of each query among the halves and, where they are given too, the other texts."""
        held = documents if others is None else np.concatenate([documents, others])
        return self.scored(rank_documents(queries, held, self.halves.relevant, k=_K).ndcg(_K))

    @staticmethod
    def scored(ndcg: Array) -> Evaluation:
        """nDCG@10 of each query as an evaluation."""
        return Evaluation("split-half", f"nDCG@{_K}", "queries", ndcg[:, None])


def cut_halves(subject: Subject) -> HalvesTask | str:
    """The task on a draw of at most half of the texts, or the reason why there can be none."""
    if not subject.can_encode:
        return "the halves of the texts would have to be encoded, and only ready clouds are at hand"
    if subject.texts is None:
        return "the texts themselves are not at hand"
    if subject.trial_texts == 0:
        return "trials were switched off"
    distinct = subject.distinct  # a text that repeats another would be a second right answer that counts as wrong
    order = np.random.default_rng(subject.seed).permutation(distinct)
    chosen = np.sort(order[: min(_trial_size(subject), len(distinct) // 2)])
    try:
        halves = split_half([subject.texts[k] for k in chosen])
    except InputError:
        halves = Halves([], [], np.zeros((0, 2), np.int64))
    if len(halves.queries) < MIN_QUERIES:
        return f"{len(halves.queries)} of the texts on trial can be cut in two, and {MIN_QUERIES} are needed"
    others = np.setdiff1d(distinct, chosen)
    return HalvesTask(subject, halves, subject.vectors[others], subject.clouds.lengths[others])


def _trial_size(subject: Subject) -> int:
    """As many texts as asked for, or a share of them all: the trials shall cost less than the encoding did."""
    if subject.trial_texts is not None:
        return subject.trial_texts
    return min(max(round(len(subject) * _SHARE), _FEWEST), _MOST)


def mean_removal_trial(subject: Subject) -> Trial:
    """Split-half self-retrieval before and after the mean is projected out; fitted on texts that are not on trial."""
    from poolscope.repairs.vectors import MeanRemoval

    task = subject.halves
    if isinstance(task, str):
        return Trial("mean removal", f"whether removing the mean helps was not tried: {task}.")
    repair = MeanRemoval().fit(task.others)
    before = task.evaluate(*task.vectors, task.others)
    after = task.evaluate(*(repair.transform(part) for part in (*task.vectors, task.others)))
    return compared("mean removal", before, after, doing="removing the mean")


def compared(name: str, before: Evaluation, after: Evaluation, *, doing: str) -> Trial:
    """A trial from two evaluations, with its sentence."""
    difference = compare_scores(before, after, level=_LEVEL)
    if difference.proves_gain:
        outcome = f"{doing} helps"
    elif difference.proves_loss:
        outcome = f"{doing} hurts"
    else:
        outcome = f"{doing} changes nothing that can be told from chance"
    sentence = f"{outcome} ({difference.mean:+.3f} nDCG@{_K} on {difference.count} held-out queries)."
    scores = f"{before.value:.3f} before, {after.value:.3f} after, difference {difference} ({_LEVEL:.0%} interval)"
    evidence = f"{name.capitalize()}, on split-half self-retrieval: nDCG@{_K} {scores}."
    return Trial(name, sentence, before, after, difference, (evidence,))


def judged_by(trials: Sequence[Trial], least: float) -> Verdict:
    """`repair` where a trial won by at least so much; otherwise `watch`, and what that rests on."""
    gain = max((trial.gain for trial in trials), default=0.0)
    if gain >= least and gain > 0:
        return Verdict("repair", basis="trial")
    if gain > 0:
        return Verdict("watch", basis="small gain")
    return Verdict("watch", basis="no cure" if any(trial.difference is not None for trial in trials) else "untried")


def temperature_trial(subject: Subject) -> Trial:
    """Split-half self-retrieval before and after the attention logits are divided by the published τ."""
    from poolscope.repairs.encoding import can_be_scaled
    from poolscope.repairs.temperature.rules import PUBLISHED_TAU
    from poolscope.repairs.temperature.tempscale import tempscale

    name = f"temperature {PUBLISHED_TAU:g}"
    task = subject.halves
    if isinstance(task, str):
        return Trial(name, f"whether a temperature helps was not tried: {task}.")
    if not can_be_scaled(subject.encoder):
        return Trial(name, f"a temperature does not apply: {subject.card.name} has no attention that can be scaled.")
    with tempscale(subject.encoder, PUBLISHED_TAU):
        scaled = task.pooled(task.encode())
    before = task.evaluate(*task.vectors)
    return compared(name, before, task.evaluate(*scaled), doing=f"a temperature of {PUBLISHED_TAU:g}")


def chunk_trial(subject: Subject) -> Trial:
    """The same task before and after every document is cut in two, of which the better chunk counts."""
    task = subject.halves
    if isinstance(task, str):
        return Trial("smaller chunks", f"whether smaller chunks help was not tried: {task}.")
    halves = [_cut_in_two(document) for document in task.halves.documents]
    owner = np.repeat(np.arange(len(halves)), [len(parts) for parts in halves])
    chunks = unit_rows(subject.encoded([part for parts in halves for part in parts]), "chunks")
    queries, documents = (unit_rows(part, "halves") for part in task.vectors)
    best = np.maximum.reduceat(queries @ chunks.T, np.flatnonzero(np.diff(owner, prepend=-1)), axis=1)
    before, after = (task.scored(_ndcg_of_diagonal(scores)) for scores in (queries @ documents.T, best))
    return compared("smaller chunks", before, after, doing="halving the chunks")


def _cut_in_two(text: str) -> list[str]:
    words = text.split()
    middle = len(words) // 2
    return [" ".join(words[:middle]), " ".join(words[middle:])] if middle else [text]


def _ndcg_of_diagonal(scores: Array) -> Array:
    """nDCG@10 where document k is the one right answer to query k (queries × documents)."""
    rank = tied_rank(scores, np.diagonal(scores)[:, None])
    return np.where(rank <= _K, 1 / np.log2(1 + rank), 0.0)


def cloud_trial(subject: Subject) -> Trial:
    """The same task before and after the ten nearest are put in order by their clouds too: d_μ + weight·d_Σ.

    If what averaging hides told right from wrong, this would find it.
    """
    from poolscope.repairs.reranking import rerank

    task = subject.halves
    if isinstance(task, str):
        return Trial("re-ranking", f"whether that matters was not tried: {task}.")
    ranking = rank_documents(*task.vectors, task.halves.relevant, k=_K)
    after = rerank(ranking, *task.clouds, weight=_CLOUD_WEIGHT)
    doing = "looking at the clouds of the first hits"
    return compared("re-ranking", task.scored(ranking.ndcg(_K)), task.scored(after.ndcg(_K)), doing=doing)
