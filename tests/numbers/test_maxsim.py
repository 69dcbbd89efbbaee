"""MaxSim by tiles against the definition, against sentence-transformers, and what storage and candidates cost."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope import TokenClouds
from poolscope.errors import InputError
from poolscope.numbers import maxsim as module
from poolscope.numbers.maxsim import (
    blend,
    candidate_recall,
    first_candidates,
    maxsim,
    maxsim_of_candidates,
    ordinary_tokens,
    standardised,
    unit_tokens,
)


def drawn(count: int, dimension: int, longest: int, seed: int, dtype: str = "float32") -> TokenClouds:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, longest + 1, count)
    return TokenClouds.from_arrays(
        [random.standard_normal((n, dimension)).astype(dtype) * random.uniform(0.1, 9) for n in lengths]
    )


def unit(cloud: np.ndarray) -> np.ndarray:
    wide = cloud.astype(np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


def by_definition(queries, texts, weights=None) -> np.ndarray:
    weights = weights or [np.full(len(q), 1 / len(q)) for q in queries]
    return np.array(
        [[w @ (unit(q) @ unit(x).T).max(axis=1) for x in texts] for q, w in zip(queries, weights, strict=True)]
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_all_pairs_are_those_of_the_definition(dtype, monkeypatch):
    queries, texts = drawn(23, 17, 9, 0, dtype), drawn(61, 17, 30, 1, dtype)
    monkeypatch.setattr(module, "_QUERY_TOKENS", 16)
    monkeypatch.setattr(module, "_TEXT_TOKENS", 40)
    assert np.abs(maxsim(queries, texts) - by_definition(queries, texts)).max() < 3e-7


def test_clouds_in_several_blocks_are_read_in_their_order():
    queries = drawn(4, 8, 5, 0)
    texts = TokenClouds.concatenate([drawn(5, 8, 6, seed) for seed in (1, 2, 3)])
    expected = by_definition(queries, texts)
    assert np.abs(maxsim(queries, texts) - expected).max() < 3e-7
    every = np.tile(np.arange(15), (4, 1))
    assert np.abs(maxsim_of_candidates(queries, texts, every) - expected).max() < 3e-7


def test_a_query_of_one_token_and_one_whose_tokens_are_all_left_out():
    queries = TokenClouds.from_arrays(
        [[[0.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]]], token_ids=[np.array([5]), np.array([1, 2])]
    )
    texts = TokenClouds.from_arrays([[[1.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    root = np.sqrt(0.5)
    assert maxsim(queries, texts) == pytest.approx(np.array([[root, 1], [root, 1]]))
    ordinary = ordinary_tokens(queries, {1, 2})
    assert ordinary.tolist() == [True, False, False]
    assert maxsim(queries, texts, query_tokens=ordinary) == pytest.approx(np.array([[root, 1], [root, 1]]))
    left_out = maxsim(queries, texts, query_tokens=np.array([True, True, False]))
    assert left_out == pytest.approx(np.array([[root, 1], [root, 1]]))
    assert unit_tokens(queries, tokens=np.array([True, True, False])).offsets.tolist() == [0, 1, 2]


def test_weights_of_query_tokens_are_shares_of_their_query():
    queries, texts = drawn(6, 5, 4, 0), drawn(9, 5, 7, 1)
    weights = np.random.default_rng(2).uniform(0, 3, int(queries.lengths.sum()))
    parts = np.split(weights, np.cumsum(queries.lengths)[:-1])
    expected = by_definition(queries, texts, [part / part.sum() for part in parts])
    assert np.abs(maxsim(queries, texts, query_weights=weights) - expected).max() < 3e-7
    equal = maxsim(queries, texts, query_weights=np.zeros_like(weights))
    assert np.abs(equal - by_definition(queries, texts)).max() < 3e-7


def test_distances_are_one_side_of_the_relaxed_transport():
    queries, texts = drawn(5, 6, 4, 0), drawn(7, 6, 8, 1)
    expected = [
        [-np.linalg.norm(unit(q)[:, None] - unit(x), axis=2).min(axis=1).mean() for x in texts] for q in queries
    ]
    assert np.abs(maxsim(queries, texts, distances=True) - expected).max() < 1e-3  # √ of a difference of float32


def test_equal_texts_tie_wherever_they_stand():
    random = np.random.default_rng(0)
    texts = [random.standard_normal((int(random.integers(1, 40)), 96)).astype(np.float32) for _ in range(40)]
    order = random.integers(0, 40, 400)
    twins = TokenClouds.from_arrays([texts[k] for k in order])
    queries = drawn(31, 96, 12, 1)
    for stored in (twins, unit_tokens(twins, storage="int8")):
        scores = maxsim(queries, stored)
        first = np.unique(order, return_index=True)[1][np.unique(order, return_inverse=True)[1]]
        assert np.array_equal(scores, scores[:, first])


def test_scales_that_float32_cannot_square_change_nothing():
    queries, texts = drawn(3, 4, 3, 0), drawn(5, 4, 6, 1)
    expected = maxsim(queries, texts)
    for factor in (1e-30, 1e30):
        scaled = TokenClouds.from_arrays([cloud.astype(np.float32) * np.float32(factor) for cloud in texts])
        assert np.abs(maxsim(queries, scaled) - expected).max() < 1e-6


def test_a_token_without_direction_matches_nothing():
    texts = TokenClouds.from_arrays([[[0.0, 0.0], [-1.0, 0.0]], [[0.0, 0.0]]])
    assert maxsim(TokenClouds.from_arrays([[[1.0, 0.0]]]), texts).tolist() == [[0.0, 0.0]]


def test_a_token_that_is_not_finite_is_named_by_its_text():
    texts = TokenClouds.from_arrays([[[1.0, 0.0]], [[1.0, 0.0], [np.nan, 0.0]]], ids=["good", "bad"])
    with pytest.raises(InputError, match=r"text 1 \(bad\)"):
        maxsim(TokenClouds.from_arrays([[[1.0, 0.0]]]), texts)


@pytest.mark.parametrize(("storage", "most"), [("float16", 2**-11 + 1e-6), ("int8", 0.5 / 127 * 64**0.5)])
def test_stored_tokens_err_by_less_than_their_bound(storage, most):
    queries, texts = drawn(20, 64, 9, 0), drawn(50, 64, 30, 1)
    stored = unit_tokens(texts, storage=storage)
    exact, rounded = maxsim(queries, texts), maxsim(queries, stored)
    error = np.abs(exact - rounded).max()
    assert 0 < error <= stored.rounding <= most
    assert stored.bytes == texts.lengths.sum() * (128 if storage == "float16" else 64 + 4)
    every = np.tile(np.arange(50), (20, 1))
    assert np.abs(maxsim_of_candidates(queries, stored, every) - rounded).max() < 3e-7


def test_candidates_have_the_scores_of_all_pairs():
    queries, texts = drawn(12, 9, 6, 0), drawn(40, 9, 20, 1)
    exact = maxsim(queries, texts)
    candidates = first_candidates(np.random.default_rng(3).standard_normal((12, 40)), 7)
    scores = maxsim_of_candidates(queries, texts, candidates)
    assert np.abs(scores - np.take_along_axis(exact, candidates, axis=1)).max() < 3e-7
    assert candidate_recall(first_candidates(exact, 10), exact).tolist() == [1.0] * 12
    wrong = first_candidates(-exact, 30)
    assert candidate_recall(wrong, exact, k=10).tolist() == [0.0] * 12


def test_the_blend_is_a_sum_of_standard_scores():
    random = np.random.default_rng(0)
    cosines, scores = random.standard_normal((2, 4, 30))
    z = [(part - part.mean(axis=1, keepdims=True)) / part.std(axis=1, keepdims=True) for part in (cosines, scores)]
    assert np.abs(blend(cosines, scores, 0.5) - (z[0] + 0.5 * z[1])).max() < 1e-12
    assert np.abs(blend(3 * cosines + 1, scores, 0.5) - (z[0] + 0.5 * z[1])).max() < 1e-12
    assert standardised(np.full((1, 5), 0.1)).tolist() == [[0.0] * 5]


def test_it_scores_as_sentence_transformers_does():
    torch = pytest.importorskip("torch")
    scoring = pytest.importorskip("sentence_transformers.util.similarity")
    queries, texts = drawn(5, 12, 6, 0), drawn(8, 12, 9, 1)
    sides = [[torch.tensor(unit(cloud)) for cloud in side] for side in (queries, texts)]
    theirs = np.asarray(scoring.maxsim(*sides))
    ours = maxsim(queries, texts) * queries.lengths[:, None]  # they sum over query tokens
    assert np.abs(ours - theirs).max() < 1e-5


@pytest.mark.parametrize(
    "wrong",
    [
        lambda q, t: maxsim(q, TokenClouds.from_arrays([[[1.0, 0.0, 0.0]]])),
        lambda q, t: maxsim(q, t, query_tokens=np.ones(1, dtype=bool)),
        lambda q, t: maxsim(q, t, query_weights=[1.0, -1.0]),
        lambda q, t: maxsim(unit_tokens(q), t, query_weights=[1.0, 1.0]),
        lambda q, t: unit_tokens(q, storage="int4"),
        lambda q, t: maxsim_of_candidates(q, t, np.array([[1]])),
        lambda q, t: maxsim_of_candidates(q, t, np.array([0])),
    ],
)
def test_what_does_not_fit_is_refused(wrong):
    queries, texts = TokenClouds.from_arrays([[[1.0, 0.0], [0.0, 1.0]]]), TokenClouds.from_arrays([[[1.0, 0.0]]])
    with pytest.raises(InputError):
        wrong(queries, texts)
