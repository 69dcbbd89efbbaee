"""The running state: slots, the pool, merging of capped shards, and its file."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from poolscope.errors import InputError, StoreError
from poolscope.lab.tokens import moments as token_state
from poolscope.lab.tokens.moments import (
    POOLED,
    KeyTable,
    TokenMoments,
    is_state,
    load_state,
    save_state,
    special_key,
)
from poolscope.lab.tokens.summary import summarise

SOURCE = {"model": {"name": "m"}, "options": {}, "grouping": "token type", "special": [0]}


def tokens(count=300, *, seed=0, types=12):
    generator = np.random.default_rng(seed)
    keys = (generator.zipf(1.5, size=count) % types).astype(np.int64)
    keys[keys == 0] = special_key(0)
    rows = {layer: generator.normal(size=(types, 4))[keys] + generator.normal(size=(count, 4)) for layer in (0, 5)}
    return keys, rows


def taken(keys, rows, *parts, elements=10**6, **choices):
    moments = TokenMoments(SOURCE, **{"max_types": 100, **choices})
    for part in parts or (slice(None),):
        moments.add(keys[part], {layer: matrix[part] for layer, matrix in rows.items()}, elements=elements)
    moments.names = {int(key): f"t{key}" for key in moments.table.keys}
    return moments


def group(moments, key, layer=0):
    """(count, mean, scatter) of a kept key."""
    place, there = moments.table.find(np.array([key]))
    assert there[0]
    slot = moments.table.slots[place[0]]
    assert slot != POOLED
    groups = moments.layers[layer].groups
    return int(groups.counts[slot]), groups.means[slot], float(groups.scatters[slot])


def assert_group(moments, key, rows, *, layer=0):
    count, mean, scatter = group(moments, key, layer)
    assert count == len(rows)
    np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-10, atol=1e-12)
    assert scatter == pytest.approx(((rows - rows.mean(0)) ** 2).sum(), rel=1e-10, abs=1e-12)


def test_keys_get_slots_as_they_come_and_keep_them():
    table = KeyTable()
    assert table.add(np.array([3, 9]), np.array([1, 2]), allowed=None).tolist() == [0, 1]
    assert table.add(np.array([-1, 3, 5]), np.array([4, 5, 6]), allowed=None).tolist() == [2, 0, 3]
    assert table.keys.tolist() == [-1, 3, 5, 9]
    assert table.counts.tolist() == [4, 6, 6, 2]
    assert table.ranked().tolist() == [1, 2, 3]


def test_keys_that_are_not_allowed_are_counted_and_pooled_special_ones_kept():
    table = KeyTable()
    slots = table.add(np.array([-1, 3, 5]), np.array([1, 1, 1]), allowed=np.array([5]))
    assert slots.tolist() == [0, POOLED, 1]
    assert table.grouped.tolist() == [True, False, True]


@pytest.mark.parametrize("elements", [10**6, 60], ids=["at once", "15 rows at a time"])
def test_every_group_holds_all_its_tokens(elements):
    keys, rows = tokens()
    moments = taken(keys, rows, slice(0, 90), slice(90, 91), slice(91, 300), elements=elements)
    for key in set(keys.tolist()):
        for layer in (0, 5):
            assert_group(moments, key, rows[layer][keys == key], layer=layer)
    assert moments.tokens == 300


def test_the_pool_holds_all_tokens_that_no_group_holds():
    keys, rows = tokens()
    moments = taken(keys, rows, slice(0, 100), slice(100, 300), allowed=np.array([1, 2]))
    rest = rows[0][(keys > 2)]
    pool = moments.layers[0].pool
    assert pool.counts[0] == len(rest)
    np.testing.assert_allclose(pool.means[0], rest.mean(0), rtol=1e-10)
    assert pool.variances[0] == pytest.approx(rest.var(axis=0).sum(), rel=1e-10)
    assert_group(moments, 1, rows[0][keys == 1])
    assert_group(moments, special_key(0), rows[0][keys == special_key(0)])


def test_a_type_that_was_pooled_once_stays_in_the_pool():
    rows = np.arange(30.0).reshape(15, 2)
    keys = np.array([1, 1, 1, 2, 2, 2, 3, 4, 5, 3, 3, 3, 3, 3, 3])
    moments = TokenMoments(SOURCE, max_types=2)
    moments.add(keys[:9], {0: rows[:9]})
    assert moments.table.slots.tolist() == [0, 1, POOLED, POOLED, POOLED]
    moments.add(keys[9:], {0: rows[9:]})
    assert moments.table.counts.tolist() == [3, 3, 7, 1, 1]
    assert moments.layers[0].pool.counts[0] == 9
    np.testing.assert_allclose(moments.layers[0].pool.means[0], rows[6:].mean(0))
    assert_group(moments, 2, rows[3:6])


def test_shards_with_different_pools_keep_what_both_kept():
    keys, rows = tokens(400, types=20)
    halves = [slice(0, 200), slice(200, 400)]
    first = taken(keys[halves[0]], {k: v[halves[0]] for k, v in rows.items()}, allowed=np.array([1, 2, 3, 4]))
    second = taken(keys[halves[1]], {k: v[halves[1]] for k, v in rows.items()}, allowed=np.array([1, 2, 5]))
    for merged in (first.merge(second), second.merge(first)):
        kept = set(merged.table.keys[merged.table.grouped].tolist())
        unseen = {key for key in (3, 4) if key not in keys[halves[1]]} | {k for k in (5,) if k not in keys[halves[0]]}
        assert kept == {special_key(0), 1, 2} | unseen
        for key in kept:
            assert_group(merged, key, rows[5][keys == key], layer=5)
        rest = rows[0][~np.isin(keys, list(kept))]
        pool = merged.layers[0].pool
        assert pool.counts[0] == len(rest)
        np.testing.assert_allclose(pool.means[0], rest.mean(0), rtol=1e-10)
        assert pool.scatters[0] == pytest.approx(((rest - rest.mean(0)) ** 2).sum(), rel=1e-10)
        assert merged.table.counts.tolist() == np.unique(keys, return_counts=True)[1].tolist()


def test_merging_leaves_both_sides_as_they_were():
    keys, rows = tokens()
    first, second = taken(keys, rows, slice(0, 150)), taken(keys, rows, slice(150, 300))
    before = [summarise(part, min_count=1).to_table() for part in (first, second)]
    first.merge(second)
    assert [
        summarise(part, min_count=1).to_table().equals(t) for part, t in zip((first, second), before, strict=True)
    ] == [
        True,
        True,
    ]


def test_an_empty_shard_changes_nothing():
    keys, rows = tokens()
    moments = taken(keys, rows)
    merged = moments.merge(TokenMoments(SOURCE, max_types=100))
    np.testing.assert_array_equal(
        summarise(merged, min_count=1)[0].types.variances, summarise(moments, min_count=1)[0].types.variances
    )


def test_different_sources_and_layers_do_not_merge():
    keys, rows = tokens()
    moments = taken(keys, rows)
    other = TokenMoments({**SOURCE, "model": {"name": "other"}}, max_types=100)
    with pytest.raises(InputError, match=r"model: \{'name': 'm'\} .*\{'name': 'other'\}"):
        moments.merge(other)
    fewer = TokenMoments(SOURCE, max_types=100)
    fewer.add(keys, {0: rows[0]})
    with pytest.raises(InputError, match=r"layers \[0, 5\] .* \[0\]"):
        moments.merge(fewer)


def test_layers_must_have_a_row_a_token():
    keys, rows = tokens()
    moments = taken(keys, rows)
    with pytest.raises(InputError, match=r"\(299, 4\)\} for 300 "):
        moments.add(keys, {0: rows[0], 5: rows[5][:-1]})
    with pytest.raises(InputError, match=r"\{0: \(300, 4\)\} .* \[0, 5\]"):
        moments.add(keys, {0: rows[0]})


# -- the file -------------------------------------------------------------------------------------------------


def test_a_state_comes_back_bit_by_bit(tmp_path):
    keys, rows = tokens()
    moments = taken(keys, rows, allowed=np.array([1, 2, 3]))
    moments.texts, moments.truncated_texts, moments.truncated_tokens, moments.digest = 7, 2, 30, "abc"
    moments.sample.take([5, 3], np.array([40, 60]), keys[:100], {layer: part[:100] for layer, part in rows.items()})
    path = tmp_path / "state.npz"
    save_state(moments, path)
    found = load_state(path)
    assert found.sample.tokens == moments.sample.tokens > 0
    for (mark, text), (other_mark, other) in zip(moments.sample.items(), found.sample.items(), strict=True):
        assert (mark, text.copies, text.keys.tolist()) == (other_mark, other.copies, other.keys.tolist())
        assert all(np.array_equal(text.rows[layer], other.rows[layer]) for layer in (0, 5))
    for name in ("source", "max_types", "texts", "truncated_texts", "truncated_tokens", "digest", "names", "tokens"):
        assert getattr(found, name) == getattr(moments, name)
    assert found.allowed.tolist() == [1, 2, 3]
    assert summarise(found, min_count=1).to_table().equals(summarise(moments, min_count=1).to_table())
    for part in (moments, found):
        part.add(keys, rows)
    assert summarise(found, min_count=1).to_table().equals(summarise(moments, min_count=1).to_table())
    assert is_state(path)
    assert not is_state(tmp_path / "none.npz")
    assert not is_state(tmp_path)


def test_a_state_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    keys, rows = tokens()
    path = tmp_path / "state.npz"
    save_state(taken(keys, rows), path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"state\.npz: .*\(no space"):
        save_state(taken(keys, rows, slice(0, 10)), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.npz"]


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"text", lambda data: b""])
def test_damaged_files_are_named(tmp_path, damage):
    keys, rows = tokens()
    path = tmp_path / "state.npz"
    save_state(taken(keys, rows), path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StoreError, match=r"state\.npz: damaged"):
        load_state(path)


def test_foreign_and_missing_files_are_named(tmp_path):
    with pytest.raises(StoreError, match=r"none\.npz"):
        load_state(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", a=np.arange(3))
    with pytest.raises(StoreError, match=r"other\.npz: "):
        load_state(tmp_path / "other.npz")
    header = json.dumps({"format": "poolscope token moments 99"}).encode()
    np.savez(tmp_path / "later.npz", header=np.frombuffer(header, np.uint8))
    with pytest.raises(StoreError, match=rf"'poolscope token moments 99', .*'{token_state.FORMAT}'"):
        load_state(tmp_path / "later.npz")
