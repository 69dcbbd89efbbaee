"""`fix`: carry out the cure of an audit, audit again with the same queries, and say what changed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.cause import all_causes
from poolscope.auditing.commands import is_own_call
from poolscope.auditing.compare import AuditChange, compare
from poolscope.auditing.cure import Cure, Scores
from poolscope.auditing.cures.late import best_of_spans, several_vectors
from poolscope.auditing.engine import examine
from poolscope.auditing.material import Request, open_search
from poolscope.auditing.result import Audit
from poolscope.auditing.search import Search
from poolscope.auditing.watch import Watch
from poolscope.auditing.words import fill
from poolscope.chunks.chunking import chunk_texts
from poolscope.connectors import check_place, kind_of, read_index, write_index
from poolscope.connectors.base import already_there
from poolscope.encoders import as_encoder
from poolscope.encoders.capabilities import has_attention
from poolscope.errors import InputError, PoolscopeError, did_you_mean, reading
from poolscope.files import atomic_file, folder_to_write
from poolscope.numbers import Index
from poolscope.repairs.repair_file import Repair
from poolscope.repairs.temperature.tempscale import tempscale
from poolscope.repairs.vectors import MeanRemoval
from poolscope.results import Result, plain
from poolscope.texts import Texts, read_queries, read_texts
from poolscope.texts.groups import boilerplate, first_of_equal

_WROTE = "The cure “{label}” is carried out: {files}."
_BEFORE_AFTER = (
    "Found {before:count} → {after:count} of {queries:count query}, nDCG@{k:count} {gain:signed} {gain:interval}."
)
_UNPROVEN = "The audit did not prove this gain: it allows for all {tried:count cure} that it tried on these queries."
_WOULD = "The cure “{label}” would write: {files}."
_RUNS_CODE = ("trust_remote_code", "allow_pickle")
FIX_WORDS = (_WROTE, _BEFORE_AFTER, _UNPROVEN, _WOULD)


@dataclass(frozen=True, repr=False, kw_only=True)
class Fix(Result):
    """A cure that was carried out: the files that it wrote, and the change on the same queries (None: a dry run).

    The interval of the change holds for this cure alone. `unproven` counts the cures that the audit tried, where it did
    not prove this one; 0 where it did.
    """

    cure: str
    label: str
    does: str
    files: tuple[str, ...]
    change: AuditChange | None = None
    unproven: int = 0

    def in_words(self) -> tuple[str, ...]:
        """What was written, and before and after in one line."""
        files = ", ".join(name if kind_of(name) and not Path(name).suffix else Path(name).name for name in self.files)
        values: dict[str, Any] = {"label": self.label, "files": files}
        if self.change is None:
            return (fill(_WOULD, values),)
        change = self.change
        values |= {"before": change.found_before, "after": change.found_after, "queries": change.queries}
        values |= {"k": change.k, "gain": change.gain, "tried": self.unproven}
        around = change.gain.interval
        unproven = (fill(_UNPROVEN, values),) if self.unproven and around is not None and around.low > 0 else ()
        return (fill(_WROTE, values), fill(_BEFORE_AFTER, values), *unproven)


def fix(
    found: Audit | str | os.PathLike[str],
    output: str | os.PathLike[str] = "poolscope-fix",
    *,
    cure: str | None = None,
    into: str | None = None,
    dry_run: bool = False,
    trust: bool = False,
    progress: Watch | None = None,
) -> Fix:
    """Carry out a cure of an audit, and audit again with the same queries.

    Parameters
    ----------
    found
        The folder of an audit that was called with a model and files that have names; or the audit.
    output
        The folder for what is written: chunks, a repair, vectors, offsets or a setting. Nothing is changed in place.
    cure
        The name of the cure; by default the one that the audit decided for.
    into
        Where changed vectors go: a new file or a new collection, as `write_index` takes it. By default the file
        vectors.parquet of the folder.
    dry_run
        Say what would be written, and write nothing.
    trust
        Open the model and the files that an audit of someone else names. Code and pickles of its model stay refused.
    progress
        What shows the phases of the second audit.

    Returns
    -------
    Fix
        The files, and before and after on the same queries with a paired interval.

    Examples
    --------
    >>> fix("no-such-audit")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ...
    poolscope.errors.InputError: no-such-audit: no audit.json here

    """
    before = found if isinstance(found, Audit) else Audit.load(found)
    chosen = _chosen(before, cure)
    with reading("fix", "Run the audit again.", kind=InputError, is_not="an audit that was called so"):
        called = _called(before, trust=trust)
    step = _STEPS.get(chosen.name)
    if step is None:
        known = ", ".join(_STEPS)
        raise InputError(
            f"--cure {chosen.name} cannot be carried out by a command yet; {chosen.does} Choose one of {known}."
        )
    if into is not None and VECTORS not in step.files:
        raise InputError(f"--into {into}: the cure {chosen.name} changes no vectors. Leave it out.")
    if into is not None:
        check_place(into)
    names = tuple(into if into and name == VECTORS else str(Path(output) / name) for name in step.files)
    _refuse_inputs(called, names)
    does = fill(chosen.does, {"candidates": before.provenance["settings"].get("candidates", 50), "k": before.rule.k})
    proven = any(trial.proven for trial in before.trials if trial.name == chosen.name)
    unproven = 0 if proven else len(before.trials)
    done = Fix(cure=chosen.name, label=chosen.label, does=does, files=names, unproven=unproven)
    if dry_run:
        return done
    with folder_to_write(output) as folder:
        way = folder.for_libraries()
        shown = into or str(Path(output) / VECTORS)
        work = _Work(before, called, way, into or str(way / VECTORS), shown, chosen, does, progress or Watch())
        after = step.carry_out(work)
    change = compare(before, after, names=("before", "after")).changes[0]
    return replace(done, change=change)


def _chosen(before: Audit, name: str | None) -> Cure:
    """The cure that was named, or the one of the decision."""
    cures = {cure.name: cure for cause in all_causes().values() for cure in cause.cures}
    name = name or before.decision.step
    if not name:
        raise InputError(
            f"The audit proves no cure. Name one to try it all the same: --cure {' or '.join(list(_STEPS)[:3])}."
        )
    if name not in cures:
        raise InputError(f"--cure {name} is not known. Choose one of {', '.join(_STEPS)}.{did_you_mean(name, _STEPS)}")
    return cures[name]


def _called(before: Audit, *, trust: bool) -> Mapping[str, Any]:
    """How the audit was called; an error where it cannot be called again, or someone else named what it opens."""
    called: Mapping[str, Any] = before.provenance.get("called") or {}
    if not called.get("model") or not called.get("settings", {}).get("queries"):
        raise InputError(
            "This audit was not called with a model, texts and queries that have names, so that it cannot be called "
            "again. Run `poolscope audit MODEL TEXTS --queries FILE -o FOLDER` first."
        )
    if is_own_call(called):
        return called
    if not trust:
        settings = called["settings"]
        names = (called["model"], called.get("texts"), settings["queries"], settings.get("reference"))
        raise InputError(
            f"This audit was not made by you on this machine. It would open {', '.join(str(n) for n in names if n)}. "
            f"Pass --trust (trust=True) if you know them."
        )
    options = {name: value for name, value in called["options"].items() if name not in _RUNS_CODE}
    return {**called, "options": options}


def _refuse_inputs(called: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse to write over what the audit read."""
    settings = called["settings"]
    read = (called["model"], called.get("texts"), settings["queries"], settings.get("reference"))
    known = [Path(name).stat() for name in read if name and Path(name).exists()]
    for name in names:
        if Path(name).exists() and any(os.path.samestat(Path(name).stat(), each) for each in known):
            raise InputError(f"{name}: the audit read it, and nothing is changed in place. Choose another -o FOLDER.")


class _Shown(Watch):
    """A watch that shows the phases of another; what the queries can show was said by the audit."""

    def __init__(self, watch: Watch) -> None:
        self.opened, self.begin, self.encoded = watch.opened, watch.begin, watch.encoded  # type: ignore[method-assign]


@dataclass(frozen=True)
class _Work:
    """What a step needs: the audit before, how it was called, where to write, and the cure."""

    before: Audit
    called: Mapping[str, Any]
    folder: Path
    place: str
    shown: str
    cure: Cure
    does: str
    watch: Watch

    @property
    def model(self) -> str:
        """What encodes: the model, or of an index the one that is said to have made it."""
        return str(self.called["settings"].get("reference") or self.called["model"])

    @property
    def queries(self) -> Any:
        """The queries, read as they were."""
        settings = self.called["settings"]
        columns = settings.get("query_columns")
        return read_queries(settings["queries"], columns=tuple(columns.split(",")) if columns else ())

    @property
    def corpus(self) -> Texts:
        """The texts, read as they were."""
        reading = self.called["reading"]
        names = {name: reading[name] for name in ("column", "id_column", "limit", "seed") if name in reading}
        texts = self.called.get("texts") or self.called["settings"]["queries"]
        return read_texts(texts, label_column=reading.get("group"), **names)

    def again(self, texts: Texts, **settings: Any) -> Audit:
        """The audit of other texts, or by another encoder: quality only, no cures. Encoded texts are kept on disk."""
        request = self.request(settings.pop("encoder", self.model), texts)
        return self.measured(open_search(request)[0])

    def request(self, model: Any, texts: Texts | None, **settings: Any) -> Request:
        """The request of the audit before, for another model or other texts."""
        said = self.called["settings"]
        return Request(
            model=model,
            texts=texts,
            queries=self.queries,
            query_prompt=said.get("query_prompt"),
            groups=None,
            runtime=None,
            reference=settings.get("reference"),
            distance=settings.get("distance"),
            k=self.before.rule.k,
            seed=0,
            engine=None,
            cache=isinstance(model, str),
            options=self.called["options"] if isinstance(model, str) or settings.get("reference") else {},
            watch=_Shown(self.watch),
        )

    def measured(self, search: Search) -> Audit:
        """What a search finds, as an audit that can be compared."""
        return examine(search, rule=self.before.rule, causes={}, yardsticks={})

    def search(self) -> Search:
        """The search as it was before the cure, encoded again or taken from the cache."""
        said, reading = self.called["settings"], self.called["reading"]
        if "reference" not in said:
            return open_search(self.request(self.model, self.corpus))[0]
        own = {} if self.called.get("texts") else {name: reading.get(name) for name in ("column", "id_column", "group")}
        index = read_index(
            self.called["model"], vector_column=said.get("vector_column"), distance=said.get("distance"), **own
        )
        texts = self.corpus if self.called.get("texts") else None
        try:
            return open_search(self.request(index, texts, reference=said["reference"]))[0]
        finally:
            index.close()

    def write_vectors(self, search: Search, vectors: NDArray[Any], counts: Index | None = None) -> NDArray[Any]:
        """Write changed vectors as a new collection, several a text where there are, and read them again."""
        ids, texts = [str(name) for name in search.text_ids], list(search.texts)
        parents = None
        if counts is not None:
            number = np.arange(len(vectors)) - np.repeat(np.cumsum(counts) - counts, counts)
            rows = np.repeat(np.arange(len(counts)), counts)
            parents = [ids[k] for k in rows]
            ids = [f"{name}#{place}" for name, place in zip(parents, number.tolist(), strict=True)]
            texts = [texts[k] for k in rows] if texts else []
        try:
            write_index(self.place, vectors, ids=ids, texts=texts or None, groups=parents)
        except InputError:
            if not self._holds(ids, vectors):
                if self.place != self.shown and Path(self.place).exists():
                    raise already_there(self.shown) from None
                raise
        return vectors.astype(np.float32)

    def _holds(self, ids: list[str], vectors: NDArray[Any]) -> bool:
        """Are these vectors there already, as an interrupted run wrote them?"""
        try:
            there = read_index(self.place)
        except PoolscopeError:
            return False
        try:
            if there.vectors.shape != vectors.shape:
                return False
            rows = order = np.arange(len(ids))
            if set(there.ids) == set(ids):  # a store may give them in another order; FAISS keeps no names
                rows, order = np.argsort(there.ids), np.argsort(ids)
            return np.allclose(there.vectors[rows], vectors[order], atol=1e-5)
        finally:
            there.close()

    def write_texts(self, name: str, rows: list[dict[str, Any]]) -> Path:
        """Write texts as JSON lines."""
        with atomic_file(self.folder / name) as stream:
            stream.write("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode())
        return self.folder / name

    def write_setting(self, **values: Any) -> None:
        """Write what to set, and how it was proven."""
        content = {"cure": self.cure.name, "does": self.does, **self.cure.setting, **values}
        with atomic_file(self.folder / "setting.json") as stream:
            stream.write(json.dumps(plain(content), indent=2, ensure_ascii=False).encode())


@dataclass(frozen=True)
class _Step:
    """What carries out a cure: the files that it writes, and the function that writes them and audits again."""

    files: tuple[str, ...]
    carry_out: Callable[[_Work], Audit]


def _chunks(work: _Work) -> Audit:
    """Split texts that are longer than the model reads, and audit the chunks."""
    if not work.search().truncated.any():
        raise _does_not_apply(work.cure)
    chunks = chunk_texts(work.model, work.corpus, **work.called["options"])
    chunks.save(work.folder / "chunks.jsonl")
    return work.again(read_texts(work.folder / "chunks.jsonl", id_column="id"))


def _stripped(work: _Work) -> Audit:
    """Strip what most texts begin or end with."""
    corpus = work.corpus
    shared = boilerplate(corpus.texts)
    if not shared:
        raise _does_not_apply(work.cure)
    rows = [{"id": name, "text": shared.parted(text)[1]} for name, text in zip(corpus.ids, corpus.texts, strict=True)]
    path = work.write_texts("texts.jsonl", rows)
    return work.again(read_texts(path, id_column="id"))


def _merged(work: _Work) -> Audit:
    """Keep the first of equal texts; queries that name a copy ask for the one that is kept."""
    corpus = work.corpus
    first = first_of_equal(corpus.texts)
    if len(np.unique(first)) == len(first):
        raise _does_not_apply(work.cure)
    rows = [
        {
            "id": corpus.ids[k],
            "text": corpus.texts[k],
            "copies": [corpus.ids[j] for j in np.flatnonzero(first == k)[1:]],
        }
        for k in np.unique(first).tolist()
    ]
    work.write_texts("texts.jsonl", rows)
    search, first_copies = work.search(), np.unique(first)
    answered = np.unique(search.judgements.relevant[np.isin(search.judgements.relevant[:, 1], first_copies), 0])
    return work.measured(search.among(answered, first_copies))


def _without_mean(work: _Work) -> Audit:
    """Fit the removal of the mean, and write it with the changed vectors."""
    search = work.search()
    removal = MeanRemoval(work.cure.setting["mode"]).fit(search.vectors)
    Repair(vectors=removal).save(work.folder / REPAIR)
    learnt = Repair.load(work.folder / REPAIR).vectors
    vectors = work.write_vectors(search, learnt.transform(search.vectors))
    queries = learnt.transform(search.query_vectors)
    return work.measured(replace(search, vectors=vectors, query_vectors=queries, tokens=None, _memory={}))


def _several(work: _Work) -> Audit:
    """Write several vectors a text, and search by the best."""
    search = work.search()
    parts = several_vectors(search, work.cure)
    if parts is None:
        raise _does_not_apply(work.cure)
    vectors, counts = parts
    stored = work.write_vectors(search, vectors, counts)
    work.write_setting(search_by="the best vector of each document")
    return _measured_by(work, search, lambda rows: best_of_spans(search.query_vectors[rows], stored, counts))


def _temperature(work: _Work) -> Audit:
    """Write the temperature as a repair of the model, and encode all texts with it."""
    encoder = as_encoder(work.model, **work.called["options"])
    if not has_attention(encoder):
        raise _does_not_apply(work.cure)
    Repair(temperature=float(work.cure.setting["temperature"])).save(work.folder / REPAIR)
    with tempscale(encoder, Repair.load(work.folder / REPAIR).temperature):
        return work.again(work.corpus, encoder=encoder)


def _prompted(work: _Work) -> Audit:
    """Write the prompt that serves the queries best, and ask with it."""
    search = work.search()
    tried = work.cure.tries(search)
    if tried is None:
        raise InputError("--cure prompt: the model declares no other prompt. Choose another cure.")
    prompt = str(tried.values["prompt"])
    work.write_setting(query_prompt=prompt)
    return work.measured(
        replace(search, query_vectors=search.encoded_queries(prompt), query_tokens=None, tokens=None, _memory={})
    )


def _scored(work: _Work) -> Audit:
    """Write the setting of a re-ranker, with the offset of each text where it has one, and score with it."""
    search = work.search()
    tried = work.cure.tries(search)
    if tried is None:
        raise _does_not_apply(work.cure)
    values = dict(tried.values)
    offsets = values.pop("offsets", None)
    work.write_setting(candidates=search.candidates, **values)
    if offsets is not None:
        with atomic_file(work.folder / "offsets.npy") as stream:
            np.save(stream, offsets)
    return _measured_by(work, search, tried.scores)


def _does_not_apply(cure: Cure) -> InputError:
    return InputError(f"--cure {cure.name} does not apply to this search. Choose another cure.")


def _measured_by(work: _Work, search: Search, scores: Scores) -> Audit:
    """What a search finds by other scores."""
    outcome = search.outcome(scores)
    after = work.measured(replace(search, _memory={}))
    ledger = None if after.ledger is None else replace(after.ledger, rank=outcome.rank, text=outcome.text)
    return replace(after, query_ndcg=outcome.ndcg, ledger=ledger)


VECTORS, REPAIR = "vectors.parquet", "repair.safetensors"
_RERANKER = _Step(("setting.json",), _scored)
_OFFSETS = _Step(("setting.json", "offsets.npy"), _scored)
_SEVERAL = _Step(("setting.json", VECTORS), _several)
_STEPS: dict[str, _Step] = {
    "maxsim": _RERANKER,
    "chunks-that-fit": _Step(("chunks.jsonl",), _chunks),
    "stripped": _Step(("texts.jsonl",), _stripped),
    "merged-copies": _Step(("texts.jsonl",), _merged),
    "mean-projected": _Step((REPAIR, VECTORS), _without_mean),
    "mean-subtracted": _Step((REPAIR, VECTORS), _without_mean),
    "temperature": _Step((REPAIR,), _temperature),
    "prompt": _Step(("setting.json",), _prompted),
    "hubs-by-texts": _OFFSETS,
    "hubs-by-queries": _OFFSETS,
    "length-offset": _OFFSETS,
    "late-chunks-128": _SEVERAL,
    "late-chunks-64": _SEVERAL,
}
