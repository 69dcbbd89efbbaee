"""What the analyses of length mean: one judge for the audit and for `poolscope length`."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from length_data import WON, labelled, search, with_effect, without_effect
from poolscope import length_profile, length_verdicts
from poolscope.auditing.question import Thresholds
from poolscope.auditing.questions import long, position, short
from poolscope.metrics.length.bins import labels_by_length
from poolscope.metrics.length.probes import AveragingRow, LengthNulls
from poolscope.metrics.length.report import LengthReport
from poolscope.metrics.length.search import PositionProbe, SegmentRow, retrieval_by_length
from poolscope.numbers.intervals import Estimate, Interval

# -- long texts ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strong():
    return length_profile(*with_effect(0, slope=0.06))


def test_no_effect_is_no_alarm_in_at_least_95_of_100_seeds():
    levels = []
    any_rise = Thresholds({"length_watch": 0})  # only the interval and the floor tell it from chance
    for seed in range(100):
        vectors, lengths = without_effect(seed, topics=10 * (seed % 2))
        levels.append(long.judge(length_profile(vectors, lengths, shuffles=40, neighbours=1), any_rise).level)
    assert levels.count("ok") + levels.count("unchecked") >= 95


def test_a_rise_is_graded_and_repaired_only_with_a_cure(strong):
    untried = long.judge(strong, Thresholds())
    assert (untried.level, untried.basis) == ("watch", "untried")
    assert "Long texts look more alike" in untried.sentence
    assert "No cure was tried" in untried.sentence
    assert (untried.value, untried.interval, untried.floor) == (
        strong.slope.value,
        strong.slope.interval,
        strong.slope.floor,
    )
    cured = long.judge(strong, Thresholds(), trials=[WON])
    assert (cured.level, cured.basis) == ("repair", "trial")
    assert cured.sentence.endswith("A cure helps.")
    assert long.judge(strong, Thresholds({"length_gain": 0.06}), trials=[WON]).basis == "small gain"
    assert long.judge(strong, Thresholds({"length_repair": 100}), trials=[WON]).level == "watch"
    lenient = long.judge(strong, Thresholds({"length_watch": 50}), trials=[WON])
    assert lenient.level == "ok"
    assert [
        any("of one kind" in line for line in each.evidence) for each in (long.judge(strong, Thresholds()), lenient)
    ] == [True, False]
    assert "a little more alike" in lenient.sentence


def test_the_reverse_is_no_collapse():
    vectors, lengths = with_effect(0, slope=0.06)
    verdict = long.judge(length_profile(vectors, 2048 // lengths), Thresholds())
    assert (verdict.level, verdict.value < 0) == ("ok", True)
    assert "they look less so" in verdict.sentence


def test_a_small_slope_keeps_its_sign():
    vectors, lengths = with_effect(0, slope=0.06)
    profile = length_profile(vectors, 2048 // lengths)
    interval = dataclasses.replace(profile.slope.interval, low=-0.0008, high=-0.0001)
    small = dataclasses.replace(profile.slope, value=-0.000425, interval=interval)
    verdict = long.judge(dataclasses.replace(profile, slope=small), Thresholds())
    assert "they look less so (-0.0004 per doubling)" in verdict.sentence


def test_what_has_no_slope_is_unchecked():
    vectors, _ = without_effect(0, count=50)
    same = long.judge(length_profile(vectors, np.full(50, 12)), Thresholds())
    assert (same.level, same.value) == ("unchecked", None)
    assert "one length bin" in same.sentence
    few = length_profile(vectors[:4], [1, 2, 100, 200], bins=[0, 50, 300], min_texts=1)
    assert "too few texts" in long.judge(few, Thresholds()).sentence


def nulls_with(full, averaged, low, high, other=None):
    """The same in chunks of both lengths, unless `other` gives the interval in the other chunks."""

    def row(chunks, low, high):
        excess = Estimate(full - averaged, Interval(low, high, 0.95, "", ""))
        return AveragingRow(256, chunks, Estimate(full), Estimate(averaged), None, excess, False)

    start = AveragingRow(64, 1, Estimate(0.1), Estimate(0.1), None, Estimate(0.0), False)
    return LengthNulls("model", 30, 64, 256, (start, row(4, low, high)), None, 0, row(2, *(other or (low, high))))


def judged(profile, nulls):
    return long.judge(profile, Thresholds(), nulls=nulls, trials=[WON])


def test_null_models_take_off_what_they_explain(strong):
    explained = judged(strong, nulls_with(0.3, 0.32, -0.04, 0.01))
    assert explained.level == "watch"
    assert "are about as alike as whole texts" in explained.sentence
    assert "are more alike than whole texts" in judged(strong, nulls_with(0.3, 0.42, -0.16, -0.09)).sentence
    unsure = judged(strong, nulls_with(0.3, 0.28, -0.08, 0.12))  # the rise is 0.2: up to 60 % may be the model's
    assert unsure.level == "repair"
    assert "cannot be told from plain averaging on 30 documents" in unsure.sentence
    more = judged(strong, nulls_with(0.5, 0.2, 0.25, 0.35))
    assert more.level == "repair"
    assert "0.300 more" in more.sentence
    assert "explains 25%" in more.sentence
    calm = Thresholds({"length_watch": 100})
    assert long.judge(strong, calm, nulls=nulls_with(0.5, 0.2, 0.25, 0.35)).level == "ok"


def test_averaging_explains_a_rise_only_in_chunks_of_both_lengths(strong):
    torn = judged(strong, nulls_with(0.3, 0.33, -0.05, -0.02, other=(0.01, 0.06)))
    assert torn.level == "repair"
    assert "hangs on the length of the chunks" in torn.sentence
    assert "[-0.0500, -0.0200] in chunks of 64 and" in torn.sentence
    assert "[0.0100, 0.0600] in chunks of 128, at 256 tokens" in torn.sentence
    unsure = judged(strong, nulls_with(0.3, 0.33, -0.05, -0.02, other=(-0.04, 0.06)))
    assert unsure.level == "repair"
    assert "cannot be told from plain averaging" in unsure.sentence
    single = judged(strong, dataclasses.replace(nulls_with(0.3, 0.33, -0.05, -0.02), other=None))
    assert single.level == "repair"
    assert "No chunk of another length fits" in single.sentence
    vague = judged(strong, dataclasses.replace(nulls_with(0.3, 0.31, -0.05, 0.02), other=None))
    assert "cannot be told from plain averaging" in vague.sentence
    assert any("In chunks of 128 tokens instead of 64" in line for line in torn.evidence)


def test_a_rise_that_is_none_has_no_share():
    assert nulls_with(0.1, 0.2, -0.2, 0.0).explained is None
    assert nulls_with(0.3, 0.2, 0.0, 0.2).explained == pytest.approx(0.5)


# -- short texts --------------------------------------------------------------------------------------------------


def test_documents_that_crowd_the_top_are_named():
    assert short.judge(retrieval_by_length(*search(), bins=4), Thresholds()).level == "ok"
    queried, held, relevant, lengths = search(bias=0.7)
    biased = retrieval_by_length(queried, held, relevant, lengths, bins=4)
    verdict = short.judge(biased, Thresholds())
    assert verdict.level in ("watch", "repair")
    assert (verdict.value, verdict.interval) == (biased.shortest.ratio.value, biased.shortest.ratio.interval)
    turned = retrieval_by_length(queried, held, relevant, 400 - lengths, bins=4)
    assert short.judge(turned, Thresholds()).value == turned.longest.ratio.value
    small = short.judge(biased, Thresholds({"short_watch": 99, "short_repair": 100}))
    assert (small.level, "more than chance and less than the 99 times" in small.sentence) == ("ok", True)


def crowded(low, cost, **more):
    """The shortest fifth stands three times as often as it should; its interval starts at `low`."""
    biased = retrieval_by_length(*search(bias=0.7), bins=4)
    ratio = Estimate(3.0, Interval(low, 4.0, 0.95, "", ""), 1.0, 0.8, 1.2)
    shortest = dataclasses.replace(biased.shortest, ratio=ratio, cost=Estimate(0.2, cost), **more)
    return dataclasses.replace(biased, shortest=shortest)


def test_a_bias_is_repaired_only_if_it_is_sure_and_does_harm():
    loses, unsure = Interval(0.1, 0.3, 0.95, "", ""), Interval(-0.1, 0.2, 0.95, "", "")
    harm = short.judge(crowded(2.1, loses), Thresholds())
    assert (harm.level, harm.basis) == ("repair", "interval")
    assert "are found less often" in harm.sentence
    harmless = short.judge(crowded(2.1, unsure), Thresholds())
    assert (harmless.level, harmless.basis) == ("watch", "harmless")
    wide = short.judge(crowded(2.1, Interval(-0.1, 0.5, 0.95, "", "")), Thresholds())
    assert (wide.level, wide.basis) == ("watch", "too few")
    assert short.judge(crowded(1.9, loses), Thresholds()).level == "watch"  # the estimate alone is not enough
    open_end = short.judge(crowded(0.9, loses), Thresholds())  # 0.9 to 4: neither chance nor a bias is shown
    assert (open_end.level, "too few to tell" in open_end.sentence) == ("unchecked", True)


def test_a_bias_that_could_be_told_is_ok_only_if_both_fifths_are_asked_for():
    fair = retrieval_by_length(*search(), bins=4)
    assert short.judge(fair, Thresholds()).level == "ok"
    unasked = dataclasses.replace(fair, longest=dataclasses.replace(fair.longest, queries=7))
    assert short.judge(unasked, Thresholds()).level == "unchecked"


def test_no_bias_is_rarely_called_one():
    levels = [short.judge(retrieval_by_length(*search(seed), bins=3), Thresholds()).level for seed in range(20)]
    assert levels.count("ok") + levels.count("unchecked") >= 18  # of 150 seeds, 4.7 % are neither


def test_documents_of_one_length_are_unchecked():
    queried, held, relevant, _ = search()
    verdict = short.judge(retrieval_by_length(queried, held, relevant, np.full(300, 50)), Thresholds())
    assert (verdict.level, verdict.value) == ("unchecked", None)
    assert "one length, 50" in verdict.sentence


# -- position -----------------------------------------------------------------------------------------------------


def probe(*changes, rank=(-1.0, 1.0), base=0.5):
    """A segment that is `base` similar at the start; each change is (value, low, high) at a further place."""

    def row(place, change, low, high):
        interval, ranks = Interval(low, high, 0.95, "", ""), Interval(*rank, 0.95, "", "")
        values = (Estimate(base + change), Estimate(2.0), Estimate(0.5))
        return SegmentRow(place, *values, Estimate(change, interval), Estimate(0.0, ranks))

    places = np.linspace(0, 1, 1 + len(changes))
    rows = [row(float(place), *change) for place, change in zip(places, [(0.0, 0.0, 0.0), *changes], strict=True)]
    return PositionProbe(20, 16, 64, 21, tuple(rows), 0)


def test_the_verdict_on_the_position_follows_its_numbers():
    cases = ((-0.2, -0.3, -0.1), (-0.01, -0.015, -0.005), (0.1, 0.05, 0.15), (-0.1, -0.3, 0.1))
    said = {change[0]: position.judge(probe(change), Thresholds()) for change in cases}
    assert [verdict.level for verdict in said.values()] == ["watch", "ok", "ok", "unchecked"]
    assert position.judge(probe((-0.01, -0.05, 0.03)), Thresholds()).level == "ok"  # no room for a loss of 30 %
    assert "loses 40% of the lead" in said[-0.2].sentence
    assert "loses 2% of the lead" in said[-0.01].sentence
    assert "nowhere less similar" in said[0.1].sentence
    assert "cannot be told apart" in said[-0.1].sentence
    assert "[-0.3000, 0.1000]" in said[-0.1].sentence
    assert said[-0.2].value == pytest.approx(0.4)
    assert (said[-0.2].interval.low, said[-0.2].interval.high) == pytest.approx((0.2, 0.6))


def test_a_cone_hides_no_loss():
    """Documents without the answer score 0.4 where it scores 0.5: of that lead a loss of 0.02 is a fifth."""
    narrow = replace(probe((-0.02, -0.03, -0.01), rank=(1, 2)), unrelated=0.4)
    assert position.judge(narrow, Thresholds()).value == pytest.approx(0.2)
    assert position.judge(narrow, Thresholds()).level == "watch"
    assert position.judge(replace(narrow, unrelated=0.0), Thresholds()).level == "ok"


def test_the_worst_place_is_judged():
    verdict = position.judge(probe((-0.2, -0.3, -0.1), (-0.05, -0.1, 0.0)), Thresholds())
    assert verdict.value == pytest.approx(0.4)
    assert "at the middle" in verdict.sentence
    assert len(verdict.evidence) == 3


def test_a_loss_is_repaired_only_if_it_is_sure_and_the_rank_falls():
    sure, unsure = (-0.2, -0.24, -0.16), (-0.2, -0.35, -0.05)
    falls = position.judge(probe(sure, rank=(1, 2)), Thresholds())
    assert (falls.level, falls.basis) == ("repair", "interval")
    harmless = position.judge(probe(sure), Thresholds())
    assert (harmless.level, harmless.basis) == ("watch", "harmless")
    assert position.judge(probe(unsure, rank=(1, 2)), Thresholds()).level == "watch"
    assert position.judge(probe(sure, rank=(1, 2)), Thresholds({"position_repair": 0.35})).level == "watch"


def test_what_is_not_similar_at_the_start_has_nothing_to_lose():
    verdict = position.judge(probe((-0.2, -0.3, -0.1), base=-0.1), Thresholds())
    assert (verdict.level, verdict.value) == ("unchecked", None)


# -- labels -------------------------------------------------------------------------------------------------------


def test_labels_that_long_texts_lose_or_keep():
    vectors, lengths, labels = labelled(3.0)
    lost = labels_by_length(vectors, lengths, labels, bins=[0, 100, 200])
    verdict = long.judge_labels(lost, Thresholds())
    assert (verdict.level, verdict.value) == ("watch", lost.difference.value)
    assert long.judge_labels(lost, Thresholds({"labels_watch": 0.9})).level == "ok"
    better = long.judge_labels(labels_by_length(vectors, 205 - lengths, labels, bins=[0, 105, 205]), Thresholds())
    assert (better.level, better.interval.low > 0) == ("ok", True)
    assert "are easier to tell" in better.sentence
    same = long.judge_labels(labels_by_length(*labelled(0.3), bins=[0, 100, 200]), Thresholds())
    assert same.interval.low <= 0 <= same.interval.high
    assert "cannot be said" in same.sentence
    assert f"{same.value:+.2f} [{same.interval.low:+.2f}, {same.interval.high:+.2f}]" in same.sentence
    single = long.judge_labels(labels_by_length(*labelled(0.3), bins=1), Thresholds())
    assert (single.level, single.value) == ("unchecked", None)


# -- a whole report -----------------------------------------------------------------------------------------------


def test_the_verdicts_of_a_report_are_those_of_the_judges(strong):
    search_part = retrieval_by_length(*search(bias=0.7), bins=4)
    place = probe((-0.2, -0.3, -0.1))
    report = LengthReport(strong, nulls=nulls_with(0.3, 0.32, -0.04, 0.01), retrieval=search_part, position=place)
    chosen = {"position_watch": 0.5, "position_repair": 0.9, "short_watch": 99}
    limits = Thresholds(chosen)
    assert length_verdicts(report, chosen) == {
        "length": long.judge(strong, limits, nulls=report.nulls),
        "search": short.judge(search_part, limits),
        "position": position.judge(place, limits),
    }
    assert length_verdicts(report)["position"].level == "watch"
    assert length_verdicts(report, chosen)["position"].level == "ok"
    assert list(length_verdicts(strong)) == ["length"]


def test_what_a_crowd_costs_is_asked_of_the_others():
    """The longest fifth crowds the answers, and no query asks for either fifth: those for the others tell."""
    random = np.random.default_rng(0)
    lengths = np.arange(200) + 10
    documents = random.normal(size=(200, 16))
    documents[lengths >= np.quantile(lengths, 0.8)] += 3 * np.ones(16) / 4
    relevant = np.stack([np.arange(40), np.arange(80, 120)], axis=1)  # of middling length
    queries = documents[80:120] + 2 * random.normal(size=(40, 16)) + 2 * np.ones(16) / 4
    result = retrieval_by_length(queries, documents, relevant, lengths)
    verdict = short.judge(result, Thresholds())
    assert verdict.level in ("watch", "repair")
    assert result.longest.cost.value > 0 > result.shortest.cost.value
    assert "too few to compare" in verdict.evidence[0]
    few = retrieval_by_length(queries[:7], documents, relevant[:7], lengths)
    assert short.judge(few, Thresholds()).level in ("unchecked", "watch")
    assert short.judge(few, Thresholds({"short_repair": 0.1})).level != "repair"


def test_three_of_three_is_not_certain():
    random = np.random.default_rng(1)
    documents = np.concatenate([np.eye(12)[:3], random.normal(size=(60, 12))])
    found = retrieval_by_length(np.eye(12)[:3], documents, [[0, 0], [1, 1], [2, 2]], [5, 5, 5, *range(10, 70)])
    assert found.shortest.queries == 3
    assert found.shortest.hit.value == 1
    assert found.shortest.hit.interval.low < 0.5
