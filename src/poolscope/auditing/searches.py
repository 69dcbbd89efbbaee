"""What an audit searches, and small held-out trials: does a repair help on these texts, before anyone pays for it?

The task is that of the user's queries, encoded once and ranked over all texts. Without any it is split-half
self-retrieval: each half of a text shall find the other one among such halves of the other texts on trial. A repair of
the vectors is fitted on texts that are not on trial. These are not searched among: whole texts share more of the mean
than halves do, so that removing it pushes them back, and seemed to help where among halves it does not. How a trial is
made stands in `poolscope.repairs.search`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.chunks.splitting import TokenRuler, split_texts
from poolscope.clouds import TokenClouds
from poolscope.encoders.base import TokenEncoder, resolve_prompt
from poolscope.encoders.capabilities import has, has_attention, options_of, with_options
from poolscope.errors import InputError, ModelError
from poolscope.evaluation import Evaluation, RetrievalTask, Trial
from poolscope.evaluation.reading import cut_texts
from poolscope.numbers.ranking import Ranking, rank_documents, rank_scores, unit_rows
from poolscope.numbers.streaming import marks_of, pair_marks, shuffled_order, smallest
from poolscope.repairs.readings import Layers, Reading
from poolscope.repairs.repair_file import Repair, encode_at
from poolscope.repairs.search import Bench, gaussian_distances
from poolscope.repairs.temperature.rules import PUBLISHED_TAU, TemperatureRule
from poolscope.repairs.vectors import MeanRemoval
from poolscope.texts import JudgedQueries
from poolscope.texts.groups import Boilerplate
from poolscope.verdicts import Verdict

if TYPE_CHECKING:
    from poolscope.auditing.subject import Subject


# Fewer queries than this give an interval that excludes nothing.
MIN_QUERIES = 10
# Texts on trial: this share of all, but neither fewer nor more than these; of a table, which encodes in no time, more.
# Halves ask for each other both ways, which costs no further encoding and narrows most differences. From the spread of
# the differences of MiniLM, a sixth of 1,000 texts (140 that can be cut) have 99 % intervals of ±0.012 for removing
# the mean and of ±0.017 for re-ranking; one way and a twentieth of the texts, ±0.02 and ±0.05. That excludes the gains
# that matter where there is none; to prove a gain in four of five cases it must be 0.035 and 0.04.
_SHARE, _FEWEST, _MOST = 1 / 6, 60, 400
_SHARE_OF_A_TABLE, _MOST_OF_A_TABLE = 1 / 2, 1000
# Whole texts that are encoded anew for the user's queries, and tokens of the chunks that those which were cut become.
MOST_TEXTS, _MOST_CUT = 200, 100_000
# How far the share of texts with certain words may differ between those on trial and all.
_ALIKE_SHARE = 0.2
K = 10
# Of the intervals of differences: an audit makes up to six trials, of which none shall pass by chance.
LEVEL = 0.99
# Of BW² beside the squared distance of the means, which is smaller in most models: a whole one would drown it.
CLOUD_WEIGHT = 0.25
# The repair that `mean_removal_trial` tries, and what it costs: subtracting the mean is another one, and may do worse.
MEAN_REMOVAL = "project the mean direction m of the corpus out of queries and documents, x − (x·m)m, and normalise"
MEAN_REMOVAL_COST = "no re-encoding: one projection a vector, of the index and of every query"


@dataclass(frozen=True, eq=False, kw_only=True)
class SearchTask(Bench):
    """Queries, their documents, and the vectors that a repair learns from.

    `texts` are the positions in the corpus of what the documents are, or are halves of.
    """

    task: RetrievalTask
    learnt_from: NDArray[Any]
    texts: NDArray[np.int64] = field(repr=False)

    @property
    def clouds(self) -> tuple[TokenClouds, TokenClouds]:
        """The clouds of queries and documents, as the model is."""
        return self.sides[0][-1], self.sides[1][-1]


def cut_halves(subject: Subject, stripped: Callable[[str], str] = str) -> SearchTask | str:
    """Halves of at most half of the texts, each to be found by the other, or the reason why there can be none.

    `stripped` takes from a text what shall be in no half.
    """
    if (reason := _cannot_try(subject)) is not None:
        return reason
    texts = subject.texts or []
    distinct = subject.distinct  # a text that repeats another would be a second right answer that counts as wrong
    chosen = subject.shuffled[: texts_on_trial(subject)]
    cut = cut_texts([stripped(texts[k]) for k in chosen])
    kept = [k for k, halves in enumerate(cut) if halves is not None]
    if len(kept) < MIN_QUERIES:
        return f"{len(kept)} of the texts on trial can be cut in two, and {MIN_QUERIES} are needed"
    queries, documents = ([halves[side] for halves in cut if halves is not None] for side in (0, 1))
    relevant = np.stack([np.arange(len(kept))] * 2, axis=1)
    name = "split-half self-retrieval"
    return SearchTask(
        encoder=subject.encoder,
        task=RetrievalTask(queries, documents, relevant, name=name, k=K, roles=(None, None), both_ways=True),
        pooling=subject.text_pooling.pooling,
        level=LEVEL,
        units="held-out texts, by self-made queries both ways",
        learnt_from=subject.vectors[np.setdiff1d(distinct, chosen)],
        texts=chosen[kept],
    )


# -- short and long texts ---------------------------------------------------------------------------------------------

# Queries for each fifth of the lengths at the least: their hit rates differ visibly from 16 or so on.
_EACH_FIFTH = 16
# Words of a piece: a third of a short text, but enough to say something and no more than a question has.
_PIECE = (4, 16)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces of some texts as queries, the same texts without them, and all other texts as further documents.

    Every fifth of the lengths is asked for by as many queries, all of one length in words, so that what differs between
    the fifths is the document. `lengths` are those of the whole texts. `words`: of a piece; 0 where the queries are the
    user's own. `counted`: rows of `relevant` whose ranks count (None: all).
    """

    queries: NDArray[Any]
    documents: NDArray[Any]
    relevant: NDArray[np.int64]
    lengths: NDArray[np.int64]
    words: int
    counted: NDArray[np.int64] | None = None


def cut_pieces(subject: Subject) -> Pieces | str:
    """Queries for texts of every length, or the reason why there can be none."""
    if (reason := _cannot_try(subject)) is not None:
        return reason
    texts, distinct = subject.texts or [], subject.distinct
    kept, whole = subject.clouds.lengths[distinct], (subject.clouds.lengths + subject.clouds.truncated)[distinct]
    words = [texts[k].split() for k in distinct]
    counts = np.array([len(row) for row in words])
    size = int(np.clip(np.quantile(counts, 0.1) // 3, *_PIECE))
    each = max(_trial_size(subject) // 5, _EACH_FIFTH) if subject.trial_texts is None else -(-subject.trial_texts // 5)
    fifth = np.searchsorted(np.quantile(whole, [0.2, 0.4, 0.6, 0.8]), whole)
    order = np.argsort(subject.marks, kind="stable")
    order = order[counts[order] >= 2 * size]
    chosen = np.sort(np.concatenate([order[fifth[order] == number][:each] for number in range(5)]))
    if len(chosen) < MIN_QUERIES:
        return f"{len(chosen)} of the texts have {2 * size} words or more to cut a query from, {MIN_QUERIES} are needed"
    queries, rests = [], []
    for k in chosen:  # from what the model read of the text
        read = max(int(counts[k] * kept[k] / whole[k]), size)
        start = int(subject.marks[k] % (read - size + 1))
        queries.append(" ".join(words[k][start : start + size]))
        rests.append(" ".join(words[k][:start] + words[k][start + size :]))
    encoded = unit_rows(subject.encoded([*queries, *rests]), "pieces")
    documents = subject.vectors[distinct]
    documents[chosen] = encoded[len(chosen) :]
    relevant = np.stack([np.arange(len(chosen)), chosen], axis=1)
    return Pieces(encoded[: len(chosen)], documents, relevant, whole, size)


def _cannot_try(subject: Subject) -> str | None:
    """Why no text can be encoded anew; None where one can."""
    if not subject.can_encode:
        ready = "clouds" if subject.collection is None else "vectors"
        return f"parts of the texts would have to be encoded, and only ready {ready} are at hand"
    if subject.texts is None:
        return "the texts themselves are not at hand"
    return "trials were switched off" if subject.trial_texts == 0 else None


def _trial_size(subject: Subject) -> int:
    """As many texts as asked for, or a share of them all: the trials shall cost less than the encoding did."""
    if subject.trial_texts is not None:
        return subject.trial_texts
    share, most = _usual_trial(subject)
    return min(max(round(len(subject) * share), _FEWEST), most)


def _usual_trial(subject: Subject) -> tuple[float, int]:
    """The share of the texts that is put on trial unless another number is asked for, and how many at most."""
    return (_SHARE_OF_A_TABLE, _MOST_OF_A_TABLE) if subject.card.kind == "static" else (_SHARE, _MOST)


def texts_on_trial(subject: Subject) -> int:
    """How many texts are drawn to be cut in halves; not all of them can be."""
    return min(_trial_size(subject), len(subject.distinct) // 2)


def more_texts(subject: Subject, trial: float) -> str:
    """Advice that puts so many texts on trial, where those at hand are too few."""
    share, most = _usual_trial(subject)
    if not np.isfinite(trial):
        return "audit more texts: too few are on trial to tell"
    if trial > most:
        few = f"even {most:,} on trial, the most without it, are too few to tell"
        return f"audit more texts with --trial {trial:.0f} or so: {few}"
    size = 2 * trial if trial <= _FEWEST else trial / share
    return f"audit more texts, {size:,.0f} or so: too few are on trial to tell"


def judged_by(trials: Sequence[Trial], least: float) -> Verdict:
    """`repair` where a trial won by at least so much; otherwise `watch`, and what that rests on."""
    gain = max((trial.gain for trial in trials), default=0.0)
    if gain >= least and gain > 0:
        return Verdict("repair", basis="trial")
    if gain > 0:
        return Verdict("watch", basis="small gain")
    tried = [trial for trial in trials if trial.difference is not None]
    if not tried:
        return Verdict("watch", basis="untried")
    return Verdict("watch", basis="no cure" if all(trial.could_tell(least) for trial in tried) else "too few")


def decided_by(trial: Trial, least: float) -> Verdict:
    """The verdict where the trial alone decides: without a gain `ok` if it could have seen one, else `unchecked`."""
    if trial.gain > 0:
        return judged_by([trial], least)
    return Verdict("ok" if trial.could_tell(least) else "unchecked")


def mean_removal_trial(subject: Subject) -> Trial:
    """Before and after the mean is projected out; fitted on texts, none of which is a query."""
    name, task = "mean removal", subject.search
    if isinstance(task, str):
        return Trial(name, f"whether removing the mean helps was not tried: {task}.")
    repair = Repair(vectors=MeanRemoval())
    try:
        return task.try_vectors(repair, task.learnt_from, name=name, doing="removing the mean by projection")
    except InputError:  # some vectors are the mean, and nothing would be left of them
        return Trial(
            name, "removing the mean was not tried: nothing would be left of some vectors, which are the mean."
        )


def temperature_trial(subject: Subject) -> Trial:
    """Before and after the attention logits are divided by the published τ."""
    name, task = f"temperature {PUBLISHED_TAU:g}", subject.anew
    if isinstance(task, str):
        return Trial(name, f"whether a temperature helps was not tried: {task}.")
    if not has_attention(subject.encoder):
        return Trial(name, f"a temperature does not apply: {subject.card.name} has no attention that can be scaled.")
    return task.try_repair(Repair(temperature=PUBLISHED_TAU), name=name, doing=f"a temperature of {PUBLISHED_TAU:g}")


def chunk_trial(subject: Subject) -> Trial:
    """Before and after every document is cut in two, of which the better chunk counts."""
    name, task = "smaller chunks", subject.anew
    if isinstance(task, str):
        return Trial(name, f"whether smaller chunks help was not tried: {task}.")
    ways = task.task.ways(*zip(task.vectors, (task.task.queries, task.task.documents), strict=True))
    cut = [[cut_in_two(document) for document in documents] for _, (_, documents) in ways]
    encoded = subject.encoded([chunk for documents in cut for parts in documents for chunk in parts])  # all at once
    edges = np.cumsum([sum(map(len, documents)) for documents in cut])[:-1]
    after = [
        _chunked(task, asking, documents, chunks)
        for ((asking, _), _), documents, chunks in zip(
            ways, cut, np.split(unit_rows(encoded, "chunks"), edges), strict=True
        )
    ]
    return task.compare(name, task.before, task.task.mean_of(after), doing="halving the chunks")


def fitting_trial(subject: Subject) -> Trial | None:
    """Before and after the texts that were cut become chunks that fit, of which the nearest counts.

    Only the user's queries ask for what was cut: halves of texts are asked for by their other halves. None without any.
    """
    name, task = "chunks that fit", subject.anew
    if not isinstance(task, QueryTask):
        return None
    lost = subject.clouds.truncated[task.texts]
    cut: list[int] = np.flatnonzero(lost).tolist()
    tokens = int((subject.clouds.lengths[task.texts] + lost)[cut].sum())
    if not cut or tokens > _MOST_CUT:
        why = f"their chunks have {tokens:,} tokens" if cut else "no text on trial was cut"
        return Trial(name, f"whether a search finds more in chunks that fit was not tried: {why}.")
    texts = [task.task.documents[k] for k in cut]
    try:
        pieces = split_texts(texts, TokenRuler(subject.encoder))
    except (InputError, ModelError):  # no tokenizer is at hand, as of a server
        return Trial(name, "whether a search finds more in chunks that fit was not tried: nothing here cuts texts.")
    documents: list[Sequence[str]] = [[text] for text in task.task.documents]
    for k, parts in zip(cut, pieces, strict=True):
        documents[k] = [part.of(texts) for part in parts]
    fresh = subject.encoded([part for k in cut for part in documents[k]])
    owner = np.repeat(np.arange(len(documents)), [len(parts) for parts in documents])
    chunks = np.array(task.vectors[1])[owner]
    chunks[np.isin(owner, cut)] = unit_rows(fresh, "chunks")
    after = _chunked(task, np.asarray(task.vectors[0]), documents, chunks)
    return task.compare(name, task.before, after, doing="splitting the texts that were cut")


def _chunked(
    task: SearchTask, asking: NDArray[Any], documents: Sequence[Sequence[str]], chunks: NDArray[Any]
) -> Evaluation:
    """The search among documents that are cut in chunks, of which the nearest counts."""
    owner = np.repeat(np.arange(len(documents)), [len(parts) for parts in documents])
    best = np.maximum.reduceat(asking @ chunks.T, np.flatnonzero(np.diff(owner, prepend=-1)), axis=1)
    return task.task.evaluation(rank_scores(best, task.task.relevant, k=K))


def stripping_trial(subject: Subject, shared: Boilerplate) -> Trial:
    """Before and after the texts are stripped of the words that most of them begin or end with.

    Queries do not have these words. Without any of the user's, the half of a text asks for the other one, before with
    half of the words around it: they shall have the share in it that they have in the whole text. With all of them a
    header of 30 words cost MiniLM 0.12 nDCG@10, with half of them 0.07, and 0.06 where eight words of a text asked for
    the rest of it.
    """
    name, doing = "without boilerplate", "stripping these words before encoding"

    def bare(text: str) -> str:
        return shared.parted(text)[1]

    task = cut_halves(subject, bare) if subject.queries is None else subject.anew
    reason = task if isinstance(task, str) else _other_share(subject, task, shared)
    if isinstance(task, str) or reason:
        return Trial(name, f"whether a search finds more without these words was not tried: {reason}.")
    if isinstance(task, QueryTask):
        texts = [bare(text) for text in task.task.documents]
        documents = _encoded_where_other(subject, task.vectors[1], task.task.documents, texts)
        return task.compare(name, task.before, task.task.score(task.vectors[0], documents), doing=doing)
    around = [shared.parted((subject.texts or [])[k]) for k in task.texts]
    searched = []
    for vectors, side in zip(task.vectors, task.task.sides, strict=True):
        texts = [
            f"{cut_in_two(head)[0]} {half} {cut_in_two(tail)[-1]}".strip()
            for (head, _, tail), half in zip(around, side.texts, strict=True)
        ]
        searched.append(_encoded_where_other(subject, vectors, side.texts, texts))
    ways = zip(task.vectors, reversed(searched), strict=True)
    before = task.task.mean_of([task.task.evaluation(task.task.rank(*way)) for way in ways])
    return task.compare(name, before, task.before, doing=doing)


def _other_share(subject: Subject, task: SearchTask, shared: Boilerplate) -> str:
    """Why a trial would mislead: many more or fewer of the texts on trial have these words than of all; else "".

    So it is where the texts that have them are too short to be cut in two, or are those that queries ask for, while
    the words tell them from the others.
    """
    texts = subject.texts or []
    have = [np.mean([shared.parted(texts[k])[1] != texts[k] for k in some]) for some in (task.texts, subject.distinct)]
    if abs(have[0] - have[1]) <= _ALIKE_SHARE:
        return ""
    return f"{have[0]:.0%} of the texts on trial have them, and {have[1]:.0%} of all"


def _encoded_where_other(
    subject: Subject, vectors: ArrayLike, texts: Sequence[str], others: Sequence[str]
) -> NDArray[Any]:
    """The vectors of the other texts, of which those that stayed what they were are not encoded again."""
    changed = [k for k, pair in enumerate(zip(texts, others, strict=True)) if pair[0] != pair[1]]
    renewed = np.array(vectors)
    if changed:
        renewed[changed] = unit_rows(subject.encoded([others[k] for k in changed]), "texts")
    return renewed


def cut_in_two(text: str) -> list[str]:
    """Both halves of a text of two words or more, by words."""
    words = text.split()
    middle = len(words) // 2
    return [" ".join(words[:middle]), " ".join(words[middle:])] if middle else [text]


def cloud_trial(subject: Subject) -> Trial:
    """Before and after the ten nearest are put in order by their clouds too: d_μ + weight·d_Σ.

    If what averaging hides told right from wrong, this would find it. Where the model's own vectors are no means of
    tokens, the same ten in the order of their means are what it is set against: clouds have means, which may find more
    than the model's own vectors without anything that averaging hides.
    """
    name, task = "re-ranking", subject.search
    if isinstance(task, str):
        return Trial(name, f"whether that matters was not tried: {task}.")
    if subject.text_pooling.is_mean:
        doing = "looking at the clouds of the first hits"
        return task.try_reranking(K, weight=CLOUD_WEIGHT, name=name, doing=doing)
    name = "re-ranking by clouds against re-ranking by means alone"
    doing = "putting the first hits in order by their clouds, not by their means alone,"
    return task.try_reranking(K, weight=CLOUD_WEIGHT, name=name, doing=doing, beside_means=True)


# -- the user's own queries -------------------------------------------------------------------------------------------


def _name(texts: int) -> str:
    return f"your queries among {texts:,} texts"


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryTask(SearchTask):
    """The user's queries and all different texts, whose clouds are at hand: nothing is encoded until a trial asks."""

    asking: TokenEncoder
    ready: tuple[TokenClouds, TokenClouds] = field(repr=False)

    @cached_property
    def sides(self) -> list[Layers]:
        """The clouds of queries and documents, as the model is."""
        return [{-1: clouds} for clouds in self.ready]

    def encode(
        self, rule: TemperatureRule | None, *, reading: Reading | None = None, layers: Sequence[int] = (-1,)
    ) -> list[Layers]:
        """Both sides anew at a temperature, the queries with their own prompt."""
        encoders = zip((self.asking, self.encoder), self.task.sides, strict=True)
        return [encode_at(encoder, side.texts, rule, reading=reading, layers=layers) for encoder, side in encoders]

    @cached_property
    def ranking(self) -> Ranking:
        """The first documents of each query, and the ranks of the relevant ones."""
        return rank_documents(self.vectors[0], self.vectors[1], self.task.relevant, k=K)

    @cached_property
    def best(self) -> NDArray[np.int64]:
        """Rows of the judgements that count: of a document that was named, the chunk that ranks first."""
        answers = self.task.answers
        return np.arange(len(self.task.relevant)) if answers is None else self.ranking.best_of(answers)

    def part(self, queries: NDArray[np.int64], idle: NDArray[np.int64]) -> QueryTask:
        """Some queries, with their relevant documents and those of `idle`."""
        task = self.task.part(queries, idle)
        task = replace(task, name=_name(len(task.documents)))
        kept = np.union1d(self.task.relevant[np.isin(self.task.relevant[:, 0], queries), 1], idle)
        clouds = self.ready[0][queries], self.ready[1][kept]
        vectors = self.vectors[1][kept]
        return replace(self, task=task, ready=clouds, texts=self.texts[kept], learnt_from=vectors)


def query_task(subject: Subject, queries: JudgedQueries) -> QueryTask:
    """The queries over all different texts; a relevant text that repeats an earlier one is found where that is."""
    texts, encoder = subject.distinct, query_encoder(subject.encoder, subject.query_prompt)
    documents = np.searchsorted(texts, subject.first_equal[queries.relevant[:, 1]])
    relevant, grades, answers = _judgements(queries, documents)
    corpus = subject.texts or []
    task = RetrievalTask(
        list(queries.texts),
        [corpus[k] for k in texts],
        relevant,
        name=_name(len(texts)),
        k=K,
        roles=(None, None),
        grades=grades if queries.graded else None,
        answers=answers,
    )
    return QueryTask(
        encoder=subject.encoder,
        asking=encoder,
        task=task,
        pooling=subject.text_pooling.pooling,
        level=LEVEL,
        units="of your queries",
        learnt_from=subject.vectors[texts],
        ready=(encoder.encode(list(queries.texts))[-1], subject.clouds[texts]),
        texts=texts,
    )


def _judgements(
    queries: JudgedQueries, documents: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64] | None]:
    """Each (query, document) once, with its highest grade and its answer: two relevant texts may be equal."""
    pairs = np.stack([queries.relevant[:, 0], documents], axis=1)
    relevant, first, place = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    grades = np.zeros(len(relevant))
    np.maximum.at(grades, place.ravel(), queries.grades)
    return relevant, grades, None if queries.answers is None else queries.answers[first]


@dataclass(frozen=True, eq=False)
class Mistakes:
    """Queries that rank a wrong text before a relevant one: positions of the query and of both texts, and cosines.

    `mended`: with the clouds looked at too (d_μ + weight·d_Σ), the relevant text comes first; `by_means`: by the means
    of the clouds alone (d_μ), which tells something where the model's vectors are no such means. The rows may be drawn:
    `count` is how many there are of all, `queries` of how many queries, and `confused` how many pairs of two texts.
    """

    query: NDArray[np.int64]
    relevant: NDArray[np.int64]
    wrong: NDArray[np.int64]
    relevant_cosine: NDArray[np.float64]
    wrong_cosine: NDArray[np.float64]
    mended: NDArray[np.bool_]
    count: int
    queries: int
    confused: int
    by_means: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    def __len__(self) -> int:
        return len(self.query)

    @property
    def pairs(self) -> NDArray[np.int64]:
        """(relevant, wrong) of every mistake."""
        return np.stack([self.relevant, self.wrong], axis=1)


def mistakes(task: QueryTask, groups: NDArray[np.int64] | None, *, most: int, seed: int) -> Mistakes:
    """For every query the wrong texts among the first ten that stand before its best relevant one; at most so many.

    Texts of the relevant one's document are no mistakes, where documents are known (`groups`, one number a document of
    the task).
    """
    ranking = task.ranking
    order = np.lexsort((ranking.rank, ranking.query))
    queries, first = np.unique(ranking.query[order], return_index=True)
    best = ranking.document[order[first]]  # of each query the relevant text that ranks first
    asking, searched = (np.asarray(side) for side in task.vectors)
    own = np.einsum("nd,nd->n", asking[queries], searched[best])
    top, scores = ranking.top[queries], ranking.scores[queries]
    keys = queries[:, None] * len(searched) + top
    wrong = (scores > own[:, None]) & ~np.isin(keys, ranking.query * len(searched) + ranking.document)
    if groups is not None:
        wrong &= groups[top] != groups[best][:, None]
    rows, places = np.nonzero(wrong)
    count, confusing = len(rows), len(np.unique(rows))
    confused = len(np.unique(np.stack([best[rows], top[rows, places]], axis=1), axis=0))
    if count > most:
        asked, wrong_texts = (marks_of(side, seed=seed) for side in (task.task.queries, task.task.documents))
        drawn = smallest(pair_marks(asked[queries[rows]], wrong_texts[top[rows, places]]), most)
        rows, places = rows[drawn], places[drawn]
    wrongs = top[rows, places]
    sides = [np.stack([queries[rows], texts], axis=1) for texts in (best[rows], wrongs)]
    near = [gaussian_distances(*task.clouds, pairs, weight=CLOUD_WEIGHT) for pairs in sides]
    near_means = [gaussian_distances(*task.clouds, pairs, weight=0.0) for pairs in sides]
    return Mistakes(
        query=queries[rows],
        relevant=task.texts[best[rows]],
        wrong=task.texts[wrongs],
        relevant_cosine=own[rows].astype(np.float64),
        wrong_cosine=scores[rows, places],
        mended=near[0] < near[1],
        by_means=near_means[0] < near_means[1],
        count=count,
        queries=confusing,
        confused=confused,
    )


def query_pieces(subject: Subject, task: QueryTask) -> Pieces:
    """The queries and all different texts with their whole lengths, as the question of short texts searches them."""
    whole = (subject.clouds.lengths + subject.clouds.truncated)[task.texts]
    return Pieces(task.vectors[0], task.vectors[1], task.task.relevant, whole, 0, counted=task.best)


def on_trial(subject: Subject, task: QueryTask) -> QueryTask:
    """So many queries that their relevant texts can be encoded anew, and texts drawn to fill up their number."""
    size = min(MOST_TEXTS, len(task.texts) // 2) if subject.trial_texts is None else subject.trial_texts
    relevant = task.task.relevant
    chosen: list[int] = []
    needed: set[int] = set()
    for query in shuffled_order(task.task.queries, seed=subject.seed).tolist():
        own = set(relevant[relevant[:, 0] == query, 1].tolist())
        if len(chosen) >= MIN_QUERIES and len(needed | own) > size:
            break
        chosen.append(query)
        needed |= own
    idle = np.setdiff1d(np.arange(len(task.texts)), relevant[np.isin(relevant[:, 0], chosen), 1])
    filled = idle[np.argsort(subject.marks[idle], kind="stable")][: max(size - len(needed), 0)]
    return task.part(np.sort(np.array(chosen)), np.sort(filled))


def query_encoder(encoder: TokenEncoder, prompt: str | None) -> TokenEncoder:
    """The encoder as it reads queries: with this prompt, or the one that its model declares for queries.

    A prompt that the caller wrote out for the texts stays for the queries too, unless another is named.
    """
    if not has(encoder, "with_options"):
        return encoder
    options = options_of(encoder)
    if prompt is not None:
        return with_options(encoder, replace(options, prompt=prompt, prompt_name=None, role=None), role="query")
    if options.prompt is not None:
        return with_options(encoder, options, role="query")
    return with_options(encoder, replace(options, prompt_name=None, role="query"), role="query")


def query_notes(subject: Subject, queries: JudgedQueries) -> tuple[str, ...]:
    """How many queries there are, how they were encoded, and what reading them met."""
    count = f"{len(queries):,} queries of {queries.source} with {len(queries.relevant):,} relevant texts"
    prompt = resolve_prompt(subject.card, options_of(query_encoder(subject.encoder, subject.query_prompt)))
    said = f", encoded with the prompt {prompt!r}" if prompt else ""
    return (f"Asked with {count}{said}.", *queries.notes)
