"""Thresholds: one table with reasons, settable from Python, from files and one by one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit_data import ASKED
from poolscope.auditing.question import QUESTIONS, Thresholds, defaults, read_thresholds
from poolscope.errors import InputError
from poolscope.numbers.intervals import Interval


def interval(low: float, high: float) -> Interval:
    return Interval(low, high, 0.95, "texts", "by hand")


def test_every_threshold_has_a_reason_and_a_question_and_stands_once():
    names = [threshold.name for question in QUESTIONS.values() for threshold in question.thresholds]
    assert len(set(names)) == len(names)
    for question in QUESTIONS.values():
        assert bool(question.thresholds) != question.from_answers
        for threshold in question.thresholds:
            assert threshold.why.endswith(".")
            assert len(threshold.why) > 30


def test_the_page_lists_every_threshold_as_it_is():
    pages = {
        name: (Path(__file__).parents[2] / "docs" / name).read_text("utf-8") for name in ("audit.md", "vectors.md")
    }
    for key, question in QUESTIONS.items():
        page, home = ("audit.md", str(ASKED.index(key) + 1)) if key in ASKED else ("vectors.md", f"`{key}`")
        for threshold in question.thresholds:
            assert f"| `{threshold.name}` | {threshold.value:g} | {home} | {threshold.why} |" in pages[page]


def judged(verdict):
    return verdict.level, verdict.basis


def test_repair_needs_the_whole_interval_and_watch_the_estimate():
    limits = Thresholds()
    assert judged(limits.judge("cut", 0.005)) == ("ok", None)
    assert judged(limits.judge("cut", 0.05, interval(0.005, 0.08))) == ("watch", "estimate")
    assert judged(limits.judge("cut", 0.05, interval(0.02, 0.08))) == ("watch", "interval")
    assert judged(limits.judge("cut", 0.2, interval(0.05, 0.3))) == ("watch", "interval")
    assert judged(limits.judge("cut", 0.2, interval(0.1, 0.3))) == ("repair", "interval")
    assert judged(limits.judge("cut", 0.2)) == ("repair", "no interval")
    assert judged(limits.judge("antihub", 5.0)) == ("watch", "no interval")  # there is no antihub_repair


def test_what_is_counted_rests_on_the_count():
    limits = Thresholds()
    assert judged(limits.count("duplicate", 0.04)) == ("ok", None)
    assert judged(limits.count("duplicate", 0.05)) == ("watch", "counted")
    assert judged(limits.count("duplicate", 0.3)) == ("repair", "counted")


def test_single_settings_win_over_files_and_files_over_defaults(tmp_path):
    (tmp_path / "t.toml").write_text("cut_watch = 0.02\nhub_watch = 0.5\n")
    (tmp_path / "t.json").write_text(json.dumps({"cut_watch": 0.02, "hub_watch": 0.5}))
    for name in ("t.toml", "t.json"):
        found = read_thresholds(tmp_path / name, ["hub_watch = 0.25"])
        assert found.changed == {"cut_watch": 0.02, "hub_watch": 0.25}
        assert found["cut_repair"] == defaults()["cut_repair"]
    assert read_thresholds().changed == {}


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("nonsense = 1\n", "received nonsense; known are"),
        ("cut_watch = 'a lot'\n", "threshold cut_watch: received 'a lot'"),
        ("cut_watch = true\n", "threshold cut_watch"),
        ("cut_watch = inf\n", "threshold cut_watch"),
        ("cut_watch =\n", "cannot be read"),
    ],
)
def test_wrong_files_say_what_is_wrong(tmp_path, content, match):
    path = tmp_path / "t.toml"
    path.write_text(content)
    with pytest.raises(InputError, match=match):
        read_thresholds(path)


def test_wrong_names_and_forms_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_thresholds(tmp_path / "absent.toml")
    with pytest.raises(InputError, match=r"'\.yaml'"):
        read_thresholds(tmp_path / "t.yaml")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(InputError, match="holds list"):
        read_thresholds(tmp_path / "list.json")
    with pytest.raises(InputError, match="NAME=VALUE"):
        read_thresholds(settings=["cut_watch"])
    with pytest.raises(InputError, match="received list; allowed is a mapping"):
        Thresholds([1])
    with pytest.raises(InputError, match="received 3; known are"):
        Thresholds({3: 1.0})
