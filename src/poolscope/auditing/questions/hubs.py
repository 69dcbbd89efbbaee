"""Which chunks come back for everything, which never?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.auditing.question import (
    Action,
    Answer,
    Gauge,
    Number,
    Question,
    TableView,
    TextMark,
    Threshold,
    Thresholds,
)
from poolscope.auditing.result import Audit
from poolscope.auditing.searches import QueryTask
from poolscope.auditing.subject import Subject
from poolscope.metrics.neighbourhood import FEWEST_QUERIES, HubResult, hubs, hubs_figure, skewness, skewness_draws
from poolscope.numbers.intervals import Estimate, Interval, leave_one_out_interval, percentile_interval, share_of
from poolscope.numbers.items import carriers
from poolscope.verdicts import Basis, Verdict, most_serious

# Fewer texts than this say nothing of hubs: everyone is everyone's neighbour.
_LEAST_TEXTS = 30
_K = 10
# Fewer relevant texts than this do not tell how large a share of them is missed.
_LEAST_RELEVANT = 10
# One group among so many, or of so many texts, is worth its name where it holds most of the copies.
_FEW_GROUPS, _LARGE_GROUP = 4, 10
_WITHOUT = "skewness_without"  # a column of the table `hubs`


def answer(subject: Subject) -> Answer:
    """How often each text is among the nearest of others, and the texts that equal another."""
    if len(subject) < 2:
        return Answer.unchecked("hubs", "one text has no neighbours")
    limits = subject.thresholds
    task = subject.query_task if len(subject.queries or ()) >= FEWEST_QUERIES else None
    counted = hubs(
        subject.vectors,
        queries=None if task is None else task.vectors[0],
        texts=subject.texts,
        duplicate_cosine=limits["duplicate_cosine"],
        seed=subject.seed,
    )
    tables = {"hubs": _hub_table(subject, counted), "duplicates": _group_table(subject, counted)}
    # Equal texts are looked for among all, hubs perhaps in a draw of them.
    equal = _texts_in(counted.twins) / len(subject)
    if subject.whole is not None:  # few of the pairs of equal texts are both among those that were drawn
        equal = max(equal, subject.whole.corpus.repeated.value or 0.0)
    numbers: dict[str, Any] = {
        "hub_skewness": counted.skewness,
        "hub_largest": counted.largest,
        "antihubs": counted.antihubs,
        "near_duplicates": counted.duplicate_share,
        "twin_groups": len(counted.twins),
        "equal_texts": equal,
    }
    if len(subject) < _LEAST_TEXTS:
        few = f"{len(subject)} texts are too few to tell hubs from chance ({_LEAST_TEXTS} are needed)"
        return Answer.unchecked("hubs", few, numbers=numbers, tables=tables)
    notes: tuple[str, ...] = ()
    if subject.whole is not None and subject.whole.corpus.repeated.value is not None:
        whole = subject.whole.corpus
        notes = (
            f"Of all {whole.texts:,} texts {whole.repeated.value:.2%} equal an earlier one but for case and blanks.",
        )
    missed = None
    if (asking := subject.query_task) is not None:
        lost, relevant = _never_found(subject, asking), len(np.unique(asking.task.relevant[asking.best, 1]))
        share = share_of(len(lost), relevant, unit="texts")
        tables["never_found"] = lost
        numbers |= {"never_found": len(lost), "missed_share": share}
        missed = share if relevant >= _LEAST_RELEVANT else None
        if counted.asked is None:
            few = f"Fewer than {FEWEST_QUERIES} queries tell nothing of hubs"
            notes = (f"{few}: those are counted among the texts themselves.", *notes)
        notes = (_missed_note(asking, len(lost), relevant, share), *notes)
    verdict = judge(counted, limits, equal=equal, missed=missed)
    return Answer(
        "hubs",
        replace(verdict, evidence=(*notes, *verdict.evidence, *_few_groups(subject, counted))),
        numbers,
        _action(counted, limits, equal),
        tables=tables,
        draw={"hubs": counted.figure},
    )


def _action(counted: HubResult, limits: Thresholds, equal: float) -> Action:
    """Duplicates are merged, hubs looked at; where there are neither, it is the missed texts that ask for something."""
    judged, merge = _most_serious(counted, limits, equal)
    if not judged.at_least("watch"):
        step = "look at the relevant texts that no query of theirs finds (table never_found)"
        return Action("undecided", step, None, "the work on these texts and queries; what to do shows there")
    if merge and judged.basis == "untried":
        near = f"{_texts_in(counted.duplicates):,} near-duplicates by their vectors"
        step = f"look at the {near} before merging any: no two are known to be equal texts (table duplicates)"
        return Action("undecided", step, None, "the work on these texts; no encoding")
    if merge:
        return Action("merge", f"{_merging(counted, equal)} (table duplicates)", None, "no encoding; the index shrinks")
    step = "look at the first hubs: boilerplate chunks come back for everything (table hubs)"
    cost = f"the work on {len(counted.first())} hub texts; encode those that change"
    return Action("re-chunk", step, None, cost)


def judge(counted: HubResult, limits: Thresholds, *, equal: float = 0.0, missed: Estimate | None = None) -> Verdict:
    """The most serious of hubs, antihubs and duplicates, and of relevant texts that are missed.

    A hub counts where it is beyond what vectors of the same mean and covariance have by themselves; `unchecked` where
    it is not, and yet by enough above their average to matter.
    `equal` is the share of all texts that equal another, `missed` that of the relevant texts which no query of theirs
    finds: at least `watch` from `antihub_watch` on.
    """
    askers, never = ("texts", "are") if counted.asked is None else ("queries", "of the texts are")
    sentence = (
        f"The first hub is among the {counted.k} nearest of {counted.largest.value:.1%} of the {askers} "
        f"(by chance {counted.largest.floor:.1%}); {counted.antihubs.value:.0%} {never} never found "
        f"(by chance {counted.antihubs.floor:.0%}); {counted.duplicate_share:.1%} have a near-duplicate."
    )
    twins, skewness = _texts_in(counted.twins), counted.skewness
    by = "" if counted.asked is None else f" asked for by {counted.asked:,} queries"
    evidence: tuple[str, ...] = (
        f"{counted.texts:,} texts{by}; skewness of the times found {skewness.value:.2f} {skewness.interval or ''}, "
        f"{skewness.floor:.2f} for Gaussian vectors of the same mean and covariance.",
        f"Near-duplicates (cosine of {counted.duplicate_cosine:g} or more): {_groups(len(counted.duplicates))}.",
        f"Equal but for letter case and blanks: {twins:,} texts in {_groups(len(counted.twins))}.",
    )
    judged, _ = _most_serious(counted, limits, equal)
    highest = counted.largest.floor_high
    if judged.level == "ok" and highest is not None and limits["hub_watch"] <= counted.largest.known <= highest:
        evidence = (*evidence, _of_the_shape(counted, highest))
    elif judged.level == "ok" and skewness.interval is not None and skewness.interval.low > (skewness.floor or 0.0):
        least = f"{limits['hub_watch']:.0%} of the {askers} more than by chance"
        evidence = (*evidence, f"Texts are found more unevenly than by chance, but no single one by {least}.")
    if missed is not None and missed.known >= limits["antihub_watch"]:
        sentence = f"{sentence[:-1]}; {missed.known:.0%} of the relevant texts are found by none of their queries."
        judged = judged if judged.at_least("watch") else limits.judge("antihub", missed.known, missed.interval)
    if judged.level == "unchecked" and highest is not None:
        room = f"vectors of this shape have a first hub of up to {highest:.1%} by themselves"
        sentence += f" Whether the first hub is more than chance cannot be told: {room}."
    return Verdict(judged.level, sentence, skewness.value, skewness.interval, skewness.floor, evidence, judged.basis)


def _of_the_shape(counted: HubResult, highest: float) -> str:
    """Why a text that comes back often is no finding: vectors of this shape have one, whatever the texts say."""
    return (
        f"That one text is found so often is no more than the mean and the spread of these vectors make by themselves "
        f"(up to {highest:.1%})."
    )


def _groups(count: int) -> str:
    return "1 group" if count == 1 else f"{count:,} groups"


def _most_serious(counted: HubResult, limits: Thresholds, equal: float) -> tuple[Verdict, bool]:
    """The most serious of the three, and whether it is about duplicates, which make hubs.

    Near-duplicates are `watch` at most, as a narrow cone makes them of any texts; equal texts are equal.
    """
    # The interval of the skewness would lose what one or two texts make: without them it is another.
    highest, hub = counted.largest.floor_high, limits.judge("hub", counted.largest.excess)
    if highest is None:
        hub = Verdict("ok")
    elif hub.level != "ok":  # above the floor by enough to matter: beyond chance, or no more than chance leaves open
        hub = replace(hub, basis="beyond chance") if counted.largest.known > highest else Verdict("unchecked")
    near = limits.count("duplicate", counted.duplicate_share).at_most_watch("counted")
    basis = _of_copies(counted, equal)
    near = near if near.level == "ok" else replace(near, basis=basis)
    # Texts that no query finds may be texts that nobody asks for.
    antihub = limits.judge("antihub", counted.antihubs.excess) if counted.asked is None else Verdict("ok")
    copies = Verdict("repair", basis=basis) if equal >= limits["duplicate_repair"] else near
    worst = most_serious(copies, hub, antihub)
    return worst, worst is copies


def _never_found(subject: Subject, task: QueryTask) -> pa.Table:
    """The relevant texts that no query of theirs has among its first ten, with the best of these queries.

    `instead` is the first of these ten that is a wrong answer, empty where none is.
    """
    ranking = task.ranking.condensed(task.best)
    order = np.lexsort((ranking.rank, ranking.document))
    _, first = np.unique(ranking.document[order], return_index=True)
    best = order[first]  # of each relevant text the judgement with the best rank
    missed = best[ranking.rank[best] > task.ranking.top.shape[1]]
    missed = missed[np.argsort(-ranking.rank[missed], kind="stable")]
    positions = task.texts[ranking.document[missed]]
    return pa.table(
        {
            "id": pa.array([subject.ids[k] for k in positions], pa.string()),
            "best_rank": pa.array(ranking.rank[missed], pa.float64()),
            "query": pa.array([task.task.queries[q] for q in ranking.query[missed]], pa.large_string()),
            "text": subject.text_column(positions),
            "instead": pa.array(
                [None if k is None else subject.ids[k] for k in _first_wrong(subject, task, ranking.query[missed])],
                pa.string(),
            ),
        }
    )


def _first_wrong(subject: Subject, task: QueryTask, queries: NDArray[np.int64]) -> list[int | None]:
    """Of each query the first text of a document that does not answer it; without documents, that is not relevant."""
    ranking = task.ranking
    groups = np.arange(len(task.texts)) if subject.groups is None else subject.groups[task.texts]
    span = groups.max() + 1  # query · span + group is a number of its own for both
    top = ranking.top[queries]
    wrong = ~np.isin(queries[:, None] * span + groups[top], ranking.query * span + groups[ranking.document])
    places = (np.flatnonzero(row) for row in wrong)
    return [int(task.texts[own[place[0]]]) if len(place) else None for own, place in zip(top, places, strict=True)]


def _missed_note(task: QueryTask, missed: int, relevant: int, share: Estimate) -> str:
    ends = "" if share.interval is None else f" [{share.interval.low:.1%}, {share.interval.high:.1%}]"
    verb, those = ("is", "it") if missed == 1 else ("are", "them")
    return (
        f"{missed:,} of {relevant:,} relevant texts, {share.known:.1%}{ends}, {verb} among the first "
        f"{task.ranking.top.shape[1]} of no query that asks for {those} (table never_found)."
    )


def _texts_in(groups: Any) -> int:
    return sum(len(group) for group in groups)


def _few_groups(subject: Subject, counted: HubResult) -> list[str]:
    """Sentences about one group of copies that holds most of the equal texts or near-duplicates."""
    kinds = (
        ("the equal texts", counted.twins, len(subject)),
        ("the near-duplicates", counted.duplicates, counted.texts),
    )
    sentences = []
    for what, groups, texts in kinds:
        sizes = [len(group) for group in groups]
        if len(sizes) < _FEW_GROUPS and max(sizes, default=0) < _LARGE_GROUP:
            continue  # of so few copies each group holds most
        if (few := carriers(sizes, sizes, rest=texts - sum(sizes), most=1)) is not None:
            names = [f"that of {subject.ids[group[0]]}" for group in groups]
            number = f"{few.without:.1%} of the texts are such"
            one = f"All of {what} are one group, {names[0]}: {sizes[0]:,} texts."
            sentences.append(one if len(groups) == 1 else few.sentence(names, what, number, units="groups"))
    return sentences


def _different(counted: HubResult) -> int:
    """How many different texts have a near-duplicate that is not equal to them: equal ones count once."""
    first = {k: group[0] for group in counted.twins for k in group}
    groups = [{first.get(k, k) for k in group} for group in counted.duplicates]
    return sum(len(group) for group in groups if len(group) > 1)


def _of_copies(counted: HubResult, equal: float) -> Basis:
    """What merging rests on: near-duplicates are counted too, but that they are copies is sure of equal texts only."""
    if not counted.twins and not equal:
        return "untried"
    return "equal texts" if _different(counted) else "counted"


def _merging(counted: HubResult, equal: float) -> str:
    """Which texts to merge, and which to look at first; `equal`, the share of all, where none of the drawn ones is."""
    count = f"{_texts_in(counted.twins):,}" if counted.twins else f"{equal:.1%} of all"
    told = f"merge the duplicates: {count} texts equal to another but for case and blanks"
    if not (others := _different(counted)):
        return told
    return (
        f"{told}; look at the {others:,} different texts that are near-duplicates by their vectors before merging any"
    )


def _hub_table(subject: Subject, counted: HubResult) -> pa.Table:
    """Every text that was looked at, the first hub first; with the skewness without it, which comparisons pair."""
    order = np.argsort(-counted.occurrences, kind="stable")
    positions = counted.positions[order]
    columns = {
        "id": [subject.ids[k] for k in positions],
        "times_found": counted.occurrences[order],
        "nearest": [subject.ids[k] for k in counted.nearest[order]],
        "nearest_cosine": counted.nearest_cosine[order],
        "text": subject.text_column(positions),
    }
    if counted.skewness_without is not None:
        columns[_WITHOUT] = counted.skewness_without[order]
    return pa.table(columns)


def _group_table(subject: Subject, counted: HubResult) -> pa.Table:
    kinds = (("near-duplicates", counted.duplicates), ("equal texts", counted.twins))
    rows = [(kind, number, k) for kind, groups in kinds for number, group in enumerate(groups) for k in group]
    positions = [k for _, _, k in rows]
    return pa.table(
        {
            "kind": pa.array([kind for kind, _, _ in rows], pa.string()),
            "group": pa.array([number for _, number, _ in rows], pa.int64()),
            "id": pa.array([subject.ids[k] for k in positions], pa.string()),
            "text": subject.text_column(positions),
        }
    )


# -- beside other audits ------------------------------------------------------------------------------------------


def _pair(first: Audit, second: Audit) -> tuple[Interval | None, str] | None:
    """Skewness of the times found, both for the same drawn texts."""
    sides = []
    for audit in (first, second):
        table = audit.tables.get("hubs")
        if table is None:
            return None
        sides.append(table.sort_by("id"))
    if not sides[0]["id"].equals(sides[1]["id"]) or len(sides[0]) < 3:
        return None
    if len({(audit.corpus.get("queries") or {}).get("digest") for audit in (first, second)}) > 1:
        return None, "no interval: counted over different queries"
    counts = [side["times_found"].to_numpy() for side in sides]
    if all(_WITHOUT in side.column_names for side in sides):
        without = [side[_WITHOUT].to_numpy() for side in sides]
        difference = skewness(counts[1]) - skewness(counts[0])
        return leave_one_out_interval(difference, without[1] - without[0]), "paired over texts (jackknife)"
    # Of an older audit.
    draws = [skewness_draws(each) for each in counts]
    return percentile_interval(draws[1] - draws[0]), "paired over texts (bootstrap)"


def _overlay(audits: Mapping[str, Audit]) -> Any | None:
    """How often texts are found, several audits in one figure."""
    counts = {name: audit.column("hubs", "times_found") for name, audit in audits.items()}
    known = {name: values for name, values in counts.items() if values is not None}
    return hubs_figure(known, k=_K) if len(known) > 1 else None


QUESTION = Question(
    "hubs",
    title="Hubs",
    words="Which chunks come back for everything, which never?",
    page="hubs.md",
    number_name="skewness of the times found",
    metric="hubs",
    answer=answer,
    seconds=0.5,
    needs="vectors",
    judge=judge,
    thresholds=[
        Threshold(
            "hub_watch", 0.1, "One text is among the ten nearest of so many more texts than by chance: of every tenth."
        ),
        Threshold(
            "hub_repair", 0.3, "The same for every third text: one text takes a place in a third of all answers."
        ),
        Threshold(
            "antihub_watch",
            0.2,
            "Share of texts that are never found, above that of Gaussian vectors of the same shape; with your "
            "queries, of the relevant texts that no query of theirs finds.",
        ),
        Threshold("duplicate_cosine", 0.99, "Two vectors this near are one to a ranking: their order is rounding."),
        Threshold(
            "duplicate_watch", 0.05, "Every twentieth text has a near-duplicate that takes its place in answers."
        ),
        Threshold(
            "duplicate_repair", 0.3, "Almost every third text equals another: answers fill with copies of one text."
        ),
    ],
    numbers=[
        Number("hub_skewness", "skewness of the times found", headline=True, pair=_pair),
        Number("near_duplicates", "texts with a near-duplicate", headline=True, compared=False),
    ],
    tables={
        "hubs": TableView(
            "Texts that come back most",
            50,
            {
                "times_found": "Times found",
                "text": "Text",
                "nearest": "Its nearest text",
                "nearest_cosine": "Cosine with it",
            },
            searchable=True,
            below={"text": "id"},
        ),
        "never_found": TableView(
            "Relevant texts that their queries do not find",
            50,
            {"best_rank": "Best rank", "query": "Query", "text": "Relevant text", "instead": "First wrong text"},
            searchable=True,
            below={"text": "id"},
        ),
        "duplicates": TableView(
            "Near-duplicates and equal texts",
            100,
            {"kind": "Kind", "group": "Group", "text": "Text"},
            searchable=True,
            below={"text": "id"},
        ),
    },
    gauges=[
        Gauge("hub_largest", "texts near the first hub", "hub_watch", "hub_repair", above_floor=True, form=".1%"),
        Gauge("antihubs", "texts that are never found", "antihub_watch", above_floor=True, form=".1%"),
        Gauge("missed_share", "relevant texts that none of their queries finds", "antihub_watch", form=".1%"),
        Gauge("near_duplicates", "texts with a near-duplicate", "duplicate_watch", form=".1%"),
        Gauge("equal_texts", "texts equal to another", repair="duplicate_repair", form=".1%"),
    ],
    marks=[
        TextMark("times found", "hubs", "times_found", number=True),
        TextMark("never found", "hubs", "times_found", holds=lambda times: times == 0),
        TextMark("duplicates", "duplicates"),
    ],
    overlay=_overlay,
)
