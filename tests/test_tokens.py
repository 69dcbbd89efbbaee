"""Token statistics from a model, from clouds and from a store: definitions, identities, what must change nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats
from tests.tiny_models import tiny_model, tiny_tokenizer
from tests.token_data import CARD, WORDS, WordEncoder, definitions, sentences

from poolscope.analyses import text_sample, token_moments, token_run
from poolscope.analyses.token_keys import most_frequent
from poolscope.analyses.tokens import token_statistics
from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder, encode
from poolscope.encoders.base import EncoderOptions
from poolscope.encoders.declaration import Declaration
from poolscope.encoders.transformers import wrap_loaded
from poolscope.errors import DegenerateCloudError, InputError, StoreError
from poolscope.store import Store
from poolscope.store_writer import encode_to_store
from poolscope.texts import ReadReport, Texts

TEXTS = sentences()


def corpus(texts=TEXTS, labels=None):
    ids = tuple(str(k) for k in range(len(texts)))
    return Texts(ids, tuple(texts), labels, "memory", ReadReport(read=len(texts), kept=len(texts)))


def rows_of(result, layer):
    """{name: (count, Q, M, V)} of the ordinary groups of a layer."""
    columns = result[layer].types
    values = (result.types.counts, columns.mean_squares, columns.norms_of_means, columns.variances)
    return dict(zip(result.types.names, zip(*(array.tolist() for array in values), strict=True), strict=True))


def assert_equal_results(first, second, *, tolerance=1e-10):
    assert first.types.names == second.types.names
    assert first.types.counts.tolist() == second.types.counts.tolist()
    for mine, other in zip(first.layers, second.layers, strict=True):
        for name in ("mean_squares", "norms_of_means", "variances"):
            for part in ("types", "special"):
                np.testing.assert_allclose(
                    getattr(getattr(mine, part), name), getattr(getattr(other, part), name), rtol=tolerance, atol=1e-12
                )
        for name in ("mean_square", "norm_of_mean", "within", "between"):
            assert getattr(mine.corpus, name) == pytest.approx(getattr(other.corpus, name), rel=tolerance)
        assert mine.mean_cosine == pytest.approx(other.mean_cosine, rel=tolerance)
        assert mine.intervals.keys() == other.intervals.keys()
        for name, interval in mine.intervals.items():
            assert interval.low == pytest.approx(other.intervals[name].low, rel=tolerance)
            assert interval.high == pytest.approx(other.intervals[name].high, rel=tolerance)


def assert_is_by_definition(result, layer, clouds, **choices):
    table, (square, mean, within, between, cosine) = definitions(clouds, **choices)
    found = rows_of(result, layer)
    by_type = choices.get("groups") is None
    expected = {WORDS[k] if by_type else k: row for k, row in table.items() if not isinstance(k, tuple)}
    assert found.keys() == expected.keys()
    for name, row in expected.items():
        assert found[name] == pytest.approx(row, rel=1e-10, abs=1e-12)
    part = result[layer].corpus
    measured = (part.mean_square, part.norm_of_mean, part.within, part.between, result[layer].mean_cosine)
    assert measured == pytest.approx((square, mean, within, between, cosine), rel=1e-10, abs=1e-12)


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
        assert "token types as draws" in interval.answers
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


# -- pieces, order, shards ------------------------------------------------------------------------------------


def test_the_order_of_texts_and_the_size_of_pieces_change_nothing(monkeypatch):
    whole = token_statistics(WordEncoder(), TEXTS)
    monkeypatch.setattr(token_run, "SHARD_TEXTS", 7)
    monkeypatch.setattr(token_moments, "_PIECE_ELEMENTS", 60)
    encoder = WordEncoder()
    assert_equal_results(token_statistics(encoder, TEXTS), whole)
    assert [len(chunk) for chunk in encoder.calls] == [7, 7, 7, 7, 7, 5]
    shuffled = [TEXTS[k] for k in np.random.default_rng(0).permutation(len(TEXTS))]
    assert_equal_results(token_statistics(WordEncoder(), shuffled), whole)


def test_the_order_changes_nothing_where_only_some_texts_are_sampled(monkeypatch):
    monkeypatch.setattr(text_sample, "MOST_TOKENS", 40)
    texts = [*TEXTS, *TEXTS[:6]]
    whole = token_statistics(WordEncoder(), texts)
    assert 2 < len(whole.moments.sample) < 20
    monkeypatch.setattr(token_run, "SHARD_TEXTS", 7)
    assert_equal_results(token_statistics(WordEncoder(), texts[::-1]), whole)


def test_chunks_are_bounded_by_the_bytes_of_all_layers(monkeypatch):
    monkeypatch.setattr("poolscope.store_writer.SHARD_BYTES", 3 * 6 * 4 * 40)  # 40 tokens of three layers
    encoder = WordEncoder()
    token_statistics(encoder, TEXTS)
    assert len(encoder.calls) > 3
    assert max(sum(len(text.split()) for text in chunk) for chunk in encoder.calls) <= 40


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("sampled", [256, 7])
def test_shards_merge_to_the_whole_in_any_order(order, sampled, monkeypatch):
    monkeypatch.setattr(text_sample, "MOST_TEXTS", sampled)
    whole = token_statistics(WordEncoder(), TEXTS, min_count=3)
    shards = [token_statistics(WordEncoder(), TEXTS[a:b], min_count=3) for a, b in ((0, 5), (5, 21), (21, 40))]
    merged = shards[order[0]].merge(shards[order[1]]).merge(shards[order[2]])
    assert_equal_results(merged, whole)
    assert merged.coverage == whole.coverage
    assert merged[2].variation.value == pytest.approx(whole[2].variation.value, rel=1e-10)


def test_an_iterator_of_texts_is_read_once():
    whole = token_statistics(WordEncoder(), TEXTS)
    assert_equal_results(token_statistics(WordEncoder(), iter(TEXTS)), whole)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_clouds_in_blocks_that_differ_between_layers(order):
    parts = [WordEncoder().encode(TEXTS[a:b], layers=[0, 1]) for a, b in ((0, 10), (10, 25), (25, 40))]
    first = TokenClouds.concatenate([part[0] for part in parts])
    second = TokenClouds.concatenate(
        [TokenClouds.concatenate([parts[0][1], parts[1][1]]).select(np.arange(25)), parts[2][1]]
    )
    result = token_statistics({0: first, 1: second}, layers=order, vocabulary=WordEncoder())
    assert_equal_results(result, token_statistics(WordEncoder(), TEXTS, layers=[0, 1]))


def test_a_store_with_several_layers(tmp_path):
    encode_to_store(WordEncoder(), corpus(), tmp_path / "store", layers=[0, -1], shard_texts=9)
    whole = token_statistics(WordEncoder(), TEXTS, layers=[0, 2])
    for source in (tmp_path / "store", str(tmp_path / "store"), Store.open(tmp_path / "store")):
        assert_equal_results(token_statistics(source, vocabulary=WordEncoder()), whole)
    only = token_statistics(tmp_path / "store", layers=[-1], vocabulary=WordEncoder())
    assert [layer.layer for layer in only.layers] == [2]
    with pytest.raises(InputError, match=r"layer 1 was asked for, and the store holds the layers \[0, -1\]"):
        token_statistics(tmp_path / "store", layers=[1])


def test_clouds_without_a_vocabulary_have_numbers_for_names_and_no_special_tokens():
    result = token_statistics(WordEncoder().encode(TEXTS, layers=[1]))
    assert "#0" in result.types.names
    assert len(result.special) == 0
    assert not result.coverage.special_known
    assert any("not known which tokens are special" in note for note in result.notes())


# -- the cap --------------------------------------------------------------------------------------------------


def rest_of(clouds, names):
    """All tokens of other words than these (and than [CLS])."""
    kept = {WORDS.index(name) for name in names} | {0}
    parts = [clouds[k][~np.isin(clouds.token_ids(k), list(kept))] for k in range(len(clouds))]
    return np.concatenate(parts).astype(float)


def test_the_most_frequent_types_are_kept_exactly_and_the_rest_is_pooled():
    states = WordEncoder().encode(TEXTS, layers=[1])
    free = token_statistics(states, vocabulary=WordEncoder())
    capped = token_statistics(states, vocabulary=WordEncoder(), max_types=5)
    assert capped.types.names == free.types.names[:5]
    assert rows_of(capped, 1) == {name: rows_of(free, 1)[name] for name in capped.types.names}
    part, whole = capped[1].corpus, free[1].corpus
    rest = rest_of(states[1], capped.types.names)
    assert capped.coverage.pooled_tokens == len(rest)
    assert capped.coverage.groups == free.coverage.groups
    assert capped.coverage.missed == 0
    assert (part.mean_square, part.norm_of_mean) == pytest.approx((whole.mean_square, whole.norm_of_mean), rel=1e-12)
    assert part.variance == pytest.approx(whole.variance, rel=1e-12)
    assert capped[1].within_excess == pytest.approx(len(rest) * rest.var(axis=0).sum() / part.count, rel=1e-10)
    assert part.within - capped[1].within_excess <= whole.within <= part.within
    assert any("rare token types" in note and "pooled" in note for note in capped.notes())
    assert free.coverage.pooled_tokens == 0
    assert free[1].within_excess == 0


LATE = ["the the cat cat blue", "a a dog", "red mat on a tree"] + ["blue blue blue"] * 5
"""A word that comes once in the beginning and often in the end: a pass with room for 2 drops it on the way."""


def test_the_types_to_keep_are_counted_before_the_first_text_is_encoded(monkeypatch):
    monkeypatch.setattr(token_run, "SHARD_TEXTS", 1)
    pair = (tiny_model(), tiny_tokenizer())
    result = token_statistics(pair, LATE, max_types=2, min_count=1)
    assert result.types.names == ("blue", "a")
    assert result.types.counts.tolist() == [16, 3]
    assert result.coverage.missed == 0
    assert result.coverage.groups == 9
    once = token_statistics(pair, iter(LATE), max_types=2, min_count=1)
    assert "blue" not in once.types.names
    assert once.coverage.missed == 1


def test_the_types_of_clouds_are_counted_before_their_vectors_are_read(monkeypatch):
    monkeypatch.setattr(token_moments, "_PIECE_ELEMENTS", 6 * 5)
    result = token_statistics(
        WordEncoder().encode(LATE, layers=[0]), vocabulary=WordEncoder(), max_types=2, min_count=1
    )
    assert result.types.names == ("blue", "a")
    assert result.types.counts.tolist() == [16, 3]


def test_prompt_tokens_that_the_pooling_leaves_out_are_not_counted():
    declared = Declaration(pooling=("mean",), include_prompt=False, prompts={"q": "query : "}, default_prompt="q")
    encoder = wrap_loaded(tiny_model(), tiny_tokenizer(), options=EncoderOptions(), declared=declared)
    texts = ["cat", "dog", "dog", "cat dog mat", "tree"]
    allowed = token_run.count_first(encoder, texts, encoder.vocabulary, 2)
    assert allowed.tolist() == sorted(tiny_tokenizer().convert_tokens_to_ids(["cat", "dog"]))
    result = token_statistics(encoder, texts, max_types=2, min_count=1)
    assert dict(zip(result.types.names, result.types.counts.tolist(), strict=True)) == {"dog": 3, "cat": 2}


def test_texts_that_can_be_read_only_once_keep_what_was_frequent_in_time(monkeypatch):
    """One pass with room for 2: after more than 4 types the rarest so far go to the pool, for good."""
    monkeypatch.setattr(token_run, "SHARD_TEXTS", 1)
    texts = ["the the the a a cat", "dog sat on", "mat mat mat mat mat mat", "cat cat cat cat"]
    result = token_statistics(WordEncoder(), iter(texts), max_types=2, min_count=1)
    assert result.types.names == ("mat", "the")
    assert result.types.counts.tolist() == [6, 3]
    assert result.coverage.missed == 1  # cat, 5 times, went to the pool after its first
    assert any("more frequent than the rarest" in note for note in result.notes())
    exact = token_statistics(WordEncoder(), texts, max_types=20, min_count=1)
    assert rows_of(result, 1)["mat"] == pytest.approx(rows_of(exact, 1)["mat"], rel=1e-12)
    assert result[1].corpus.variance == pytest.approx(exact[1].corpus.variance, rel=1e-12)


def test_most_frequent_of_ids():
    parts = [np.array([3, 3, 9]), np.array([9, 9, 1, 200])]
    assert most_frequent(parts, [9], 1).tolist() == [3]
    assert most_frequent(parts, [9, 1000], 3) is None


# -- labels ---------------------------------------------------------------------------------------------------


def test_groups_by_a_label_a_text():
    labels = [["news", "law", "code"][k % 3] for k in range(len(TEXTS))]
    result = token_statistics(WordEncoder(), TEXTS, groups=labels, min_count=1)
    assert result.grouping == "label"
    clouds = WordEncoder().encode(TEXTS, layers=[2])[2]
    assert_is_by_definition(result, 2, clouds, groups=labels)
    assert result.special.names == ("[CLS]",)
    assert "labels have 1 tokens or more" in result.notes()[0]


def test_groups_by_a_label_a_token():
    texts = ["the cat sat", "a dog runs far"]
    tags = [["X", "D", "N", "V"], np.array(["X", "D", "N", "V", "A"])]
    result = token_statistics(WordEncoder(), texts, groups=tags, min_count=1)
    assert dict(zip(result.types.names, result.types.counts.tolist(), strict=True)) == {"D": 2, "N": 2, "V": 2, "A": 1}
    with pytest.raises(InputError, match="3 labels for a text of 4 tokens"):
        token_statistics(WordEncoder(), texts, groups=[["D", "N", "V"], "whole"])


def test_labels_work_without_token_ids():
    clouds = TokenClouds.from_arrays([np.eye(3), 2 * np.eye(3)])
    result = token_statistics(clouds, groups=["a", "b"], min_count=1)
    assert result[-1].types.mean_squares.tolist() == [1.0, 4.0]
    with pytest.raises(InputError, match="no token ids, so the tokens cannot be grouped by type"):
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
    with pytest.raises(InputError, match=f"{short}: ended after 2 entries"):
        token_statistics(WordEncoder(), TEXTS[:texts], groups=["x"] * groups)
    clouds = WordEncoder().encode(TEXTS[:texts], layers=[0])
    with pytest.raises(InputError, match=f"received {groups} entries for {texts} texts"):
        token_statistics(clouds, groups=["x"] * groups)


# -- going on with a run --------------------------------------------------------------------------------------


def interrupted(state, *, at, texts=TEXTS, error=KeyboardInterrupt, **choices):
    def strike(call):
        if call == at:
            raise error

    with pytest.raises(error):
        token_statistics(WordEncoder(before=strike), texts, state=state, **choices)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_run_goes_on_where_it_stopped_bit_by_bit(tmp_path, monkeypatch, error):
    monkeypatch.setattr(token_run, "SHARD_TEXTS", 6)
    whole = token_statistics(WordEncoder(), TEXTS)
    state = tmp_path / "run.npz"
    interrupted(state, at=3, error=error)
    encoder, done = WordEncoder(), []
    result = token_statistics(encoder, TEXTS, state=state, progress=lambda texts, tokens: done.append((texts, tokens)))
    assert [len(chunk) for chunk in encoder.calls] == [6, 6, 6, 4]
    assert done[0] == (18, 0)
    assert result.to_table().equals(whole.to_table())
    assert result.layer_table().equals(whole.layer_table())
    again = WordEncoder()
    assert token_statistics(again, TEXTS, state=state).to_table().equals(whole.to_table())
    assert again.calls == []


def test_the_state_is_saved_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr(token_run, "SHARD_TEXTS", 10)
    monkeypatch.setattr(token_run, "_SAVE_SECONDS", 0.0)
    state = tmp_path / "run.npz"
    seen = []
    token_statistics(WordEncoder(before=lambda call: seen.append(state.exists())), TEXTS, state=state)
    assert seen == [False, True, True, True]


def test_more_texts_may_follow_those_of_a_saved_run(tmp_path):
    state = tmp_path / "run.npz"
    token_statistics(WordEncoder(), TEXTS[:25], state=state)
    encoder = WordEncoder()
    assert_equal_results(token_statistics(encoder, iter(TEXTS), state=state), token_statistics(WordEncoder(), TEXTS))
    assert encoder.calls == [TEXTS[25:]]


def test_labels_go_on_with_their_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(token_run, "SHARD_TEXTS", 6)
    labels = [["b", "a", "c"][k // 14] for k in range(len(TEXTS))]
    state = tmp_path / "run.npz"
    interrupted(state, at=3, groups=labels)
    result = token_statistics(WordEncoder(), TEXTS, groups=labels, state=state, min_count=1)
    assert_equal_results(result, token_statistics(WordEncoder(), TEXTS, groups=labels, min_count=1))
    with pytest.raises(StoreError, match="not the same ones in the same order"):
        token_statistics(WordEncoder(), TEXTS, groups=["z"] * len(TEXTS), state=state)


def test_a_state_of_other_texts_or_choices_is_refused(tmp_path):
    state = tmp_path / "run.npz"
    token_statistics(WordEncoder(), TEXTS[:5], state=state)
    before = state.read_bytes()
    with pytest.raises(StoreError, match="took in 5 texts, and the first 5 given now are not the same"):
        token_statistics(WordEncoder(), TEXTS[::-1], state=state)
    with pytest.raises(StoreError, match="took in 5 texts, and the first 3 given now"):
        token_statistics(WordEncoder(), TEXTS[:3], state=state)
    with pytest.raises(StoreError, match=r"layers: \[0, 1, 2\] and \[0\]"):
        token_statistics(WordEncoder(), TEXTS, layers=[0], state=state)
    with pytest.raises(StoreError, match="max_types: 10000 and 7"):
        token_statistics(WordEncoder(), TEXTS, max_types=7, state=state)
    other = replace(CARD, revision="r2")
    with pytest.raises(StoreError, match=r"model: .*r1.* and .*r2"):
        token_statistics(WordEncoder(other), TEXTS, state=state)
    assert state.read_bytes() == before


# -- what is refused, and what is said ------------------------------------------------------------------------


def test_input_errors_say_what_to_do():
    with pytest.raises(InputError, match="a model needs a list of texts"):
        token_statistics(WordEncoder())
    with pytest.raises(InputError, match="a model needs a list of texts"):
        token_statistics(WordEncoder(), "one text")
    with pytest.raises(InputError, match="texts: received none"):
        token_statistics(WordEncoder(), [])
    with pytest.raises(InputError, match="clouds together with texts"):
        token_statistics(WordEncoder().encode(TEXTS, layers=[0]), TEXTS)
    with pytest.raises(InputError, match="max_types: received 0"):
        token_statistics(WordEncoder(), TEXTS, max_types=0)
    with pytest.raises(InputError, match="min_count: received 0"):
        token_statistics(WordEncoder(), TEXTS, min_count=0)
    with pytest.raises(InputError, match=r"layers: received \[7\]"):
        token_statistics(WordEncoder(), TEXTS, layers=[7])
    with pytest.raises(InputError, match=r"the clouds are of the layers \[0\]"):
        token_statistics(WordEncoder().encode(TEXTS, layers=[0]), layers=[1])
    with pytest.raises(InputError, match="vocabulary: received function, which has none"):
        token_statistics(WordEncoder().encode(TEXTS, layers=[0]), vocabulary=lambda texts: texts)
    with pytest.raises(InputError, match="layer 9 was asked for"):
        token_statistics(WordEncoder(), TEXTS)[9]


def test_layers_of_other_texts_do_not_go_together():
    layers = {0: WordEncoder().encode(TEXTS[:4], layers=[0])[0], 1: WordEncoder().encode(TEXTS[4:8], layers=[1])[1]}
    with pytest.raises(InputError, match="all layers must be of the same tokens"):
        token_statistics(layers)


def test_vectors_that_are_not_finite_are_refused_with_their_layer():
    clouds = TokenClouds.from_arrays([[[1.0, np.nan]]], token_ids=[[1]])
    with pytest.raises(DegenerateCloudError, match="layer 4: the token vectors hold NaN"):
        token_statistics({4: clouds})


def test_only_special_tokens_leave_nothing_to_measure():
    clouds = TokenClouds.from_arrays([np.ones((1, 2))], token_ids=[[0]])
    with pytest.raises(InputError, match="no ordinary token"):
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
    assert "0 of 2 token types have 50 tokens or more" in alone.notes()[0]
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
    with pytest.raises(InputError, match="nothing to measure"):
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
    assert any(f"{cut} of 40 texts were cut" in note for note in result.notes())


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
    result.save_json(tmp_path / "result.json", groups=3)
    stored = json.loads((tmp_path / "result.json").read_text())
    assert stored == result.to_dict(groups=3)
    assert [entry["name"] for entry in stored["layers"][0]["types"]] == list(result.types.names[:3])
    assert stored["layers"][2]["variation"] == result[2].variation.value
    assert stored["layers"][2]["between_high"] == result[2].intervals["between"].high
    assert stored["intervals"]["corpus"].startswith("95% for the population of texts")
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
