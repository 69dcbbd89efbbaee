"""The table of questions: one contract for all of them, and a question that another package adds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from audit_data import ASKED
from poolscope.auditing.question import QUESTIONS, Answer, Number, Question, Threshold, register
from poolscope.errors import InputError
from poolscope.metrics.base import METRICS

DOCS = Path(__file__).parents[2] / "docs"

TOY = '''
"""How many words has a text? A question from outside poolscope."""
import numpy as np
import pyarrow as pa
from poolscope.auditing.question import Action, Answer, Number, Question, TableView, Threshold, register
from poolscope.numbers.intervals import bootstrap_interval

def answer(subject):
    words = np.array([float(len(text.split())) for text in subject.texts])
    interval = bootstrap_interval(words)
    verdict = subject.thresholds.judge("toy_words", float(words.mean()), interval)
    return Answer(
        "toy",
        verdict,
        {"toy_words": float(words.mean()), "toy_words_interval": interval},
        Action("re-chunk", "write less", None, "a pen"),
        tables={"toy": pa.table({"id": subject.ids, "words": words})},
    )

register(
    Question(
        "toy",
        title="Wordiness",
        words="Do these texts say too much?",
        page="https://example.org/toy",
        number_name="words a text",
        answer=answer,
        thresholds=[Threshold("toy_words_watch", 3.0, "Nobody reads more than three words, as everybody knows.")],
        numbers=[Number("toy_words", "words of a text on average", headline=True)],
        tables={"toy": TableView("All words", 5, {"id": "Text", "words": "How many"})},
        judged_on="toy_words",
    )
)
'''

USE = """
import json, sys
from audit_data import bag_of_words, in_a_cone, topics
from poolscope.auditing.compare import compare
from poolscope.auditing.run import audit
from poolscope.research.correlate.model_records import read_audits

audits = [audit(model, topics(12), trial_texts=0) for model in (bag_of_words, in_a_cone)]
folders = [found.save(f"{sys.argv[1]}/{k}") for k, found in enumerate(audits)]
compared = compare(*folders)
lax = audit(bag_of_words, topics(12), trial_texts=0, thresholds={"toy_words_watch": 99})
print(json.dumps({
    "keys": [answer.key for answer in audits[0].answers],
    "levels": [found["toy"].verdict.level for found in (audits[0], lax)],
    "steps": audits[0].tables["actions"]["step"].to_pylist(),
    "differences": [row.number for row in compared.differences],
    "comparison": compared.to_html().count("Do these texts say too much?"),
    "correlated": list(read_audits(folders).headlines),
}))
"""


@pytest.fixture
def installed(tmp_path):
    """A folder like those in which packages are installed, with one that adds a question."""
    site = tmp_path / "site"
    (site / "toy-1.0.dist-info").mkdir(parents=True)
    (site / "toy_question.py").write_text(TOY, encoding="utf-8")
    (site / "toy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (site / "toy-1.0.dist-info" / "entry_points.txt").write_text("[poolscope.extensions]\ntoy = toy_question\n")
    return site


def python(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    paths = [str(site), str(Path(__file__).parents[1]), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_a_question_from_outside_is_asked_shown_compared_and_correlated(installed, tmp_path):
    run = python(installed, "-c", USE, tmp_path)
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    assert seen["keys"][-2:] == ["toy", "decision"]  # the decision comes last: it is made of all answers
    assert seen["levels"] == ["watch", "ok"]
    assert "write less" in seen["steps"]
    assert "toy_words" in seen["differences"]
    assert "toy_words" in seen["correlated"]
    assert seen["comparison"]
    page = (tmp_path / "0" / "report.html").read_text(encoding="utf-8")
    for words in ("Do these texts say too much?", "All words", "https://example.org/toy", "write less"):
        assert words in page
    command = ("-c", "from poolscope.cli import main; main()", "compare", tmp_path / "0", tmp_path / "1")
    for site in (installed, tmp_path):  # the folders say what they hold, without the package too
        shown = python(site, *command)
        assert re.search(r"\d+\. Wordiness", shown.stdout), shown.stderr


def test_an_extension_that_cannot_be_loaded_is_named(installed):
    (installed / "toy_question.py").write_text("import nowhere_at_all", encoding="utf-8")
    code = "from poolscope.auditing.question import QUESTIONS; len(QUESTIONS)"
    run = python(installed, "-c", code)
    assert "'toy' (toy_question)" in run.stderr


# -- the contract -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", QUESTIONS)
def test_every_question_keeps_the_contract(key):
    question = QUESTIONS[key]
    assert question.key == key
    assert question.title
    assert question.number_name
    assert question.words[-1] in "?."
    assert question.metric is None or question.metric in METRICS
    own = {threshold.name for threshold in question.thresholds}
    assert all(threshold.why.endswith(".") for threshold in question.thresholds)
    assert {name for gauge in question.gauges for name in (gauge.watch, gauge.repair)} <= own | {""}
    assert {mark.table for mark in question.marks} <= set(question.tables)
    assert question.judged_on is None or f"{question.judged_on}_watch" in own
    for view in question.tables.values():
        assert view.title
        assert view.headings
        assert set(view.below) <= set(view.headings)
    page, _, anchor = question.page.partition("#")
    headings = re.findall(r"^#+ (.+)", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
    assert anchor in anchors | {""}


def test_the_page_lists_every_question_in_order():
    page = (DOCS / "audit.md").read_text(encoding="utf-8")
    places = [page.index(f"| {number} | {QUESTIONS[key].words} |") for number, key in enumerate(ASKED, 1)]
    assert places == sorted(places)


def test_the_page_of_vectors_lists_the_questions_that_only_they_are_asked():
    page = (DOCS / "vectors.md").read_text(encoding="utf-8")
    alone = [question for question in QUESTIONS.values() if question.key not in ASKED]
    places = [page.index(f"| `{question.key}` | {question.words} |") for question in alone]
    assert places == sorted(places)


def test_names_stand_once():
    for part in ("thresholds", "numbers"):
        names = [entry.name for question in QUESTIONS.values() for entry in getattr(question, part)]
        assert len(set(names)) == len(names)
    tables = [name for question in QUESTIONS.values() for name in question.tables]
    assert len(set(tables)) == len(tables)


def _named(key: str, **parts: object) -> Question:
    return Question(key, "t", "w?", "audit.md", "n", lambda subject: Answer.unchecked(key, "no reason"), **parts)


def test_names_of_another_question_are_refused():
    known = list(QUESTIONS)
    with pytest.raises(InputError, match="'hubs' is in the table already"):
        register(_named("hubs"))
    with pytest.raises(InputError, match="thresholds cut_watch are those of another"):
        register(_named("mine", thresholds=[Threshold("cut_watch", 1.0, "…")]))
    with pytest.raises(InputError, match="numbers socm are those of another"):
        register(_named("mine", numbers=[Number("socm", "…")]))
    assert list(QUESTIONS) == known
