"""The audit on tiny models: defined answers on every kind of input, from one encoding; and its files."""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

import poolscope
from audit_data import ASKED, bag_of_words, in_a_cone, sentences, topics
from poolscope.auditing.compare import compare
from poolscope.auditing.question import KINDS, NOT_APPLICABLE, Thresholds
from poolscope.auditing.questions import cone, scores
from poolscope.auditing.result import Audit
from poolscope.auditing.run import audit
from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder, encode
from poolscope.errors import InputError, StoreError
from poolscope.metrics.scores import score_distribution
from poolscope.results import Result
from poolscope.verdicts import LEVELS
from tiny_models import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def texts():
    """Each twice as long by being said again, so that one half finds the other."""
    return [f"{text} {text}" for text in sentences(64, low=4, high=20)]


@pytest.fixture(scope="module")
def encoder():
    return as_encoder((tiny_model(), tiny_tokenizer()))


@pytest.fixture(scope="module")
def found(encoder, texts):
    return audit(encoder, texts)


# -- the answers --------------------------------------------------------------------------------------------------


def test_all_questions_in_order_each_with_a_verdict_a_sentence_and_a_page(found):
    assert [answer.number for answer in found.answers] == list(range(1, len(ASKED) + 1))
    assert [answer.key for answer in found.answers] == ASKED
    for answer in found.answers:
        assert answer.verdict.level in LEVELS
        assert answer.verdict.sentence.endswith(".")
        assert answer.question.endswith(("?", "pairs."))
    assert set(found.verdicts) == set(ASKED)


def test_every_question_of_a_transformer_on_long_enough_texts_has_a_number_a_figure_and_an_interval(found):
    for answer in found.answers:
        assert answer.verdict.value is not None, answer.verdict.sentence
        assert answer.figure() is not None
    for key in ("scores", "cone", "pooling", "truncation", "short", "long", "position", "averaging", "hubs"):
        interval = found[key].verdict.interval
        assert interval.low <= found[key].verdict.value <= interval.high, key


def test_numbers_and_tables_are_named_once(found):
    for part in ("numbers", "tables"):
        names = [name for answer in found.answers for name in getattr(answer, part)]
        assert len(names) == len(set(names))


def test_the_numbers_that_studies_join_are_there(found):
    flat = found.to_dict()["numbers"]
    wanted = {
        "socm",
        "socm_neighbours",
        "concentration_ratio",
        "length_slope",
        "anisotropy",
        "unrelated_score",
        "cut_off",
    }
    assert wanted <= set(flat)
    assert all(isinstance(value, int | float) for value in flat.values())
    assert flat["anisotropy"] == pytest.approx(flat["unrelated_score"])


def test_the_dictionary_is_json_and_keeps_the_contract(found):
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert {"poolscope", "model", "corpus", "answers", "numbers", "provenance", "thresholds"} <= set(content)
    assert content["corpus"]["texts"] == 64
    fields = {"number", "key", "question", "level", "sentence", "value", "interval", "floor", "numbers"}
    assert all(fields <= set(answer) for answer in content["answers"])
    assert content["answers"][0]["value"] == found["scores"].verdict.value
    assert content["provenance"]["seconds"].keys() >= {"encoding", "scores", "decision"}


def test_equal_calls_give_equal_answers(encoder, texts, found):
    again = audit(encoder, texts)
    assert [answer.verdict for answer in again.answers] == [answer.verdict for answer in found.answers]


def test_the_root_name_is_the_function_before_and_after_the_package_is_imported(texts):
    assert poolscope.audit(bag_of_words, texts[:4]).corpus["texts"] == 4
    importlib.import_module("poolscope.auditing.question")  # binds the package to the name
    assert poolscope.audit(bag_of_words, texts[:4]).corpus["texts"] == 4


def test_the_corpus_is_encoded_once(texts):
    asked = []

    def counting(batch):
        asked.append(list(batch))
        return bag_of_words(batch)

    audit(counting, texts)
    whole = [batch for batch in asked if set(batch) & set(texts)]
    assert whole == [texts]


# -- what each answer says ----------------------------------------------------------------------------------------


def test_removing_the_mean_is_advised_where_it_helps_and_only_there():
    texts = topics(80)
    helped = audit(in_a_cone, texts)
    assert helped["cone"].verdict.level == "repair"
    assert helped.numbers["mean_removal_gain"] > 0.05
    assert helped["cone"].basis == "trial"
    assert "x − (x·m)m, and normalise" in helped["cone"].action.step  # what was tried: no subtraction
    assert helped["cone"].action.step in helped["scores"].action.step
    assert helped["cone"].action.cost == helped["scores"].action.cost
    assert helped["decision"].action.command.startswith("poolscope.tune(model, texts")
    unsure = audit(bag_of_words, texts)["cone"].verdict
    assert unsure.level == "unchecked"  # 40 queries show no gain of 0.01, and say which they could have shown
    assert "smallest gain they could have shown is 0." in unsure.sentence
    assert audit(bag_of_words, texts, thresholds={"cone_gain": 0.2})["cone"].verdict.level == "ok"


def test_what_is_drawn_for_a_trial_does_not_hang_on_the_order_of_the_texts():
    texts = [" ".join(text.split()[: 12 + k % 13]) for k, text in enumerate(topics(120))]
    usual = audit(in_a_cone, texts)
    order = np.random.default_rng(1).permutation(len(texts))
    other = audit(in_a_cone, [texts[k] for k in order])
    for name in ("mean_removal_gain", "short_share", "cloud_reranking_gain", "socm_floor", "hidden_share"):
        assert other.numbers[name] == pytest.approx(usual.numbers[name], abs=1e-6)
    assert [each.verdict.level for each in other.answers] == [each.verdict.level for each in usual.answers]
    assert audit(in_a_cone, texts, seed=1).numbers["mean_removal_gain"] != usual.numbers["mean_removal_gain"]


def test_words_that_most_texts_begin_with_are_named():
    texts = [f"Acme pump manual of 2024 {text}" for text in topics(80)[:70]] + topics(80)[70:]
    said = audit(bag_of_words, texts)["cone"].verdict.sentence
    assert "70 of 80 different texts begin with the same 5 words ('Acme pump manual of 2024')" in said
    assert "begin with" not in audit(bag_of_words, topics(80))["cone"].verdict.sentence


LOUD, QUIET = " ".join(["acme"] * 30), "page of the manual"


def read_aloud(texts):
    """Bags of words in which those of `QUIET` hardly count."""
    quiet = set(QUIET.split())
    weights = [[[0.01 if word in quiet else 1.0] for word in text.split()] for text in texts]
    return [cloud * weight for cloud, weight in zip(bag_of_words(texts), map(np.array, weights), strict=True)]


@pytest.mark.parametrize(
    ("before", "behind", "strips"),
    [(LOUD, "", True), ("", LOUD, True), (QUIET, "", False)],
    ids=["loud header", "loud footer", "quiet header"],
)
def test_words_that_most_texts_share_are_stripped_where_that_wins(before, behind, strips):
    """Thirty times one word is most of a text; words that weigh nothing leave its vector where it was."""
    texts = [f"{before} {text} {behind}".strip() for text in topics(400)]
    found = audit(read_aloud, texts, trial_texts=200, thresholds={"cone_gain": 0.05})
    answer = found["cone"]
    assert len(answer.tables["stripping"]) == 200
    assert ("Stripping these words before encoding helps" in answer.verdict.sentence) == strips
    if not strips:
        assert found.numbers["stripping_gain"] == pytest.approx(0, abs=0.01)
        assert answer.verdict.level == "ok"
        return
    assert found.numbers["stripping_gain"] > 0.05
    assert (answer.verdict.level, answer.basis) == ("repair", "trial")
    verb = "begin" if before else "end"
    assert answer.action.step.startswith(f"strip the words that most texts {verb} with ('acme acme")
    assert (answer.action.kind, answer.action.renews) == ("merge", "texts")
    assert found["decision"].action == answer.action


def test_what_a_header_makes_of_halves_is_no_gain_of_removing_the_mean():
    """Halves have a header at one end only; without it, removing the mean of these texts wins nothing."""
    light = "acme pump manual of the year for all who weld and who solder"
    heavy = "acme acme pump pump weld weld acme acme pump pump weld weld"
    for header, level in ((light, "unchecked"), (heavy, "repair")):
        found = audit(bag_of_words, [f"{header} {text}" for text in topics(240)])
        assert found.numbers["mean_removal_gain"] > 0.05 > found.numbers["stripping_gain"]
        assert found["cone"].verdict.level == level
        assert "That tells nothing here" in found["cone"].verdict.sentence
        step = "" if found["cone"].action is None else found["cone"].action.step
        assert step.startswith("strip the words") == (level == "repair")
    small = audit(bag_of_words, [f"{heavy} {text}" for text in topics(240)], thresholds={"cone_gain": 0.9})["cone"]
    assert (small.verdict.level, "strip" in small.action.step) == ("watch", False)


def test_shared_words_are_not_tried_on_texts_that_do_not_have_them():
    """Stripped, these are too short to be cut in two: nothing would change among the others."""
    short = [f"{LOUD} part {k}" for k in range(130)]
    found = audit(bag_of_words, [*short, *topics(120)])["cone"].verdict
    assert "without these words was not tried: 0% of the texts on trial have them, and 52% of all." in found.sentence


def test_few_texts_do_not_tell_whether_shared_words_harm():
    texts = [f"Acme pump manual of 2024 {text}" for text in topics(80)]
    unsure = audit(bag_of_words, texts)["cone"].verdict
    assert unsure.level == "unchecked"
    assert unsure.sentence.count("smallest gain they could have shown is 0.") == 2
    untried = audit(bag_of_words, texts, trial_texts=0)["cone"].verdict
    assert (
        "Whether a search finds more without these words was not tried: trials were switched off." in untried.sentence
    )
    ready = audit(encode(bag_of_words, texts))["cone"].verdict
    assert "without these words was not tried" in ready.sentence


def test_texts_are_read_again_only_where_they_share_words(monkeypatch):
    read, plain = [], topics(80)

    def noted(texts):
        read.extend(texts)
        return bag_of_words(texts)

    audit(noted, [f"{LOUD} {text}" if k < 60 else text for k, text in enumerate(plain)])
    words = [text.split().count("acme") for text in read]
    assert 40 < words.count(15) < 80  # halves of 40 texts on trial, of which most have the words: half of them
    monkeypatch.setattr(cone, "stripping_trial", lambda *_: pytest.fail("nothing is to be stripped"))
    audit(noted, plain)


def test_averaging_is_to_be_repaired_where_the_clouds_tell_right_from_wrong():
    """Bags of words: the mean mixes own and common words, the covariance keeps apart what the mean blurs."""
    found = audit(bag_of_words, topics(400), trial_texts=200)
    assert found.numbers["cloud_reranking_gain"] > 0.02
    assert found["averaging"].verdict.level == "repair"
    assert found["averaging"].verdict.floor < found["averaging"].verdict.interval.low
    assert "won on trial" in found["averaging"].action.step
    lax = audit(bag_of_words, topics(400), trial_texts=200, thresholds={"socm_gain": 0.9})
    assert lax["averaging"].verdict.level == "watch"


def test_truncation_names_twins_and_the_share_lost():
    head = "the cat sat on the mat and the dog ran under a tree and the cat sat on a red mat"
    texts = [f"{head} fast and slow", f"{head} of a blue document", *sentences(20, low=8, high=12)]
    found = audit((tiny_model(), tiny_tokenizer()), texts, max_length=16)
    assert found["truncation"].verdict.level == "repair"
    assert "2 different texts became identical" in found["truncation"].verdict.sentence
    table = found.tables["truncation"].to_pydict()
    assert table["twins"][:3] == [1, 1, None]
    clouds = encode((tiny_model(), tiny_tokenizer()), texts, max_length=16)
    share = clouds.truncated.sum() / (clouds.truncated.sum() + clouds.lengths.sum())
    assert found["truncation"].verdict.value == pytest.approx(share)
    assert found["truncation"].basis == "counted"
    assert found["truncation"].action.renews == "texts"


def test_a_limit_that_the_caller_set_is_not_laid_to_the_model():
    """What comes first is the model's own limit; chunks where that is the one that cut."""
    model, texts = (tiny_model(), tiny_tokenizer()), sentences(20, low=30, high=40)
    lowered = audit(model, texts, max_length=16, trial_texts=0)["truncation"]
    assert lowered.verdict.evidence[0] == "You cut at 16; the model declares 24 and has positions for 24 tokens."
    assert lowered.action.kind == "configure"
    assert "leave out --max-length (max_length): you cut at 16, and the model declares 24" in lowered.action.step
    assert lowered.action.command == "poolscope.audit(model, texts, trial_texts=0)"
    for options in ({}, {"max_length": 24}):
        own = audit(model, texts, trial_texts=0, **options)["truncation"]
        assert own.action.kind == "re-chunk"
        assert "20 texts of more than 24 tokens" in own.action.step
        assert own.verdict.evidence == ()


def test_the_interval_of_the_share_lost_is_within_its_bounds_and_one_text_that_carries_it_is_named():
    """One text of 400 words among short ones: drawn or not drawn, the share is one of texts."""
    texts = [*sentences(54, low=4, high=8), " ".join(sentences(20, low=20, high=21, seed=1))]
    found = audit((tiny_model(), tiny_tokenizer()), texts, max_length=16, trial_texts=0)
    verdict = found["truncation"].verdict
    assert (verdict.level, verdict.basis) == ("watch", "few texts")
    assert found["truncation"].action.renews == ""  # the other texts stay as they are
    assert found.numbers["share_cut_without_few"] == 0
    name = found.subject.ids[54]
    assert f"Of 55 texts 1 holds 100% of the tokens cut off: {name}; without it 0.0%" in verdict.sentence
    assert name in found["truncation"].action.step
    assert 0 < verdict.interval.low < 0.01  # a corpus like this one without the long text
    assert 0.9 < verdict.interval.high < 1  # and one of such texts alone: a single text tells no more


def test_a_group_that_holds_most_of_the_copies_is_named():
    texts = [*topics(40), *["the same footer on every page of it all"] * 12, *["two of these"] * 2]
    evidence = audit(bag_of_words, texts, trial_texts=0)["hubs"].verdict.evidence
    sentence = next(sentence for sentence in evidence if "the equal texts" in sentence)
    assert "86%" in sentence
    assert "4.8%" in sentence


def test_what_averages_hide_counts_where_using_it_wins_and_a_small_trial_has_not_asked():
    """Words at random: clouds differ, and no half of a text is nearer to its other half for it."""
    texts = [" ".join(np.random.default_rng(k).choice([f"c{n}" for n in range(40)], 24)) for k in range(80)]
    found = audit(bag_of_words, texts)["averaging"]
    assert found.verdict.level == "unchecked"
    assert "Too few queries to tell" in found.verdict.sentence
    content = audit(bag_of_words, texts, thresholds={"socm_gain": 0.3})["averaging"]
    assert content.verdict.level == "ok"
    assert "using it wins nothing here" in content.verdict.sentence
    assert content.action is None


def test_texts_that_crowd_the_answers_by_their_length_are_named():
    """Long texts hold a little of everything, so that they are near to every query."""
    random = np.random.default_rng(0)
    common = [f"c{n}" for n in range(30)]
    lengths = np.where(np.arange(100) % 5 == 0, 60, 10)
    texts = [
        " ".join([*(f"w{k}x{n}" for n in range(3)), *random.choice(common, size=n)]) for k, n in enumerate(lengths)
    ]
    found = audit(lambda batch: [cloud + 0.6 for cloud in bag_of_words(batch)], texts)
    assert found["short"].number_name.startswith("longest fifth")
    assert found["short"].verdict.level == "watch"
    assert found["short"].verdict.value == found.numbers["long_share"] > 1.25
    lax = audit(bag_of_words, texts, thresholds={"short_watch": 99.0, "short_repair": 100.0})
    assert lax["short"].verdict.level == "ok"


def test_worst_pairs_are_those_that_a_search_would_confuse_each_text_a_few_times(found, texts):
    table = found.tables["worst_pairs"].to_pydict()
    assert set(table["text_i"]) | set(table["text_j"]) <= set(texts)
    assert min(table["cosine"]) >= found.numbers["cut_off"] - 1e-6
    beyond = [value - own for value, own in zip(table["d_sigma_bounded"], table["d_sigma_floor"], strict=True)]
    assert beyond == sorted(beyond, reverse=True)
    assert all(where.startswith("A: ") and "%" in where for where in table["differs"])
    assert 0 <= min(table["d_sigma_bounded"]) <= max(table["d_sigma_bounded"]) <= 1
    assert max(Counter(table["id_i"] + table["id_j"]).values()) <= 3


def test_a_transformer_is_shown_layer_by_layer_and_a_function_is_not(found):
    names = [name for name, _ in found["averaging"].figures()]
    assert names == ["averaging", "layers"]
    assert found.tables["layers"]["layer"].to_pylist()[:3] == [0, 1, 2]
    assert [name for name, _ in audit(bag_of_words, topics(12))["averaging"].figures()] == ["averaging"]


def test_hubs_come_first_in_their_table_and_duplicates_are_listed():
    texts = [*topics(60), "One two  three", "one two three"]
    found = audit(bag_of_words, texts)
    table = found.tables["hubs"].to_pydict()
    assert table["times_found"] == sorted(table["times_found"], reverse=True)
    assert found.tables["duplicates"].to_pydict()["text"][-2:] == ["One two  three", "one two three"]
    assert found.numbers["twin_groups"] == 1


def test_ready_clouds_answer_too_little_to_decide():
    texts = topics(80)
    card = {"name": "bag of words", "kind": "arrays", "dimension": 24, "pooling": ["mean"]}
    clouds = TokenClouds.from_arrays(bag_of_words(texts), texts=texts, provenance={"model": card})
    found = audit(clouds)
    assert {answer.verdict.level for answer in found.answers} == {"ok", "unchecked"}
    assert found["decision"].action.kind == "undecided"  # no trial, no runtime, no truncation
    assert found["decision"].verdict.level == found.level == "unchecked"  # what could not be asked is not called ok


def test_the_decision_takes_the_most_serious_and_then_the_cheapest(found):
    """What makes the texts anew comes before what was measured on them."""
    table, by_number = found.tables["actions"].to_pydict(), {each.number: each for each in found.answers}
    places = [
        (LEVELS.index(level), by_number[number].action.renews != "", -KINDS.index(kind))
        for number, level, kind in zip(table["question"], table["level"], table["kind"], strict=True)
    ]
    assert places == sorted(places, reverse=True)
    assert len(places) == sum(a.verdict.at_least("watch") for a in found.answers[:-1])
    assert found["decision"].verdict.value == sum(kind != "keep" for kind in table["kind"])
    assert found["decision"].action.step == table["step"][0]


# -- thresholds ---------------------------------------------------------------------------------------------------


def test_thresholds_change_levels_and_are_kept(texts):
    strict = audit(bag_of_words, texts, thresholds={"cut_off_watch": -1.0, "cut_off_repair": 2.0})
    assert strict["scores"].verdict.level == "watch"
    assert strict.to_dict()["thresholds"]["cut_off_watch"] == -1
    assert strict.provenance["settings"]["thresholds_changed"] == {"cut_off_watch": -1.0, "cut_off_repair": 2.0}
    lax = audit(bag_of_words, texts, thresholds={"cut_off_watch": 2.0})
    assert lax["scores"].verdict.level == "ok"


# -- every kind of input has defined answers ----------------------------------------------------------------------


def not_asked(found):
    return {answer.key for answer in found.answers if answer.verdict.sentence.startswith(NOT_APPLICABLE)}


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_few_texts(count):
    found = audit(bag_of_words, topics(count))
    assert len(found.answers) == len(ASKED)
    assert {"short", "position"} <= not_asked(found)
    assert all(found[key].verdict.level == "unchecked" for key in not_asked(found))
    assert all(found[key].verdict.value is None for key in not_asked(found))
    if count < 3:
        assert {"scores", "cone", "averaging"} <= not_asked(found)
    json.dumps(found.to_dict(), allow_nan=False)


def test_short_texts_only(encoder):
    found = audit(encoder, sentences(40, low=2, high=5))
    assert {"short", "position"} <= not_asked(found)
    assert found["cone"].verdict.value is not None
    assert "was not tried" in found["cone"].verdict.sentence


def test_texts_of_one_length(encoder):
    found = audit(encoder, [" ".join(text.split()[:8]) for text in sentences(60)])
    assert "long" in not_asked(found)
    json.dumps(found.to_dict(), allow_nan=False)


def test_one_token_texts():
    found = audit(lambda batch: [cloud[:1] for cloud in bag_of_words(batch)], topics(40))
    assert {"pooling", "averaging"} <= not_asked(found)


def test_a_function_hides_its_truncation_and_takes_no_tokens():
    found = audit(bag_of_words, [*topics(40), *topics(20, words=40, seed=1)])
    assert {"truncation", "position"} <= not_asked(found)
    assert found["short"].verdict.value is not None


def test_ready_clouds_with_and_without_texts(encoder, texts, tmp_path):
    clouds = encoder.encode(texts)[-1]
    clouds.save(tmp_path / "clouds.arrow")
    stored = audit(tmp_path / "clouds.arrow")
    assert stored.model["name"] == encoder.card.name
    assert {"short", "position"} <= not_asked(stored)
    assert "only ready clouds are at hand" in stored["cone"].verdict.sentence
    assert stored.corpus["digest"] == audit(clouds).corpus["digest"]
    bare = TokenClouds.from_arrays(list(clouds))
    unknown = audit(bare)
    assert unknown.corpus["digest"] is None
    assert "truncation" in not_asked(unknown)
    assert unknown["scores"].verdict.value == pytest.approx(stored["scores"].verdict.value, abs=1e-6)
    with pytest.raises(InputError, match="ready clouds and the options"):
        audit(clouds, max_length=3)


def test_a_cls_model_is_audited_on_its_cls_vectors(encoder, texts):
    clouds = encoder.encode(texts)[-1]
    card = {**encoder.card.to_dict(), "pooling": ["cls"]}
    declared = TokenClouds.from_arrays(list(clouds), texts=texts, provenance={"model": card, "options": {}})
    first = np.array([cloud[0] for cloud in clouds], dtype=np.float64)
    unit = first / np.linalg.norm(first, axis=1, keepdims=True)
    expected = ((unit @ unit.T).sum() - 64) / (64 * 63)
    assert audit(declared).numbers["anisotropy"] == pytest.approx(expected, abs=1e-6)


# -- files --------------------------------------------------------------------------------------------------------


def test_save_writes_json_tables_and_page(found, tmp_path):
    folder = found.save(tmp_path / "out")
    content = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    assert json.loads(json.dumps(found.to_dict())).items() <= content.items()
    assert set(content["files"]) == {"report.html", *(f"tables/{name}.parquet" for name in found.tables)}
    for answer in content["answers"]:
        for name in answer["tables"]:
            assert pq.read_table(folder / "tables" / f"{name}.parquet").equals(found.tables[name])
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(answer.question in page for answer in found.answers)
    assert not list(folder.rglob("*.tmp"))


def test_a_failed_save_leaves_the_audit_before_it(found, tmp_path, monkeypatch):
    folder = found.save(tmp_path / "out")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def broken(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", broken)
    with pytest.raises(OSError, match="disk full"):
        found.save(folder, page=False)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_saved_audit_is_loaded_with_its_tables(found, tmp_path):
    folder = found.save(tmp_path / "out", page=False)
    loaded = Audit.load(folder)
    assert loaded.to_dict() == json.loads(json.dumps(found.to_dict()))
    assert [answer.verdict for answer in loaded.answers] == [answer.verdict for answer in found.answers]
    assert loaded.numbers["cut_off_interval"] == found.numbers["cut_off_interval"]
    assert loaded.tables["hubs"].equals(found.tables["hubs"])
    assert set(loaded.tables) == set(found.tables)
    assert loaded["averaging"].action == found["averaging"].action
    assert Result.load(folder / "audit.json") == Audit.load(folder / "audit.json")
    assert loaded.to_table().num_rows == len(ASKED)
    with pytest.raises(InputError, match="no figure"):
        loaded["hubs"].figure()


def test_a_folder_of_an_older_version_is_loaded_and_compared(tmp_path):
    """Up to 0.1 what could not be asked was called ok, and an answer did not hold its title."""
    found = audit(bag_of_words, topics(12))
    folder = found.save(tmp_path / "old", page=False)
    content = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    del content["result"], content["files"], content["checksum"]
    for answer in content["answers"]:
        for name in ("result", "poolscope", "title", "number_format"):
            del answer[name]
        if answer["sentence"].startswith(NOT_APPLICABLE):
            answer["level"] = "ok"
    (folder / "audit.json").write_text(json.dumps(content), encoding="utf-8")
    loaded = Audit.load(folder)
    assert loaded.verdicts == found.verdicts
    assert [answer.heading for answer in loaded.answers] == [answer.heading for answer in found.answers]
    assert all(row.difference == 0 for row in compare(found, folder).differences)


def test_a_table_that_is_gone_is_missed_when_it_is_read(tmp_path):
    folder = audit(bag_of_words, topics(12)).save(tmp_path / "audit", page=False)
    (folder / "tables" / "actions.parquet").unlink()
    loaded = Audit.load(folder)
    assert "actions" in loaded.tables
    with pytest.raises(StoreError, match=r"actions\.parquet.* is missing"):
        loaded.tables["actions"]


def test_an_unknown_question_is_named_with_the_known_ones(found):
    with pytest.raises(InputError, match=r"'score'.* scores, cone"):
        found["score"]


def test_notebooks_show_a_table_in_which_texts_are_inert(encoder):
    texts = [f"<script>alert({k})</script> {text}" for k, text in enumerate(topics(6))]
    shown = audit(bag_of_words, texts)._repr_html_()
    assert "<script>" not in shown
    assert shown.count("<tr>") == len(ASKED) - 1  # the decision stands above


def test_a_second_save_leaves_no_page_of_the_first(found, texts, tmp_path):
    (tmp_path / "report.html").write_text("of an earlier audit")
    found.save(tmp_path, page=False)
    assert not (tmp_path / "report.html").exists()


def test_a_file_in_the_place_of_the_folder_is_named(found, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is a file; allowed is a folder"):
        found.save(tmp_path / "file" / "deeper")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"seed": -1}, "seed: received -1; allowed is a whole number"),
        ({"seed": 1.5}, "seed: received 1.5"),
        ({"trial_texts": -5}, "trial_texts: received -5"),
        ({"trial_texts": 2.5}, "trial_texts: received 2.5"),
        ({"trial_texts": True}, "trial_texts: received True"),
        ({"thresholds": [1]}, "thresholds: received list"),
        ({"vectors": np.ones(3)}, "vectors: received float64 of shape"),
    ],
)
def test_wrong_arguments_are_named_before_the_work(wrong, match):
    def never(batch):
        raise AssertionError("encoded")

    with pytest.raises(InputError, match=match):
        audit(never, topics(5), **wrong)


def test_every_trial_is_named_in_the_evidence(encoder, texts):
    limits = {"length_watch": -99.0, "length_repair": -98.0}
    found = audit(encoder, texts, thresholds=limits)["long"]
    assert found.verdict.level != "ok"
    notes = [note for note in found.verdict.evidence if "split-half self-retrieval" in note]
    assert [note.split(",")[0] for note in notes] == ["Temperature 0.8", "Smaller chunks"]


def test_a_model_that_gives_all_texts_one_vector_is_to_be_changed():
    def one_vector(batch):
        return [np.ones((3, 4), np.float32) for _ in batch]

    found = audit(one_vector, topics(60))
    assert found["scores"].verdict.level == "repair"
    assert "All 60 texts have one vector" in found["scores"].verdict.sentence
    assert found["decision"].action.kind == "change"
    assert "removing the mean was not tried" in found["cone"].verdict.sentence


def test_a_cut_off_near_one_is_written_so_that_pairs_pass():
    narrow = np.random.default_rng(0).normal(size=(80, 16)) * 0.03 + 1
    said = scores.judge(score_distribution(narrow), Thresholds())
    assert re.search(r"cut at 0\.99\d+, and 1 % of random pairs still pass", said.sentence)
