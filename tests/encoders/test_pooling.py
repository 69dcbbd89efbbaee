"""What a model declares about its pooling, and what is done where that is not one pooling of its tokens."""

from __future__ import annotations

import numpy as np
import pytest

from cloud_data import random_clouds
from poolscope.encoders.base import ModelCard
from poolscope.encoders.pooling import Step, TextPooling, declared_pooling, finish
from poolscope.errors import ModelError


def test_what_a_model_declares():
    def declared(*modes: str, after: tuple[str, ...] = ("Normalize",)) -> str:
        return declared_pooling(ModelCard("m", "transformers", 4, pooling=modes, after=after)).name

    assert declared() == declared("mean") == declared("mean_sqrt_len_tokens") == "mean"
    assert (declared("cls"), declared("lasttoken"), declared("weightedmean")) == ("cls", "last", "position")
    with pytest.raises(ModelError, match=r"cls \+ mean"):
        declared("cls", "mean")
    with pytest.raises(ModelError, match="Dense after"):
        declared("mean", after=("Dense", "Normalize"))


def test_each_declaration_pools_its_way():
    tokens, offsets = np.array([[1.0, 5.0], [3.0, 1.0], [2.0, 2.0]]), np.array([0, 2, 3])
    expected = {
        (): [2, 3],
        ("mean",): [2, 3],
        ("cls",): [1, 5],
        ("lasttoken",): [3, 1],
        ("max",): [3, 5],
        ("weightedmean",): [7 / 3, 7 / 3],
        ("mean_sqrt_len_tokens",): [4 / 2**0.5, 6 / 2**0.5],
        ("cls", "mean"): [2, 3],
    }
    noted = []
    for declared, first in expected.items():
        pooling = TextPooling(ModelCard("m", "transformers", 2, pooling=declared))
        np.testing.assert_allclose(pooling.vectors(tokens, offsets), [first, [2, 2]])
        noted += [declared] * len(pooling.notes)
    assert noted == [(), ("cls",), ("lasttoken",), ("max",), ("weightedmean",), ("cls", "mean")]
    left_out = TextPooling(ModelCard("m", "transformers", 2, pooling=("cls",), include_prompt=False))
    assert "prompt is" in left_out.notes[0]


@pytest.mark.parametrize("mode", ["mean", "cls", "lasttoken", "max", "weightedmean", "mean_sqrt_len_tokens"])
def test_clouds_and_tokens_in_a_row_give_the_same_vectors(mode):
    clouds = random_clouds(0, [5, 1, 9], 6)
    pooling = TextPooling(ModelCard("m", "transformers", 6, pooling=(mode,)))
    offsets = np.concatenate([[0], np.cumsum(clouds.lengths)])
    np.testing.assert_allclose(pooling.vectors(np.concatenate(list(clouds)), offsets), pooling.pool(clouds))
    assert pooling.own is True


def test_the_mean_is_taken_with_a_reason():
    joined = TextPooling(ModelCard("m", "transformers", 2, pooling=("cls", "mean")))
    changed = TextPooling(ModelCard("m", "transformers", 2, pooling=("cls",), after=("Dense",)))
    silent = TextPooling(ModelCard("m", "transformers", 2))
    arrays = TextPooling(ModelCard("m", "function", 2))
    assert [taken.name for taken in (joined, changed, silent, arrays)] == ["mean"] * 4
    assert [taken.own for taken in (joined, changed, silent, arrays)] == [False, False, None, None]
    assert [len(taken.notes) for taken in (joined, changed, silent, arrays)] == [1, 1, 1, 0]


def test_modules_that_can_be_read_stand_behind_the_pooling():
    clouds = random_clouds(0, [5, 1, 9], 6)
    steps = (Step("Dense", np.random.default_rng(0).normal(size=(4, 6)), np.ones(4), "Tanh"),)
    card = ModelCard("m", "transformers", 6, pooling=("cls",), after=("Dense", "Normalize"))
    pooling = TextPooling(card, steps)
    expected = finish(np.array([cloud[0] for cloud in clouds], dtype=np.float64), steps)
    np.testing.assert_allclose(pooling.pool(clouds), expected)
    offsets = np.concatenate([[0], np.cumsum(clouds.lengths)])
    np.testing.assert_allclose(pooling.vectors(np.concatenate(list(clouds)), offsets), expected)
    assert (pooling.own, pooling.name, pooling.words) == (True, "cls", "cls, then Dense")
    (note,) = pooling.notes
    assert pooling.words in note


def test_a_mean_with_a_module_behind_it_is_no_mean():
    card = ModelCard("m", "transformers", 2, pooling=("mean",), after=("Dense",))
    assert not TextPooling(card, (Step("Dense", np.eye(2), None),)).is_mean
    assert TextPooling(ModelCard("m", "transformers", 2, pooling=("mean",), after=("Normalize",)), ()).is_mean
