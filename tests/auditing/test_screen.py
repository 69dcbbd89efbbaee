"""The screen of an audit: what stands first, what is left out where there is no room, and what is never broken."""

from __future__ import annotations

import io
import types

import pytest
from rich.console import Console

from poolscope import audit
from poolscope.auditing.question import QUESTIONS, Action, Answer
from poolscope.auditing.result import Audit
from poolscope.auditing.screen import ENCODING, HEADINGS, OPENING, Bar, Pace, Watch, as_text, duration, ordered
from poolscope.lines import short, wrapped
from poolscope.numbers.intervals import Interval
from poolscope.verdicts import Verdict

COMMAND = "poolscope chunk builtin:minilm 'a file with a long name.jsonl' --max-length 256 --output chunks.jsonl && a"


def answer(key: str, level: str, number: int, **parts: object) -> Answer:
    interval = Interval(0.0315, 0.0517, 0.95, "texts", "bootstrap")
    sentence = "Long texts look more alike: the mean cosine grows by 0.042 [0.0315, 0.0517] per doubling of the length."
    verdict = Verdict(level, sentence, 0.0416, interval, 0.00843, ("One more sentence with its numbers.",))
    question = QUESTIONS[key]
    return Answer(key, verdict, number=number, title=question.title, number_name=question.number_name, **parts)


@pytest.fixture(scope="module")
def result() -> Audit:
    levels = dict(zip(QUESTIONS, ["ok", "unchecked", "ok", "repair", "watch"] + ["ok"] * 20, strict=False))
    answers = [answer(key, level, n) for n, (key, level) in enumerate(levels.items(), 1)]
    last = answer("decision", "repair", len(answers), action=Action("re-chunk", "split", COMMAND, "much"))
    corpus = {"texts": 12, "source": "here.txt", "tokens": 120, "notes": ["12 of 13 texts selected."]}
    return Audit({"name": "org/model"}, corpus, (*answers[:-1], last), {}, {})


def test_findings_come_first_then_unchecked_then_ok(result):
    assert [level for level, _ in ordered(result.answers)] == ["repair", "watch", "unchecked", "ok"]
    lines = as_text(result).splitlines()
    places = [lines.index(HEADINGS[level]) for level in ("repair", "watch", "unchecked", "ok")]
    assert places == sorted(places)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("details", [False, True])
def test_nothing_is_broken_but_between_words_and_the_command_stands_alone(result, width, details):
    text = as_text(result, width=width, details=details)
    assert COMMAND in text.replace(" \\\n  ", " ").replace("&&\n", "&& ").splitlines()  # a shell joins its lines
    assert max(map(len, text.splitlines())) <= width
    joined = " ".join(text.replace("│", " ").split())
    assert joined.count(result.answers[0].verdict.sentence) == (len(result.answers) if details else 1)
    assert "[0.0315,\n" not in text  # never half on one line and half on the next


def test_one_line_an_answer_with_its_interval_and_its_floor_where_there_is_room(result):
    lines = [line for line in as_text(result, width=120).splitlines() if "0.0416  " in line]
    assert len(lines) == len(result.answers) - 1
    assert all("[0.0315, 0.0517]" in line for line in lines)
    assert any("(floor 0.00843)" in line for line in lines)
    narrow = [line for line in as_text(result, width=60).splitlines() if "0.0416  " in line]
    assert all("[0.0315, 0.0517]" in line for line in narrow)  # words give way before numbers do
    assert any("…" in line for line in narrow)
    assert not all("(floor" in line for line in narrow)
    evidence = result.answers[0].verdict.evidence[0]
    assert evidence in as_text(result, details=True)
    assert evidence not in as_text(result)


def test_print_is_the_screen_and_repr_is_short(result):
    assert str(result) == as_text(result)
    assert "audit.save(" in str(result)
    assert "--details" not in str(result)
    assert "\n" not in repr(result)


def test_lines():
    assert wrapped("up to 0.05 [0.01, 0.09] of it", 16).splitlines() == ["up to 0.05", "[0.01, 0.09] of", "it"]
    assert short("three whole words", 12) == "three whole…"
    assert short("unbreakablylong", 6) == "unbre…"


# -- while it runs ------------------------------------------------------------------------------------------------


def test_every_question_is_named_before_it_is_answered(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told: list[str] = []
    texts = [f"text number {k} about subject {k % 7}" for k in range(12)]

    class Told(Watch):
        def encoded(self, texts, tokens):
            told.append(ENCODING)

        def asking(self, question):
            told.append(f"? {question.key}")

        def answered(self, answer):
            told.append(f"! {answer.key}")

    measured = audit("builtin:wordllama", texts, trial_texts=0, cache=True, progress=Told())
    assert told[0] == ENCODING
    keys = [one.key for one in measured.answers]
    assert told[-2 * len(keys) :] == [f"{sign} {key}" for key in keys for sign in "?!"]
    pace = Pace.last("builtin:wordllama", 12, sum(map(len, texts)))
    assert all(pace.of(phase) >= 0 for phase in (OPENING, ENCODING, *keys))


@pytest.fixture
def paces(monkeypatch, tmp_path):
    """No audit was made on this machine yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""
    now = [100.0]
    monkeypatch.setattr("poolscope.auditing.screen.time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    return now


def test_the_bar_names_phases_and_tells_the_time_left_from_the_start(paces, clock):
    Pace.keep("known", 10, 100, {OPENING: 4, ENCODING: 20, **dict.fromkeys(QUESTIONS, 5)})
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    questions = 5 * len(QUESTIONS)
    with Bar(console) as bar:
        bar.begin("known", 10, 200)
        bar.opened(OPENING)
        assert f"about {duration(4 + 40 + questions)} left" in bar.status(99)  # twice the characters
        clock[0] += 5
        assert f"longer than expected · about {duration(40 + questions)} after this" in bar.status(99)
        bar.opened(ENCODING)
        assert f"about {duration(40 + questions)} left" in bar.status(99)
        clock[0] += 40
        bar.encoded(5, 25)  # half of them after the time of all: the questions will take longer too
        assert f"about {duration(40 + questions * 81 / 41)} left" in bar.status(99)
        bar.expect([*QUESTIONS, "one that was not asked the last time"], "known", 10)
        bar.asking(QUESTIONS["hubs"])
        assert QUESTIONS["hubs"].words in bar.status(99)
        assert f"about {duration(questions + 5)} left" in bar.status(99)  # encoding ended after its usual 40 s
        clock[0] += 30
        assert "longer than expected · about " in bar.status(99)
        bar.answered(answer("hubs", "watch", 9))
    assert QUESTIONS["hubs"].title in console.file.getvalue()


def test_a_model_that_was_never_audited_has_a_time_left_too(paces, clock):
    bar = Bar(Console(file=io.StringIO(), force_terminal=True))
    bar.expect(list(QUESTIONS), "ready clouds", 1000)
    bar.asking(QUESTIONS["scores"])
    before = bar.status(99)
    assert " left" in before
    clock[0] += 20
    assert "longer than expected" in bar.status(99)
    assert bar.status(99) != before


def test_what_comes_from_the_cache_does_not_change_what_encoding_takes(paces):
    Pace.keep("model", 10, 100, {ENCODING: 20.0, "hubs": 1.0})
    Pace.keep("model", 10, 200, {"hubs": 2.0})
    assert [Pace.last("model", 10, 200).of(phase) for phase in (ENCODING, "hubs")] == [40.0, 2.0]


def test_without_a_terminal_a_phase_is_a_line(capsys):
    with Bar(Console(file=io.StringIO())) as bar:
        bar.opened("opening the model")
        bar.encoded(1, 10)
        bar.asking(QUESTIONS["hubs"])
    assert capsys.readouterr().err.splitlines() == ["opening the model", QUESTIONS["hubs"].words]
