"""Token statistics over a corpus: pieces, order and shards change nothing; the cap; going on with a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.tiny_models import tiny_model, tiny_tokenizer
from tests.token_data import (
    CARD,
    TEXTS,
    WORDS,
    WordEncoder,
    assert_equal_results,
    corpus,
    rows_of,
    sentences,
)

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import EncoderOptions
from poolscope.encoders.folders import Declaration
from poolscope.encoders.transformers import wrap_loaded
from poolscope.errors import InputError, StoreError
from poolscope.lab.tokens.measure import (
    TokenKeys,
    TokenRun,
    count_first,
    items_of,
    most_frequent,
    source_of,
    token_statistics,
)
from poolscope.lab.tokens.moments import TokenMoments
from poolscope.stores.store import Store
from poolscope.stores.writer import SHARD_BYTES, encode_to_store

# -- pieces, order, shards ------------------------------------------------------------------------------------


def test_the_order_of_texts_and_the_size_of_pieces_change_nothing():
    whole = token_statistics(WordEncoder(), TEXTS)
    encoder = WordEncoder()
    assert_equal_results(token_statistics(encoder, TEXTS, shard_texts=7), whole)
    assert [len(chunk) for chunk in encoder.calls] == [7, 7, 7, 7, 7, 5]
    shuffled = [TEXTS[k] for k in np.random.default_rng(0).permutation(len(TEXTS))]
    assert_equal_results(token_statistics(WordEncoder(), shuffled, shard_texts=7), whole)


def test_the_order_changes_nothing_where_only_some_texts_are_sampled():
    texts = [" ".join([TEXTS[a], *TEXTS[b : b + 10]]) for a in range(40) for b in range(0, 30, 4)]
    whole = token_statistics(WordEncoder(), texts, layers=[1])
    assert 100 < len(whole.moments.sample) < 200  # so many have tokens enough
    assert_equal_results(token_statistics(WordEncoder(), texts[::-1], layers=[1], shard_texts=70), whole)


def of_dimension(tokens):
    """The card of a model so wide, by its own word, that a shard has room for so many tokens of three layers."""
    return replace(CARD, dimension=SHARD_BYTES // (3 * 4 * tokens))


def test_chunks_are_bounded_by_the_bytes_of_all_layers():
    encoder = WordEncoder(of_dimension(40))
    token_statistics(encoder, TEXTS)
    assert len(encoder.calls) > 3
    assert max(sum(len(text.split()) for text in chunk) for chunk in encoder.calls) <= 40


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("texts", [TEXTS, sentences(400)], ids=["all sampled", "some sampled"])
def test_shards_merge_to_the_whole_in_any_order(order, texts):
    whole = token_statistics(WordEncoder(), texts, min_count=3)
    assert (len(whole.moments.sample) == 256) == (len(texts) == 400)
    shards = [token_statistics(WordEncoder(), texts[a:b], min_count=3) for a, b in ((0, 5), (5, 21), (21, None))]
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
    with pytest.raises(InputError, match=r"layer 1 .*\[0, -1\]"):
        token_statistics(tmp_path / "store", layers=[1])


def test_clouds_without_a_vocabulary_have_numbers_for_names_and_no_special_tokens():
    result = token_statistics(WordEncoder().encode(TEXTS, layers=[1]))
    assert "#0" in result.types.names
    assert len(result.special) == 0
    assert not result.coverage.special_known
    assert any("not known" in note for note in result.notes())


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
    assert any("rare token" in note and "pooled" in note for note in capped.notes())
    assert free.coverage.pooled_tokens == 0
    assert free[1].within_excess == 0


LATE = ["the the cat cat blue", "a a dog", "red mat on a tree"] + ["blue blue blue"] * 5
"""A word that comes once in the beginning and often in the end: a pass with room for 2 drops it on the way."""


def test_the_types_to_keep_are_counted_before_the_first_text_is_encoded():
    pair = (tiny_model(), tiny_tokenizer())
    result = token_statistics(pair, LATE, max_types=2, min_count=1, shard_texts=1)
    assert result.types.names == ("blue", "a")
    assert result.types.counts.tolist() == [16, 3]
    assert result.coverage.missed == 0
    assert result.coverage.groups == 9
    once = token_statistics(pair, iter(LATE), max_types=2, min_count=1, shard_texts=1)
    assert "blue" not in once.types.names
    assert once.coverage.missed == 1


def test_the_types_of_clouds_are_counted_before_their_vectors_are_read():
    blocks = TokenClouds.concatenate([WordEncoder().encode([text], layers=[0])[0] for text in LATE])
    result = token_statistics(blocks, vocabulary=WordEncoder(), max_types=2, min_count=1)
    assert result.types.names == ("blue", "a")
    assert result.types.counts.tolist() == [16, 3]


def test_prompt_tokens_that_the_pooling_leaves_out_are_not_counted():
    declared = Declaration(pooling=("mean",), include_prompt=False, prompts={"q": "query : "}, default_prompt="q")
    encoder = wrap_loaded(tiny_model(), tiny_tokenizer(), options=EncoderOptions(), declared=declared)
    texts = ["cat", "dog", "dog", "cat dog mat", "tree"]
    allowed = count_first(encoder, texts, encoder.vocabulary, 2)
    assert allowed.tolist() == sorted(tiny_tokenizer().convert_tokens_to_ids(["cat", "dog"]))
    result = token_statistics(encoder, texts, max_types=2, min_count=1)
    assert dict(zip(result.types.names, result.types.counts.tolist(), strict=True)) == {"dog": 3, "cat": 2}


def test_texts_that_can_be_read_only_once_keep_what_was_frequent_in_time():
    """One pass with room for 2: after more than 4 types the rarest so far go to the pool, for good."""
    texts = ["the the the a a cat", "dog sat on", "mat mat mat mat mat mat", "cat cat cat cat"]
    result = token_statistics(WordEncoder(), iter(texts), max_types=2, min_count=1, shard_texts=1)
    assert result.types.names == ("mat", "the")
    assert result.types.counts.tolist() == [6, 3]
    assert result.coverage.missed == 1  # cat, 5 times, went to the pool after its first
    assert any("more frequent" in note for note in result.notes())
    exact = token_statistics(WordEncoder(), texts, max_types=20, min_count=1)
    assert rows_of(result, 1)["mat"] == pytest.approx(rows_of(exact, 1)["mat"], rel=1e-12)
    assert result[1].corpus.variance == pytest.approx(exact[1].corpus.variance, rel=1e-12)


def test_most_frequent_of_ids():
    parts = [np.array([3, 3, 9]), np.array([9, 9, 1, 200])]
    assert most_frequent(parts, [9], 1).tolist() == [3]
    assert most_frequent(parts, [9, 1000], 3) is None


# -- going on with a run --------------------------------------------------------------------------------------


def interrupted(state, *, at, card=CARD, error=KeyboardInterrupt, **choices):
    def strike(call):
        if call == at:
            raise error

    with pytest.raises(error):
        token_statistics(WordEncoder(card, before=strike), TEXTS, state=state, **choices)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_run_goes_on_where_it_stopped_bit_by_bit(tmp_path, error):
    whole = token_statistics(WordEncoder(), TEXTS, shard_texts=6)
    state = tmp_path / "run.npz"
    interrupted(state, at=3, error=error, shard_texts=6)
    encoder, done = WordEncoder(), []
    result = token_statistics(
        encoder, TEXTS, state=state, shard_texts=6, progress=lambda texts, tokens: done.append((texts, tokens))
    )
    assert [len(chunk) for chunk in encoder.calls] == [6, 6, 6, 4]
    assert done[0] == (18, 0)
    assert result.to_table().equals(whole.to_table())
    assert result.layer_table().equals(whole.layer_table())
    again = WordEncoder()
    assert token_statistics(again, TEXTS, state=state).to_table().equals(whole.to_table())
    assert again.calls == []


@pytest.mark.parametrize("at", [1, 2, 4, 5])
def test_windows_that_are_cut_by_bytes_are_cut_alike_after_an_interruption(tmp_path, at):
    """The window of 15 texts ends where it would have, wherever in it the run was interrupted."""
    card = of_dimension(60)
    whole = WordEncoder(card)
    expected = token_statistics(whole, TEXTS, shard_texts=15)
    sizes = [len(chunk) for chunk in whole.calls]
    assert len(sizes) > 5
    assert len(set(sizes)) > 2
    interrupted(tmp_path / "run.npz", at=at, card=card, shard_texts=15)
    rest = WordEncoder(card)
    result = token_statistics(rest, TEXTS, state=tmp_path / "run.npz", shard_texts=15)
    assert rest.calls == whole.calls[at:]
    assert result.to_table().equals(expected.to_table())


def test_the_state_is_saved_now_and_then(tmp_path):
    state, seen = tmp_path / "run.npz", []
    encoder = WordEncoder(before=lambda call: seen.append(state.exists()))
    moments = TokenMoments(source_of(CARD.to_dict(), {}, encoder.vocabulary, None), 100)
    keys = TokenKeys(moments.names, encoder.vocabulary, by_label=False)
    run = TokenRun(encoder, [0, 1, 2], moments, keys, state=state, shard_texts=10, save_seconds=0.0)
    run.take(items_of(TEXTS, None))
    assert seen == [False, True, True, True]


def test_more_texts_may_follow_those_of_a_saved_run(tmp_path):
    state = tmp_path / "run.npz"
    token_statistics(WordEncoder(), TEXTS[:25], state=state)
    encoder = WordEncoder()
    assert_equal_results(token_statistics(encoder, iter(TEXTS), state=state), token_statistics(WordEncoder(), TEXTS))
    assert encoder.calls == [TEXTS[25:]]


def test_labels_go_on_with_their_numbers(tmp_path):
    labels = [["b", "a", "c"][k // 14] for k in range(len(TEXTS))]
    state = tmp_path / "run.npz"
    interrupted(state, at=3, groups=labels, shard_texts=6)
    result = token_statistics(WordEncoder(), TEXTS, groups=labels, state=state, min_count=1)
    assert_equal_results(result, token_statistics(WordEncoder(), TEXTS, groups=labels, min_count=1))
    with pytest.raises(StoreError, match=rf"{len(TEXTS)} texts, .* same order"):
        token_statistics(WordEncoder(), TEXTS, groups=["z"] * len(TEXTS), state=state)


def test_a_state_of_other_texts_or_choices_is_refused(tmp_path):
    state = tmp_path / "run.npz"
    token_statistics(WordEncoder(), TEXTS[:5], state=state)
    before = state.read_bytes()
    with pytest.raises(StoreError, match=r"5 texts, .* first 5"):
        token_statistics(WordEncoder(), TEXTS[::-1], state=state)
    with pytest.raises(StoreError, match=r"5 texts, .* first 3"):
        token_statistics(WordEncoder(), TEXTS[:3], state=state)
    with pytest.raises(StoreError, match=r"layers: \[0, 1, 2\] and \[0\]"):
        token_statistics(WordEncoder(), TEXTS, layers=[0], state=state)
    with pytest.raises(StoreError, match="max_types: 10000 and 7"):
        token_statistics(WordEncoder(), TEXTS, max_types=7, state=state)
    other = replace(CARD, revision="r2")
    with pytest.raises(StoreError, match=r"model: .*r1.* and .*r2"):
        token_statistics(WordEncoder(other), TEXTS, state=state)
    assert state.read_bytes() == before
