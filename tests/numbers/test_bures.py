from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_data import (
    assert_within_bounds,
    by_pair,
    by_pair_with_error,
    dense_distances,
    dense_singular,
    moments,
    random_cloud,
    random_clouds,
)
from poolscope.clouds import TokenClouds
from poolscope.errors import DegenerateCloudError, InputError
from poolscope.numbers.bures import (
    all_pairs,
    bures_wasserstein,
    distances,
    given_pairs,
    native,
    nuclear_norm,
    plain,
)
from poolscope.numbers.bures.distances import Distances, _norms
from poolscope.numbers.bures.factors import drop_centre, make_panel, reduce_rows, reduce_texts
from poolscope.numbers.bures.native import square_root_poles

MIXED = [1, 2, 3, 5, 8, 9, 13, 21, 30, 7, 7, 40, 12, 25, 17, 2]

needs_kernel = pytest.mark.usefixtures("compiled")


# -- one pair -------------------------------------------------------------------------------------------------


def test_commuting_covariances_have_a_closed_form():
    a, b = np.array([1.0, 2.0, 0.5]), np.array([3.0, 0.0, 0.5])
    X = np.concatenate([np.diag(a), -np.diag(a)])
    Y = np.concatenate([np.diag(b), -np.diag(b)])
    assert bures_wasserstein(X, Y) == pytest.approx(((a - b) ** 2).sum() / 3, abs=1e-14)


def test_two_by_two_by_hand():
    # Σ₁ = diag(1, 0), Σ₂ = [[1, 1], [1, 1]]/2: Σ₁^½ Σ₂ Σ₁^½ = diag(1/2, 0), so BW² = 1 + 1 − 2/√2.
    X, Y = [[1.0, 0.0], [-1.0, 0.0]], np.array([[1.0, 1.0], [-1.0, -1.0]]) / np.sqrt(2)
    assert bures_wasserstein(X, Y) == pytest.approx(2 - np.sqrt(2), abs=1e-15)


def test_identical_and_one_token_clouds():
    random = np.random.default_rng(0)
    cloud = random_cloud(random, 6, 9)
    assert bures_wasserstein(cloud, cloud) == pytest.approx(0, abs=1e-14)
    assert bures_wasserstein(cloud, cloud[:1]) == pytest.approx(np.trace(np.cov(cloud.T, bias=True)), abs=1e-15)
    assert bures_wasserstein(cloud[:1], cloud[1:2]) == 0


def test_against_mpmath_in_fifty_digits():
    random = np.random.default_rng(1)
    X, Y = random.normal(size=(4, 3)), random.normal(size=(5, 3))
    with mpmath.workdps(50):

        def covariance(cloud):
            matrix = mpmath.matrix(cloud.tolist())
            n = matrix.rows
            centred = matrix - mpmath.ones(n, n) * matrix / n
            return centred.T * centred / n

        def trace(matrix):
            return sum(matrix[k, k] for k in range(matrix.rows))

        first, second = covariance(X), covariance(Y)
        half = mpmath.sqrtm(first)
        expected = trace(first) + trace(second) - 2 * trace(mpmath.sqrtm(half * second * half))
    assert bures_wasserstein(X, Y) == pytest.approx(float(mpmath.re(expected)), abs=1e-14)


def test_more_tokens_than_dimensions_takes_the_small_side():
    random = np.random.default_rng(2)
    F, G = random.normal(size=(50, 4)), random.normal(size=(60, 4))
    assert nuclear_norm(F, G) == pytest.approx(np.linalg.svd(F @ G.T, compute_uv=False).sum(), rel=1e-13)


def test_mixed_dimensions_are_refused():
    with pytest.raises(InputError, match="dimension 2 and 3"):
        bures_wasserstein(np.ones((2, 2)), np.ones((2, 3)))


# -- the square root as poles ---------------------------------------------------------------------------------


def test_poles_agree_with_elliptic_functions_in_forty_digits():
    poles, _ = square_root_poles(1e-6, 32)
    with mpmath.workdps(40):
        a = mpmath.mpf("1e-6")
        modulus = 1 - a**2
        period = mpmath.ellipk(modulus)
        exact = [(a * mpmath.ellipfun("sc", (j + mpmath.mpf(1) / 2) * period / 32, m=modulus)) ** 2 for j in range(32)]
    assert poles == pytest.approx([float(p) for p in exact], rel=1e-10)


def test_pole_sum_is_the_square_root():
    poles, weights = square_root_poles()
    inside = np.exp(np.linspace(np.log(1e-12), 0, 20_001))
    relative = (inside[:, None] / (inside[:, None] + poles)) @ weights / np.sqrt(inside) - 1
    assert np.abs(relative).max() < 1e-8
    below = np.exp(np.linspace(-80, np.log(1e-12), 5001))
    assert np.abs((below[:, None] / (below[:, None] + poles)) @ weights - np.sqrt(below)).max() < 6e-8


def test_sum_of_logarithms_is_the_square_root():
    poles, weights = plain.square_root_logarithms()
    x = np.exp(np.linspace(-80, 0, 20_001))
    error = np.abs(np.log1p(x[:, None] / poles) @ weights / 2 - np.sqrt(x))
    assert error.max() < 9e-8
    assert error[x > 1e-10].max() < 3e-9


# -- reduced factors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(5, 12), (12, 5), (6, 6)])
def test_reduction_keeps_the_covariance_and_drops_the_centring_row(n, d):
    random = np.random.default_rng(3)
    factor = random.normal(size=(n, d))
    factor -= factor.mean(axis=0)
    rows, scales = reduce_rows(factor[None])
    restored = rows[0].astype(np.float64) * scales[0]
    assert np.allclose(restored.T @ restored, factor.T @ factor, atol=1e-6)
    assert len(rows[0]) == min(n - 1, d)
    assert np.linalg.norm(rows[0], 2) <= 1


def test_repeated_tokens_do_not_add_rows():
    random = np.random.default_rng(4)
    clouds = TokenClouds.from_arrays([np.repeat(random_cloud(random, 4, 9), 5, axis=0), np.ones((3, 9))])
    with ThreadPoolExecutor(1) as pool:
        reduced = reduce_texts(clouds, np.arange(2), pool, orthogonal=True)
    assert [len(text.rows) for text in reduced] == [3, 0]


# -- all pairs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [6, 24, 96])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_all_pairs_agree_with_the_dense_computation(route, d, dtype):
    clouds = random_clouds(5, MIXED, d, dtype=dtype)
    found = by_pair(all_pairs(clouds))
    assert len(found) == len(clouds) * (len(clouds) - 1) // 2
    for (i, j), (mean_distance, bures, _) in found.items():
        assert i < j
        expected = dense_distances(clouds[i], clouds[j])
        assert mean_distance == pytest.approx(expected[0], abs=1e-12)
        assert bures / 4 == pytest.approx(expected[1], abs=1e-6)


def test_overlap_is_the_inner_product_of_the_covariances(route):
    clouds = random_clouds(18, MIXED, 24)
    covariances = [moments(cloud)[1] for cloud in clouds]
    for piece in all_pairs(clouds):
        for i, j, overlap in zip(piece.i, piece.j, piece.overlap, strict=True):
            assert overlap == pytest.approx((covariances[i] * covariances[j]).sum(), abs=1e-7)


@needs_kernel
def test_compiled_and_numpy_routes_agree(monkeypatch):
    clouds = random_clouds(6, MIXED * 4, 96, dtype="float32")
    compiled = by_pair(all_pairs(clouds))
    monkeypatch.setattr(native, "kernel", lambda: None)
    plain = by_pair(all_pairs(clouds))
    assert compiled.keys() == plain.keys()
    # The kernel reduces the float32 products in float32: as exact as they are themselves, and not more.
    assert max(abs(compiled[pair][1] - plain[pair][1]) / 4 for pair in plain) < 5e-8


@pytest.mark.parametrize(
    "make",
    [
        lambda random, k: np.repeat(random_cloud(random, 3, 40), 9, axis=0),
        lambda random, k: random_cloud(np.random.default_rng(0), 20, 40) + 1e-7 * random.normal(size=(20, 40)),
        lambda random, k: random_cloud(np.random.default_rng(0), 20, 40),
        lambda random, k: random_cloud(random, 15, 40) * np.where(np.arange(15) == 3, 1000, 1)[:, None],
        lambda random, k: 1 + np.eye(40)[(k * 5 + np.arange(5)) % 40] * random.normal(size=(5, 1)),
        lambda random, k: random_cloud(random, 200, 40),
        lambda random, k: random_cloud(random, 2 + k % 3, 40),
        lambda random, k: random_cloud(random, (1, 2, 35, 150)[k % 4], 160),
        lambda random, k: 1 + np.outer(random.normal(size=(1, 30, 60)[k % 3]), random.normal(size=40)),
        lambda random, k: random_cloud(random, 12, 40) * 1e-20,
        lambda random, k: random_cloud(random, 12, 40) * 1e15,
        lambda random, k: random_cloud(random, 12, 40) * 1e160,
    ],
    ids=[
        "repeated",
        "near-duplicates",
        "equal",
        "outlier",
        "disjoint",
        "n>d",
        "tiny",
        "unequal",
        "rank 0 or 1",
        "small",
        "large",
        "huge",
    ],
)
def test_adversarial_clouds(route, make):
    random = np.random.default_rng(7)
    clouds = TokenClouds.from_arrays([make(random, k) for k in range(12)])
    for (i, j), (_, bures, trace_sum, error) in by_pair_with_error(all_pairs(clouds)).items():
        sizes = [np.abs(clouds[k]).max() for k in (i, j)]
        expected = dense_singular(clouds[i] / sizes[0], clouds[j] / sizes[1])
        # 1e-6 where the trace is of order 1, as for every real model; relative to it for wilder clouds.
        assert bures / 4 == pytest.approx(expected, abs=1e-6 * max(1.0, trace_sum / 2))
        assert abs(bures - 4 * expected) <= error + 1e-12 * max(1.0, trace_sum)


@pytest.mark.parametrize("heights", [[3, 0, 1, 5], [8] * 40, [60, 0, 1, 130]], ids=["short", "many", "long"])
def test_numpy_norms_of_degenerate_products(heights):
    """Of rank 0, 1 and full; texts without rows, and with one."""
    random = np.random.default_rng(len(heights))
    left, right = np.cumsum([0, *heights]), np.array([0, 1, 1, 9, 50])
    products = random.normal(size=(left[-1], right[-1], native.LANES))
    products[..., 1::3] = 1.0
    products[..., 2::3] = 0.0
    products = (products / 200).astype(np.float32)
    wanted = random.random((len(heights), 4 * native.LANES)) < 0.8
    wanted[0] = False
    nuclear, squares = plain.norms(products.reshape(left[-1], -1), left, right, wanted=wanted)
    for i, j in np.argwhere(wanted):
        group, lane = divmod(j, native.LANES)
        pair = products[left[i] : left[i + 1], right[group] : right[group + 1], lane].astype(np.float64)
        values = np.linalg.svd(pair, compute_uv=False) if pair.size else np.zeros(1)
        assert nuclear[i, j] == pytest.approx(values.sum(), abs=1e-7)
        assert squares[i, j] == pytest.approx((values**2).sum(), abs=1e-12)


def gram_matrices(side: int) -> tuple[np.ndarray, np.ndarray]:
    """Matrices (200 × side × side) with a trace of 1 and a rank of 12, 1 or 0; and the roots of their eigenvalues."""
    random = np.random.default_rng(side)
    factors = random.normal(size=(200, side, 12)) * np.exp(-np.arange(12))
    factors[::7] = 0
    factors[1, 1:] = 0
    factors /= np.maximum(np.linalg.norm(factors, axis=(1, 2)), 1e-150)[:, None, None]
    return factors @ factors.swapaxes(1, 2), np.linalg.svd(factors, compute_uv=False)


def reduced_together(grams):
    return plain.all_at_once(np.ascontiguousarray(grams.transpose(1, 2, 0)))


def reduced_one_by_one(grams):
    diagonal, beside = np.zeros((2, grams.shape[1] + 3, len(grams) + 2))
    plain.one_by_one(grams.copy(), np.arange(0, len(grams), 2), diagonal, beside, 1)
    plain.one_by_one(grams.copy(), np.arange(1, len(grams), 2), diagonal, beside, 1)
    assert not diagonal[:, [0, -1]].any()
    return diagonal[:, 1:-1], beside[:, 1:-1]


@pytest.mark.parametrize("side", [1, 2, 9, 30, 130])
@pytest.mark.parametrize("reduced", [reduced_together, reduced_one_by_one])
@pytest.mark.parametrize("pointer", [True, False], ids=["by its pointer", "by scipy"])
def test_reduced_matrices_have_the_traces_of_the_eigenvalues(monkeypatch, side, reduced, pointer):
    if pointer:
        assert plain.lapack() is not None
    else:
        monkeypatch.setattr(plain, "lapack", lambda: None)
    grams, values = gram_matrices(side)
    roots, traces = plain.root_traces(*reduced(grams))
    assert roots == pytest.approx(values.sum(axis=-1), abs=2e-7)
    assert traces == pytest.approx((values**2).sum(axis=-1), abs=1e-12)


def test_a_tridiagonal_matrix_that_rounding_made_indefinite_goes_by_its_eigenvalues():
    diagonal = np.array([[0.5, -1e-9, 0.5], [0.25, 0.25, -1e-9], [0.0, 0.5, 0.25]])
    beside = np.array([[0.0, 0.0, 0.0], [0.0, 1e-20, 0.0], [0.0, 0.01, 0.0]])
    expected = [
        np.sqrt(np.linalg.eigvalsh(np.diag(d) + np.diag(np.sqrt(e[1:]), -1)).clip(min=0)).sum()
        for d, e in zip(diagonal.T, beside.T, strict=True)
    ]
    assert plain.root_traces(diagonal, beside)[0] == pytest.approx(expected, abs=5e-8)


@needs_kernel
def test_pairs_that_the_kernel_declines_are_computed_another_way(monkeypatch):
    products = np.random.default_rng(8).normal(size=(6, 5 * native.LANES)).astype(np.float32) / 20
    left, right = np.array([0, 2, 6]), np.array([0, 5])
    honest, squares = plain.norms(products, left, right)

    def declining(*arguments, **options):
        norms = honest.copy()
        norms[1, 2] = np.nan
        return norms, squares

    monkeypatch.setattr(native, "norms", declining)
    assert _norms(products, left, right)[0] == pytest.approx(honest, abs=1e-8)


@needs_kernel
@pytest.mark.parametrize("sink", [0, 1000])
def test_pairs_that_are_gathered_equal_those_of_whole_groups(monkeypatch, sink):
    random = np.random.default_rng(32)
    first = sink * random.normal(size=(1, 48))
    clouds, others = (
        TokenClouds.from_arrays([np.concatenate([first, random_cloud(random, n, 48)]) for n in lengths])
        for lengths in (MIXED * 2, [70, 30, 3, 1])
    )
    calls, answers = [], []
    listed = native.listed_norms

    def declining(*arguments):
        nuclear, squares = listed(*arguments)
        nuclear[len(calls) :: 5] = np.nan  # computed another way
        calls.append(len(nuclear))
        return nuclear, squares

    monkeypatch.setattr(native, "listed_norms", declining)
    for full in (2.0, 0.0):
        monkeypatch.setattr(distances, "_FULL", full)
        answers.append([by_pair_with_error(all_pairs(clouds)), by_pair_with_error(all_pairs(clouds, others))])
    assert calls == [len(found) for found in answers[0]]  # the first time all of them, the second time none
    for gathered, grouped in zip(*answers, strict=True):
        assert_within_bounds(gathered, grouped)


def test_crossed_pairs(route):
    left, right = random_clouds(9, [3, 1, 10], 12), random_clouds(10, [4, 4, 4, 9, 20], 12)
    found = by_pair(all_pairs(left, right))
    assert sorted(found) == [(i, j) for i in range(3) for j in range(5)]
    for (i, j), (_, bures, _) in found.items():
        assert bures / 4 == pytest.approx(dense_distances(left[i], right[j])[1], abs=1e-6)


def test_order_of_texts_and_tokens_and_padding_matter_no_more_than_rounding():
    clouds = random_clouds(16, MIXED, 96)
    reference = by_pair_with_error(all_pairs(clouds))
    random = np.random.default_rng(17)
    order = random.permutation(len(clouds))
    shuffled = by_pair_with_error(
        all_pairs(TokenClouds.from_arrays([random.permutation(clouds[int(k)]) for k in order]))
    )
    padded = np.full((len(clouds), max(MIXED), 96), np.nan)
    for k, cloud in enumerate(clouds):
        padded[k, -len(cloud) :] = cloud
    unpadded = by_pair_with_error(all_pairs(TokenClouds.from_padded(padded, ~np.isnan(padded[:, :, 0]))))
    restored = {tuple(sorted(int(order[k]) for k in pair)): values for pair, values in shuffled.items()}
    assert_within_bounds(restored, reference)
    assert_within_bounds(unpadded, reference)


def test_given_pairs_answer_in_the_callers_rows(route):
    clouds = random_clouds(12, MIXED, 20)
    wanted = np.array([(5, 2), (0, 1), (5, 2), (3, 3), (15, 0), (2, 5)])
    reference = by_pair(all_pairs(clouds))
    answers: list[tuple[int, Distances]] = list(given_pairs(clouds, wanted))
    rows = np.concatenate([rows for rows, _ in answers])
    assert sorted(rows) == list(range(6))
    for numbers, piece in answers:
        for row, i, j, bures in zip(numbers, piece.i, piece.j, piece.bures, strict=True):
            assert (i, j) == tuple(wanted[row])
            expected = 0.0 if i == j else reference[min(i, j), max(i, j)][1]
            assert bures == pytest.approx(expected, abs=1e-7)


def test_both_ways_through_given_pairs_equal_all_pairs(route):
    """The first texts have more than 40 partners and are treated with all of them, the last ones pair by pair."""
    clouds = random_clouds(31, [1, 2, 30, 5, 17, 40, 1, 9, 26, 3] * 5, 20)
    names = ("mean_distance", "bures", "trace_sum", "overlap", "error")
    reference = {
        (i, j): values
        for piece in all_pairs(clouds)
        for i, j, *values in zip(piece.i, piece.j, *(getattr(piece, name) for name in names), strict=True)
    }
    wanted = np.array([(j, i) if (i + j) % 10 == 0 else (i, j) for i, j in reference])
    assert np.bincount(wanted[:, 0]).max() > 40
    answered = 0
    for rows, piece in given_pairs(clouds, wanted):
        for row, *values in zip(rows, *(getattr(piece, name) for name in names), strict=True):
            assert values == pytest.approx(reference[tuple(sorted(wanted[row].tolist()))], abs=2e-7)
            answered += 1
    assert answered == len(wanted)


def test_a_pair_has_one_value_in_one_call(route):
    clouds = random_clouds(25, [3, 4, 5, 6, 7, 9] * 3, 64)
    wanted = np.random.default_rng(0).integers(len(clouds), size=(900, 2))
    values: dict[tuple[int, int], set[float]] = {}
    for rows, piece in given_pairs(clouds, wanted):
        assert np.array_equal(wanted[rows], np.stack([piece.i, piece.j], axis=1))
        for pair, bures in zip(np.sort(wanted[rows], axis=1).tolist(), piece.bures, strict=True):
            values.setdefault(tuple(pair), set()).add(bures)
    assert {len(found) for found in values.values()} == {1}


def test_given_pairs_with_a_budget_smaller_than_one_text():
    clouds = random_clouds(13, MIXED, 20)
    wanted = np.random.default_rng(0).integers(len(clouds), size=(60, 2))
    reference = by_pair_with_error(piece for _, piece in given_pairs(clouds, wanted))
    small = by_pair_with_error(piece for _, piece in given_pairs(clouds, wanted, tile_bytes=100))
    assert_within_bounds(small, reference)


@pytest.mark.parametrize(("lengths", "d"), [(MIXED, 48), ([30, 9, 14, 40], 6)])
def test_compatibility_mode_reproduces_the_regularised_dense_computation(lengths, d):
    clouds = random_clouds(14, lengths, d)
    found = by_pair(all_pairs(clouds, eps=1e-9))
    for (i, j), (_, bures, _) in found.items():
        assert bures / 4 == pytest.approx(dense_distances(clouds[i], clouds[j], eps=1e-9)[1], abs=1e-7)
    wanted = np.array([(0, 3), (3, 0)])
    listed = {int(r): d.bures[k] for rows, d in given_pairs(clouds, wanted, eps=1e-9) for k, r in enumerate(rows)}
    assert listed[0] / 4 == pytest.approx(dense_distances(clouds[0], clouds[3], eps=1e-9)[1], abs=1e-7)
    assert listed[1] / 4 == pytest.approx(dense_distances(clouds[3], clouds[0], eps=1e-9)[1], abs=1e-7)


def test_degenerate_text_is_named():
    clouds = TokenClouds.from_arrays([np.eye(3), np.array([[1.0, 0, 0], [-1, 0, 0]])], ids=["fine", "centred"])
    with pytest.raises(DegenerateCloudError, match=r"text 1 \(id 'centred'\) .*zero vector"):
        list(all_pairs(clouds))


# -- invariances, as properties -------------------------------------------------------------------------------


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 9), m=st.integers(1, 9), d=st.integers(1, 8))
def test_bures_is_a_symmetric_distance_free_of_rotation_order_and_repetition(seed, n, m, d):
    random = np.random.default_rng(seed)
    X, Y = random.normal(size=(n, d)), random.normal(size=(m, d))
    value = bures_wasserstein(X, Y)
    rotation, _ = np.linalg.qr(random.normal(size=(d, d)))
    trace_x, trace_y = np.cov(X.T, bias=True), np.cov(Y.T, bias=True)
    bound = np.trace(np.atleast_2d(trace_x)) + np.trace(np.atleast_2d(trace_y))
    assert -1e-12 <= value <= bound + 1e-12
    assert bures_wasserstein(Y, X) == pytest.approx(value, abs=1e-12)
    assert bures_wasserstein(X @ rotation, Y @ rotation) == pytest.approx(value, abs=1e-12)
    assert bures_wasserstein(X[random.permutation(n)], Y) == pytest.approx(value, abs=1e-12)
    assert bures_wasserstein(np.tile(X, (3, 1)), Y) == pytest.approx(value, abs=1e-12)
    assert bures_wasserstein(5 * X, 5 * Y) == pytest.approx(25 * value, abs=1e-10)


def test_panel_groups_are_views_of_the_same_texts():
    clouds = random_clouds(15, MIXED * 2, 10)
    with ThreadPoolExecutor(1) as pool:
        panel = make_panel(np.arange(len(clouds)), reduce_texts(clouds, np.arange(len(clouds)), pool))
    free = -len(clouds) % native.LANES
    assert panel.texts.tolist() == [-1] * free + list(range(len(clouds)))
    part = panel.groups(1, 3)
    assert part.texts.tolist() == list(range(native.LANES - free, 3 * native.LANES - free))
    assert np.shares_memory(part.rows, panel.rows)
    start = panel.ranks[: native.LANES].sum()
    rows = panel.rows_by_text[start : start + part.ranks.sum()]
    assert np.array_equal(part.rows_by_text, rows)


def test_a_centred_factor_loses_one_row_and_keeps_its_covariance():
    factors = np.random.default_rng(3).normal(size=(4, 6, 9))
    factors -= factors.mean(axis=1, keepdims=True)
    rows, scales = drop_centre(factors)
    assert rows.shape == (4, 5, 9)
    assert np.linalg.norm(rows, 2, axis=(1, 2)).max() <= 1
    whole = rows * scales[:, None, None]
    assert whole.transpose(0, 2, 1) @ whole == pytest.approx(factors.transpose(0, 2, 1) @ factors, abs=1e-12)
