"""If the answer sits at the end of a chunk, is it still found?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from poolscope.auditing.question import Action, Answer, Number, Question, TableView, Threshold, Thresholds, by_queries
from poolscope.auditing.searches import QueryTask, judged_by
from poolscope.auditing.subject import Subject
from poolscope.encoders.batching import TokenInputs
from poolscope.encoders.capabilities import takes_tokens
from poolscope.errors import InputError
from poolscope.evaluation import Trial, split_half
from poolscope.evaluation.scores import LEAST_GAIN
from poolscope.metrics.length.search import MIN_QUERIES, PositionProbe, SegmentRow, position_probe
from poolscope.numbers.intervals import Estimate, Interval, signed
from poolscope.texts import Pairs, read_texts
from poolscope.texts.groups import without_boilerplate
from poolscope.verdicts import Verdict

# The probe encodes three long documents a query, so it asks few: a tenth of what 1,000 texts cost.
_PROBE_QUERIES, _PROBE_TEXTS, _LEAST_SEGMENT = 12, 60, 4
_NUMBER = "lead lost from the start to the end"
_LEAST_CHUNK = 16  # tokens of the shortest chunk that is worth a suggestion


def judge(result: PositionProbe, thresholds: Thresholds, *, trial: Trial | None = None) -> Verdict:
    """Does the similarity fall when the segment moves from the first place to the worst of the others?

    The number is the loss as a share of the lead that the first place has over documents without an answer: in a cone
    all of them score high, and a loss that costs ranks is a small share of the cosine itself. `watch` where its
    interval lies above 0 and it reaches the threshold; `repair` where the whole interval lies beyond the second one and
    the rank falls with it. `unchecked` where the interval holds 0, and the loss reaches a threshold all the same or may
    be a `repair`. Beside a `trial` of shorter chunks it is watched unless these are found better.
    """
    start, worst = result.places[0], min(result.places[1:], key=lambda row: row.change.value or 0.0)
    evidence = tuple(_place_sentence(result, row) for row in result.places)
    base = (start.similarity.value or 0.0) - result.unrelated
    loss = worst.change.scaled(-1 / base) if base > 0 else Estimate(None)  # there is no lead to lose
    if loss.value is None:
        sentence = (
            f"Whether an answer is lost by its place cannot be judged here: its cosine with its query is "
            f"{start.similarity.value:.3f} at the {_place(start.position)} already, and that of documents without it "
            f"{result.unrelated:.3f}."
        )
        return Verdict("unchecked", sentence, evidence=evidence)
    judged = _judged(worst, loss.value, loss.interval, thresholds)
    sentence = _sentence(result, worst, loss.value)
    if judged.level == "unchecked" and loss.interval is not None:
        sentence += f" {result.queries} queries leave room for a loss of {loss.interval.high:.0%}."
    verdict = Verdict(judged.level, sentence, loss.value, loss.interval, 0.0, evidence, judged.basis)
    return verdict if trial is None or not verdict.at_least("watch") else _with_a_cure(verdict, trial)


def answer(subject: Subject) -> Answer:
    """Second halves of the longest texts, at the start and at the end of long documents, asked for by first halves."""
    if not takes_tokens(subject.encoder):
        static = subject.card.kind == "static"
        return Answer.unchecked(
            "position",
            "the model is a table, in which a token is the same at every position"
            if static
            else "no transformer is at hand that takes tokens, so that no segment can be moved",
        )
    probed = _probe(subject)
    if probed is None:
        return Answer.unchecked(
            "position", "there are too few texts long enough to be cut into a question and an answer"
        )
    result, note, asked = probed
    start, end = result.places[0], result.places[-1]
    verdict = judge(result, subject.thresholds)
    if verdict.value is None:
        return Answer.unchecked(
            "position", "documents without the answers score as high as those with them, even at the start"
        )
    notes: tuple[str, ...] = (note,)
    numbers = {
        "position_lost": verdict.value,
        "position_lost_interval": verdict.interval,
        "position_rank_start": start.rank.value,
        "position_rank_end": end.rank.value,
    }
    if verdict.at_least("watch"):
        verdict = judge(result, subject.thresholds, trial=subject.smaller_chunks)
    verdict = replace(verdict, evidence=(*verdict.evidence, *notes))
    tables, draw = {"position": result.to_table()}, {"position": result.figure}
    number_name, action = by_queries(_NUMBER, asked), _action(subject, result, verdict)
    return Answer("position", verdict, numbers, action, number_name=number_name, tables=tables, draw=draw)


def _with_a_cure(verdict: Verdict, trial: Trial) -> Verdict:
    """The verdict beside a trial of shorter chunks: that the place matters is measured, that these help must be too."""
    judged = judged_by([trial], LEAST_GAIN)
    level = verdict.level if judged.level == "repair" else "watch"
    evidence = (*verdict.evidence, *trial.evidence)
    basis = verdict.basis if verdict.basis == "harmless" else judged.basis
    return replace(
        verdict, level=level, sentence=f"{verdict.sentence} {trial.advice(LEAST_GAIN)}", evidence=evidence, basis=basis
    )


def _action(subject: Subject, result: PositionProbe, verdict: Verdict) -> Action:
    """Shorter chunks, unless they were tried and win nothing."""
    if verdict.basis == "no cure":
        step = "keep the chunks, as halving them wins nothing here, and put what matters at their start"
        return Action("keep", step, None, "nothing is encoded again")
    if verdict.basis == "too few":
        return subject.more_on_trial([subject.smaller_chunks], LEAST_GAIN)
    shorter = result.tokens // 2
    return Action(
        "re-chunk",
        "cut chunks so that what matters comes first, or use shorter chunks",
        subject.named.rechunk(tokens=shorter) if shorter >= _LEAST_CHUNK else None,
        "cut the texts again and encode them; no new model",
    )


def _judged(worst: SegmentRow, loss: float, interval: Interval | None, thresholds: Thresholds) -> Verdict:
    if interval is None:
        return Verdict("unchecked")
    if interval.low <= 0:
        return thresholds.within_chance("position", loss, interval.high)
    judged = thresholds.judge("position", loss, interval)
    rank = worst.rank_change.interval
    return judged if rank is not None and rank.low > 0 else judged.at_most_watch("harmless")


def _sentence(result: PositionProbe, worst: SegmentRow, loss: float) -> str:
    change, first, where = worst.change, _place(result.places[0].position), _place(worst.position)
    document = f"a document of {result.tokens:,} tokens"
    if change.interval is not None and change.interval.high < 0:
        return (
            f"An answer at the {where} of {document} loses {loss:.0%} of the lead over documents without it that it "
            f"has at the {first} (cosine {signed(change.value or 0.0)} {change.interval})."
        )
    if change.interval is not None and change.interval.low > 0:
        return (
            f"An answer is nowhere less similar to its query than at the {first} of {document} (at the {where}, "
            f"cosine {signed(change.value or 0.0)} {change.interval})."
        )
    return (
        f"Answers at the {where} and at the {first} of {document} cannot be told apart by their similarity "
        f"(cosine {signed(change.value or 0.0)}{'' if change.interval is None else f' {change.interval}'})."
    )


def _place_sentence(result: PositionProbe, row: SegmentRow) -> str:
    return (
        f"Segment at the {_place(row.position)}: cosine {row.similarity.value:.3f}, mean rank {row.rank.value:.1f} of "
        f"{result.among:.0f}, first for {row.first.value:.0%}."
    )


def _place(position: float) -> str:
    return {0.0: "start", 0.5: "middle", 1.0: "end"}.get(position, f"point {position:.0%}")


def _probe(subject: Subject) -> tuple[PositionProbe, str, bool] | None:
    """The probe with the user's queries, else with halves of the longest texts; who asked, and whether it was the user.

    None for neither.
    """
    settings: dict[str, Any] = {"positions": (0.0, 1.0), "queries": _PROBE_QUERIES, "seed": subject.seed}
    if subject.query_task is not None and (own := _query_pairs(subject, subject.query_task)) is not None:
        pairs, segment, longest = own
        try:
            probe = position_probe(
                subject.encoder,
                pairs,
                segment=segment,
                longest=longest,
                query_encoder=subject.query_task.asking,
                **settings,
            )
            note = f"Asked with {probe.queries} of your queries, for the first {segment} tokens of an answer."
            return probe, note, True
        except InputError:  # the answers to most queries are too short, or there are too few
            pass
    long = None if subject.texts is None else _long_pairs(subject)
    if long is None:
        return None
    probe = position_probe(subject.encoder, long[0], segment=long[1], longest=long[2], **settings)
    if subject.query_task is not None:
        short = "Your queries, with the texts that answer them, are too few or too short for this"
        return probe, f"{short}: asked with halves of the longest texts instead.", False
    note = f"Asked with {probe.queries} self-made queries, halves of the longest texts (--queries: your own)."
    return probe, note, False


def _query_pairs(subject: Subject, task: QueryTask) -> tuple[Pairs, int, int] | None:
    """The user's queries with their relevant texts and some others around, and the sizes that `_sizes` gives."""
    idle = task.task.idle[np.argsort(subject.marks[task.task.idle], kind="stable")][:_PROBE_TEXTS]
    counted = replace(task.task, relevant=task.task.relevant[task.best], grades=None, answers=None)
    part = counted.part(np.arange(counted.units), np.sort(idle))
    documents = without_boilerplate(part.documents)  # a header is no answer
    sizes = _sizes(subject, [documents[k] for k in np.unique(part.relevant[:, 1])])
    if sizes is None:
        return None
    return Pairs(read_texts(list(part.queries)), read_texts(documents), part.relevant), *sizes


def _sizes(subject: Subject, documents: Sequence[str]) -> tuple[int, int] | None:
    """Tokens of a segment, which enough of the documents have, and of the document that it is moved within.

    The document is as long as the texts of which a tenth are longer: what happens in longer ones happens to few of
    them. The segment is a quarter of it at most.
    """
    inputs = TokenInputs(subject.encoder)
    sizes = np.sort([len(row) for row in inputs.content(list(documents))])[::-1]
    by_length = np.argsort(subject.clouds.lengths + subject.clouds.truncated, kind="stable")
    long = int(by_length[int(0.9 * (len(by_length) - 1))])
    whole = 0 if subject.texts is None else len(inputs.content([subject.texts[long]])[0])
    room = min(min(inputs.limit or 512, 512) - inputs.added, whole)
    wanted = min(_PROBE_QUERIES, len(sizes))
    segment = min(room // 4, int(sizes[wanted - 1])) if wanted >= MIN_QUERIES else 0
    # The others fill the document around each segment.
    return None if segment < _LEAST_SEGMENT or sizes[1:].sum() < room else (segment, room)


def _long_pairs(subject: Subject) -> tuple[Pairs, int, int] | None:
    """Halves of the longest texts, and the sizes that `_sizes` gives."""
    texts, order = subject.texts or [], subject.shuffled
    lengths = (subject.clouds.lengths + subject.clouds.truncated)[order]
    longest = order[np.argsort(-lengths, kind="stable")[:_PROBE_TEXTS]]
    try:
        halves = split_half([texts[k] for k in longest])
    except InputError:
        return None
    sizes = _sizes(subject, halves.documents)
    if sizes is None:
        return None
    sides = [read_texts(side) for side in (halves.queries, halves.documents)]
    return Pairs(sides[0], sides[1], halves.relevant), *sizes


QUESTION = Question(
    "position",
    title="Position",
    words="If the answer sits at the end of a chunk, is it still found?",
    page="length.md#who-wins-a-search-and-from-where",
    number_name=_NUMBER,
    metric="length",
    answer=answer,
    of_vectors=True,
    seconds=2,
    judge=judge,
    thresholds=[
        Threshold(
            "position_watch",
            0.1,
            "Share of its lead over other documents that an answer loses from the start to the end: a third of "
            "published worst cases, of which the lead is about half of the cosine.",
        ),
        Threshold(
            "position_repair",
            0.3,
            "The size of published worst cases, 15 % of the cosine and twice that of the lead, while the rank falls "
            "with it.",
        ),
    ],
    numbers=[Number("position_lost", _NUMBER, headline=True, asked=True)],
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
