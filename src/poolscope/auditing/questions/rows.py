"""Has every row one usable vector, and every vector its row?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from poolscope.auditing.question import Action, Answer, Gauge, Number, Question, TableView, Threshold, Thresholds
from poolscope.auditing.subject import Subject, has_vectors_only
from poolscope.connectors import Collection
from poolscope.texts.groups import plain_text
from poolscope.verdicts import Verdict, most_serious

_SHOWN = 5


def answer(subject: Subject) -> Answer:
    """What was set aside while reading, texts without a vector, and different texts with one vector."""
    collection = subject.held
    copies = equal_vectors(collection)
    broken = collection.fault_count + len(collection.without_vector)
    total = collection.rows + len(collection.without_vector)
    numbers = {
        "rows": collection.rows,
        "rows_broken": broken / total,
        "equal_vectors": sum(len(group) for group in copies) / len(collection),
        **{f"rows_{reason.replace(' ', '_')}": count for reason, count in _kinds(collection).items()},
    }
    verdict = judge(collection, subject.thresholds, copies)
    action = _action(broken, copies)
    shared = verdict.value != numbers["rows_broken"]
    return Answer(
        "rows",
        verdict,
        numbers,
        # Few rows that come to the others hardly change what these say.
        replace(action, renews="vectors") if verdict.level == "repair" else action,
        number_name="rows that share a vector" if shared else "rows that are broken",
        tables={"broken_rows": _broken(collection), "equal_vectors": _table(subject, copies)},
    )


def equal_vectors(collection: Collection) -> list[list[int]]:
    """Groups of vectors that are equal bit by bit, without those of equal texts; the largest first."""
    groups: dict[bytes, list[int]] = {}
    for position, row in enumerate(np.ascontiguousarray(collection.vectors)):
        groups.setdefault(row.tobytes(), []).append(position)
    texts = collection.texts
    several = [group for group in groups.values() if len(group) > 1]
    if texts is not None:
        several = [group for group in several if len({plain_text(texts[k]) for k in group}) > 1]
    return sorted(several, key=lambda group: (-len(group), group))


def _kinds(collection: Collection) -> dict[str, int]:
    """How many rows are broken, by reason; rows of other dimensions are one kind."""
    kinds: dict[str, int] = {}
    for reason, count in (collection.faults or {}).items():
        name = "other dimension" if reason.startswith("dimension") else reason
        kinds[name] = kinds.get(name, 0) + count
    if collection.without_vector:
        kinds["text without a vector"] = len(collection.without_vector)
    return kinds


def judge(collection: Collection, limits: Thresholds, copies: list[list[int]]) -> Verdict:
    """Counted over all rows; vectors that different texts share are `watch` at most."""
    kinds = _kinds(collection)
    total = collection.rows + len(collection.without_vector)
    broken = sum(kinds.values()) / total
    shared = sum(len(group) for group in copies) / len(collection)
    if kinds:
        parts = ", ".join(f"{count:,} with {reason}" for reason, count in kinds.items())
        sentence = f"{sum(kinds.values()):,} of {total:,} rows cannot be found or are not what they seem: {parts}."
    else:
        sentence = f"All {total:,} rows have one vector of dimension {collection.dimension}."
    if copies:
        which = "different texts" if collection.texts is not None else "rows"
        sentence += f" {sum(len(group) for group in copies):,} {which} share a vector with another."
    of_rows, of_copies = limits.count("broken_rows", broken), limits.count("equal_vectors", shared)
    judged = most_serious(of_rows, of_copies.at_most_watch("counted"))
    evidence = tuple(f"Row {name}: {reason}." for name, reason in collection.aside[:_SHOWN])
    value = broken if judged.level == of_rows.level else shared
    return Verdict(judged.level, sentence, value, None, None, evidence, judged.basis)


def _action(broken: int, copies: list[list[int]]) -> Action:
    if broken:
        rows, texts = ("row", "1 text") if broken == 1 else (f"{broken:,} rows", f"{broken:,} texts")
        step = f"encode the broken {rows} again, or take out what is broken (table broken_rows)"
        return Action("configure", step, None, f"encode {texts}")
    step = f"look at the {len(copies):,} groups of rows that share a vector (table equal_vectors)"
    return Action("merge", step, None, "no encoding, unless a vector was written to the wrong row")


def _broken(collection: Collection) -> pa.Table:
    rows = [*collection.aside, *((name, "text without a vector") for name in collection.without_vector)]
    return pa.table(
        {
            "id": pa.array([name for name, _ in rows], pa.string()),
            "reason": pa.array([reason for _, reason in rows], pa.string()),
        }
    )


def _table(subject: Subject, copies: list[list[int]]) -> pa.Table:
    rows = [k for group in copies for k in group]
    return pa.table(
        {
            "group": pa.array([number for number, group in enumerate(copies) for _ in group], pa.int64()),
            "id": pa.array([subject.ids[k] for k in rows], pa.string()),
            "text": subject.text_column(rows),
        }
    )


QUESTION = Question(
    "rows",
    title="Rows and vectors",
    words="Has every row one usable vector, and every vector its row?",
    page="vectors.md#rows-and-vectors",
    number_name="rows that are broken",
    number_format=".3%",
    answer=answer,
    needs="vectors",
    applies=has_vectors_only,
    judge=judge,
    thresholds=[
        Threshold("broken_rows_watch", 0.0001, "One row in ten thousand is never found, whatever is asked."),
        Threshold("broken_rows_repair", 0.01, "One row in a hundred: an answer is missing on every tenth result page."),
        Threshold(
            "equal_vectors_watch",
            0.01,
            "One row in a hundred has the vector of another: one of the two is wrong or needless.",
        ),
    ],
    judged_on="broken_rows",
    gauges=[Gauge("equal_vectors", "rows that share a vector with another", "equal_vectors_watch", form=".1%")],
    numbers=[Number("rows_broken", "rows that are broken", compared=False)],
    tables={
        "broken_rows": TableView("Rows that cannot be used", 50, {"id": "Row", "reason": "Why"}, searchable=True),
        "equal_vectors": TableView(
            "Rows that share a vector", 50, {"group": "Group", "text": "Text"}, searchable=True, below={"text": "id"}
        ),
    },
)
