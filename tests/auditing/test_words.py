"""Every template of the audit, filled with extreme values, keeps the rules of plain words."""

from __future__ import annotations

import itertools

import pytest

from plain_words import number_faults
from poolscope.auditing.calibration import CALIBRATION_WORDS
from poolscope.auditing.cause import all_causes
from poolscope.auditing.compare import COMPARE_WORDS
from poolscope.auditing.cure import COST_WORDS
from poolscope.auditing.decision import DECISION_WORDS
from poolscope.auditing.engine import LOOK_WORDS
from poolscope.auditing.fix import FIX_WORDS
from poolscope.auditing.map import MAP_WORDS
from poolscope.auditing.misses_of_run import RUN_WORDS
from poolscope.auditing.power import POWER_WORDS
from poolscope.auditing.precision import PRECISION_WORDS
from poolscope.auditing.result import HEADLINE_WORDS
from poolscope.auditing.rule import WHY
from poolscope.auditing.words import MOST_LABEL, broken_rules, fill, names_of
from poolscope.auditing.yardsticks import all_yardsticks
from poolscope.connect.runtimes.check import RUNTIME_WORDS
from poolscope.connect.runtimes.migrate import MIGRATE_WORDS
from poolscope.connect.runtimes.seal import SEAL_WORDS
from poolscope.numbers.intervals import Estimate, Interval

CAUSES = all_causes()
CURES = {cure.name: cure for cause in CAUSES.values() for cure in cause.cures}
TEMPLATES = [
    *(part for cause in CAUSES.values() for part in (cause.words.present, cause.words.absent, cause.words.unlooked)),
    *(cause.words.marked for cause in CAUSES.values()),
    *(cure.does for cure in CURES.values()),
    *COST_WORDS,
    *DECISION_WORDS,
    *POWER_WORDS,
    *PRECISION_WORDS,
    *LOOK_WORDS,
    *CALIBRATION_WORDS,
    *FIX_WORDS,
    *HEADLINE_WORDS,
    *COMPARE_WORDS,
    *RUNTIME_WORDS,
    *SEAL_WORDS,
    *MIGRATE_WORDS,
    *MAP_WORDS,
    *RUN_WORDS,
    *WHY.values(),
]
NUMBERS = {
    "count": (0, 1, 2, 1_234_567),
    "number": (0, 1, 2),
    "percent": (0.0, 0.0004, 0.27, 0.9999, 1.0),
    "signed": (-0.5, -1e-9, 0.0, 0.0194),
    "score": (-0.001, 0.0, 0.6603),
    "times": (0.0, 1.56, 1234.5),
    "interval": (Interval(-0.01, 0.05, 0.95, "", "", "queries"), None),
    "": ("a name of 24 characters…",),
}


def values_of(template, turn):
    """A value for each name, of one kind where it stands in several forms."""
    values = {}
    for name, form in names_of(template):
        choices = NUMBERS[form.partition(" ")[0]]
        chosen = choices[turn % len(choices)]
        if form.startswith("interval") and name in values:
            values[name] = Estimate(values[name], chosen)
        elif name not in values:
            values[name] = chosen
    return values


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_filled_with_extremes_is_a_plain_sentence(template):
    for turn in range(5):
        sentence = fill(template, values_of(template, turn))
        assert broken_rules(sentence) + number_faults(sentence) == [], sentence
        assert "{" not in sentence
        assert "None" not in sentence


def test_labels_are_short_and_told_apart():
    labels = [cause.words.number for cause in CAUSES.values()]
    labels += [row.label for row in (*CURES.values(), *all_yardsticks().values())]
    assert all(0 < len(label) <= MOST_LABEL for label in labels)
    assert len({cause.title for cause in CAUSES.values()}) == len(CAUSES)
    assert len(set(labels)) == len(labels)


def test_a_value_that_is_not_named_or_a_form_that_is_not_known_is_an_error():
    with pytest.raises(KeyError):
        fill("{missing:count text}", {})
    with pytest.raises(ValueError, match="furlongs"):
        fill("{value:furlongs}", {"value": 1})


@pytest.mark.parametrize(
    "sentence",
    [
        "word " * 26 + ".",
        "it is lower case.",
        "A change of -0.01.",
        "No full stop",
        "It is encoded anew.",
        "A: b: c: d.",
    ],
)
def test_the_rules_catch_what_they_are_for(sentence):
    assert broken_rules(sentence)


def test_singular_and_plural_agree():
    template = "{count:count text} {count:number is} truncated."
    assert [fill(template, {"count": n}) for n in (0, 1, 2)] == [
        "0 texts are truncated.",
        "1 text is truncated.",
        "2 texts are truncated.",
    ]
    assert len(set(itertools.chain(TEMPLATES))) > 50
