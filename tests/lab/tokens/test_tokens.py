"""Token statistics by their definitions: identities, labels, what is refused, tables and files."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats
from tests.token_data import (
    TEXTS,
    WordEncoder,
    assert_equal_results,
    assert_is_by_definition,
    definitions,
    rows_of,
)

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder, encode
from poolscope.errors import DegenerateCloudError, InputError
from poolscope.lab.tokens.measure import token_statistics


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_every_number_is_that_of_its_definition(layer):
    result = token_statistics(WordEncoder(), TEXTS, min_count=2)
    clouds = WordEncoder().encode(TEXTS, layers=[layer])[layer]
    assert_is_by_definition(result, layer, clouds)
    special = definitions(clouds)[0]["special", 0]
    columns = result[layer].special
    found = (result.special.counts[0], columns.mean_squares[0], columns.norms_of_means[0], columns.variances[0])
    assert found == pytest.approx(special, rel=1e-10)
    assert result.special.names == ("[CLS]",)
    assert result.special.ids.tolist() == [0]


def test_identities_hold_in_every_layer_and_type():
    result = token_statistics(WordEncoder(), TEXTS)
    for layer in result.layers:
        for columns in (layer.types, layer.special):
            np.testing.assert_allclose(columns.mean_squares, columns.norms_of_means + columns.variances, rtol=1e-10)
        parts = layer.corpus
        assert parts.mean_square == pytest.approx(parts.norm_of_mean + parts.variance, rel=1e-10)
        assert parts.residual < 1e-10


@pytest.mark.model
def test_equal_to_brute_force_on_the_hidden_states_of_a_real_model():
    texts = [
        "Return the mean of the values along an axis.",
        "The mean is the sum of the values divided by their number.",
        "Split a path into head and tail, where tail is everything after the final slash.",
        "Raised when the file cannot be read.",
        "The values of the array are read from the file, and the mean of the array is the mean of the values.",
    ]
    states = encode("builtin:minilm", texts, layers=[0, 3, 6])
    result = token_statistics(states, vocabulary="builtin:minilm", min_count=3)
    for layer, clouds in states.items():
        table, expected = definitions(clouds, special=(101, 102))
        found = rows_of(result, layer)
        names = dict(zip(result.types.ids.tolist(), result.types.names, strict=True))
        assert len(found) == len([key for key in table if not isinstance(key, tuple)])
        for key, row in table.items():
            if not isinstance(key, tuple):
                assert found[names[key]] == pytest.approx(row, rel=1e-10, abs=1e-12)
        part = result[layer].corpus
        measured = (part.mean_square, part.norm_of_mean, part.within, part.between, result[layer].mean_cosine)
        assert measured == pytest.approx(expected, rel=1e-10)
    assert sorted(result.special.names) == ["[CLS]", "[SEP]"]
    direct = token_statistics("builtin:minilm", texts, layers=[0, 3, 6], min_count=3)
    assert_equal_results(direct, result)


def test_variation_and_correlations_are_over_the_frequent_types():
    result = token_statistics(WordEncoder(), TEXTS, min_count=8)
    counted = result.types.counts >= 8
    assert 3 < counted.sum() < len(counted)
    assert result.coverage.counted == counted.sum()
    layer = result[1]
    Q, M, V = (part[counted] for part in (layer.types.mean_squares, layer.types.norms_of_means, layer.types.variances))
    frequency = np.log(result.types.counts[counted])
    assert layer.variation.value == pytest.approx(Q.std() / Q.mean(), rel=1e-10)
    found = layer.associations
    for pair, (x, y) in {
        "mean_and_variance": (M, V),
        "mean_and_frequency": (M, frequency),
        "variance_and_frequency": (V, frequency),
    }.items():
        assert getattr(found, pair).pearson.value == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-10)
        assert getattr(found, pair).spearman.value == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-10)
        interval = getattr(found, pair).spearman.interval
        assert -1 <= interval.low <= interval.high <= 1
        assert "token types" in interval.answers
    n = result.types.counts[counted]
    expected = stats.spearmanr(M - V / (n - 1), frequency)[0]
    assert layer.corrected.mean_and_frequency.spearman.value == pytest.approx(expected, abs=1e-10)


def test_the_correction_takes_the_bias_of_few_tokens_out_of_the_mean():
    """Types with one common mean of norm 1 and variance 5 per token: M as defined is 1 + 5/n on average."""
    generator = np.random.default_rng(0)
    counts = np.repeat([3, 30], 300)
    ids = np.repeat(np.arange(len(counts)), counts)
    rows = np.eye(5)[0] + generator.normal(size=(len(ids), 5))
    result = token_statistics(TokenClouds.from_arrays([rows], token_ids=[ids]), min_count=2)
    columns, counts = result[-1].types, result.types.counts
    M, V = columns.corrected(counts)
    np.testing.assert_allclose(M + V, columns.mean_squares)
    for number in (3, 30):
        assert columns.norms_of_means[counts == number].mean() == pytest.approx(1 + 5 / number, rel=0.15)
        assert M[counts == number].mean() == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_clouds_of_any_precision(dtype):
    clouds = WordEncoder().encode(TEXTS, layers=[1])[1]
    rough = TokenClouds.from_arrays(
        [cloud.astype(dtype) for cloud in clouds], token_ids=[clouds.token_ids(k) for k in range(len(clouds))]
    )
    result = token_statistics({1: rough}, vocabulary=WordEncoder.vocabulary, min_count=1)
    assert_is_by_definition(result, 1, rough)


def test_a_huge_offset_leaves_the_variances():
    generator = np.random.default_rng(0)
    ids = generator.integers(1, 6, size=300)
    noise = generator.normal(scale=1e-2, size=(300, 4))
    plain, moved = (
        token_statistics(TokenClouds.from_arrays([noise + offset], token_ids=[ids]), min_count=2) for offset in (0, 1e6)
    )
    np.testing.assert_allclose(moved[-1].types.variances, plain[-1].types.variances, rtol=1e-6)
    assert moved[-1].corpus.within == pytest.approx(plain[-1].corpus.within, rel=1e-6)
    assert moved[-1].corpus.between == pytest.approx(plain[-1].corpus.between, rel=1e-4)


# -- labels ---------------------------------------------------------------------------------------------------


def test_groups_by_a_label_a_text():
    labels = [["news", "law", "code"][k % 3] for k in range(len(TEXTS))]
    result = token_statistics(WordEncoder(), TEXTS, groups=labels, min_count=1)
    assert result.grouping == "label"
    clouds = WordEncoder().encode(TEXTS, layers=[2])[2]
    assert_is_by_definition(result, 2, clouds, groups=labels)
    assert result.special.names == ("[CLS]",)
    assert re.search(r"\d of \d labels .* 1 tokens", result.notes()[0])


def test_groups_by_a_label_a_token():
    texts = ["the cat sat", "a dog runs far"]
    tags = [["X", "D", "N", "V"], np.array(["X", "D", "N", "V", "A"])]
    result = token_statistics(WordEncoder(), texts, groups=tags, min_count=1)
    assert dict(zip(result.types.names, result.types.counts.tolist(), strict=True)) == {"D": 2, "N": 2, "V": 2, "A": 1}
    with pytest.raises(InputError, match=r"3 labels .* 4 tokens"):
        token_statistics(WordEncoder(), texts, groups=[["D", "N", "V"], "whole"])


def test_labels_work_without_token_ids():
    clouds = TokenClouds.from_arrays([np.eye(3), 2 * np.eye(3)])
    result = token_statistics(clouds, groups=["a", "b"], min_count=1)
    assert result[-1].types.mean_squares.tolist() == [1.0, 4.0]
    with pytest.raises(InputError, match="token ids"):
        token_statistics(clouds)


def test_label_shards_merge_by_name_not_by_number():
    labels = ["b" if len(text) % 2 else "a" for text in TEXTS]
    labels[25:] = ["c" if len(text) % 2 else "b" for text in TEXTS[25:]]
    whole = token_statistics(WordEncoder(), TEXTS, groups=labels, min_count=1)
    parts = [
        token_statistics(WordEncoder(), TEXTS[a:b], groups=labels[a:b], min_count=1) for a, b in ((25, 40), (0, 25))
    ]
    merged = parts[0].merge(parts[1])
    assert merged[1].intervals["within"].high == pytest.approx(whole[1].intervals["within"].high, rel=1e-10)
    assert dict(rows_of(merged, 1)).keys() == {"a", "b", "c"}
    for name, row in rows_of(whole, 1).items():
        assert rows_of(merged, 1)[name] == pytest.approx(row, rel=1e-10)


@pytest.mark.parametrize(("texts", "groups", "short"), [(3, 2, "groups"), (2, 3, "texts")])
def test_texts_and_labels_must_go_together(texts, groups, short):
    with pytest.raises(InputError, match=rf"{short}: .* 2 entries"):
        token_statistics(WordEncoder(), TEXTS[:texts], groups=["x"] * groups)
    clouds = WordEncoder().encode(TEXTS[:texts], layers=[0])
    with pytest.raises(InputError, match=f"{groups} entries for {texts} "):
        token_statistics(clouds, groups=["x"] * groups)


# -- what is refused, and what is said ------------------------------------------------------------------------


def test_input_errors_say_what_to_do():
    with pytest.raises(InputError, match="texts: a"):
        token_statistics(WordEncoder())
    with pytest.raises(InputError, match="'one text'"):
        token_statistics(WordEncoder(), "one text")
    with pytest.raises(InputError, match="texts: received"):
        token_statistics(WordEncoder(), [])
    with pytest.raises(InputError, match="with texts, state"):
        token_statistics(WordEncoder().encode(TEXTS, layers=[0]), TEXTS)
    with pytest.raises(InputError, match="max_types: received 0"):
        token_statistics(WordEncoder(), TEXTS, max_types=0)
    with pytest.raises(InputError, match="min_count: received 0"):
        token_statistics(WordEncoder(), TEXTS, min_count=0)
    with pytest.raises(InputError, match=r"layers: received \[7\]"):
        token_statistics(WordEncoder(), TEXTS, layers=[7])
    with pytest.raises(InputError, match=r"layers: received \[1\]; .* \[0\]"):
        token_statistics(WordEncoder().encode(TEXTS, layers=[0]), layers=[1])
    with pytest.raises(InputError, match="vocabulary: received function"):
        token_statistics(WordEncoder().encode(TEXTS, layers=[0]), vocabulary=lambda texts: texts)
    with pytest.raises(InputError, match="layer 9"):
        token_statistics(WordEncoder(), TEXTS)[9]


def test_layers_of_other_texts_do_not_go_together():
    layers = {0: WordEncoder().encode(TEXTS[:4], layers=[0])[0], 1: WordEncoder().encode(TEXTS[4:8], layers=[1])[1]}
    with pytest.raises(InputError, match=r"layers \[0, 1\] .* lengths"):
        token_statistics(layers)


def test_vectors_that_are_not_finite_are_refused_with_their_layer():
    clouds = TokenClouds.from_arrays([[[1.0, np.nan]]], token_ids=[[1]])
    with pytest.raises(DegenerateCloudError, match=r"layer 4: .* NaN"):
        token_statistics({4: clouds})


def test_only_special_tokens_leave_nothing_to_measure():
    clouds = TokenClouds.from_arrays([np.ones((1, 2))], token_ids=[[0]])
    with pytest.raises(InputError, match=r"1 texts .* ordinary"):
        token_statistics(clouds, vocabulary=WordEncoder.vocabulary)


def test_too_few_types_leave_correlations_undefined_and_say_so():
    result = token_statistics(WordEncoder(), ["the cat"] * 3, min_count=3)
    assert result.coverage.counted == 2
    assert result[1].associations.mean_and_variance.pearson.value is None
    assert result[1].variation.value is not None
    alone = token_statistics(WordEncoder(), ["the cat"], min_count=50)
    assert alone.coverage.counted == 0
    assert alone[1].variation.value is None
    assert alone.interval_meanings() == {}
    assert re.search("0 of 2 token types .* 50 tokens", alone.notes()[0])
    assert json.dumps(alone.to_dict(), allow_nan=False)


def test_one_token_in_all():
    result = token_statistics(TokenClouds.from_arrays([[[3.0, 4.0]]], token_ids=[[7]]), min_count=1)
    layer = result[-1]
    assert (layer.corpus.mean_square, layer.corpus.norm_of_mean, layer.corpus.variance) == (25.0, 25.0, 0.0)
    assert layer.mean_cosine is None
    assert layer.corrected.mean_and_variance.pearson.value is None


def test_a_layer_without_ordinary_tokens_or_without_any_text_is_refused():
    """A cloud has a token in every layer, so a layer can be empty only if nothing ordinary is in it."""
    clouds = TokenClouds.from_arrays([np.ones((1, 2))], token_ids=[[0]])
    with pytest.raises(InputError, match=r"1 texts .* ordinary"):
        token_statistics({0: clouds, 1: clouds}, vocabulary=WordEncoder())
    with pytest.raises(InputError, match=r"layers: received \[\]"):
        token_statistics({})


def test_a_static_table_has_no_variance_within_a_type():
    table = np.random.default_rng(0).normal(size=(9, 4))
    ids = np.random.default_rng(1).integers(9, size=200)
    result = token_statistics(TokenClouds.from_arrays([table[ids]], token_ids=[ids]), min_count=2)
    layer = result[-1]
    np.testing.assert_allclose(layer.types.variances, 0, atol=1e-25)
    assert layer.corpus.within == pytest.approx(0, abs=1e-25)
    assert layer.associations.mean_and_variance.spearman.value is None


def test_zero_vectors_are_counted_and_have_no_cosine():
    rows = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    result = token_statistics(TokenClouds.from_arrays([rows], token_ids=[[1, 2, 3]]), min_count=1)
    assert result[-1].mean_cosine == pytest.approx(1.0)
    assert result[-1].zero_vectors == 1
    assert any("zero vectors" in note for note in result.notes())


def test_a_model_with_one_layer_only():
    result = token_statistics(
        lambda texts: [[[float(len(word)), 1.0] for word in text.split()] for text in texts],
        ["a bb", "ccc"],
        groups=["x", "y"],
        min_count=1,
    )
    assert [layer.layer for layer in result.layers] == [-1]
    assert result[-1].types.mean_squares.tolist() == [3.5, 10.0]


def test_truncation_is_counted():
    result = token_statistics(WordEncoder(), TEXTS)
    cut = sum(len(text.split()) + 1 > 10 for text in TEXTS)
    assert (result.coverage.truncated_texts, result.coverage.truncated_tokens) == (cut, cut)
    assert any(f"{cut} of 40 texts" in note for note in result.notes())


# -- tables and files -----------------------------------------------------------------------------------------


def test_tables_and_files_hold_the_numbers(tmp_path):
    result = token_statistics(WordEncoder(), TEXTS, min_count=2)
    table = result.to_table()
    assert table.num_rows == 3 * (len(result.types) + 1)
    row = next(r for r in table.to_pylist() if r["layer"] == 1 and r["name"] == "the")
    assert (row["count"], row["mean_square"], row["norm_of_mean"], row["variance"]) == rows_of(result, 1)["the"]
    assert {r["name"] for r in table.to_pylist() if r["special"]} == {"[CLS]"}
    result.save_parquet(tmp_path / "types.parquet")
    assert pq.read_table(tmp_path / "types.parquet").equals(table)
    origin = json.loads(table.schema.metadata[b"poolscope"])
    assert origin["settings"] == {"min_count": 2, "max_types": 10000, "seed": 0, "grouping": "token type"}
    assert origin["clouds"][0]["model"]["name"] == "fake/words"
    layers = result.layer_table().to_pylist()
    assert [row["layer"] for row in layers] == [0, 1, 2]
    assert layers[1]["within_low"] == result[1].intervals["within"].low
    assert layers[1]["mean_share_high"] == result[1].intervals["mean_share"].high
    assert layers[1]["mean_share"] + layers[1]["within_share"] + layers[1]["between_share"] == pytest.approx(1)
    stored = json.loads(json.dumps(result.to_dict(groups=3), allow_nan=False))
    assert [entry["name"] for entry in stored["layers"][0]["types"]] == list(result.types.names[:3])
    assert stored["layers"][2]["variation"] == result[2].variation.value
    assert stored["layers"][2]["between_high"] == result[2].intervals["between"].high
    assert stored["intervals"]["corpus"].startswith("95% ")
    assert (
        repr(result) == f"TokenStatistics(3 layers, {result.coverage.tokens:,} tokens, {len(result.types)} token types)"
    )


def test_equal_calls_give_equal_results():
    first, second = (token_statistics(WordEncoder(), TEXTS, seed=3) for _ in range(2))
    assert first.layers[1].associations == second.layers[1].associations
    assert first.to_table().equals(second.to_table())


@pytest.mark.model
def test_a_model_by_name_has_names_for_its_tokens():
    result = token_statistics("builtin:minilm", ["The cat sat.", "A cat ran."], layers=[-1], min_count=1)
    assert [layer.layer for layer in result.layers] == [6]
    assert set(result.types.names) == {"the", "cat", "sat", "a", "ran", "."}
    assert set(result.special.names) == {"[CLS]", "[SEP]"}
    assert as_encoder("builtin:minilm").vocabulary.special_ids >= {101, 102}
