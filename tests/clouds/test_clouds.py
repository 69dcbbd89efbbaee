from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cloud_data import random_clouds
from poolscope.clouds import TokenClouds, as_matrix
from poolscope.errors import InputError, StoreError


def clouds_equal(left: TokenClouds, right: TokenClouds) -> bool:
    same = len(left) == len(right) and list(left.ids) == list(right.ids) and left.dtype == right.dtype
    return same and all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def test_from_arrays_keeps_every_row_and_column():
    arrays = [np.arange(6.0).reshape(3, 2), np.ones((1, 2))]
    clouds = TokenClouds.from_arrays(arrays, texts=["a b c", "d"], ids=["x", "y"], truncated=[4, 0])
    assert np.array_equal(clouds[0], arrays[0])
    assert np.array_equal(clouds[-1], arrays[1])
    assert clouds.lengths.tolist() == [3, 1]
    assert list(clouds.ids) == ["x", "y"]
    assert list(clouds.texts or []) == ["a b c", "d"]
    assert clouds.truncated.tolist() == [4, 0]
    assert clouds.dimension == 2


@pytest.mark.parametrize("side", ["left", "right"])
def test_from_padded_selects_by_mask_and_padding_cannot_leak(side):
    random = np.random.default_rng(0)
    batch = random.normal(size=(2, 4, 3))
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 1]])
    if side == "left":
        mask = mask[:, ::-1]
    batch[mask == 0] = np.nan
    clouds = TokenClouds.from_padded(batch, mask)
    assert clouds.lengths.tolist() == [2, 4]
    assert np.array_equal(clouds[0], batch[0][mask[0] == 1])


def test_torch_tensors_and_bfloat16():
    torch = pytest.importorskip("torch")
    half = torch.randn(3, 4).to(torch.bfloat16)
    clouds = TokenClouds.from_arrays([half])
    assert clouds.dtype == np.float32
    assert np.array_equal(clouds[0], half.float().numpy())
    padded = TokenClouds.from_padded(torch.ones(1, 3, 2), torch.tensor([[1, 1, 0]]))
    assert padded.lengths.tolist() == [2]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_save_and_open_round_trip(tmp_path, dtype):
    clouds = random_clouds(0, [3, 1, 5], 4, dtype=dtype)
    clouds.save(tmp_path / "clouds.arrow")
    again = TokenClouds.open(tmp_path / "clouds.arrow")
    assert clouds_equal(clouds, again)
    assert again.dtype == dtype


def test_open_is_memory_mapped(tmp_path):
    random_clouds(0, [50] * 20, 64, dtype="float32").save(tmp_path / "clouds.arrow")
    before = pa.total_allocated_bytes()
    clouds = TokenClouds.open(tmp_path / "clouds.arrow")
    assert pa.total_allocated_bytes() - before < 20 * 50 * 64  # a quarter of the bytes of the tokens
    assert not clouds[3].flags.writeable


def test_provenance_survives_the_file(tmp_path):
    TokenClouds.from_arrays([np.eye(2)], provenance={"model": "m", "layer": 3}).save(tmp_path / "c.arrow")
    assert TokenClouds.open(tmp_path / "c.arrow").provenance == {"model": "m", "layer": 3}


def test_other_tools_read_the_file(tmp_path):
    path = tmp_path / "clouds.arrow"
    clouds = random_clouds(1, [3, 2], 4, dtype="float32")
    clouds.save(path)
    frame = pd.read_feather(path)
    assert np.array_equal(np.stack(frame["tokens"][1]), clouds[1])
    assert np.array_equal(np.array(pl.read_ipc(path)["tokens"][0].to_list(), dtype=np.float32), clouds[0])
    datasets = pytest.importorskip("datasets")
    rows = datasets.load_dataset("arrow", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    assert np.array_equal(np.array(rows[0]["tokens"], dtype=np.float32), clouds[0])


def test_concatenate_select_and_blocks():
    first, second = random_clouds(0, [3, 1], 4), random_clouds(1, [2], 4)
    both = TokenClouds.concatenate([first, second])
    assert [block.start for block in both.blocks()] == [0, 2]
    assert np.array_equal(both[2], second[0])
    picked = both.select([2, 0])
    assert np.array_equal(picked[0], second[0])
    assert np.array_equal(picked[1], first[0])
    assert list(picked.texts or []) == ["text number 0", "text number 0"]
    with pytest.raises(InputError, match="different dimension"):
        TokenClouds.concatenate([first, random_clouds(0, [2], 5)])
    other = TokenClouds(first._table.append_column("more", [[1, 2]]))
    with pytest.raises(InputError, match="types: more"):
        TokenClouds.concatenate([first, other])


def test_token_ids_are_kept_by_text():
    clouds = TokenClouds.from_arrays([np.eye(2), np.ones((1, 2))], token_ids=[np.array([5, 6]), np.array([7])])
    assert clouds.token_ids(0).tolist() == [5, 6]
    assert clouds.select([1]).token_ids(0).tolist() == [7]
    assert random_clouds(0, [2], 3).token_ids(0) is None


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TokenClouds.from_arrays([]), "no clouds"),
        (lambda: TokenClouds.from_arrays([np.ones((2, 3)), np.ones((2, 4))]), r"dimensions \[3, 4\]"),
        (lambda: TokenClouds.from_arrays([np.ones(3)]), r"text 0.*shape \(3,\)"),
        (lambda: TokenClouds.from_arrays([np.array([["a"]])]), "real numbers"),
        (lambda: TokenClouds.from_arrays([np.ones((2, 2)), np.ones((0, 2))]), "position 1"),
        (lambda: TokenClouds.from_arrays([np.ones((2, 2))], texts=["a", "b"]), "2 entries for 1"),
        (lambda: TokenClouds.from_matrix(np.ones((4, 2)), [0, 3, 2, 4]), r"offsets .*\[0, 3, 2, 4\]"),
        (lambda: TokenClouds.from_padded(np.ones((1, 2, 3)), np.array([[1, 2]])), r"mask .*\(1, 2\)"),
        (lambda: TokenClouds.from_padded(np.ones((1, 2, 3)), np.array([[1, 1, 1]])), r"mask .*\(1, 3\)"),
        (lambda: as_matrix(np.ones((2, 2), dtype=complex)), "complex128"),
    ],
)
def test_bad_input_is_refused_in_words(build, message):
    with pytest.raises(InputError, match=message):
        build()


def test_index_outside_is_an_index_error():
    with pytest.raises(IndexError):
        random_clouds(0, [1], 2)[1]


def test_open_refuses_what_is_not_a_cloud_file(tmp_path):
    with pytest.raises(StoreError, match=r"missing\.arrow: no such"):
        TokenClouds.open(tmp_path / "missing.arrow")
    (tmp_path / "text.arrow").write_text("hello")
    with pytest.raises(StoreError, match=r"text\.arrow: .*Arrow"):
        TokenClouds.open(tmp_path / "text.arrow")
    pl.DataFrame({"a": [1]}).write_ipc(tmp_path / "frame.arrow", compression="uncompressed")
    with pytest.raises(StoreError, match=r"columns \['a'\]"):
        TokenClouds.open(tmp_path / "frame.arrow")


# -- choosing texts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mask",
    [
        [True, False, True, False],
        np.array([True, False, True, False]),
        pd.Series([True, False, True, False]),
        pd.Series([True, False, True, False], dtype="boolean"),
    ],
    ids=["list", "numpy", "pandas", "nullable"],
)
def test_a_mask_of_booleans_chooses_the_true_ones(mask):
    clouds = random_clouds(0, [2, 5, 3, 4], 3)
    for picked in (clouds.select(mask), clouds[mask]):
        assert list(picked.ids) == ["0", "2"]
        assert np.array_equal(picked[1], clouds[2])


@pytest.mark.parametrize(
    "wrong",
    [[True, False], [1.0, 2.0], np.array([[0, 1]]), ["0"], [4], [-5], [], [False] * 4, None],
    ids=str,
)
def test_what_is_neither_positions_nor_a_mask_is_refused(wrong):
    with pytest.raises(InputError):
        random_clouds(0, [2, 5, 3, 4], 3).select(wrong)


def test_slices_are_clouds_and_copy_nothing():
    clouds = TokenClouds.concatenate([random_clouds(0, [2, 5], 3), random_clouds(1, [3, 4], 3)])
    middle = clouds[1:3]
    assert middle.lengths.tolist() == [5, 3]
    assert np.array_equal(middle[1], clouds[2])
    assert np.shares_memory(middle[0], clouds[1])
    assert list(middle.texts or []) == list(clouds.texts or [])[1:3]
    assert clouds_equal(clouds[::-1], clouds.select([3, 2, 1, 0]))
    assert clouds_equal(clouds[[2, -1]], clouds.select([2, 3]))
    assert np.array_equal(clouds[np.int64(3)], clouds[-1])
    with pytest.raises(InputError, match=r"no text; .* 4 "):
        clouds[2:2]


# -- what cannot be kept as it is -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"texts": ["a", None]}, "texts: entry 1 is None"),
        ({"texts": [1, 2]}, "texts: entry 0 is 1"),
        ({"truncated": [0, -1]}, "truncated: entry 1 is -1"),
        ({"truncated": [0, 1.5]}, "truncated: entry 1 is 1.5"),
        ({"truncated": [0, True]}, "truncated: entry 1 is True"),
        ({"ids": ["a", 1.5]}, "ids: entry 1 is 1.5"),
        ({"ids": ["a"]}, "ids: received 1 entries for 2 texts"),
    ],
)
def test_columns_of_the_wrong_kind_are_refused(columns, message):
    with pytest.raises(InputError, match=message):
        TokenClouds.from_arrays([np.eye(2), np.eye(2)], **columns)


def test_the_index_of_a_data_frame_names_the_texts():
    frame = pd.DataFrame({"text": ["a", "b"]}, index=[7, 3])
    clouds = TokenClouds.from_arrays([np.eye(2), np.ones((1, 2))], ids=frame.index, texts=frame["text"])
    assert list(clouds.ids) == ["7", "3"]
    assert list(clouds.texts or []) == ["a", "b"]


def test_lists_are_arrays_and_ragged_ones_are_refused():
    assert TokenClouds.from_padded([[[1, 2], [3, 4]]], [[1, 0]])[0].tolist() == [[1, 2]]
    with pytest.raises(InputError, match=r"text 0: .*list"):
        TokenClouds.from_arrays([[[1, 2], [3]]])
    with pytest.raises(InputError, match=r"batch: .*list"):
        TokenClouds.from_padded([[[1, 2], [3]]], [[1, 1]])


# -- origin -------------------------------------------------------------------------------------------------------


def test_counts_add_up_and_only_shared_texts_are_remembered():
    parts = [
        random_clouds(k, [2], 3).described(
            provenance={"unknown": {"tokens": k + 1, "texts": 1}, "texts": {"digest": "a"}}
        )
        for k in range(2)
    ]
    assert TokenClouds.concatenate(parts).provenance == {
        **parts[0].provenance,
        "unknown": {"tokens": 3, "texts": 2},
    }
    parts[1] = parts[1].described(provenance={"texts": {"digest": "b"}})
    assert "texts" not in TokenClouds.concatenate(parts).provenance


ORIGIN = {
    "model": {"name": "m"},
    "unknown": {"tokens": 5, "texts": 2},
    "texts": {"source": "a.txt", "digest": "a", "count": 3, "notes": ["1 empty text left out."]},
}


def test_a_part_says_nothing_that_holds_for_the_whole_alone():
    clouds = random_clouds(0, [2, 3, 1], 3).described(provenance=ORIGIN)
    part = {"model": {"name": "m"}, "texts": {"source": "a.txt", "part_of": "a"}}
    for found in (clouds[1:], clouds[:2], clouds[::2], clouds[::-1], clouds[[0]], clouds[[0, 1, 2, 0]], clouds[1:][:1]):
        assert found.provenance == part
    for found in (clouds[:], clouds[0:3], clouds[[0, 1, 2]], clouds[[0, -2, -1]], clouds[[True] * 3], clouds[:][::1]):
        assert found.provenance == ORIGIN
    assert TokenClouds.concatenate([clouds[:1], clouds[1:]]).provenance == part
    mine = clouds.described(provenance={"texts": "mine"})
    assert mine[:1].provenance == {"model": {"name": "m"}}
    assert clouds.provenance == ORIGIN


@pytest.mark.parametrize("other", [{"tokens": 1}, {"tokens": 1, "words": 1}, {}])
def test_counts_that_not_all_parts_have_are_left_out(other):
    first, second = (random_clouds(k, [2], 3) for k in range(2))
    first, second = first.described(provenance=ORIGIN), second.described(provenance={"unknown": other})
    for parts in ([first, second], [second, first], [first, random_clouds(2, [2], 3)]):
        assert "unknown" not in TokenClouds.concatenate(parts).provenance


@pytest.mark.parametrize("index", [True, False, np.True_])
def test_a_boolean_is_no_position(index):
    with pytest.raises(InputError, match="bool for 2"):
        random_clouds(0, [2, 3], 3)[index]


def test_described_keeps_the_vectors_where_they_are():
    clouds = random_clouds(0, [2, 3], 3)
    other = clouds.described(ids=["a", "b"], texts=["x", "y"], provenance={"note": 1})
    assert (list(other.ids), list(other.texts or []), other.provenance["note"]) == (["a", "b"], ["x", "y"], 1)
    assert np.shares_memory(other[1], clouds[1])
    assert "note" not in clouds.provenance
    with pytest.raises(InputError, match="ids: received 1"):
        clouds.described(ids=["a"])


def test_a_notebook_shows_the_first_clouds_with_their_tokens():
    view = TokenClouds.from_arrays(
        [np.ones((k + 2, 3)) for k in range(7)], texts=[f"text {k}" for k in range(7)]
    )._repr_html_()
    assert "<td>text 4</td>" in view
    assert "text 5" not in view
    assert "<td>6</td>" in view  # tokens of text 4
    assert "2 more" in view
