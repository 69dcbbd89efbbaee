"""Does the approximate search find what is nearest, and which setting reaches 0.99?"""

from __future__ import annotations

from importlib.util import find_spec

from poolscope.auditing.question import Action, Answer, Gauge, Number, Question, TableView, Threshold, Thresholds
from poolscope.auditing.questions.scores import share_lost
from poolscope.auditing.subject import Subject, has_vectors_only
from poolscope.connectors import Collection
from poolscope.metrics.queries import SearchRecall, search_recall, trial_indexes
from poolscope.verdicts import Verdict

_LEAST_VECTORS = 100
# Vectors that an index is built of to see what it would need; a larger one takes its time.
_MOST_BUILT = 20_000


def answer(subject: Subject) -> Answer:
    """Of the search of the store; without one, what an index of these vectors would need."""
    collection = subject.held
    if len(collection) < _LEAST_VECTORS:
        return Answer.unchecked("recall", f"{len(collection)} vectors need no approximate search")
    search = collection.search
    if search is None:
        return _of_trials(subject, collection)
    if search.exact:
        return Answer.unchecked("recall", f"the search is exact: it is {search.kind}")
    if len(collection) + collection.fault_count < collection.rows:
        return Answer.unchecked("recall", "what is nearest is only known where all vectors are read (--limit 0)")
    measured = search_recall(
        collection.vectors,
        collection.ids,
        search.find,
        distance=collection.distance or "cosine",
        values=(None, *search.values),
        current=search.current,
        kind=search.kind,
        setting=search.setting,
        seed=subject.seed,
    )
    return Answer(
        "recall",
        judge(measured, subject.thresholds),
        {"recall": measured.in_use.recall, "missed": share_lost(measured.in_use.recall)},
        _action(measured, subject.thresholds["recall_target"]),
        tables={"recall": measured.to_table().replace_schema_metadata(None)},
        draw={"recall": measured.figure},
    )


def judge(measured: SearchRecall, limits: Thresholds) -> Verdict:
    """What is missed, against its thresholds."""
    recall, target = measured.in_use.recall, limits["recall_target"]
    missed = share_lost(recall)
    judged = limits.judge("missed", missed.known, missed.interval)
    sentence = f"The search ({measured.kind}) finds {recall.value:.1%} of the {measured.k} nearest."
    reached = measured.reaching(target)
    if measured.setting and reached is not None:
        sentence += f" {measured.setting} {reached.value} reaches {reached.recall.value:.3f}."
    elif measured.setting and len(measured.settings) > 1:
        sentence += f" No value of {measured.setting} that was tried reaches {target:g}."
    evidence = (
        f"{measured.queries:,} vectors of the index as queries, against all {measured.vectors:,}: {recall}.",
        *(
            f"{measured.setting} {row.value}: {row.recall.value:.3f} {row.recall.interval}."
            for row in measured.settings
            if row.value is not None
        ),
    )
    return Verdict(judged.level, sentence, recall.value, recall.interval, None, evidence, judged.basis)


def _action(measured: SearchRecall, target: float) -> Action:
    reached = measured.reaching(target)
    if reached is not None:
        step = f"set {measured.setting} to {reached.value}"
        return Action(
            "configure", step, None, "a setting of the search, which becomes slower; nothing is encoded again"
        )
    setting = measured.setting or "its setting"
    step = f"build the index again with more neighbours or cells, or raise {setting} further"
    return Action("configure", step, None, "the index is built again; nothing is encoded")


def _of_trials(subject: Subject, collection: Collection) -> Answer:
    """No search is in use here: what an HNSW and an IVF index would need on these vectors."""
    if find_spec("faiss") is None:
        return Answer.unchecked("recall", "no index is at hand, and without the extra 'faiss' none can be tried")
    distance = collection.distance or "cosine"
    trials = trial_indexes(collection.vectors[:_MOST_BUILT], distance=distance, seed=subject.seed)
    target = subject.thresholds["recall_target"]
    words = []
    for trial in trials:
        best = trial.reaching(target) or trial.settings[-1]
        words.append(f"{trial.kind} reaches {best.recall.value:.3f} with {trial.setting} {best.value}")
    sentence = f"No search is at hand. Indexes built of these vectors: {'; '.join(words)}."
    evidence = tuple(
        f"{trial.kind}, {trial.setting} {row.value}: {row.recall.value:.3f} {row.recall.interval}."
        for trial in trials
        for row in trial.settings
    )
    return Answer("recall", Verdict("unchecked", sentence, evidence=evidence), draw={"recall": trials[0].figure})


QUESTION = Question(
    "recall",
    title="Approximate search",
    words="Does the approximate search find what is nearest, and which setting reaches 0.99?",
    page="vectors.md#approximate-search",
    number_name="recall of the ten nearest",
    number_format=".3f",
    answer=answer,
    needs="vectors",
    applies=has_vectors_only,
    judge=judge,
    thresholds=[
        Threshold("recall_target", 0.99, "The recall for which the cheapest setting is named; common in benchmarks."),
        Threshold("missed_watch", 0.05, "Share of the ten nearest that the search misses: one on every second page."),
        Threshold(
            "missed_repair", 0.2, "Two of the ten nearest are missing on every page, whatever the model is worth."
        ),
    ],
    gauges=[Gauge("missed", "nearest that the search misses", "missed_watch", "missed_repair", form=".1%")],
    numbers=[Number("recall", "recall of the approximate search", headline=True)],
    tables={"recall": TableView("Recall by setting", 20, {"value": "Setting", "recall": "Recall"})},
)
