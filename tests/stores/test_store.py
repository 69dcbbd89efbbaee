"""Stores: what they hold and how they are opened."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError, StoreError
from poolscope.stores.store import LABELS, MANIFEST, Store, is_store, open_clouds, open_store
from poolscope.stores.writer import encode_to_store
from store_fakes import CARD, LAYERS, SHARD_TEXTS, FakeEncoder, contents, corpus, edit_json, fill, never


def test_a_store_gives_back_the_clouds_ids_texts_and_labels(tmp_path: Path) -> None:
    texts = corpus(labels=True)
    store = fill(tmp_path / "new" / "store", texts=texts)
    assert [len(part) for part in (store, store.clouds())] == [10, 10]
    for layer in LAYERS:
        clouds = store.clouds(layer)
        assert list(clouds.ids) == list(texts.ids)
        assert list(clouds.texts or ()) == list(texts.texts)
        assert clouds.provenance["layer"] == layer
        for start in range(0, 10, SHARD_TEXTS):
            span = slice(start, start + SHARD_TEXTS)
            expected = FakeEncoder().encode(texts.texts[span], layers=LAYERS)[layer]
            for k, cloud in enumerate(expected):
                np.testing.assert_array_equal(clouds[start + k], cloud)
    assert store.labels == list(texts.labels or ())
    assert store.card == CARD
    assert re.match(r"1 text .*\(11 read\)", *store.manifest.texts["notes"])
    assert (store.reused, store.damaged, store.notes()) == (0, 0, [])


def test_a_store_written_before_cards_counted_parameters_is_read_and_reused(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    encode_to_store(FakeEncoder(), corpus(), folder)
    model = json.loads((folder / MANIFEST).read_text())["model"]
    del model["parameters"]
    edit_json(folder / MANIFEST, model=model)
    assert Store.open(folder).card == CARD
    again = encode_to_store(FakeEncoder(replace(CARD, parameters=12), before=never), corpus(), folder)
    assert again.reused == len(again)


def test_the_files_are_where_the_documentation_says(tmp_path: Path) -> None:
    fill(tmp_path, texts=corpus(5, labels=True), layers=(0, -1, -2))
    shards = [f"{name}/shard-0000{k}.arrow" for name in ("layer-0", "layer-last", "layer-last-1") for k in (0, 1)]
    assert sorted(contents(tmp_path)) == sorted([MANIFEST, LABELS, *shards])


def test_without_layers_the_pooled_layer_is_stored(tmp_path: Path) -> None:
    store = fill(tmp_path, layers=None)
    assert store.manifest.layers is None
    assert open_store(tmp_path).provenance["layer"] == -1
    assert store.labels is None


def test_layers_are_found_by_either_number(tmp_path: Path) -> None:
    fill(tmp_path)
    assert open_store(tmp_path).provenance["layer"] == -1
    assert open_store(tmp_path, layer=2).provenance["layer"] == -1  # the model has two layers
    assert open_store(tmp_path, layer=-3).provenance["layer"] == 0
    with pytest.raises(InputError, match=r"layer 1 .*\[0, -1\]"):
        open_store(tmp_path, layer=1)


def test_a_store_without_the_pooled_layer_asks_which(tmp_path: Path) -> None:
    fill(tmp_path, layers=(0, 1))
    with pytest.raises(InputError, match=r"no layer .*\[0, 1\]"):
        open_store(tmp_path)


def test_clouds_stay_on_disk(tmp_path: Path) -> None:
    fill(tmp_path)
    before = pa.total_allocated_bytes()
    clouds = open_store(tmp_path)
    assert pa.total_allocated_bytes() == before
    assert len(list(clouds.blocks())) == 4


def test_an_unfinished_store_says_how_to_finish(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        fill(tmp_path, encoder=FakeEncoder(before=lambda call: never(call) if call == 2 else None))
    with pytest.raises(StoreError, match=r"6 of 10 .*fake/model, texts my texts\.txt"):
        open_clouds(tmp_path)
    assert len(open_store(tmp_path, allow_partial=True)) == 6
    assert is_store(tmp_path)


def test_an_unfinished_store_without_texts(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        fill(tmp_path, encoder=FakeEncoder(before=never))
    with pytest.raises(StoreError, match=r"0 of 10 .* Begin"):
        open_store(tmp_path, allow_partial=True)


def test_open_clouds_takes_a_store_or_a_file(tmp_path: Path) -> None:
    fill(tmp_path / "store", layers=None)
    file = tmp_path / "one.arrow"
    open_store(tmp_path / "store").select([1, 2]).save(file)
    assert len(open_clouds(tmp_path / "store")) == 10
    assert len(open_clouds(file)) == 2
    assert [is_store(path) for path in (tmp_path / "store", tmp_path, file)] == [True, False, False]
    with pytest.raises(InputError, match=r"layer 0 .*one layer"):
        open_clouds(file, layer=0)
    with pytest.raises(StoreError, match="/nothing: "):
        open_clouds(tmp_path / "nothing")
    with pytest.raises(StoreError, match=r"manifest\.json"):
        open_clouds(tmp_path)


def test_a_store_of_another_format_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    manifest = tmp_path / MANIFEST
    manifest.write_text(manifest.read_text().replace("poolscope store 1", "poolscope store 9"))
    with pytest.raises(StoreError, match="'poolscope store 9'"):
        open_store(tmp_path)


def test_offsets_that_point_outside_the_file_are_damage_not_a_crash(tmp_path: Path) -> None:
    store = fill(tmp_path, layers=None)
    path = store.shard_path(-1, 1)
    (block,) = TokenClouds.open(path).blocks()
    good, bad = block.offsets.tobytes(), (block.offsets * 10**9).tobytes()
    content = path.read_bytes()
    assert content.count(good) == 1
    path.write_bytes(content.replace(good, bad))
    assert not store.is_whole(1, corpus().ids[3:6])
    with pytest.raises(StoreError, match=r"shard-00001\.arrow: .*damaged"):
        open_store(tmp_path)


def test_clouds_of_a_store_say_of_which_texts_they_are(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", texts=corpus(labels=True))
    assert store.clouds(0).provenance["texts"] == corpus().origin()
    path = tmp_path / "store" / MANIFEST
    texts = json.loads(path.read_text())["texts"]
    old = ("source", "digest", "labels", "count", "notes")  # what a manifest said of its texts at first
    edit_json(path, texts={name: texts[name] for name in old})
    assert open_store(tmp_path / "store").provenance["texts"]["source"] == "my texts.txt"
    encoder = FakeEncoder(before=never)
    assert fill(tmp_path / "store", encoder=encoder, texts=corpus(labels=True)).reused == 10
