"""Seals: an index or a server is recognised, and each way to be another is named by its exit code."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest

from audit_data import sentences
from command_line import run
from listening import listening
from poolscope import PoolscopeError, as_encoder, check, seal
from poolscope.connect.runtimes.seal import EXIT_CODES, Seal
from poolscope.digests import sealed
from poolscope.errors import InputError
from poolscope.evaluation.run import PooledModel
from runtime_server import Model, serving
from tiny_models import declare, save_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return declare(save_model(tmp_path_factory.mktemp("model"), max_position_embeddings=128), after=["Normalize"])


@pytest.fixture(scope="module")
def index(folder, tmp_path_factory):
    texts = [f"{text} {k}" for k, text in enumerate(sentences(60, high=20))]
    vectors = PooledModel(as_encoder(folder)).encode(texts)
    path = tmp_path_factory.mktemp("index") / "index.npz"
    np.savez(path, vectors=vectors, texts=np.array(texts))
    return path


def changed(index, place, change):
    held = np.load(index)
    np.savez(place, vectors=change(held["vectors"]), texts=held["texts"])
    return place


def test_an_index_is_recognised_and_each_change_has_its_exit_code(folder, index, tmp_path):
    path = tmp_path / "index.seal"
    run("seal", index, "--reference", folder, "-o", path)
    kept = Seal.load(path)
    assert len(kept.texts) == 32
    assert kept.model["pooling"] == ["mean"]
    assert run("check", path, expect=0)
    assert check(kept, index).whole
    random = np.random.default_rng(0)
    cases = {
        "drifted": lambda table: table + 0.03 * random.standard_normal(table.shape),
        "other model": lambda table: random.standard_normal(table.shape),
        "other rows": lambda table: np.roll(table, 1, axis=0),
    }
    for state, change in cases.items():
        other = changed(index, tmp_path / "other.npz", change)
        assert check(path, other).state == state
        run("check", path, other, expect=EXIT_CODES[state])


def test_few_rows_that_were_mixed_up_are_rows_of_others_also_beyond_the_canaries(index, tmp_path):
    def mixed(table):
        rows = np.arange(0, len(table), 7)
        table[rows] = table[np.roll(rows, 1)]
        return table

    found = check(seal(index, count=8), changed(index, tmp_path / "mixed.npz", mixed))
    assert (found.state, found.exit_code) == ("other rows", 6)
    assert 0 < found.match.differ.sum() < 8


def test_a_model_is_opened_again_by_the_name_that_it_was_given(folder, tmp_path):
    path = tmp_path / "model.seal"
    for name in (str(folder), "builtin:wordllama"):
        run("seal", name, "-o", path)
        assert Seal.load(path).source == name
        run("check", path)


@pytest.mark.parametrize("way", ["right", "cls", "max"])
def test_a_server_is_checked_by_the_seal_of_an_index(folder, index, way):
    kept = seal(index, reference=folder)
    with serving(Model(folder, limit=128), way=way) as server:
        found = check(kept, server.url)
    assert found.state == ("same" if way == "right" else "other pooling")
    assert way == "right" or found.match.pooling == way


def test_a_canary_that_is_gone_is_drift(index, tmp_path):
    kept = seal(index)
    held = np.load(index)
    texts = held["texts"].copy()
    texts[int(kept.ids[0])] = "edited"
    np.savez(tmp_path / "edited.npz", vectors=held["vectors"], texts=texts)
    found = check(kept, tmp_path / "edited.npz")
    assert (found.state, found.missing) == ("drifted", 1)


def test_another_dimension_is_another_model(index, tmp_path):
    assert check(seal(index), changed(index, tmp_path / "cut.npz", lambda table: table[:, :8])).state == "other model"


def test_a_damaged_seal_is_refused(index, tmp_path):
    path = tmp_path / "index.seal"
    seal(index).save(path)
    content = json.loads(path.read_text())
    content["vectors"][0][0] += 1
    path.write_text(json.dumps(content))
    with pytest.raises(PoolscopeError, match="damaged"):
        check(path)
    path.write_text("{}")
    with pytest.raises(PoolscopeError, match="seal"):
        check(path)


def crafted(index, path, **changes):
    """A seal as someone else can write it, with a right digest."""
    seal(index).save(path)
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_text(json.dumps(sealed({**content, **changes})))
    return path


def test_a_seal_of_someone_else_names_nothing_that_check_opens(index, tmp_path, monkeypatch):
    monkeypatch.setenv("POOLSCOPE_API_KEY", "canary")
    with listening() as server:
        address = f"http://127.0.0.1:{server.port}/v1/embeddings"
        path = crafted(index, tmp_path / "evil.seal", source=address, own=True)
        with pytest.raises(InputError, match="was not made by you"):
            check(path)
    assert not server.received
    assert check(path, index).state == "same"


@pytest.mark.parametrize("value", [None, 5, "x", [], {}, [[]], [1], {"a": 1}, True, 1e308, 10**30, [["a"]] * 32])
@pytest.mark.parametrize("field", ["source", "dimension", "ids", "texts", "vectors", "poolings", "model", "settings"])
def test_fields_of_any_kind_in_a_seal(index, tmp_path, field, value):
    path = crafted(index, tmp_path / "odd.seal", **{field: value})
    with contextlib.suppress(PoolscopeError):
        assert check(path, index).in_words()


@pytest.mark.parametrize("field", ["ids", "texts", "vectors"])
def test_parts_of_a_seal_that_do_not_fit_each_other(index, tmp_path, field):
    fewer = json.loads(crafted(index, tmp_path / "a.seal").read_text())[field][:5]
    with pytest.raises(PoolscopeError, match="do not fit"):
        check(crafted(index, tmp_path / "odd.seal", **{field: fewer}), index)
