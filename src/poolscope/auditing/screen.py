"""An audit as text: findings first, one line an answer, the decision in a frame, and the command that comes next.

The command line prints it in colour, `print(audit)` without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from poolscope.auditing.question import NOT_APPLICABLE, QUESTIONS, Answer
from poolscope.auditing.result import Audit
from poolscope.lines import command_lines, paragraphs, short, wrapped
from poolscope.verdicts import LEVEL_COLOURS, LEVELS, number_text

if TYPE_CHECKING:
    from rich.text import Text

# The levels as headings, as the page writes them.
HEADINGS = {"repair": "Repair", "watch": "Watch", "unchecked": "Unchecked", "ok": "OK"}
_LEAST, _MOST = 40, 120  # columns: narrower breaks words, wider lines are hard to follow
# Columns of the number of a question, of its title, of what was measured, and of the words for that at least.
_NUMBER, _TITLE, _VALUE, _WORDS = 4, 18, 7, 8
# Where more is found than one line an answer: for a shell, and for Python.
_MORE = "Floors, whole sentences and what they rest on: --details, or the page."
_MORE_IN_PYTHON = (
    'Floors, whole sentences and what they rest on: audit["scores"], or the page that audit.save("folder") writes.'
)


def ordered(answers: Sequence[Answer]) -> list[tuple[str, list[Answer]]]:
    """The answers by level, the most serious first; of one level in their order. The decision is not among them."""
    others = [each for each in answers if not is_decision(each)]
    groups = [(level, [each for each in others if each.verdict.level == level]) for level in reversed(LEVELS)]
    findings = sorted(groups, key=lambda group: group[0] == "ok")  # what could not be checked comes before what is fine
    return [(level, group) for level, group in findings if group]


def is_decision(answer: Answer) -> bool:
    """Is it made of the other answers?"""
    return answer.key in QUESTIONS and QUESTIONS[answer.key].from_answers


def screen(audit: Audit, width: int, *, details: bool = False, more: str = _MORE) -> Iterator[Any]:
    """What to print, part by part (rich), for a screen of `width` columns; `more` says where the rest is found."""
    from rich.text import Text

    width = min(max(width, _LEAST), _MOST)
    yield Text(str(audit.model["name"]), style="bold")
    yield Text(wrapped(audit.extent, width))
    for note in audit.corpus.get("notes", ()):
        yield Text(wrapped(note, width, "  "), style="dim")
    for level, answers in ordered(audit.answers):
        yield Text(f"\n{HEADINGS[level]}", style=f"bold {LEVEL_COLOURS[level]}")
        for answer in answers:
            yield _details(answer, width) if details else line(answer, width)
    yield Text("")
    for answer in audit.answers:
        if is_decision(answer):
            yield from _decision(answer, width)
    if not details:
        yield Text(wrapped(more, width), style="dim")


def line(answer: Answer, width: int) -> Text:
    """One answer in one line: its number, title, and what was measured, as much of it as fits."""
    from rich.text import Text

    head = f"{answer.number:>{_NUMBER}}  {short(answer.title or answer.key, _TITLE):<{_TITLE}} "
    return Text(head + _measured(answer, width - len(head)))


def _measured(answer: Answer, room: int) -> str:
    """The number, what it is and its interval, its floor where there is room; the reason where there is no number."""
    verdict, form = answer.verdict, answer.number_format or ".3g"
    if verdict.value is None:
        return short(verdict.sentence.removeprefix(NOT_APPLICABLE), room)
    value, interval, floor = f"{format(verdict.value, form):>{_VALUE}}  ", verdict.interval, verdict.floor
    ends = "" if interval is None else f" [{interval.low:{form}}, {interval.high:{form}}]"
    # The interval belongs to the number: where both do not fit, the words for it give way.
    told = value + short(answer.number_name, max(room - len(value) - len(ends), _WORDS)) + ends
    beside = "" if floor is None else f" (floor {floor:{form}})"
    return short(told + beside if len(told) + len(beside) <= room else told, room)


def _details(answer: Answer, width: int) -> Text:
    """Everything that is said of an answer: its number, its sentence, its evidence, and what to do."""
    from rich.text import Text

    indent = " " * (_NUMBER + 2)
    number = number_text(answer.verdict, answer.number_format or ".3g")
    title = Text(f"{answer.number:>{_NUMBER}}  {answer.title or answer.key}\n", style="bold")
    parts = []
    if number:
        parts.append(wrapped(f"{answer.number_name} {number}", width, indent))
    parts.append(wrapped(answer.verdict.sentence, width, indent))
    parts += [wrapped(f"· {sentence}", width, indent, hanging="  ") for sentence in answer.verdict.evidence]
    if answer.action is not None:
        parts.append(wrapped(f"→ {answer.action.step} ({answer.action.cost})", width, indent, hanging="  "))
        if answer.action.command is not None:
            parts.append(command_lines(answer.action.command, width))
    return title.append("\n".join(parts) + "\n", style="not bold")


def _decision(answer: Answer, width: int) -> Iterator[Any]:
    """The decision in a frame of its level's colour; its command alone in a line that is not broken."""
    from rich.panel import Panel
    from rich.text import Text

    level = answer.verdict.level
    step, *others = paragraphs(answer.verdict.sentence)
    words = Text(wrapped(step, width - 4), style=LEVEL_COLOURS[level])
    for part in others:
        words.append(f"\n{wrapped(part, width - 4)}", style="default")
    yield Panel(
        words, title=f"{answer.title} · {level}", title_align="left", style="", border_style=LEVEL_COLOURS[level]
    )
    if answer.action is not None and answer.action.command is not None:
        yield Text("Next", style="bold")
        yield Text(command_lines(answer.action.command, width), style=LEVEL_COLOURS[level])


def print_screen(audit: Audit, console: Any, *, details: bool = False, more: str = _MORE) -> None:
    """Print an audit on a console (rich)."""
    width = min(max(console.width, _LEAST), _MOST)
    for part in screen(audit, width, details=details, more=more):
        from rich.text import Text

        # Lines are made already; a longer one is a command or a path, which must stay whole.
        console.print(part, soft_wrap=isinstance(part, Text), width=None if isinstance(part, Text) else width)


def as_text(audit: Audit, *, width: int = 100, details: bool = False) -> str:
    """An audit as plain text, as the command line shows it; where more is found is said in Python."""
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, markup=False, emoji=False)
    print_screen(audit, console, details=details, more=_MORE_IN_PYTHON)
    return str(console.file.getvalue()).rstrip()  # type: ignore[attr-defined]
