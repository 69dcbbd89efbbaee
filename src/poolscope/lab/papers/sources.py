"""The models and data sets of the papers: what they are called, where they lie, and how a local copy is found.

A name is resolved in this order: what the user says (`NAME=SOURCE`), a copy below the folder of files, the cache of the
hub, the hub. A copy that is called like the published checkpoint or file counts as it. Data sets of the hub are
streamed: no more rows are read than a draw needs.
"""

from __future__ import annotations

import itertools
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from poolscope.encoders.gguf import models_folder
from poolscope.errors import InputError, require
from poolscope.evaluation import (
    ClassificationTask,
    ClusteringTask,
    RerankingTask,
    RetrievalTask,
    SeveralSets,
    SimilarityTask,
    SummaryTask,
    Task,
    query_task,
)
from poolscope.evaluation.reading import drawn_rows
from poolscope.lab.correlate.model_records import ModelRecords, read_scores
from poolscope.lab.papers.models import HUB, Checkpoint
from poolscope.texts import Pairs, Texts, read_pairs, read_texts
from poolscope.texts.groups import groups_of_ids
from poolscope.texts.sources import exists, open_benchmark, open_table

BUILTIN = "builtin:"
_PATIENCE = 5.0  # seconds to wait for the hub before it counts as out of reach
TEXTS, PAIRS, LABELLED, SIMILARITY, RETRIEVAL = "texts", "pairs", "labelled", "similarity", "retrieval"
CLUSTERED, RERANKED, SUMMARISED, SCORES = "clustered", "reranked", "summarised", "scores"
Data: TypeAlias = Texts | Pairs | Task | ModelRecords
TRAIN, TEST = "train", "test"
_BATCH, _STEPS = 500, 100  # of k-means in mini-batches; of a logistic regression


@dataclass(frozen=True)
class DataSet:
    """A data set of a paper: its place on the hub, its columns, and what a local copy is called.

    `columns` are those of the texts (and labels) in the order that the form asks for. `rows` bounds how many are read
    of a stream; a draw is made among these. `files`: files of the repository that are read, where it has no tables;
    `revision`: the branch that has them, where it is not the main one.
    `printed` and `type`: its name and its type of task in the tables of the paper.
    """

    name: str
    hub: str
    form: str
    columns: tuple[str, ...] = ("text",)
    config: str | None = None
    split: str | None = "test"
    file: str = ""
    count: int = 1_000
    rows: int | None = None
    files: str | None = None
    revision: str | None = None
    words: str = ""
    printed: str = ""
    type: str = ""

    @property
    def address(self) -> str:
        """Where it can be fetched from."""
        return f"{HUB}/datasets/{self.hub}"

    @property
    def local(self) -> str:
        """What a local copy is called, without the ending of a table."""
        return self.file or self.hub.rpartition("/")[2]

    def read(self, source: str | None, *, limit: int | None = None, seed: int = 0) -> Data:
        """The data, from a local source of the same form or, without one, as it streams from the hub.

        `limit`: so many texts, pairs or queries; without it as many as the paper takes.
        """
        draw: dict[str, Any] = {"limit": limit or self.count, "seed": seed}
        match self.form:
            case "texts":
                column = None if source is not None and _has_no_columns(source) else self._named(source)[0]
                return read_texts(self._table(source), column=column, **draw)
            case "pairs":
                return self._pairs(source, **draw)
            case "labelled":
                return self._labelled(source, **draw)
            case "clustered":
                return self._clustered(source, limit, seed)
            case "reranked" | "summarised":
                kind = RerankingTask if self.form == RERANKED else SummaryTask
                first, second, third = zip(*drawn_rows(self._rows(source), limit=limit, seed=seed), strict=True)
                return kind(first, second, third, name=self.name)
            case "similarity":
                return self._similarity(source, **draw)
            case "scores":
                return read_scores(str(source))
            case _:
                return self._retrieval(source, limit, seed)

    # -- by form ----------------------------------------------------------------------------------------------------

    def _pairs(self, source: str | None, **draw: Any) -> Pairs:
        if source is not None and source.startswith(BUILTIN):
            return read_pairs(source, **draw)
        query, document = self._named(source)
        return read_pairs(self._table(source), query_column=query, document_column=document, **draw)

    def _labelled(self, source: str | None, **draw: Any) -> ClassificationTask:
        """Texts with labels: trained on one set and tested on another, or in folds where there is only one."""

        def read(place: Any, split: str | None) -> Texts:
            text, label = self._named(place)
            table = self._table(place) if split is None else replace(self, split=split)._table(place)
            return read_texts(table, column=text, label_column=label, **draw)

        sides: dict[str, Any] = {TRAIN: source, TEST: source}
        if source is not None:
            sides = {side: next(iter(sorted(Path(source).glob(f"{side}*"))), None) for side in sides}
        if source is not None and None in sides.values():
            parts = [read(source, None)]
        else:
            parts = [read(place and str(place), side) for side, place in sides.items()]
        return ClassificationTask(
            [text for part in parts for text in part.texts],
            [str(label) for part in parts for label in part.labels or ()],
            name=self.name,
            seed=draw["seed"],
            trained=len(parts[0].texts) if len(parts) > 1 else None,
            steps=_STEPS,
        )

    def _clustered(self, source: str | None, limit: int | None, seed: int) -> SeveralSets:
        """A set a row, each with lists of texts and of labels; with a limit so many texts of each."""
        sets = []
        for texts, labels in self._rows(source):
            order = np.random.default_rng(seed).permutation(len(texts))[:limit] if limit else np.arange(len(texts))
            whole = ClusteringTask(list(texts), list(map(str, labels)), name=self.name, batch=_BATCH, seed=seed)
            sets.append(whole if len(order) == len(texts) else whole.take(np.sort(order)))
        return SeveralSets(sets)

    def _rows(self, source: str | None) -> Iterator[tuple[Any, ...]]:
        """Rows of the columns, from a local table or the hub."""
        if source is None:
            return self._stream(self.config, self.split, self.columns)
        return open_table(source).rows(self._named(source))

    def _similarity(self, source: str | None, **draw: Any) -> SimilarityTask:
        first, second, score = self._named(source)
        columns: dict[str, Any] = {"query_column": first, "document_column": second, "label_column": score}
        pairs = read_pairs(self._table(source), **columns, **draw)
        return SimilarityTask(
            [pairs.queries[int(place)] for place in pairs.index[:, 0]],
            [pairs.documents[int(place)] for place in pairs.index[:, 1]],
            np.asarray(pairs.labels, dtype=np.float64),
            name=self.name,
        )

    def _retrieval(self, source: str | None, limit: int | None, seed: int) -> RetrievalTask:
        """All queries among all documents; with a limit, so many queries and as many documents that answer none."""
        if source is None:
            return self._judged(limit, seed)
        if open_benchmark(source) is not None:
            return replace(query_task(source, source, limit=limit, seed=seed), name=self.name)
        pairs = read_pairs(source, limit=limit or self.count, seed=seed)
        groups = groups_of_ids(pairs.documents.ids)
        return RetrievalTask(pairs.queries.texts, pairs.documents.texts, pairs.index, name=self.name, groups=groups)

    def _judged(self, limit: int | None, seed: int) -> RetrievalTask:
        """Corpus, queries and judgements as three tables of the hub, under the names that mteb or LongEmbed use."""
        names, configs = (
            (_MTEB, ("corpus", "queries", "default")) if self.config is None else (_LONG, (self.config,) * 3)
        )
        split = self.split if self.config is None else "qrels"
        corpus = dict(map(_titled, self._stream(configs[0], "corpus", names.corpus)))
        words = dict(self._stream(configs[1], "queries", names.queries))
        judged = [
            (query, document, float(grade[0]) if grade else 1.0)
            for query, document, *grade in self._stream(configs[2], split, names.judged)
            if query in words and document in corpus
        ]
        judged = [row for row in judged if row[2] > 0]
        places = {name: place for place, name in enumerate(corpus)}
        queries = {name: place for place, name in enumerate(dict.fromkeys(query for query, _, _ in judged))}
        task = RetrievalTask(
            [words[name] for name in queries],
            list(corpus.values()),
            np.array([(queries[query], places[document]) for query, document, _ in judged], dtype=np.int64),
            grades=np.array([grade for _, _, grade in judged]),
            name=self.name,
        )
        if limit is None or task.units <= limit:
            return task
        drawn = task.shuffled(seed)
        return drawn.part(np.arange(limit), drawn.idle[:limit])

    # -- tables -----------------------------------------------------------------------------------------------------

    def _table(self, source: str | None) -> Any:
        if source is not None:
            return source
        rows = list(self._stream(self.config, self.split, self.columns))
        return {name: [row[place] for row in rows] for place, name in enumerate(self.columns)}

    def _named(self, source: str | None) -> Sequence[str]:
        """Columns by this source's names: the hub's, or the usual ones if the file has those."""
        if source is None:
            return self.columns
        kinds = open_table(source).kinds
        named = tuple(
            next((name for name in (column, *_ALSO.get(column, ())) if name in kinds), column)
            for column in self.columns
        )
        if missing := [name for name in named if name not in kinds]:
            raise InputError(
                f"{source}: there is no column {missing[0]!r}; needed for {self.name}: {', '.join(self.columns)}. "
                f"Name a table with these columns."
            )
        return named

    def _stream(self, config: str | None, split: str | None, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Rows of the hub, in their order, no more than `rows`."""
        datasets = require("datasets", "hub")
        wanted: dict[str, Any] = {} if self.files is None else {"data_files": self.files}
        if self.form == RETRIEVAL and self.config is not None:  # one config whose splits have different columns
            wanted["features"] = datasets.Features({name: datasets.Value("string") for name in columns})
        try:
            loaded = datasets.load_dataset(
                self.hub, config, split=split, revision=self.revision, streaming=True, **wanted
            )
            for row in itertools.islice(loaded, self.rows):
                yield tuple(row.get(name) for name in columns)
        except InputError:
            raise
        except Exception as error:  # the network, hub and file libraries below raise families of their own
            raise InputError(f"{self.address} cannot be read ({str(error).partition(chr(10))[0]}).") from error


@dataclass(frozen=True)
class _Names:
    """Columns of the three tables of a benchmark on the hub."""

    corpus: tuple[str, ...]
    queries: tuple[str, str]
    judged: tuple[str, ...]


_MTEB = _Names(("_id", "title", "text"), ("_id", "text"), ("query-id", "corpus-id", "score"))
_LONG = _Names(("doc_id", "text"), ("qid", "text"), ("qid", "doc_id"))
# What a local table may call a column instead.
_ALSO: Mapping[str, Sequence[str]] = {
    "negative": ("document",),
    "instruction": ("text",),
    "sentence": ("text",),
}


def _titled(row: Sequence[Any]) -> tuple[Any, str]:
    """(id, text), with the title before the text where there is one."""
    *_, text = row
    title = row[1] if len(row) == len(_MTEB.corpus) else None
    return row[0], f"{title} {text}".strip() if title else text


def _has_no_columns(source: str) -> bool:
    return source.startswith(BUILTIN) or Path(source).suffix in (".txt", ".gz") or Path(source).is_dir()


# -- where a name is found ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """Where something is loaded from. `same`: it is what the paper names. `missing`: why it cannot be had."""

    name: str
    source: str | None
    same: bool = True
    missing: str = ""
    advice: str = ""


@dataclass(frozen=True)
class Places:
    """Where models and data are looked for: the user's own sources first, then `files`, then the hub."""

    files: Path = field(default_factory=models_folder)
    models: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    def model(self, checkpoint: Checkpoint) -> Found:
        """Where a model is loaded from; a folder that is called like the checkpoint counts as it."""
        name = checkpoint.name
        if (source := self.models.get(name)) is not None:
            called = Path(source).name.lower() if not source.startswith(BUILTIN) else source
            same = source == checkpoint.hub or called == checkpoint.file.lower()
            return Found(name, source, same, advice=checkpoint.advice)
        if exists(own := self.files / checkpoint.file):
            return Found(name, str(own), advice=checkpoint.advice)
        if not checkpoint.hub:
            return Found(name, None, missing=f"not reachable: name a source of {name}")
        if (cached := _cached(checkpoint.hub)) is not None:
            return Found(name, cached, advice=checkpoint.advice)
        if (reason := hub_out_of_reach()) is None:
            return Found(name, checkpoint.hub, advice=checkpoint.advice)
        return Found(name, None, missing=_fetch(checkpoint.hub, checkpoint.address, own), advice=reason)

    def data(self, data: DataSet) -> Found:
        """Where a data set is read from; a file that is called like it counts as it. No source: the hub, streamed."""
        if (source := self.texts.get(data.name)) is not None:
            return Found(data.name, source, _stem(source) == _stem(data.local))
        copies = sorted(self.files.glob(f"{data.local}*")) if data.local else []
        own = next((path for path in copies if _stem(path) == _stem(data.local)), None)
        if own is not None:
            return Found(data.name, str(own))
        if not data.hub:
            return Found(data.name, None, missing=f"not reachable: {data.words}")
        if hub_out_of_reach() is None:
            return Found(data.name, None)
        place = self.files / data.local
        return Found(data.name, None, missing=_fetch(data.files or data.hub, data.address, place))


def _stem(path: str | Path) -> str:
    """The name of a file without any ending.

    >>> _stem("texts/reddit-clustering.jsonl.gz")
    'reddit-clustering'
    """
    return Path(path).name.partition(".")[0]


def _fetch(what: str, address: str, place: Path) -> str:
    return f"not reachable: fetch {what} from {address} to {place}"


def _cached(name: str) -> str | None:
    """The folder of a model in the cache of the hub, if it is there whole."""
    try:
        hub = require("huggingface_hub", "hub")
        return str(hub.snapshot_download(name, local_files_only=True))
    except Exception:  # not there, or no such package: both mean that the cache has it not
        return None


@cache
def hub_out_of_reach() -> str | None:
    """Why the hub cannot be asked, in one line; None where it answers. Asked once, and not for long."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "HF_HUB_OFFLINE is set"
    endpoint = os.environ.get("HF_ENDPOINT", HUB)
    try:
        urllib.request.urlopen(endpoint, timeout=_PATIENCE).close()
    except urllib.error.HTTPError:
        return None  # it answers
    except (OSError, ValueError) as error:
        return f"{endpoint} does not answer ({getattr(error, 'reason', error)})"
    return None
