"""Small worlds with a planted cause, and without any: the audit names the cause, and nothing where there is none."""

from __future__ import annotations

import html
import json

import numpy as np
import pytest

from audit_data import DIMENSION, asking, bag_of_words, in_a_cone, topics
from poolscope import audit, calibrate, read_texts
from poolscope.auditing.worlds import WORLDS, PromptedEncoder, Source, World
from poolscope.encoders import as_encoder
from poolscope.errors import InputError
from poolscope.results import Result

TEXTS = 150


@pytest.fixture(scope="module")
def world():
    texts = topics(TEXTS, seed=3)
    return texts, asking(texts)


@pytest.fixture(scope="module")
def source():
    texts = list(read_texts("builtin:docstrings", limit=800).texts)
    return Source.of(as_encoder("builtin:wordllama"), texts, None).pool(400, 200, 0)


@pytest.mark.parametrize("name", WORLDS)
def test_a_planted_cause_is_named_first_and_nothing_is_fixed_where_there_is_nothing(name, source):
    found = WORLDS[name].make(source.drawn(200, 100, seed=0))
    named = [finding.cause for finding in found.looked if finding.level in ("fix", "look")]
    if WORLDS[name].cause:
        assert named[0] == WORLDS[name].cause
    else:
        assert all(finding.level != "fix" for finding in found.findings)


def test_queries_without_any_prompt_are_a_defect_and_other_words_may_be_meant_so(source):
    draw = source.drawn(60, 30, seed=0)
    model = PromptedEncoder(draw.encoder)
    reasons = {prompt: draw.audit(draw.cut, model, query_prompt=prompt)["prompt"] for prompt in ("", "ask: ", None)}
    assert (reasons[""].level, reasons[""].reason) == ("fix", "defect")
    assert reasons["ask: "].reason != "defect"
    assert reasons["ask: "].number.value == 1.0
    assert reasons[None].level == "ok"


def test_a_draw_has_its_queries_with_their_texts_and_no_text_twice(source):
    draw = source.drawn(200, 100, seed=3)
    assert (len(draw.texts), len(draw.relevant), len(set(draw.texts))) == (200, 100, 200)
    whole = {query: {source.texts[k] for k in places} for query, places in source.relevant.items()}
    assert all({draw.texts[k] for k in places} == whole[query] for query, places in draw.relevant.items())


def test_worlds_encode_a_text_once(source):
    draw = source.drawn(50, 20, seed=1)
    direct = draw.encoder.base.encode(draw.texts)[-1]
    for _ in range(2):
        again = draw.encoder.encode(draw.texts)[-1]
        assert [cloud.tolist() for cloud in again] == [cloud.tolist() for cloud in direct]


def test_calibration_counts_false_fixes_and_causes_named_first(monkeypatch):
    levels = {"wrong": copies_of("fix"), "right": copies_of("ok")}
    for name, make in levels.items():
        monkeypatch.setitem(WORLDS, name, World(name, make))
    monkeypatch.setitem(WORLDS, "found", World("found", levels["wrong"], "duplicates"))
    monkeypatch.setitem(WORLDS, "lost", World("lost", levels["right"], "duplicates"))
    texts = [f"{text}. {text} again. And {text} once more." for text in topics(60, seed=7)]
    result = calibrate(texts, bag_of_words, query_count=30, runs=12, worlds=["wrong", "right", "found", "lost"])
    assert [each.count for each in result.worlds] == [12, 0, 12, 0]
    assert result["wrong"].first == {"duplicates": 12}
    assert (result["found"].places, result["lost"].places) == ({1: 12}, {0: 12})
    assert result.false_fix.value_or_raise == result.named_first.value_or_raise == 0.5
    interval = result["right"].share.interval
    assert interval.low == 0.0
    assert 0.24 < interval.high < 0.27  # of 0 in 12 runs, whichever interval for shares
    assert Result.from_dict(result.to_dict()) == result
    with pytest.raises(InputError):
        calibrate(texts, bag_of_words, worlds=["no such world"])


def copies_of(level):
    """A world in which half of the texts are copies, or none is."""
    return lambda draw: draw.audit([*draw.texts, *(draw.texts if level == "fix" else [])], queries=None)


def test_a_search_that_finds_all_needs_no_repair(world):
    texts, _ = world
    found = audit(bag_of_words, texts, queries={text: str(k) for k, text in enumerate(texts)})
    assert found.decision.kind == "nothing"
    nearest = max(found.trials, key=lambda trial: (trial.gain.interval is not None, trial.gain.value_or_raise))
    assert found.decision.label == found.labels[nearest.name]
    assert found.decision.gain == nearest.gain
    assert not found.misses
    assert {finding.level for finding in found.findings} <= {"ok", "unchecked"}
    assert found.found.value_or_raise == 1.0


def test_a_common_direction_is_seen_and_removing_it_is_tried(world):
    texts, _ = world
    found = audit(in_a_cone, texts, queries=asking(texts, words=2))
    assert found["shared-direction"].number.value > 0.5
    trials = {trial.name: trial for trial in found.trials}
    assert {"mean-projected", "mean-subtracted"} <= set(trials)


def test_copies_are_a_defect_and_merging_them_loses_nothing(world):
    texts, queries = world
    found = audit(bag_of_words, texts + texts[:60], queries=queries)
    finding = found["duplicates"]
    assert (finding.level, finding.reason) == ("fix", "defect")
    assert finding.number.value_or_raise == pytest.approx(60 / 210)
    merged = next(trial for trial in found.trials if trial.name == "merged-copies")
    assert merged.broken == ()


def pages(folder, count=60):
    """Documents of a text of their own and one that all share, and queries that name documents."""
    own, shared = topics(count, seed=11), topics(1, seed=12)[0]
    rows = [{"id": f"d{k}#{n}", "text": text} for k in range(count) for n, text in enumerate((shared, own[k]))]
    (folder / "pages.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return folder / "pages.jsonl", {query: f"d{text}" for query, text in asking(own, words=2).items()}


def test_what_all_documents_say_answers_for_none_of_them(tmp_path):
    texts, queries = pages(tmp_path)
    found = audit(bag_of_words, texts, queries=queries)
    relevant = found.search.judgements.relevant
    assert (relevant[:, 1] // 2 == relevant[:, 0]).all()
    assert found.units == 60
    assert found.search.judgements.answers == 60


def test_a_defect_that_a_cure_ends_has_its_command(tmp_path):
    texts, queries = pages(tmp_path)
    found = audit(bag_of_words, texts, queries=queries)
    assert (found.decision.kind, found.decision.step) == ("defect", "merged-copies")
    assert found.decision.command.endswith("--cure merged-copies")
    assert found.decision.in_words()[2] == found.decision.does


def test_an_index_without_texts_is_asked_for_them(world):
    texts, queries = world
    vectors = np.array([cloud.mean(axis=0) for cloud in bag_of_words(texts)])
    with pytest.raises(InputError, match="no texts"):
        audit(vectors, queries=queries, reference=bag_of_words)


def test_a_server_that_pools_otherwise_is_a_defect(world):
    texts, queries = world
    first = np.array([cloud[0] for cloud in bag_of_words(texts)])
    found = audit(bag_of_words, texts, queries=queries, vectors=first)
    assert found["server"].level == "fix"
    assert found.decision.kind == "defect"
    assert found.decision.defects[0][0] == found["server"].title
    same = np.array([cloud.mean(axis=0) for cloud in bag_of_words(texts)])
    assert audit(bag_of_words, texts, queries=queries, vectors=same)["server"].level == "ok"


def test_rows_of_an_index_that_are_wrong_are_a_defect(world):
    texts, _ = world
    vectors = np.array([cloud.mean(axis=0) for cloud in bag_of_words(texts)])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert audit(vectors, texts)["index"].level == "ok"
    vectors[3] = vectors[4]
    broken = audit(vectors, texts)
    assert broken["index"].level == "fix"
    assert broken["index"].values["shared"] == 2
    assert [each.partition(":")[0] for each in broken["index"].values["examples"]] == ["3", "4"]
    vectors[7] = np.nan
    found = audit(vectors, texts)
    assert found["index"].values["broken"] == 1
    assert [each.partition(":")[0] for each in found["index"].values["examples"]] == ["7", "3", "4"]
    assert found["index"].examples in html.unescape(found.to_html())
    assert found.rows()[0]["cause"] == "index"  # a table begins with what is most serious, as the screen does


def test_vectors_of_another_model_among_those_of_an_index_are_a_defect():
    random = np.random.default_rng(0)
    words = [f"{a}{b}" for a in "bdfgklm" for b in ("ane", "oru", "ithe", "eska")]
    chosen = random.integers(28, size=(300, 8))
    texts = [" ".join(words[k] for k in row) for row in chosen]
    one, other = random.standard_normal((2, 28, 32))
    vectors = one[chosen].mean(axis=1)
    assert audit(vectors, texts)["one_space"].level == "ok"
    vectors[:90] = other[chosen[:90]].mean(axis=1)
    found = audit(vectors, texts)
    assert found["one_space"].level == "fix"
    assert found["one_space"].number.value_or_raise == pytest.approx(0.3, abs=0.05)


def test_without_queries_some_are_made_from_the_texts_and_the_headline_says_so():
    texts = [f"{text}. {text} again. And {text} once more." for text in topics(80, seed=7)]
    found = audit(bag_of_words, texts)
    assert found.self_made == "sentence"
    assert found.queries == 80
    assert "self-made" in found.sentences()[0]


def test_vectors_without_texts_have_symptoms_and_no_trials():
    vectors = np.random.default_rng(0).normal(size=(60, DIMENSION))
    found = audit(vectors)
    assert found.queries == 0
    assert not found.trials
    assert found.decision.kind == "untried"
    assert found["hubs"].number is not None
    assert found["truncation"].reason == "not looked at"


def test_a_search_of_an_index_with_its_model_and_queries(world):
    texts, queries = world
    vectors = np.array([cloud.mean(axis=0) for cloud in bag_of_words(texts)])
    found = audit(vectors, texts, reference=bag_of_words, queries=queries)
    plain = audit(bag_of_words, texts, queries=queries)
    assert found.ndcg.value_or_raise == pytest.approx(plain.ndcg.value_or_raise)
    assert found["server"].level == "ok"
    with pytest.raises(InputError):
        audit(vectors, texts, queries=queries)


def test_rows_of_an_index_are_matched_to_all_its_texts(world):
    texts, _ = world
    vectors = np.array([cloud.mean(axis=0) for cloud in bag_of_words(texts)])
    shifted = audit(np.roll(vectors, 3, axis=0), texts, reference=bag_of_words)["server"]
    assert (shifted.level, shifted.values["order"], shifted.values["explained"]) == (
        "fix",
        "shifted by 3",
        "rows shifted by 3",
    )
    foreign = vectors.copy()
    foreign[::20] = np.random.default_rng(2).standard_normal(foreign[::20].shape)
    found = audit(foreign, texts, reference=bag_of_words)["server"]
    assert found.level == "fix"
    assert found.values["kinds"] == {"own": 142, "foreign": 8}
    pooled = np.array([cloud.max(axis=0) for cloud in bag_of_words(texts)])
    assert audit(pooled, texts, reference=bag_of_words)["server"].values["explained"] == "pooled by max"


def test_the_order_of_texts_and_their_ids_change_nothing(world):
    texts, _ = world
    queries = asking(texts, words=2)
    found = audit(bag_of_words, texts, queries=queries)
    order = np.random.default_rng(1).permutation(TEXTS)
    place = {int(old): str(new) for new, old in enumerate(order)}
    moved = audit(bag_of_words, [texts[k] for k in order], queries={q: place[int(t)] for q, t in queries.items()})
    assert moved.ndcg.value_or_raise == pytest.approx(found.ndcg.value_or_raise)
    for one, two in zip(found.trials, moved.trials, strict=True):
        assert one.name == two.name
        assert one.gain.value_or_raise == pytest.approx(two.gain.value_or_raise, abs=1e-9), one.name
    assert [finding.level for finding in found.findings] == [finding.level for finding in moved.findings]


def test_tokens_that_tell_what_the_mean_does_not_are_a_proven_cure(world):
    texts, queries = world
    found = audit(bag_of_words, texts, queries=queries)
    assert (found.decision.kind, found.decision.step) == ("cure", "maxsim")
    assert found["averaging"].level == "fix"
    assert found.decision.command.endswith("--cure maxsim")


def test_a_shorter_limit_than_the_texts_is_truncation_and_chunks_that_fit_find_what_it_hides():
    import zoo

    texts = [f"{text} the end" for text in topics(60, words=60, seed=9)]
    found = audit(zoo.family("BERT"), texts, queries=asking(texts), max_length=16)
    assert found["truncation"].number.value_or_raise == 1.0
    assert "chunks-that-fit" in {trial.name for trial in found.trials}
