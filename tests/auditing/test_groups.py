"""Documents and their chunks: who is unrelated to whom."""

from __future__ import annotations

import json

import numpy as np
import pytest

from audit_data import bag_of_words
from command_line import run
from poolscope.auditing.question import Thresholds
from poolscope.auditing.questions import scores
from poolscope.auditing.run import audit
from poolscope.errors import InputError
from poolscope.metrics.scores import score_distribution
from poolscope.texts import read_texts
from poolscope.texts.groups import group_column, groups_of_ids


def documents(count=30, chunks=4, dimension=64, seed=0, shared=0.5):
    """Vectors of chunks that share a direction with those of their document, and the documents."""
    random = np.random.default_rng(seed)
    subjects = np.repeat(random.normal(size=(count, dimension)), chunks, axis=0)
    noise = random.normal(size=subjects.shape)
    return np.sqrt(shared) * subjects + np.sqrt(1 - shared) * noise, np.repeat(np.arange(count), chunks)


def test_the_cut_off_for_pairs_of_different_documents_lets_the_share_pass_that_it_says():
    """Held out: other documents of the same kind. Random pairs would put the cut-off at the related ones."""
    vectors, groups = documents(60)
    grouped, random = score_distribution(vectors, groups=groups), score_distribution(vectors)
    other, members = documents(60, seed=1)
    unit = other / np.linalg.norm(other, axis=1, keepdims=True)
    apart = (unit @ unit.T)[members[:, None] < members]
    assert np.mean(apart >= grouped.cut_off.value) == pytest.approx(0.01, abs=0.003)
    assert np.mean(apart >= random.cut_off.value) < 0.002
    assert grouped.pairs == 60 * 59 // 2 * 16
    assert grouped.documents == 60
    assert random.documents is None


def test_groups_of_one_text_each_change_nothing():
    vectors, _ = documents(40, chunks=1)
    alone, plain = score_distribution(vectors, groups=np.arange(40)), score_distribution(vectors)
    assert alone.cut_off == plain.cut_off
    assert alone.mean.value == pytest.approx(plain.mean.value, abs=1e-6)
    assert alone.mean.interval.low == pytest.approx(plain.mean.interval.low, abs=1e-6)


def test_the_interval_by_document_covers_where_the_one_by_text_would_be_too_narrow():
    hits = 0
    for seed in range(60):
        vectors, groups = documents(25, seed=seed, dimension=16)
        interval = score_distribution(vectors, groups=groups).mean.interval
        hits += interval.low <= 0 <= interval.high
    assert hits >= 53


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["a#1", "a#2", "b"], ["a", "a", "b"]),
        (["a#1", "b#1"], None),
        (["a#1", "a#2"], None),
        (["x", "y"], None),
    ],
)
def test_documents_by_ids(ids, expected):
    assert groups_of_ids(ids) == expected


def test_a_column_is_guessed_where_it_tells(tmp_path):
    rows = [{"text": f"t{k}", "url": f"u{k // 2}", "title": f"{k}"} for k in range(6)]
    path = tmp_path / "chunks.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    assert group_column(str(path)) == "url"
    assert group_column(str(path), ("url",)) is None  # every title stands once
    assert group_column(str(tmp_path / "nothing.jsonl")) is None
    assert group_column(["a", "b"]) is None


def test_the_audit_says_what_its_pairs_are():
    texts = [f"own{k // 3} own{k // 3} own{k // 3} word{k} word{k % 7}" for k in range(60)]
    names = [str(k // 3) for k in range(60)]
    told, untold = audit(bag_of_words, texts, groups=names, trial_texts=0), audit(bag_of_words, texts, trial_texts=0)
    assert told["scores"].verdict.sentence.startswith("Two texts of different documents")
    assert "of random pairs still pass" in untold["scores"].verdict.sentence
    assert told.numbers["cut_off"] < untold.numbers["cut_off"]
    assert any("20 documents" in note for note in told.corpus["notes"])
    with pytest.raises(InputError, match="received 2 for 60 texts"):
        audit(bag_of_words, texts, groups=["a", "b"])
    chunks = read_texts({"id": [f"d{k // 3}#{k}" for k in range(60)], "text": texts}, column="text", id_column="id")
    assert audit(bag_of_words, chunks, trial_texts=0).numbers["cut_off"] == told.numbers["cut_off"]


def test_the_command_guesses_a_column_says_so_and_takes_another(tmp_path):
    rows = [{"text": f"about {k // 2} and {k}", "url": f"u{k // 2}", "part": f"p{k // 6}"} for k in range(24)]
    path = tmp_path / "chunks.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    fixed = ("audit", "builtin:wordllama", path, "--column", "text", "--no-files", "--trial", 0)
    assert "12 documents by column 'url'" in run(*fixed)
    assert "4 documents by column 'part'" in run(*fixed, "--group", "part")
    ids = [json.dumps({"text": row["text"], "id": f"{row['url']}#{k}"}) for k, row in enumerate(rows)]
    path.write_text("\n".join(ids), encoding="utf-8")
    assert "12 documents by their ids" in run(*fixed)
    np.save(tmp_path / "v.npy", np.random.default_rng(0).standard_normal((24, 8)))
    assert "12 documents" in run("audit", tmp_path / "v.npy", *fixed[2:6])


def test_chunks_of_one_document_are_audited_and_few_pairs_place_no_cut_off():
    texts = [f"text {k} about {word} and {word}s" for k, word in enumerate(("cat", "dog", "cow", "hen", "fox"))]
    one = audit(bag_of_words, texts, groups=["book"] * 5, trial_texts=0)
    assert one["scores"].verdict.level == "unchecked"
    few = audit(bag_of_words, texts, thresholds={"cut_off_watch": 0.01}, trial_texts=0)["scores"].verdict
    assert few.level == "unchecked"
    assert few.value > 0.01


def test_a_column_without_repeats_leaves_the_guess_to_the_next():
    assert group_column({"text": list("abc"), "doc_id": list("123"), "title": list("xxy")}) == "title"


def test_related_pairs_among_random_ones_raise_no_alarm():
    """1 % of all pairs are chunks of one document and score 0.77; pairs of different documents stay below 0.7."""
    random = np.random.default_rng(3)
    vectors = np.repeat(random.normal(size=(60, 48)), 4, axis=0) + 0.7 * random.normal(size=(240, 48)) + 1.0
    found, truth = score_distribution(vectors), score_distribution(vectors, groups=np.repeat(np.arange(60), 4))
    assert truth.cut_off.value < found.others_below < 0.7 < found.cut_off.value
    verdict = scores.judge(found, Thresholds())
    assert (verdict.level, verdict.value) == ("unchecked", found.cut_off.value)  # which of the two is not known
    assert scores.judge(found, Thresholds({"cut_off_watch": 0.9})).level == "ok"
    bound = scores.judge(found, Thresholds({"cut_off_watch": 0.5, "cut_off_repair": 0.6}))
    assert (bound.level, bound.basis) == ("watch", "no interval")  # an upper bound proves nothing
