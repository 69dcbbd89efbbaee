"""An audit on a screen: what it is doing while it runs, and then its answers as text.

Findings come first, one line an answer, the decision in a frame, and the command that comes next.
The command line prints it in colour, `print(audit)` without.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from poolscope.auditing.question import NOT_APPLICABLE, QUESTIONS, Answer, Question
from poolscope.auditing.result import Audit
from poolscope.files import text_of, user_cache_folder, write_json
from poolscope.lines import command_lines, paragraphs, short, wrapped
from poolscope.verdicts import LEVEL_COLOURS, LEVELS, number_text

if TYPE_CHECKING:
    from rich.text import Text

    from poolscope.encoders import Progress


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
    from rich.text import Text

    width = min(max(console.width, _LEAST), _MOST)
    for part in screen(audit, width, details=details, more=more):
        # Lines are made already; a longer one is a command or a path, which must stay whole.
        console.print(part, soft_wrap=isinstance(part, Text), width=None if isinstance(part, Text) else width)


def as_text(audit: Audit, *, width: int = 100, details: bool = False) -> str:
    """An audit as plain text, as the command line shows it; where more is found is said in Python."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, markup=False, emoji=False)
    print_screen(audit, console, details=details, more=_MORE_IN_PYTHON)
    return str(console.file.getvalue()).rstrip()  # type: ignore[attr-defined]


# -- while it runs: its phases by name, each answer when it is known, and about how long to go ------------------------
#
# In a terminal the lines stand below each other and give way to the result; in a notebook one line is written over; and
# elsewhere each phase is a line.

OPENING, ENCODING = "opening the model", "encoding"
_FILE, _PACES = "pace.json", 50  # the paces of so many models are kept
_PRIOR = 1.0  # second: a question of a blink that takes three does not make an hour of the rest
_CHARACTERS = 4.0  # a token, in English
_BLINK = 1e-3  # seconds of the phase that are left when all batches are there


def _typical() -> dict[str, Any]:
    """Of a model that was never audited here: that of the embedded one on two cores, until its encoding says more."""
    seconds = {OPENING: 5.0, ENCODING: 16.0} | {each.key: each.seconds for each in QUESTIONS.values() if each.seconds}
    return {"texts": 1000, "characters": 640_000, "seconds": seconds}


class Pace:
    """How long the phases took the last time that this model was audited on this machine, scaled to other texts.

    Encoding goes with the characters; the questions, most of whose time are trials of a share of the texts, with the
    square root of their number. A question that was not asked the last time is taken for one like the others, and a
    model that was never audited here for a typical one. It is a guess, and the screen says "about".
    """

    def __init__(self, last: Mapping[str, Any], texts: int, characters: int) -> None:
        last = last if last.get("seconds") else _typical()
        self._seconds = dict(last["seconds"])
        self._longer = characters / (last.get("characters") or characters or 1)
        self._more = (texts / (last.get("texts") or texts or 1)) ** 0.5

    def of(self, phase: str) -> float:
        """Seconds that a phase may take."""
        seconds = self._seconds.get(phase)
        if seconds is None:
            questions = [value for name, value in self._seconds.items() if name in QUESTIONS]
            seconds = sum(questions) / max(len(questions), 1)
        return float(seconds * {OPENING: 1.0, ENCODING: self._longer}.get(phase, self._more))

    @classmethod
    def last(cls, model: str, texts: int, characters: int) -> Pace:
        """That of the last audit of the model; a guess where there was none."""
        known = _kept().get(model)
        return cls(known if isinstance(known, dict) else {}, texts, characters)

    @staticmethod
    def keep(model: str, texts: int, characters: int, seconds: Mapping[str, float]) -> None:
        """For the next audit of the model; nothing is said where it cannot be written.

        What did not take its time, because it came from the cache, is kept as it was.
        """
        last = Pace.last(model, texts, characters)
        known = {name: value for name, value in _kept().items() if name != model}
        spent = {name: round(s, 3) for name, s in {ENCODING: last.of(ENCODING), **seconds}.items()}
        entry = {"texts": texts, "characters": characters, "seconds": spent}
        with suppress(Exception):
            write_json(user_cache_folder() / _FILE, dict([*known.items(), (model, entry)][-_PACES:]))


def _kept() -> dict[str, Any]:
    try:
        content = json.loads(text_of(user_cache_folder() / _FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


@dataclass
class Count:
    """How far encoding is: texts of an earlier run (`kept`), those done, and their tokens."""

    texts: int = 0
    characters: int = 0
    kept: int = 0
    done: int = 0
    tokens: int = 0

    def add(self, texts: int, tokens: int) -> None:
        """A batch; without tokens it was there already."""
        self.kept += 0 if tokens else texts
        self.done += texts
        self.tokens += tokens

    @property
    def share(self) -> float:
        """Of the work, what is done; 0 before the first batch.

        The longest texts come first, so that the texts to come are shorter than those done: how much shorter, the
        characters tell, within bounds that hold for writing of fewer characters a token, and for texts cut off.

        >>> count = Count(texts=100, characters=40_000)
        >>> count.add(10, 2000)  # 200 tokens each, of about 10,000
        >>> count.share
        0.2
        """
        new, coming = self.done - self.kept, self.texts - self.done
        if new <= 0:
            return 0.0
        same = coming * self.tokens / new  # tokens to come, if the texts are as long as those done
        typical = self.characters / _CHARACTERS * (new + coming) / self.texts - self.tokens
        return self.tokens / (self.tokens + min(max(typical, same / 4), same))

    def __str__(self) -> str:
        return f"{self.done:,} of {self.texts:,} texts"


class Watch:
    """What an audit tells while it runs. This one listens and says nothing; others show it.

    `begin` comes when the texts are read, `opened` with every phase before the questions, `encoded` after every batch,
    `asking` before and `answered` after a question.
    """

    def opened(self, phase: str) -> None:
        """A phase before the questions has begun: OPENING, ENCODING or another, in words."""

    def planned(self, sentences: Sequence[str]) -> None:
        """The corpus is large: what will be done with all texts, what with some, and what it will take."""

    def begin(self, model: str, texts: int, characters: int) -> None:
        """The texts are read; `model` is the name that it was asked for by."""

    def encoded(self, texts: int, tokens: int) -> None:
        """A batch was encoded; 0 tokens: texts that needed no encoding."""

    def expect(self, keys: Sequence[str], model: str, texts: int) -> None:
        """These questions will be asked, about so many texts."""

    def asking(self, question: Question) -> None:
        """A question is being answered."""

    def answered(self, answer: Answer) -> None:
        """It is."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None


class _Batches(Watch):
    """A function of the caller, which is called after every batch."""

    def __init__(self, call: Progress) -> None:
        self._call = call

    def encoded(self, texts: int, tokens: int) -> None:
        """Hand it on."""
        self._call(texts, tokens)


def as_watch(progress: bool | Progress | Watch | None) -> Watch:
    """What the caller of an audit gave, as a watch: True is a bar, a function one for batches."""
    if isinstance(progress, Watch):
        return progress
    return Bar() if progress is True else _Batches(progress) if callable(progress) else Watch()


class PlanOnly(Watch):
    """A watch for where nothing is drawn, such as the log of a job: the plan, and once a minute how far encoding is."""

    def __init__(self, every: float = 60.0) -> None:
        self._count, self._every = Count(), every  # seconds between two lines
        self._began = self._said = time.perf_counter()

    def planned(self, sentences: Sequence[str]) -> None:
        """A line each."""
        for sentence in sentences:
            print(sentence, file=sys.stderr, flush=True)

    def begin(self, model: str, texts: int, characters: int) -> None:
        """Know how many there are."""
        self._count = Count(texts, characters)

    def opened(self, phase: str) -> None:
        """Know since when they are encoded."""
        self._began = self._said = time.perf_counter()

    def encoded(self, texts: int, tokens: int) -> None:
        """A line a minute."""
        self._count.add(texts, tokens)
        now, share = time.perf_counter(), self._count.share
        if now - self._said >= self._every and share:
            left = (now - self._began) * (1 / share - 1)
            print(f"encoding: {self._count}, about {duration(left)} left", file=sys.stderr, flush=True)
            self._said = now


class Bar(Watch):
    """A watch that draws: on a terminal through rich, in a notebook over one line, elsewhere a line a phase."""

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console

        self._console = console or Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._answers: list[Answer] = []
        self._expected = list(QUESTIONS)
        self._phase, self._began, self._phase_began = "starting", time.perf_counter(), time.perf_counter()
        self._key: str | None = None
        self._count = Count()
        self._pace: Pace | None = None  # until the texts are read
        self._taken: dict[str, float] = {}  # seconds of the phases that have ended and were not taken from the cache
        self._live: Any = None
        self._notebook = not self._console.is_terminal and _in_notebook()

    # -- what is told ---------------------------------------------------------------------------------------------

    def opened(self, phase: str) -> None:
        """Name a phase."""
        self._turn(phase, phase if phase in (OPENING, ENCODING) else None)

    def _turn(self, phase: str, key: str | None) -> None:
        """The last phase has ended, this one begins."""
        now = time.perf_counter()
        if self._key is not None and (self._key != ENCODING or self._count.tokens):
            self._taken[self._key] = now - self._phase_began
        self._phase, self._phase_began, self._key = phase, now, key
        self._show()

    def planned(self, sentences: Sequence[str]) -> None:
        """Lines that stay."""
        for sentence in sentences:
            self._console.print(sentence)

    def begin(self, model: str, texts: int, characters: int) -> None:
        """Know how much there is to do."""
        self._count, self._pace = Count(texts, characters), Pace.last(model, texts, characters)

    def encoded(self, texts: int, tokens: int) -> None:
        """Move the bar."""
        self._count.add(texts, tokens)
        self._show(same=True)

    def expect(self, keys: Sequence[str], model: str, texts: int) -> None:
        """Know how many there are, and of how many texts: of very many only a draw is asked about."""
        self._expected = list(keys)
        if texts != self._count.texts:
            self._pace, self._taken = Pace.last(model, texts, 0), {}

    def asking(self, question: Question) -> None:
        """Name the question."""
        self._turn(question.words, question.key)

    def answered(self, answer: Answer) -> None:
        """Keep the answer on the screen."""
        self._answers.append(answer)
        self._show(same=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(self, console=self._console, transient=True, refresh_per_second=4)
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.__exit__(*error)
        elif self._notebook:
            sys.stderr.write("\r" + " " * 100 + "\r")

    def _show(self, *, same: bool = False) -> None:
        """Where rich does not draw by itself: a line; within one phase only in a notebook, over the last one."""
        if self._notebook:
            sys.stderr.write(f"\r{self.status(99):<99}")
            sys.stderr.flush()
        elif self._live is None and not same:
            print(self._phase, file=sys.stderr, flush=True)

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from rich.text import Text

        for answer in self._answers[-max(options.max_height - 3, 1) :]:
            level = Text(f"{answer.verdict.level:<9}", style=LEVEL_COLOURS[answer.verdict.level])
            yield level + line(answer, options.max_width - 10)
        yield Text(self.status(options.max_width - 1))

    def status(self, width: int) -> str:
        """The phase, how far it is, and about how long everything will still take."""
        parts = [f"{time.perf_counter() - self._began:.0f} s"]
        if self._key == ENCODING:
            parts.insert(0, str(self._count))
            if self._count.tokens:
                parts.insert(1, f"{self._count.tokens / (time.perf_counter() - self._phase_began):,.0f} tokens/s")
        elif self._key is not None and self._key != OPENING:
            parts.insert(0, f"question {len(self._answers) + 1} of {len(self._expected)}")
        tail = " · ".join([*parts, *self._left_in_words()])
        return f"{short(self._phase, max(width - len(tail) - 3, 8))} · {tail}"

    def _left_in_words(self) -> list[str]:
        """About how long to go; where a phase takes longer than expected, that, and how long what comes after it."""
        if self._pace is None:
            return ["time left known soon"]
        phase, others = self.left(self._pace)
        if phase:
            return [f"about {duration(phase + others)} left"]
        after = [f"about {duration(others)} after this"] if others else []
        return after if phase is None else ["longer than expected", *after]

    def left(self, pace: Pace) -> tuple[float | None, float]:
        """Seconds until the end of this phase, and of those to come.

        They are as the last time, times how much longer the phases up to now took than then; encoding is measured as
        it goes. 0: this phase takes longer than expected, None: nobody knows how long it takes.
        """
        gone = time.perf_counter() - self._phase_began
        taken, usual = dict(self._taken), None if self._key is None else pace.of(self._key)
        if self._key == ENCODING and self._count.share:
            usual = taken[ENCODING] = max(gone / self._count.share, gone + _BLINK)
        elif self._key is not None and usual is not None and gone > usual:
            taken[self._key] = gone
        taken.pop(OPENING, None)  # it says nothing of what follows
        slower = (sum(taken.values()) + _PRIOR) / (sum(map(pace.of, taken)) + _PRIOR)
        if usual is not None and self._key not in (OPENING, ENCODING):
            usual *= slower
        ended = {*self._taken, self._key, *(answer.key for answer in self._answers)}
        coming = [key for key in self._expected if key not in ended]
        others = slower * sum(map(pace.of, coming))
        if self._key == OPENING:
            others += pace.of(ENCODING)
        return None if usual is None else max(usual - gone, 0.0), others


def duration(seconds: float) -> str:
    """A time in the unit that fits it.

    >>> duration(0.2), duration(600), duration(9000)
    ('1 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _in_notebook() -> bool:
    """Is this a kernel that shows what is written over a line?"""
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
