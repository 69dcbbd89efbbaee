"""What is audited: the model, the texts, their clouds and vectors. Everything that several questions need, once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.auditing.commands import Named
from poolscope.auditing.material import Whole
from poolscope.auditing.question import Action, Thresholds
from poolscope.auditing.searches import (
    MIN_QUERIES,
    Mistakes,
    QueryTask,
    SearchTask,
    chunk_trial,
    cut_halves,
    mean_removal_trial,
    mistakes,
    more_texts,
    on_trial,
    query_task,
    texts_on_trial,
)
from poolscope.clouds import TokenClouds
from poolscope.connectors import Collection
from poolscope.encoders.base import ModelCard, TokenEncoder
from poolscope.encoders.capabilities import can_encode, vocabulary_of
from poolscope.encoders.pooling import TextPooling
from poolscope.encoders.reports import PoolingReport, pooling_report
from poolscope.encoders.tokens import Vocabulary
from poolscope.evaluation import Trial
from poolscope.metrics.scores import ScoreDistribution, score_distribution
from poolscope.metrics.socm.confusable import MOST_ALIKE, Confusion, confusable_pairs, confusion_of, draw_pairs
from poolscope.metrics.socm.measure import measured_pairs
from poolscope.metrics.socm.result import SocmResult
from poolscope.numbers.bures.pairs import reduced_caches
from poolscope.numbers.moments import TextMoments, text_moments
from poolscope.numbers.ranking import nearest_neighbours, unit_rows
from poolscope.numbers.streaming import text_marks
from poolscope.texts import JudgedQueries, ReadReport, Texts
from poolscope.texts.groups import first_of_equal

Array = NDArray[np.float64]

# All pairs up to this many, otherwise so many drawn at random; their cost grows with the square of the length.
MOST_PAIRS = 2500
_REDUCED_BYTES = 512 * 2**20
NEIGHBOURS = 1


@dataclass(frozen=True)
class Subject:
    """A model on a corpus, encoded once.

    `encoder` made the clouds; where `can_encode` is false it only hands them out, and no other text can be encoded.
    `documents` names the document of each text, None where it is not known. `runtime` are the vectors that the user's
    own runtime gave for the same texts. `queries` are those of the user, which trials and answers then use, and
    `query_prompt` what stands before each (None: what the model declares). `trial_texts` are the texts that a trial
    encodes anew (None: a share of them all), `source` and `notes` say where the texts came from, `named` how all that
    is called on the command line. `whole`: these texts were drawn from many, and what merges was measured on all.
    `collection`: there are vectors only, and a cloud is one of them;
    `reference` is the model that is said to have made them.
    """

    clouds: TokenClouds
    encoder: TokenEncoder
    thresholds: Thresholds
    source: str
    notes: tuple[str, ...] = ()
    documents: tuple[str, ...] | None = None
    runtime: Array | None = None
    queries: JudgedQueries | None = None
    query_prompt: str | None = None
    trial_texts: int | None = None
    seed: int = 0
    named: Named = field(default_factory=Named, repr=False)
    collection: Collection | None = None
    reference: TokenEncoder | None = None
    whole: Whole | None = None

    def __len__(self) -> int:
        return len(self.clouds)

    @property
    def card(self) -> ModelCard:
        """What the model declares about itself."""
        return self.encoder.card

    @property
    def can_encode(self) -> bool:
        """Can other texts be encoded, or are the clouds all there is?"""
        return can_encode(self.encoder)

    @property
    def held(self) -> Collection:
        """The collection, for questions that are asked of vectors only."""
        if self.collection is None:
            raise RuntimeError("asked of vectors only")
        return self.collection

    @cached_property
    def texts(self) -> list[str] | None:
        """The texts in memory, or None if the clouds came without them."""
        texts = self.clouds.texts
        return None if texts is None else list(texts)

    @cached_property
    def lengths(self) -> NDArray[np.int64] | None:
        """The length of each text: its tokens; of vectors its words, None where there are no texts either."""
        if self.collection is None:
            return self.clouds.lengths
        return None if self.texts is None else np.array([len(text.split()) for text in self.texts])

    @cached_property
    def first_equal(self) -> NDArray[np.int64]:
        """For each text the position of the first one that it equals, often its own."""
        return np.arange(len(self)) if self.texts is None else first_of_equal(self.texts)

    @cached_property
    def distinct(self) -> NDArray[np.int64]:
        """Positions of the texts that equal no earlier one: what repeats another is no draw of its own."""
        return np.unique(self.first_equal)

    @cached_property
    def marks(self) -> NDArray[np.int64]:
        """A number for each of `distinct`, from its words and the seed: what is drawn by it is no matter of order."""
        return text_marks(self.clouds, self.distinct, seed=self.seed)

    @property
    def shuffled(self) -> NDArray[np.int64]:
        """`distinct` in the order of its marks."""
        return self.distinct[np.argsort(self.marks, kind="stable")]

    def repeats(self) -> tuple[str, ...]:
        """A sentence about the texts that `distinct` leaves out, where there are any."""
        left = len(self) - len(self.distinct)
        verb = "text that equals" if left == 1 else "texts that equal"
        return (f"Left out: {left:,} {verb} an earlier one but for letter case and blanks.",) if left else ()

    @cached_property
    def groups(self) -> NDArray[np.int64] | None:
        """The number of the document of each text; None where documents are not known."""
        return None if self.documents is None else np.unique(self.documents, return_inverse=True)[1]

    @cached_property
    def scores(self) -> ScoreDistribution:
        """The cosines of pairs of different texts, of different documents where these are known and several."""
        groups = None if self.groups is None else self.groups[self.distinct]
        return score_distribution(
            self.vectors[self.distinct],
            groups=None if groups is None or np.ptp(groups) == 0 else groups,
            false_hits=self.thresholds["false_hits"],
            seed=self.seed,
        )

    @cached_property
    def ids(self) -> list[str]:
        """The names of the texts."""
        return list(self.clouds.ids)

    def text_column(self, positions: Iterable[int]) -> pa.Array:
        """Some of the texts as a column of a table; null where they are not at hand."""
        return pa.array([None if self.texts is None else self.texts[k] for k in positions], pa.large_string())

    @cached_property
    def moments(self) -> TextMoments:
        """Unit mean, norm and trace of every text."""
        return text_moments(self.clouds)

    @cached_property
    def text_pooling(self) -> TextPooling:
        """What makes the vectors: the model's pooling and the modules behind it; the mean where that cannot be done."""
        return TextPooling.of(self.encoder)

    @property
    def pooling(self) -> str:
        """The pooling that the answers use: what the model declares; the mean where it declares none or several."""
        return self.text_pooling.name

    @cached_property
    def raw_vectors(self) -> Array:
        """The vector of each text as the model gives it, at its own length (texts × d)."""
        if self.collection is not None:
            return np.asarray(self.collection.vectors, dtype=np.float64)
        return self.pooled(self.clouds)

    @cached_property
    def vectors(self) -> NDArray[np.float32]:
        """The same vectors at length 1."""
        return unit_rows(self.raw_vectors, "vectors")

    def pooled(self, clouds: TokenClouds) -> Array:
        """The vectors of some clouds as the model gives them (`text_pooling`), at their own length."""
        return self.text_pooling.pool(clouds)

    def encoded(self, texts: Sequence[str]) -> Array:
        """The vectors of other texts, encoded with the same choices."""
        return self.pooled(self.encoder.encode(texts)[-1])

    @cached_property
    def halves(self) -> SearchTask | str:
        """The halves of some texts for trials without queries, or why there are none."""
        return cut_halves(self)

    @cached_property
    def query_task(self) -> QueryTask | None:
        """The user's queries over all different texts; None without any."""
        return None if self.queries is None else query_task(self, self.queries)

    @cached_property
    def search(self) -> SearchTask | str:
        """What trials search that encode no text anew: the user's queries, or halves of texts; or why there is none."""
        if self.queries is None:
            return self.halves
        if self.trial_texts == 0:
            return "trials were switched off"
        if len(self.queries) < MIN_QUERIES:
            return f"{len(self.queries)} of your queries have a relevant text, and {MIN_QUERIES} are needed"
        return self.query_task or "there are no queries"

    @cached_property
    def anew(self) -> SearchTask | str:
        """The same for trials that encode texts anew: some of the queries, with few texts."""
        return on_trial(self, self.search) if isinstance(self.search, QueryTask) else self.search

    @cached_property
    def smaller_chunks(self) -> Trial:
        """The trial of chunks half as long."""
        return chunk_trial(self)

    @cached_property
    def mean_removal(self) -> Trial:
        """The trial of removing the mean."""
        return mean_removal_trial(self)

    @cached_property
    def pooling_report(self) -> PoolingReport:
        """What the model declares about its pooling, prompts and length, and what was done."""
        return pooling_report(self.encoder)

    @cached_property
    def pairs(self) -> SocmResult:
        """SOCM of all pairs of texts, or of a random sample where there are many; no text that repeats another."""
        texts = self.distinct
        count = len(texts) * (len(texts) - 1) // 2
        most = MOST_PAIRS if self.whole is None else max(MOST_PAIRS, self.whole.plan.pairs)
        if len(texts) == len(self):
            sample = None if count <= most else most
            return measured_pairs(self.clouds, **self._known, pairs=sample, seed=self.seed)
        if count <= most:
            pairs, kind = np.stack(np.triu_indices(len(texts), 1), axis=1), "all pairs of different texts"
        else:
            random, kind = np.random.default_rng(self.seed), "random sample of pairs of different texts"
            i, j = random.integers([[len(texts)], [len(texts) - 1]], size=(2, most))
            pairs = np.unique(np.sort(np.stack([i, j + (j >= i)], axis=1), axis=1), axis=0)
        return self.pairs_of(texts[pairs], kind)

    @cached_property
    def neighbours(self) -> SocmResult:
        """SOCM of each text with its nearest by mean vector; texts that repeat another are nobody's neighbours."""
        texts = self.distinct
        if len(texts) == len(self):
            return measured_pairs(self.clouds, **self._known, neighbours=min(NEIGHBOURS, len(self) - 1))
        nearest, _ = nearest_neighbours(self.moments.unit_means[texts], min(NEIGHBOURS, len(texts) - 1))
        pairs = np.stack([np.repeat(texts, nearest.shape[1]), texts[nearest.ravel()]], axis=1)
        pairs = np.unique(np.sort(pairs, axis=1), axis=0)  # two texts may be neighbours of each other: one pair
        return self.pairs_of(pairs, "each different text with its nearest neighbour")

    @cached_property
    def mistakes(self) -> Mistakes | None:
        """Where the user's queries rank a wrong text before a relevant one; None without queries."""
        if self.query_task is None:
            return None
        groups = None if self.groups is None else self.groups[self.query_task.texts]
        return mistakes(self.query_task, groups, most=MOST_ALIKE, seed=self.seed)

    @cached_property
    def confusable(self) -> Confusion | None:
        """The texts that a search may confuse: with queries, the relevant and the wrong one of each mistake; without,
        texts (of different documents, where these are known) that score at the cut-off of unrelated pairs or above. At
        most so many, drawn; None where there are none.
        """
        if self.mistakes is not None:
            pairs, scores = np.unique(self.mistakes.pairs, axis=0), None
            count, kind = self.mistakes.confused, "relevant and wrong texts that queries confuse"
        else:
            scores, kind = self.scores, "confusable pairs"
            texts = self.distinct[scores.positions]
            groups = None if self.groups is None else self.groups[texts]
            alike = confusable_pairs(self.vectors[texts], scores.cut_off.known, groups=groups)
            count, pairs = len(alike), texts[draw_pairs(alike, self.marks[scores.positions], MOST_ALIKE)]
        if not len(pairs):
            return None
        cosine = np.einsum("nd,nd->n", self.vectors[pairs[:, 0]], self.vectors[pairs[:, 1]])
        return confusion_of(self.clouds, self.pairs_of(pairs, kind), cosine, scores=scores, count=count, seed=self.seed)

    def pairs_of(self, pairs: NDArray[np.int64], kind: str) -> SocmResult:
        """SOCM of these pairs."""
        return replace(measured_pairs(self.clouds, **self._known, pairs=pairs), kind=kind)

    @cached_property
    def _known(self) -> dict[str, Any]:
        """What the texts are reduced to for SOCM, and their moments, kept for all lists of pairs."""
        return {"reduced": reduced_caches(self.clouds, budget=_REDUCED_BYTES), "moments": self.moments}

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The names of the tokens, where the encoder has them."""
        return vocabulary_of(self.encoder)

    def command(self, verb: str, **more: Any) -> str | None:
        """What to run about this model and these texts, with further options; None where it could not run."""
        if verb == "tune" and self.trial_texts != 0 and isinstance(self.search, str):
            return None  # it tries repairs in the same way
        return self.named.command(verb, prompt=self.pooling_report.prompt, **more)

    def command_without(self, option: str, verb: str) -> str | None:
        """The same without an option of the encoder; None where it was not among what the audit was told."""
        if self.named.options.get(option) is None:
            return None  # it is part of the model that was handed in
        return self.named.without(option).command(verb, prompt=self.pooling_report.prompt)

    def more_on_trial(self, trials: Sequence[Trial], least: float) -> Action:
        """Another audit with texts enough on trial to see a gain of `least`; more texts, where these are too few."""
        short = [trial.change for trial in trials if trial.difference is not None and not trial.could_tell(least)]
        needed = max(change.units_to_tell(least) for change in short)
        if self.queries is not None:
            return self._more_queries(needed)
        needed *= texts_on_trial(self) / short[0].count  # not every text on trial can be cut in two
        if not np.isfinite(needed) or needed > len(self.distinct) / 2:
            return Action("undecided", more_texts(self, needed), None, "another audit")
        trial = int(np.ceil(needed / 10)) * 10
        step = f"put {trial:,} texts on trial: those were too few to tell"
        return Action("undecided", step, self.command("audit", trial=trial), "another audit, from the cache")

    def _more_queries(self, needed: float) -> Action:
        """More of the queries on trial, where there are enough; otherwise a longer list of them."""
        count = len(self.queries or ())
        if needed <= count and isinstance(self.anew, QueryTask):
            texts = self.anew.task.documents
            trial = int(np.ceil(needed * len(texts) / self.anew.task.units / 10)) * 10
            step = f"put {trial:,} texts on trial: too few of your queries ask for the present {len(texts):,}"
            return Action("undecided", step, self.command("audit", trial=trial), "another audit, from the cache")
        size = f", {needed:,.0f} or so" if np.isfinite(needed) else ""
        return Action("undecided", f"ask with more queries{size}: {count:,} are too few to tell", None, "another audit")

    def corpus(self) -> dict[str, Any]:
        """What is known of the texts; the digest tells two corpora apart (None where the texts are unknown)."""
        facts: dict[str, Any] = {
            "source": self.source,
            "texts": len(self),
            "tokens": int(self.clouds.lengths.sum()) if self.collection is None else None,
            "digest": None,
            "queries": None,
            "notes": list(self.notes),
        }
        if self.texts is not None:
            report = ReadReport(read=len(self), kept=len(self))
            facts["digest"] = Texts(tuple(self.ids), tuple(self.texts), None, self.source, report).digest
        if (queries := self.queries) is not None:
            judged = {"queries": len(queries), "judgements": len(queries.relevant), "graded": queries.graded}
            facts["queries"] = {"source": queries.source, **judged, "digest": queries.digest}
        return facts


def has_vectors_only(subject: Subject) -> bool:
    """Is there no model and no cloud, but vectors? Then what a file or an index can be wrong about is asked too."""
    return subject.collection is not None
