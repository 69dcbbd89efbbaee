"""Short texts: queries for texts of every length, and biases of known size."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from audit_data import bag_of_words, topics
from poolscope.auditing.commands import Named
from poolscope.auditing.question import Thresholds
from poolscope.auditing.questions import short
from poolscope.auditing.searches import cut_pieces
from poolscope.auditing.subject import Subject
from poolscope.encoders import as_encoder
from poolscope.metrics.length.search import retrieval_by_length
from poolscope.verdicts import Verdict


def subject(texts, **settings):
    encoder = as_encoder(bag_of_words)
    clouds = encoder.encode(texts)[-1]
    return Subject(clouds=clouds, encoder=encoder, thresholds=Thresholds(), source="", **settings)


@pytest.fixture(scope="module")
def mixed():
    """160 texts of 12 to 87 words, short ones far more often than long ones."""
    lengths = 12 + np.random.default_rng(0).exponential(18, 160).astype(int).clip(0, 75)
    return [topics(1, words=int(n), seed=k)[0].replace("w0x", f"w{k}x") for k, n in enumerate(lengths)]


def test_every_fifth_of_the_lengths_is_asked_for_as_often(mixed):
    task = cut_pieces(subject(mixed))
    lengths = np.array([len(text.split()) for text in mixed])
    assert task.lengths.tolist() == lengths.tolist()  # whole texts count, not what is left of them
    fifth = np.searchsorted(np.quantile(lengths, [0.2, 0.4, 0.6, 0.8]), lengths)
    assert Counter(fifth[task.relevant[:, 1]].tolist()) == dict.fromkeys(range(5), 16)
    few = cut_pieces(subject(mixed, trial_texts=22))
    assert Counter(fifth[few.relevant[:, 1]].tolist()) == dict.fromkeys(range(5), 5)


def test_a_query_is_cut_out_of_its_own_text(mixed):
    whole = subject(mixed)
    task = cut_pieces(whole)
    asked = task.relevant[:, 1]
    others = np.setdiff1d(np.arange(len(mixed)), asked)
    np.testing.assert_array_equal(task.documents[others], whole.vectors[others])
    # All words of a text weigh alike here, so that the rest is the whole less the piece.
    raw = whole.raw_vectors[asked] * whole.clouds.lengths[asked, None]
    pieces = [
        np.stack(
            [bag_of_words([text])[0][k : k + task.words].sum(0) for k in range(len(text.split()) - task.words + 1)]
        )
        for text in (mixed[k] for k in asked)
    ]
    for query, rest, total, possible in zip(task.queries, task.documents[asked], raw, pieces, strict=True):
        cosines = possible @ query / np.linalg.norm(possible, axis=1)
        own = possible[np.argmax(cosines)]
        assert cosines.max() == pytest.approx(1, abs=1e-5)
        assert rest @ (total - own) / np.linalg.norm(total - own) == pytest.approx(1, abs=1e-5)


def planted(task, strength):
    """A direction that all queries share, and the shortest fifth of the texts with them: near to every query."""
    documents, low = task.documents.astype(np.float64), task.lengths <= np.quantile(task.lengths, 0.2)
    shared = np.ones(documents.shape[1]) / np.sqrt(documents.shape[1])
    documents[low] += strength * shared
    return replace(task, queries=task.queries + 0.5 * shared, documents=documents)


def searched(task):
    return retrieval_by_length(task.queries, task.documents, task.relevant, task.lengths, bins=5, shuffles=100)


def test_a_planted_bias_of_twice_or_more_is_watched_or_repaired(mixed):
    levels, ratios = [], []
    for seed in range(8):
        task = planted(cut_pieces(subject(mixed, seed=seed)), 0.4)
        result = searched(task)
        ratios.append(result.shortest.ratio.value)
        levels.append(short.judge(result, Thresholds()).level)
        assert result.shortest.cost.value > 0
        assert result.shortest.hit.interval.low < result.shortest.hit.value < result.shortest.hit.interval.high
    assert 2 < min(ratios) < max(ratios) < 2.6
    assert set(levels) <= {"watch", "repair"}
    assert levels.count("repair") >= 2  # of so few queries not all are sure


@pytest.mark.parametrize(("seed", "strength"), [(2, 0.3), (8, 0.4)])
def test_what_a_fifth_costs_has_ends_also_where_hardly_a_query_changes(mixed, seed, strength):
    """Of 64 queries for the others next to none changes by the longest fifth: it does not take all from them."""
    cost = searched(planted(cut_pieces(subject(mixed, seed=seed)), strength)).longest.cost
    assert -0.15 < cost.interval.low < cost.value < cost.interval.high < 0.15


def test_lengths_that_say_nothing_are_ok(mixed):
    task, random = cut_pieces(subject(mixed)), np.random.default_rng(0)
    levels = Counter(
        short.judge(searched(replace(task, lengths=random.permutation(task.lengths))), Thresholds()).level
        for _ in range(20)
    )
    assert levels["ok"] >= 18


def test_a_fifth_that_can_not_be_asked_for_is_unchecked(mixed):
    """A third of the texts is one word: no query can be cut out of them."""
    verdict = short.answer(subject([*mixed, *(f"word{k}" for k in range(80))])).verdict
    assert verdict.level == "unchecked"
    assert "0 for the shortest" in verdict.sentence


def test_other_chunks_are_advised_for_the_fifth_that_crowds_and_only_where_that_harms(mixed):
    about = subject(mixed)
    kinds = [short._action(about, "longest", Verdict("watch", basis=basis)).kind for basis in ("harmless", "too few")]
    assert kinds == ["keep", "undecided"]
    longest = short._action(about, "longest", Verdict("repair", basis="interval"))
    assert longest.kind == "re-chunk"
    assert "shortest" not in longest.step
    asks = {}
    for queries in ("", "my.csv"):
        named = subject(mixed, named=Named("m", "t.txt", queries=queries))
        asks[queries] = [
            short._action(named, "longest", Verdict(level, basis=basis)).command
            for level, basis in (("watch", "harmless"), ("repair", "interval"))
        ]
    assert asks[""] == ["poolscope audit m t.txt --queries FILE"] * 2
    assert asks["my.csv"] == [None, "poolscope audit m t.txt --queries my.csv"]
