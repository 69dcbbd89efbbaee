"""The metrics against poolscope.socm: over batches, merged, and synchronised."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from cloud_data import random_clouds
from poolscope import SocmFormula, TokenClouds, socm
from poolscope.errors import InputError

pytest.importorskip("torchmetrics")
from torchmetrics import MetricCollection

from poolscope.connect.integrations.torchmetrics import SOCM, PairedSOCM

LENGTHS = [3, 5, 1, 7, 4, 6, 2]


@pytest.fixture(scope="module")
def clouds():
    return random_clouds(0, LENGTHS, 5, dtype="float32")


def padded(clouds, texts) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.full((len(texts), max(LENGTHS), clouds.dimension), torch.nan)
    mask = torch.zeros(len(texts), max(LENGTHS), dtype=torch.int64)
    for row, k in enumerate(texts):
        tokens[row, : len(clouds[k])], mask[row, : len(clouds[k])] = torch.tensor(clouds[k]), 1
    return tokens, mask


def filled(metric, clouds, *batches):
    for texts in batches:
        metric.update(*padded(clouds, texts))
    return metric


@pytest.mark.parametrize("formula", [None, SocmFormula(scale="trace", a=2.0)])
def test_batches_add_up_to_all_pairs(clouds, formula):
    metric = filled(SOCM(formula=formula), clouds, [0, 1, 2], [3], [4, 5, 6])
    expected = socm(clouds, **({} if formula is None else formula.to_dict()))
    assert metric.compute().item() == pytest.approx(expected.mean, rel=1e-6)
    assert metric.result().interval == expected.interval
    metric.reset()
    with pytest.warns(UserWarning, match="before the ``update``"), pytest.raises(InputError, match="texts yet"):
        metric.compute()


def test_forward_gives_the_batch_and_keeps_all(clouds):
    metric = SOCM()
    first = metric(*padded(clouds, [0, 1, 2]))
    second = metric(*padded(clouds, [3, 4, 5, 6]))
    assert first.item() == pytest.approx(socm(clouds.select([0, 1, 2])).mean, rel=1e-6)
    assert second.item() == pytest.approx(socm(clouds.select([3, 4, 5, 6])).mean, rel=1e-6)
    assert metric.compute().item() == pytest.approx(socm(clouds).mean, rel=1e-6)


def test_merging_and_pickling(clouds):
    left, right = filled(SOCM(), clouds, [0, 1, 2]), filled(SOCM(), clouds, [3, 4], [5, 6])
    left.merge_state(pickle.loads(pickle.dumps(right)))
    assert left.compute().item() == pytest.approx(socm(clouds).mean, rel=1e-6)


def test_in_a_collection_and_in_bfloat16(clouds):
    tokens, mask = padded(clouds, [0, 1, 3])
    collection = MetricCollection({"plain": SOCM(), "scaled": SOCM(formula=SocmFormula(scale="trace"))})
    collection.update(tokens.bfloat16(), mask)
    found = collection.compute()
    rounded = [tokens[k][mask[k] == 1].bfloat16().float() for k in range(3)]
    assert found["plain"].item() == pytest.approx(socm(TokenClouds.from_arrays(rounded)).mean, rel=1e-6)
    assert found["scaled"].item() == pytest.approx(socm(TokenClouds.from_arrays(rounded), scale="trace").mean, rel=1e-6)


def test_given_pairs_need_only_a_sum(clouds):
    pairs = np.array([[0, 1], [2, 3], [4, 5], [1, 6]])
    expected = socm(clouds, pairs=pairs).mean
    parts = [PairedSOCM(), PairedSOCM()]
    for metric, rows in zip(parts, (pairs[:1], pairs[1:]), strict=True):
        (left, left_mask), (right, right_mask) = padded(clouds, rows[:, 0]), padded(clouds, rows[:, 1])
        metric.update(left, right, left_mask, right_mask)
    parts[0].merge_state(parts[1])
    assert parts[0].compute().item() == pytest.approx(expected, rel=1e-6)
    assert parts[0].pairs.item() == 4


def test_what_does_not_fit_is_refused(clouds):
    tokens, _ = padded(clouds, [0, 1])
    with pytest.raises(InputError, match="allowed: tokens"):
        SOCM().update(tokens[0])
    with pytest.raises(InputError, match="2 and 1 texts"):
        PairedSOCM().update(tokens, tokens[:1])
    with pytest.warns(UserWarning, match="before the ``update``"), pytest.raises(InputError, match="pairs yet"):
        PairedSOCM().compute()
    with pytest.raises(InputError, match="two texts"):
        filled(SOCM(), clouds, [0]).compute()


def test_two_processes_agree_on_all_pairs(clouds):
    """What the other process holds comes through `dist_sync_fn`, as torch.distributed would bring it."""
    other = filled(SOCM(), clouds, [3, 4], [5], [6])

    def gather(state: torch.Tensor, group=None) -> list[torch.Tensor]:
        return [state, torch.cat(other.tokens if state.ndim == 2 else other.lengths)]

    metric = SOCM(dist_sync_fn=gather, distributed_available_fn=lambda: True)
    filled(metric, clouds, [0, 1, 2])
    assert metric.compute().item() == pytest.approx(socm(clouds).mean, rel=1e-6)
    assert metric.result().count == 3  # after compute each process holds its own texts again

    paired = PairedSOCM(
        dist_sync_fn=lambda state, group=None: [state, 2 * state], distributed_available_fn=lambda: True
    )
    (left, left_mask), (right, right_mask) = padded(clouds, [0]), padded(clouds, [1])
    paired.update(left, right, left_mask, right_mask)
    assert paired.compute().item() == pytest.approx(socm(clouds, pairs=[(0, 1)]).mean, rel=1e-6)


@pytest.mark.parametrize("make", [SOCM, PairedSOCM])
def test_one_value_and_several_are_plotted(make, clouds):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    metric = make()
    sides = padded(clouds, [0, 1, 2]), padded(clouds, [3, 4, 5])
    metric.update(*sides[0]) if make is SOCM else metric.update(sides[0][0], sides[1][0], sides[0][1], sides[1][1])
    value = metric.compute()
    for several, shown in ((None, [float(value)]), ([value, value + 1], [float(value), float(value) + 1])):
        figure, axes = metric.plot(several)
        assert axes.lines[0].get_ydata() == pytest.approx(shown)
        matplotlib.pyplot.close(figure)
