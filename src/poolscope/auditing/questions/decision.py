"""Keep, repair, re-chunk or change the model: what first, what does it cost, how sure? Answered from all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from poolscope.auditing.pages import standings, standings_figure
from poolscope.auditing.question import KINDS, NOT_APPLICABLE, QUESTIONS, Action, Answer, Question, TableView
from poolscope.auditing.subject import Subject
from poolscope.verdicts import LEVELS, Basis, Verdict, worst_level

# So many answers to repair, and no single repair is likely to make the model right for these texts.
CHANGE_FROM = 5

# How sure a step is: what the level of its answer rests on, in words.
CERTAINTY: Mapping[Basis, str] = {
    "counted": "certain: counted, not estimated",
    "cut": "certain that so much is cut, which is counted; that a search finds more without is not shown",
    "equal texts": "certain for the equal texts, which are counted; not for others, whose vectors are near",
    "interval": "high: all of the 95 % interval lies beyond the threshold",
    "estimate": "moderate: the estimate lies beyond the threshold, but not all of its 95 % interval",
    "no interval": "moderate: the estimate lies beyond the threshold, and has no interval",
    "beyond chance": "moderate: that there is an excess is beyond chance, its size is an estimate",
    "trial": "high: the repair won on held-out queries, and the 99 % interval of its gain lies above zero",
    "small gain": "high that a repair helps, as it won on held-out queries; but by less than the threshold asks",
    "no cure": "moderate: the number lies beyond its threshold, but nothing that was tried against it has helped",
    "too few": "moderate: the number lies beyond its threshold; too few queries tell if it harms or a repair helps",
    "untried": "moderate: the number lies beyond its threshold; whether a repair helps was not tried",
    "harmless": "moderate: the number lies beyond its threshold, but no answer is shown to be found worse for it",
    "lost": "high: all of the 95 % interval of what the cut-off loses lies beyond the threshold",
    "lost by estimate": "moderate: what the cut-off loses lies beyond the threshold, but not all of its 95 % interval",
    "few texts": "moderate: a few texts carry the number; without them it is less serious",
    "between texts": "moderate: measured between texts, and queries score otherwise: ask with yours (--queries)",
    "declared": "a sign: read from what the model declares, not measured",
}
# Halves of texts ask in the words of the texts, as users seldom do: what wins there may not win for them.
SELF_MADE: Mapping[Basis, str] = {
    "trial": "moderate: the repair won on self-made queries, and the 99 % interval of its gain lies above zero; ask "
    "with queries of your own (--queries) before you change the index",
    "small gain": "moderate: a repair won on self-made queries, but by less than the threshold asks; ask with queries "
    "of your own (--queries) before you change the index",
}
_OF_KEEPING = "no number lies beyond its threshold"
_OF_LITTLE = "none: most questions could not be answered"
_OF_CHANGE = "moderate: each of these answers has its own evidence, the sum of them none"


def answer(subject: Subject, answers: Sequence[Answer]) -> Answer:
    """What comes first of all that the answers ask for, with its command, cost and certainty."""
    open_answers, asked = ranked(answers), subject.queries is not None
    # Of vectors alone nobody expects what only tokens tell: such questions name their door, and count as not asked.
    within = [each for each in answers if subject.collection is None or QUESTIONS[each.key].needs == "vectors"]
    judged = judge(within, subject.thresholds)
    action, sentence, sure = (
        _first(open_answers, answers, asked=asked) if open_answers else _keep(subject, answers, within)
    )
    if (command := _naming_reference(subject, open_answers, action)) is not None:
        action = replace(action, command=command)
    measured, left = _measured(answers)
    if _little(within) and open_answers:
        sentence = f"{sentence} {_how_little(answers, within)}"
    elif open_answers and left:
        sentence = f"{sentence} Not answered: {_numbers(left)}."
    if command is not None:
        sentence = (
            f"{sentence} Whether the vectors are those of their model is told once it is named (--reference MODEL)."
        )
    evidence = (
        f"{len(measured)} of {len(answers)} questions could be answered on these {_items(subject)}.",
        *(f"{_step(each)} ({certainty(each, asked=asked)})." for each in open_answers if each.action),
        *(f"{each.number}. {each.verdict.sentence}" for each in left),
    )
    numbers = {"decision": action.kind, "decision_command": action.command, "decision_cost": action.cost}
    drawn = standings(answers, subject.thresholds)
    return Answer(
        "decision",
        replace(judged, sentence=sentence, evidence=evidence),
        {**numbers, "certainty": sure},
        action,
        tables={"actions": _table(open_answers, asked=asked)},
        draw={"decision": lambda: standings_figure(drawn)} if drawn else {},
    )


def _naming_reference(subject: Subject, open_answers: Sequence[Answer], action: Action) -> str | None:
    """For vectors with texts, where the first step is no repair of rows: hold them against the model that made them."""
    held = subject.collection
    if held is None or held.texts is None or subject.reference is not None:
        return None
    if open_answers:
        first = open_answers[0]
        if action.command is not None or (first.verdict.level == "repair" and first.key != "scores"):
            return None
    return subject.named.command("audit", reference="MODEL")


def judge(answers: Sequence[Answer], thresholds: Mapping[str, float]) -> Verdict:
    """As serious as the most serious answer; one that could not be asked only counts where most could not.

    The answers have been held against their thresholds, so that none is left to go by.
    """
    level = worst_level([each.verdict for each in answers])
    count = sum(map(_asks, ranked(answers)))
    return Verdict(level if level != "unchecked" or _little(answers) else "ok", value=float(count))


def _asks(of: Answer) -> bool:
    """Does an open answer ask for something? One that says to keep what is there is only to be watched."""
    return of.action is None or of.action.kind != "keep"


def ranked(answers: Sequence[Answer]) -> list[Answer]:
    """The answers that are open: most serious first, then what is cheapest to do, then by number.

    A wrong pooling comes before everything else, as all other numbers describe the right one, and so do stored vectors
    that must be made anew, as all other numbers describe these. Duplicates come next, as they are in all other numbers.
    Then comes what surely makes the texts anew: a repair is learnt from them.
    """

    def place(each: Answer) -> tuple[int | bool, ...]:
        kind = KINDS.index(each.action.kind) if each.action else len(KINDS)
        stored = _renews(each) != "vectors"
        before = each.key != "pooling", stored, kind != KINDS.index("merge"), not _renews(each)
        return -LEVELS.index(each.verdict.level), *before, kind, each.number

    return sorted((each for each in answers if each.verdict.at_least("watch")), key=place)


def _renews(of: Answer) -> str:
    """What the step of an answer surely makes anew, of all that the others were measured on."""
    return "" if of.action is None else of.action.renews


def certainty(of: Answer, *, asked: bool) -> str:
    """How sure the step of an answer is, in words; `asked`: trials searched with the user's own queries."""
    if of.basis is None:
        return _OF_KEEPING
    return CERTAINTY[of.basis] if asked else SELF_MADE.get(of.basis, CERTAINTY[of.basis])


def _step(of: Answer) -> str:
    kind, step = ("repair", "look at this answer") if of.action is None else (of.action.kind, of.action.step)
    return f"{of.number}. {of.verdict.level}, {kind}: {step}"


def _measured(answers: Sequence[Answer]) -> tuple[list[Answer], list[Answer]]:
    """The answers that tell something, and the others."""
    measured = [each for each in answers if each.verdict.level != "unchecked"]
    return measured, [each for each in answers if each.verdict.level == "unchecked"]


def _little(answers: Sequence[Answer]) -> bool:
    """Could fewer than half of the questions be answered?"""
    return 2 * len(_measured(answers)[0]) < len(answers)


def _how_little(answers: Sequence[Answer], within: Sequence[Answer]) -> str:
    """How many questions could be answered, and why the first of those `within` reach could not."""
    measured, left = _measured(answers)[0], _measured(within)[1]
    sentence = left[0].verdict.sentence
    applies = not sentence.startswith(NOT_APPLICABLE)
    why = f": {sentence}" if applies else f", because {sentence.removeprefix(NOT_APPLICABLE)}"
    return (
        f"Only {len(measured)} of {len(answers)} questions could be answered here; question {left[0].number} "
        f"could not{why}"
    )


def _items(subject: Subject) -> str:
    """What was looked at: texts, or vectors whose texts are not known."""
    return "vectors" if subject.collection is not None and subject.collection.texts is None else "texts"


def _keep(subject: Subject, answers: Sequence[Answer], within: Sequence[Answer]) -> tuple[Action, str, str]:
    items = _items(subject)
    texts = f"this one {items[:-1]}" if len(subject) == 1 else f"these {len(subject):,} {items}"
    if _little(within):
        action = Action("undecided", "audit more texts, or the model itself, before deciding", None, "another audit")
        return (
            action,
            f"Too little to tell, and nothing to repair found on {texts}. {_how_little(answers, within)}",
            _OF_LITTLE,
        )
    action = Action("keep", "keep the model and the chunks", subject.command("audit", fail_on="watch"), "nothing")
    measured, left = _measured(within)
    beyond = [each for each in answers if all(each is not other for other in within)]
    rests = [f"{len(measured)} of {len(answers)} answers are ok"]
    if left:
        rests.append(f"{_numbers(left)} could not be answered")
    if beyond:
        rests.append(f"{_numbers(beyond)} {'needs' if len(beyond) == 1 else 'need'} the model")
    return action, f"Keep {subject.card.name} as it is: nothing to repair on {texts} ({_listed(rests)}).", _OF_KEEPING


def _first(open_answers: Sequence[Answer], answers: Sequence[Answer], *, asked: bool) -> tuple[Action, str, str]:
    """The first step: that of the first answer, or another model where many of all `answers` are to be repaired."""
    first = open_answers[0]
    action = first.action or Action("repair", "look at this answer", None, "not known")
    broken = [each for each in open_answers if each.verdict.level == "repair"]
    sure = certainty(first, asked=asked)
    # Numbers of wrong vectors, or of texts that repeat each other or are cut off, say nothing against the model.
    if len(broken) >= CHANGE_FROM and first.key != "pooling" and action.kind != "merge" and not action.renews:
        sure = _OF_CHANGE
        action = Action(
            "change",
            f"try another model: {len(broken)} of {len(answers)} answers ask for a repair",
            None,
            "encode all texts with the other model, audit it, and set both side by side with `poolscope compare`",
        )
    head, _ = _WORDS[action.kind]
    others = [each for each in open_answers if each is not first]
    if first.verdict.level == "watch":
        things = f"one thing, {_number(first)}" if not others else f"{len(open_answers)} things; first {_number(first)}"
        head = f"Keep the model, and watch {things}"
    steps = _also(others)
    rest = (f" Also open: {steps}." if steps else "") + _passing(open_answers)
    return action, f"{head}: {action.step}. Cost: {action.cost}. How sure? {sure[:1].upper()}{sure[1:]}.{rest}", sure


# What to do, by kind: as the first step, and among others.
_WORDS = {
    "configure": ("Put this right first", "put something right"),
    "merge": ("Clean the texts first", "clean the texts"),
    "repair": ("Repair first", "try a repair"),
    "re-chunk": ("Re-chunk first", "cut the texts anew"),
    "change": ("Change the model", "try another model"),
    "undecided": ("Ask again first", "look closer"),
    "keep": ("Keep the model", "nothing to change"),
}


def _number(of: Answer) -> str:
    return f"question {of.number}" + ("" if of.action is None else f" ({_WORDS[of.action.kind][1]})")


def _also(answers: Sequence[Answer]) -> str:
    """What else is open, by what to do, in a few words each; without what only has to be watched."""
    steps: dict[str, list[str]] = {}
    for each in filter(_asks, answers):
        step = "look at it" if each.action is None else _WORDS[each.action.kind][1]
        steps.setdefault(step, []).append(f"{each.number} {each.title or each.key}")
    return "; ".join(f"{step} ({', '.join(named)})" for step, named in steps.items())


def _passing(open_answers: Sequence[Answer]) -> str:
    """On what the other numbers were measured, where a step makes that anew and they ask for something too."""
    renewing = [each for each in open_answers if _renews(each)]
    runtime = [each for each in open_answers if _of_runtime(each)]
    if not any(_asks(each) for each in open_answers if not _renews(each) and not _of_runtime(each)):
        return ""
    sentence = ""
    if runtime:
        sentence = (
            f" The other numbers are of vectors as the model declares them, not of those of your runtime, which gives "
            f"such vectors after {_numbers(runtime)}."
        )
    if renewing:
        sentence += (
            f" The other numbers hold for the {_RENEWED[_renews(renewing[0])]}, and change with {_numbers(renewing)}: "
            f"what they ask for, such as a cut-off or a repair, has to be tried again after that."
        )
    return sentence


def _of_runtime(of: Answer) -> bool:
    """Was the pooling of a runtime compared? All other answers take the vectors of its reference."""
    return of.key == "pooling" and of.basis != "declared"


# What the other numbers were measured on, by what a step makes anew.
_RENEWED = {"texts": "texts as they are", "vectors": "vectors as they are"}


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, and {parts[-1]}"


def _numbers(answers: Sequence[Answer]) -> str:
    names = [str(each.number) for each in answers]
    return f"question {names[0]}" if len(names) == 1 else f"questions {', '.join(names[:-1])} and {names[-1]}"


def _table(open_answers: Sequence[Answer], *, asked: bool) -> pa.Table:
    kept = [each for each in open_answers if each.action is not None]
    columns: dict[str, Any] = {
        "question": pa.array([each.number for each in kept], pa.int64()),
        "level": pa.array([each.verdict.level for each in kept], pa.string()),
        "certainty": pa.array([certainty(each, asked=asked) for each in kept], pa.string()),
    }
    for name in ("kind", "step", "command", "cost"):
        columns[name] = pa.array([getattr(each.action, name) for each in kept], pa.string())
    return pa.table(columns)


QUESTION = Question(
    "decision",
    title="What first",
    words="Keep, repair, re-chunk or change the model: what first, what does it cost, how sure?",
    page="audit.md#what-comes-first-question-10",
    number_name="answers that ask for something",
    number_format=".0f",
    answer=answer,
    judge=judge,
    from_answers=True,
    tables={
        "actions": TableView(
            "What to do, in order",
            10,
            {
                "question": "Question",
                "level": "Level",
                "step": "Step",
                "cost": "Cost",
                "certainty": "How sure",
            },
            below={"step": "command"},
        )
    },
)
