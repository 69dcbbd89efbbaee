"""Question 3: what a runtime did is named from its vectors, and judged."""

from __future__ import annotations

import re

import numpy as np
import pytest

from audit_data import bag_of_words, sentences, topics
from poolscope.auditing.run import audit
from poolscope.encoders import as_encoder
from poolscope.encoders.base import EncoderOptions
from poolscope.errors import InputError
from poolscope.numbers.pooling import pool
from poolscope.runtimes.causes import CONTENT
from tiny_models import declare, save_model, tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def texts():
    return sentences(24, high=20)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = save_model(tmp_path_factory.mktemp("model"))
    return as_encoder(declare(folder, pooling={"pooling_mode": "mean"}, after=["Normalize"]))


@pytest.fixture(scope="module")
def clouds(model, texts):
    return model.encode(texts)[-1]


def asked(model, texts, vectors):
    found = audit(model, texts, vectors=vectors, trial_texts=0)
    return found["pooling"].verdict, found.numbers


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_the_declared_pooling_is_recognised(model, texts, clouds):
    verdict, numbers = asked(model, texts, unit(pool(clouds, "mean")))
    assert verdict.level == "ok"
    assert numbers["runtime_cause"] == "as declared"
    assert numbers["runtime_normalised"]
    assert verdict.value == pytest.approx(1, abs=1e-5)
    assert verdict.floor < verdict.value


@pytest.mark.parametrize("how", ["cls", "last", "max", "position"])
def test_another_pooling_is_named_and_to_be_repaired(model, texts, clouds, how):
    verdict, numbers = asked(model, texts, unit(pool(clouds, how)))
    assert numbers["runtime_cause"] == how
    assert numbers["runtime_best_cosine"] == pytest.approx(1, abs=1e-6)
    assert verdict.level == ("repair" if numbers["runtime_cosine"] < 0.99 else "watch")
    assert f"pooled by {how}" in verdict.sentence


def test_a_mean_without_special_tokens_is_told_from_the_mean(model, texts, clouds):
    by_hand = np.array([cloud[1:-1].mean(axis=0) for cloud in clouds])  # <s> … </s>
    _, numbers = asked(model, texts, unit(by_hand))
    assert numbers["runtime_cause"] == CONTENT


def test_a_wrong_prompt_that_passes_as_near_is_watched_and_named(model, texts):
    """The cosine may be above 0.99 and the vectors still be those of other inputs."""
    prompted = model.with_options(EncoderOptions(prompt="query: ")).encode(texts)[-1]
    near = unit(unit(pool(prompted)) + 6 * unit(pool(model.encode(texts)[-1])))
    verdict, numbers = asked(model, texts, near)
    assert 0.99 < numbers["runtime_cosine"] < 0.9999
    assert verdict.level == "watch"
    verdict, numbers = asked(model, texts, unit(pool(prompted)))
    assert numbers["runtime_cause"] == "prompt 'query: '"


def test_sixteen_bits_are_no_other_pooling(model, texts, clouds):
    verdict, _ = asked(model, texts, unit(pool(clouds)).astype(np.float16))
    assert verdict.level == "ok"


def test_signs_are_watched_whatever_pooling_made_them(model, texts, clouds):
    verdict, numbers = asked(model, texts, np.where(pool(clouds) > 0, 1, 0))
    assert (verdict.level, numbers["runtime_cause"]) == ("watch", "as declared")
    verdict, numbers = asked(model, texts, np.where(pool(clouds, "max") > 0, 1, 0))
    assert numbers["runtime_cause"] == "max"


def test_vectors_that_were_not_normalised_are_watched(model, texts, clouds):
    verdict, numbers = asked(model, texts, pool(clouds, "mean"))
    assert verdict.level == "watch"
    assert "your runtime does not" in verdict.sentence
    assert not numbers["runtime_normalised"]
    free = as_encoder((tiny_model(), tiny_tokenizer()))  # declares no Normalize: any length is right
    verdict, _ = asked(free, texts, pool(free.encode(texts)[-1], "mean"))
    assert verdict.level == "ok"


def test_where_some_vectors_were_not_normalised_it_is_about_these(model, texts, clouds):
    vectors = unit(pool(clouds, "mean"))
    vectors[[2, 5, 7, 20]] *= 3
    found = audit(model, texts, vectors=vectors, trial_texts=0)["pooling"]
    sentence = found.verdict.sentence
    assert found.verdict.level == "watch"
    assert "4 of your runtime's 24 (16.7%; texts 2, 5, 7, …) do not have the length 1" in sentence
    assert "your runtime does not" not in sentence
    assert found.action.step.endswith("bring the 4 of your runtime's vectors that are shorter or longer to length 1")
    assert any(note.endswith("and 4 of 24 are not 1.") for note in found.verdict.evidence)
    table = found.tables["runtime_lengths"]
    assert (table["id"].to_pylist(), table["length"].to_pylist()) == (["2", "5", "7", "20"], pytest.approx([3] * 4))
    assert "runtime_lengths" not in audit(model, texts, vectors=2 * vectors, trial_texts=0)["pooling"].tables


def test_the_first_dimensions_are_recognised_and_watched(model, texts, clouds):
    verdict, numbers = asked(model, texts, unit(pool(clouds)[:, :10]))
    assert numbers["runtime_cause"] == "as declared"
    assert verdict.level == "watch"
    assert "first 10 of 16 dimensions" in verdict.sentence


@pytest.mark.parametrize("how", ["mean", "cls", "max"])
def test_rows_in_another_order_are_recognised_under_every_pooling(model, texts, clouds, how):
    order = np.random.default_rng(0).permutation(len(texts))
    found = audit(model, texts, vectors=unit(pool(clouds, how))[order], trial_texts=0)
    answer = found["pooling"]
    assert (answer.verdict.level, answer.basis) == ("repair", "counted")
    assert found.numbers["runtime_cause"] is None
    assert f"pooled by {how}, but in another order" in answer.verdict.sentence
    assert "in the order of the texts" in answer.action.step
    assert ("set its pooling to mean" in answer.action.step) == (how != "mean")


def test_two_rows_that_changed_places_are_another_order():
    texts = topics(24)
    rows = np.array([cloud.mean(axis=0) for cloud in bag_of_words(texts)])
    rows[[3, 7]] = rows[[7, 3]]
    verdict, _ = asked(bag_of_words, texts, rows)
    assert "in another order" in verdict.sentence
    assert any("2 of 24 vectors have a cosine below 0.9995 with the" in line for line in verdict.evidence)


def test_one_vector_for_all_texts_is_no_other_order(model, texts, clouds):
    verdict, _ = asked(model, texts, np.repeat(pool(clouds)[:1], len(texts), axis=0))
    assert "in another order" not in verdict.sentence


def test_some_texts_that_differ_are_named_and_are_no_other_pooling(model, texts, clouds):
    """The mean cosine is below its threshold, the interval is not: no certainty is claimed."""
    rows = unit(pool(clouds))
    rows[5] = -rows[5]
    answer = audit(model, texts, vectors=rows, trial_texts=0)["pooling"]
    assert answer.verdict.interval.high > 0.99 > answer.verdict.value
    assert (answer.verdict.level, answer.basis) == ("watch", "estimate")
    assert "23 of your runtime's 24 vectors" in answer.verdict.sentence
    assert "(texts 5)" in answer.verdict.sentence
    assert answer.action.cost.startswith("encode texts like these again")


@pytest.mark.parametrize(("every", "kind"), [(3, np.float16), (1.5, np.float32)])
def test_other_words_in_some_texts_are_no_rounded_weights(model, texts, clouds, every, kind):
    """On average they leave as much as weights of few bits; but those would move every vector."""
    changed = np.unique(np.arange(0, len(texts), every).astype(int))
    rows = unit(pool(clouds))
    rows[changed] = unit(pool(model.encode([f"{texts[k]} mat" for k in changed])[-1]))
    answer = audit(model, texts, vectors=rows.astype(kind), trial_texts=0)["pooling"]
    assert answer.verdict.level == "watch"
    assert f"{24 - len(changed)} of your runtime's 24 vectors are the model's own" in answer.verdict.sentence
    assert "no cause that was tried explains them" in answer.verdict.sentence
    assert "bits" not in answer.verdict.sentence + answer.action.step
    assert "other words, another limit or prompt" in answer.action.step


@pytest.mark.parametrize(("bits", "kind"), [(4, np.float32), (5, np.float16)])
def test_rounded_weights_are_named_still(model, texts, bits, kind):
    with model.backend.rounded_weights(bits):
        rows = unit(pool(model.encode(texts)[-1]))
    verdict, numbers = asked(model, texts, rows.astype(kind))
    assert numbers["runtime_cause"] == f"weights in {bits} bits"
    assert f"weights rounded to {bits} bits" in verdict.sentence
    random = np.random.default_rng(0).normal(size=rows.shape)  # rounded in another way: as near, elsewhere
    apart = np.sqrt(2 * (1 - numbers["runtime_cosine"]))
    verdict, _ = asked(model, texts, unit(unit(pool(model.encode(texts)[-1])) + apart * unit(random)).astype(kind))
    assert f"weights rounded to about {bits} bits" in verdict.sentence


def test_weights_in_eight_bits_are_no_difference(model, texts):
    with model.backend.rounded_weights(8):
        rows = unit(pool(model.encode(texts)[-1]))
    assert asked(model, texts, rows)[0].level == "ok"


@pytest.mark.parametrize(("how", "every"), [("max", 8), ("cls", 2), ("max", 1.2)])
def test_a_cause_that_explains_the_vectors_that_differ_is_named_and_counted(model, texts, clouds, how, every):
    rows, other = (unit(pool(clouds, name)).astype(np.float16) for name in ("mean", how))
    changed = np.unique(np.arange(0, len(texts), every).astype(int))
    rows[changed] = other[changed]
    found = audit(model, texts, vectors=rows, trial_texts=0)
    answer, count = found["pooling"], len(changed)
    assert (answer.verdict.level, answer.basis) == ("repair", "counted")
    assert f"{24 - count} of your runtime's 24 vectors are the model's own; {count} are not" in answer.verdict.sentence
    assert f"your runtime pooled by {how}, which explains {count} of {count}" in answer.verdict.sentence
    assert found.numbers["runtime_cause"] == how
    assert answer.action.step.startswith("set the pooling of your runtime to mean, then encode the")


def test_a_prompt_before_many_of_the_texts_says_on_how_many_it_was_tried(model):
    texts = sentences(120)
    rows = unit(pool(model.encode(texts)[-1]))
    prompted = model.with_options(EncoderOptions(prompt="query: ")).encode(texts[::2])[-1]
    rows[::2] = unit(pool(prompted))
    verdict, numbers = asked(model, texts, rows)
    assert numbers["runtime_cause"] == "prompt 'query: '"
    assert "Not to be told apart on these texts: prompt 'passage: '" in verdict.sentence  # words it does not know
    tried, explained = re.search(r"explains (\d+) of the (\d+) of them that were tried", verdict.sentence).groups()
    assert 12 <= int(tried) == int(explained) <= 40
    assert "60 are not" in verdict.sentence


def test_the_step_follows_the_cause(model, texts, clouds):
    def step(vectors):
        return audit(model, texts, vectors=vectors, trial_texts=0)["pooling"].action.step

    assert "set the pooling of your runtime to mean" in step(unit(pool(clouds, "cls")))
    assert "length 1" in step(pool(clouds, "mean"))


def test_another_model_fits_nothing(model, texts):
    other = as_encoder((tiny_model(seed=5), tiny_tokenizer()))
    answer = audit(model, texts, vectors=unit(pool(other.encode(texts)[-1])), trial_texts=0)["pooling"]
    assert answer.verdict.level == "repair"
    assert "another model" in answer.verdict.sentence
    assert "revision" in answer.action.step


def test_vectors_of_the_wrong_number_or_size_are_refused(model, texts, clouds):
    with pytest.raises(InputError, match="one vector for each of the 24 texts"):
        asked(model, texts, pool(clouds)[:-1])
    with pytest.raises(InputError, match="dimension 32"):
        asked(model, texts, np.random.default_rng(0).normal(size=(24, 32)))
    with pytest.raises(InputError, match=r"shape \(3,\); allowed is a table of numbers"):
        asked(model, texts, np.ones(3))
    with pytest.raises(InputError, match="rows of different lengths; allowed is a table"):
        asked(model, texts, [[1.0], [1.0, 2.0]])
    with pytest.raises(InputError, match="allowed is a table of numbers"):
        asked(model, texts, [["a"] * 16] * 24)
    with pytest.raises(InputError, match="row 3"):
        asked(model, texts, np.where(np.arange(24)[:, None] == 3, 0.0, pool(clouds)))


def test_without_vectors_the_cost_of_a_wrong_pooling_is_measured(model, texts, clouds):
    found = audit(model, texts, trial_texts=0)
    verdict = found["pooling"].verdict
    assert verdict.level == "unchecked"  # what the runtime does is not known
    right, wrong = (unit(pool(clouds, how)) for how in ("mean", "cls"))
    kept = []
    for k in range(24):
        lists = [np.argsort(-np.where(np.arange(24) == k, -9, table @ table[k]))[:10] for table in (right, wrong)]
        kept.append(len(set(lists[0]) & set(lists[1])) / 10)
    assert verdict.value == pytest.approx(np.mean(kept), abs=0.01)
    assert verdict.floor == pytest.approx(10 / 23)


def test_a_prompt_that_is_declared_and_not_used_is_watched(tmp_path, texts):
    folder = declare(save_model(tmp_path), prompts={"query": "query : ", "document": "document : "})
    assert audit(folder, texts, trial_texts=0)["pooling"].verdict.level == "watch"
    assert audit(folder, texts, trial_texts=0, role="document")["pooling"].verdict.level == "unchecked"
