"""If the answer sits at the end of a chunk, is it still found?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.auditing.question import Action, Answer, Number, Question, TableView, Threshold, unchecked
from poolscope.auditing.subject import Subject
from poolscope.auditing.thresholds import Thresholds
from poolscope.encoders.batching import BatchedEncoder
from poolscope.errors import InputError
from poolscope.evaluation import split_half
from poolscope.metrics.length.inputs import TokenInputs
from poolscope.metrics.length.position import (
    MIN_QUERIES,
    REPAIR_DROP,
    WATCH_DROP,
    PositionProbe,
    SegmentRow,
    position_probe,
)
from poolscope.numbers.intervals import Interval
from poolscope.texts import Pairs, read_texts
from poolscope.verdicts import Verdict

# The probe of the position encodes three long documents a query, so it asks few: a tenth of what 1,000 texts cost.
_PROBE_QUERIES, _PROBE_TEXTS, _LEAST_SEGMENT = 12, 60, 4


def answer(subject: Subject) -> Answer:
    """The same answer at the start and at the end of a long text: how similar to its question, and how it ranks."""
    if not isinstance(subject.encoder, BatchedEncoder):
        static = subject.card.kind == "static"
        return unchecked(
            "position",
            "the model is a table, in which a token is the same at every position"
            if static
            else "no transformer is at hand that takes tokens, so that no segment can be moved",
        )
    long = None if subject.texts is None else _long_pairs(subject)
    if long is None:
        return unchecked("position", "there are too few texts long enough to be cut into a question and an answer")
    pairs, segment = long
    probe = position_probe(
        subject.encoder, pairs, positions=(0.0, 1.0), queries=_PROBE_QUERIES, segment=segment, seed=subject.seed
    )
    start, end = probe.rows[0], probe.rows[-1]
    notes = () if subject.pooling == "mean" else ("Measured on the mean of the tokens, which this model does not use.",)
    verdict = judge(probe, subject.thresholds)
    return Answer(
        "position",
        replace(verdict, evidence=(*verdict.evidence, *notes)),
        {
            "position_drop": verdict.value,
            "position_drop_interval": verdict.interval,
            "position_rank_start": start.rank.value,
            "position_rank_end": end.rank.value,
        },
        Action(
            "re-chunk",
            "cut chunks so that what matters comes first, or use shorter chunks",
            subject.command("length"),
            "cut the texts again and encode them; no new model",
        ),
        tables={"position": _table(probe)},
        draw={"position": lambda: _figure(probe)},
    )


def judge(probe: PositionProbe, limits: Thresholds) -> Verdict:
    """A loss from the start to the end that chance does not explain; `repair` only where the ranks fall with it."""
    start, end = probe.rows[0], probe.rows[-1]
    drop, interval = _drop(start, end)
    judged = Verdict("ok")
    if interval is not None and interval.low > 0:
        judged, rank = limits.judge("position", drop, interval), end.rank_change.interval
        judged = judged if rank is not None and rank.low > 0 else judged.at_most_watch("harmless")
    sentence = (
        f"An answer of {probe.segment} tokens at the end of {probe.tokens} tokens is {abs(drop):.0%} "
        f"{'less' if drop > 0 else 'more'} similar to its question than at the start; it comes first for "
        f"{end.first.value:.0%} of {probe.queries} questions, {start.first.value:.0%} from the start."
    )
    return Verdict(judged.level, sentence, drop, interval, 0.0, probe.verdict.evidence, judged.basis)


def _long_pairs(subject: Subject) -> tuple[Pairs, int] | None:
    """Halves of the longest texts, and a segment that enough of their second halves can fill."""
    texts, lengths = subject.texts or [], subject.clouds.lengths + subject.clouds.truncated
    longest = np.sort(np.argsort(-lengths, kind="stable")[:_PROBE_TEXTS])
    try:
        halves = split_half([texts[k] for k in longest])
        inputs = TokenInputs(subject.encoder)
    except InputError:
        return None
    sizes = np.sort([len(row) for row in inputs.content(halves.documents)])[::-1]
    room = min(inputs.limit or 512, 512) - inputs.added
    wanted = min(_PROBE_QUERIES, len(sizes))
    segment = min(room // 4, int(sizes[wanted - 1])) if wanted >= MIN_QUERIES else 0
    if segment < _LEAST_SEGMENT or sizes[1:].sum() < room:  # the others fill the document around each segment
        return None
    sides = [read_texts(side) for side in (halves.queries, halves.documents)]
    return Pairs(sides[0], sides[1], halves.relevant), segment


def _drop(start: SegmentRow, end: SegmentRow) -> tuple[float, Interval | None]:
    """Loss of similarity as a share of that at the start, with its interval."""
    base, change = start.similarity.value or 0.0, end.change
    if base <= 0 or change.value is None:
        return 0.0, None
    found = change.interval
    if found is not None:
        found = Interval(-found.high / base, -found.low / base, found.level, found.answers, found.method)
    return -change.value / base, found


def _table(probe: PositionProbe) -> pa.Table:
    columns = {
        name: [getattr(row, name).value for row in probe.rows] for name in ("similarity", "rank", "first", "change")
    }
    return pa.table({"position": [row.position for row in probe.rows], **columns})


def _figure(probe: PositionProbe) -> Any:
    from poolscope.metrics.length.figure import position_figure

    return position_figure(probe)


QUESTION = Question(
    "position",
    title="Position",
    words="If the answer sits at the end of a chunk, is it still found?",
    page="length.md#who-wins-a-search-and-from-where",
    number_name="loss from the start to the end",
    metric="length",
    answer=answer,
    judge=judge,
    thresholds=[
        Threshold(
            "position_watch",
            WATCH_DROP,
            "Loss of similarity when the answer moves from the start to the end: a third of published worst cases.",
        ),
        Threshold("position_repair", REPAIR_DROP, "The size of published worst cases, while the rank falls with it."),
    ],
    numbers=[Number("position_drop", "loss from the start to the end", headline=True)],
    tables={
        "position": TableView(
            "Position of the answer",
            10,
            {
                "position": "Place (0: start, 1: end)",
                "similarity": "Cosine with the query",
                "rank": "Mean rank",
                "first": "Found first",
                "change": "Change of the cosine",
            },
        )
    },
    judged_on="position",
)
