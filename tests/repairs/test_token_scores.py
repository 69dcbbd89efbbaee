"""Each way to score by tokens, against a plain computation of the same."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment, linprog

from poolscope import TokenClouds, socm_pair
from poolscope.encoders.tokens import Vocabulary
from poolscope.errors import InputError
from poolscope.numbers.maxsim import blend, maxsim, unit_tokens
from poolscope.repairs.adaptive import TOKEN_POOLINGS, attended_tokens, pooled_tokens
from poolscope.repairs.token_scores import TokenWays, Way, mean_way

WORDS = Vocabulary.of_words([f"w{k}" for k in range(50)])


def clouds(seed: int, texts: int, lengths: tuple[int, int]) -> TokenClouds:
    random = np.random.default_rng(seed)
    sizes = random.integers(*lengths, size=texts)
    arrays = [random.standard_normal((size, 6)) + 1 for size in sizes]
    return TokenClouds.from_arrays(arrays, token_ids=[random.integers(0, 50, size) for size in sizes])


def scored(**changes) -> tuple[TokenWays, Way, dict[str, Way]]:
    settings = {"vocabulary": WORDS, "candidates": 4, "vectors": (3, 40), "stop_words": None, **changes}
    ways = TokenWays(clouds(0, 5, (2, 5)), clouds(1, 9, (4, 12)), **settings)
    mean = mean_way(ways.queries, ways.texts)
    return ways, mean, dict(ways(mean))


def unit(cloud) -> np.ndarray:
    return cloud / np.linalg.norm(cloud, axis=1, keepdims=True)


def test_gaussian_w2_is_that_of_each_pair():
    ways, _, found = scored()
    way = found["Gaussian W₂"]
    for query, texts in enumerate(way.candidates):
        for place, text in enumerate(texts):
            distance = socm_pair(ways.queries[query], ways.texts[text])
            assert -way.scores[query, place] == pytest.approx(
                distance.mean_distance + distance.covariance_distance, abs=1e-6
            )


def test_exact_transport_is_an_assignment_where_tokens_are_as_many():
    """Query tokens are copied n times, text tokens m times: of n·m equal weights the best coupling is a pairing."""
    ways, _, found = scored()
    way = found["exact transport"]
    query, place = 1, 2
    a, b = unit(ways.queries[query]), unit(ways.texts[way.candidates[query, place]])
    costs = np.linalg.norm(np.repeat(a, len(b), axis=0)[:, None] - np.repeat(b, len(a), axis=0)[None], axis=2)
    assert -way.scores[query, place] == pytest.approx(costs[linear_sum_assignment(costs)].mean(), abs=1e-6)


@pytest.mark.parametrize("name", ["word rotator's distance", "MoverScore"])
def test_weighted_transports_are_linear_programmes(name):
    ways, _, found = scored()
    way = found[name]
    for query, place in ((0, 0), (1, 2), (3, 1)):
        text = way.candidates[query, place]
        a, b = np.asarray(ways.queries[query], float), np.asarray(ways.texts[text], float)
        cosines = unit(a) @ unit(b).T
        if name == "MoverScore":
            costs = np.sqrt(np.maximum(2 - 2 * cosines, 0))
            ids = [set(ways.texts.token_ids(k).tolist()) for k in range(9)]
            sides = [
                np.array([np.log(10 / (1 + sum(own in each for each in ids))) for own in side.tolist()])
                for side in (ways.queries.token_ids(query), ways.texts.token_ids(text))
            ]
        else:
            costs, sides = 1 - cosines, [np.linalg.norm(side, axis=1) for side in (a, b)]
        left, right = (side / side.sum() for side in sides)
        sums = np.vstack([np.kron(np.eye(len(a)), np.ones(len(b))), np.kron(np.ones(len(a)), np.eye(len(b)))])
        best = linprog(costs.ravel(), A_eq=sums, b_eq=np.concatenate([left, right]))
        assert -way.scores[query, place] == pytest.approx(best.fun, abs=1e-6)


def test_candidates_come_first_and_the_rest_follow_by_the_mean():
    _, mean, found = scored()
    way = found["Gaussian W₂"]
    for table in (way.table(mean.scores), way.blended(mean.scores, 0.5)):
        order = np.argsort(-table, axis=1)
        by_mean = np.argsort(-mean.scores, axis=1)
        assert np.array_equal(np.sort(order[:, :4]), np.sort(by_mean[:, :4]))
        assert np.array_equal(order[:, 4:], by_mean[:, 4:])
    near = np.take_along_axis(mean.scores, way.candidates, axis=1)
    inside = np.take_along_axis(way.blended(mean.scores, 0.5), way.candidates, axis=1)
    assert np.array_equal(np.argsort(inside, axis=1), np.argsort(blend(near, way.scores, 0.5), axis=1))


def test_as_many_clusters_as_tokens_are_the_tokens():
    ways, _, found = scored()
    assert found["MaxSim, 40 clusters"].scores == pytest.approx(found["MaxSim"].scores, abs=1e-5)
    assert found["MaxSim, 3 clusters"].bytes == 4 * 6 * 3
    assert not np.allclose(found["MaxSim, 3 clusters"].scores, found["MaxSim"].scores, atol=1e-3)
    assert ways.left_out() == {}


def test_stop_words_are_those_named_or_those_of_many_texts():
    ways, _, found = scored(stop_words=["W7", "w8"])
    ids = ways.queries.token_ids(slice(None))
    wanted = maxsim(ways.queries, ways.texts, query_tokens=~np.isin(ids, [7, 8]))
    assert found["MaxSim, rare words"].scores == pytest.approx(wanted)
    ways, _, found = scored()
    shares = np.array([np.mean([k in ways.texts.token_ids(t) for t in range(9)]) for k in ids])
    assert 0 < (shares > 0.3).sum() < len(shares)
    wanted = maxsim(ways.queries, ways.texts, query_tokens=shares <= 0.3)
    assert found["MaxSim, rare words"].scores == pytest.approx(wanted)


def test_storage_loses_less_than_its_bound_and_costs_its_bytes():
    ways, _, found = scored()
    exact = found["MaxSim"]
    lengths = ways.texts.lengths.mean()
    for storage, size in (("float16", 2 * 6), ("int8", 6 + 4)):
        way = found[f"MaxSim, {storage}"]
        lost = float(np.abs(way.scores - exact.scores).max())
        assert 0 < lost <= unit_tokens(ways.texts, storage=storage).rounding + 1e-6
        assert way.bytes == pytest.approx(size * lengths)
        assert way.adds_mean  # tokens at unit length have no mean of the model any more


def test_maxsim_of_candidates_is_exact_on_them_and_costs_their_products():
    _, mean, found = scored()
    exact, near = found["MaxSim"], found["MaxSim, candidates"]
    assert near.scores == pytest.approx(np.take_along_axis(exact.scores, near.candidates, axis=1), abs=1e-6)
    assert near.products == pytest.approx(mean.products + exact.products * 4 / 9)


@pytest.mark.parametrize("by", TOKEN_POOLINGS)
def test_pooled_tokens_are_means_of_groups_that_hold_all_tokens(by):
    texts = clouds(4, 6, (1, 15))
    for count, several in pooled_tokens(texts, (1, 3, 40), by=by).items():
        assert several.counts.tolist() == [min(count, length) for length in texts.lengths]
        for k, cloud in enumerate(texts):
            vectors = several.vectors[several.offsets[k] : several.offsets[k + 1]]
            if count == 1:
                assert vectors[0] == pytest.approx(cloud.mean(axis=0))
            if count == 40:
                assert np.sort(vectors, axis=0) == pytest.approx(np.sort(cloud, axis=0))
    with pytest.raises(InputError, match="spans"):
        pooled_tokens(texts, (2,), by="chance")


def test_merging_spreads_no_more_than_spans_where_groups_are_not_neighbours():
    """Two directions in turn: spans mix them, merged groups do not."""
    cloud = np.array([[1.0, 0.0], [0.0, 1.0]] * 5) + 0.01 * np.arange(20).reshape(10, 2) / 20
    texts = TokenClouds.from_arrays([cloud])
    merged = pooled_tokens(texts, (2,), by="merged")[2].vectors
    assert np.sort(merged[:, 0]) == pytest.approx(np.sort([cloud[1::2, 0].mean(), cloud[::2, 0].mean()]))
    assert np.abs(pooled_tokens(texts, (2,), by="spans")[2].vectors - merged).max() > 0.3


def test_attended_groups_are_means_by_salience_around_the_most_salient():
    texts = clouds(5, 4, (1, 9))
    random = np.random.default_rng(6)
    salience = [random.random(length) for length in texts.lengths]
    for count, several in attended_tokens(texts, (1, 3, 40), salience).items():
        assert several.counts.tolist() == [min(count, length) for length in texts.lengths]
        for k, cloud in enumerate(texts):
            vectors = several.vectors[several.offsets[k] : several.offsets[k + 1]]
            centres = np.sort(np.argsort(-salience[k])[:count])
            nearest = (unit(cloud) @ unit(cloud)[centres].T).argmax(axis=1)
            expected = [
                np.average(cloud[nearest == c], axis=0, weights=salience[k][nearest == c]) for c in range(len(centres))
            ]
            assert vectors == pytest.approx(np.array(expected), abs=1e-6)
    zeros = attended_tokens(texts, (1,), [np.zeros(length) for length in texts.lengths])[1]
    assert zeros.vectors == pytest.approx(np.array([cloud.mean(axis=0) for cloud in texts]), abs=1e-6)
    for wrong in (salience[:-1], [-each for each in salience]):
        with pytest.raises(InputError, match="salience"):
            attended_tokens(texts, (2,), wrong)


def test_salience_adds_ways_with_the_bytes_of_as_many_vectors():
    _, _, plain = scored()
    texts = clouds(1, 9, (4, 12))
    _, _, found = scored(salience=[np.arange(length) + 1.0 for length in texts.lengths])
    assert set(found) - set(plain) == {"MaxSim, 3 attended", "MaxSim, 40 attended"}
    assert found["MaxSim, 3 attended"].bytes == 4 * 6 * 3
    assert found["MaxSim, 40 attended"].scores == pytest.approx(found["MaxSim"].scores, abs=1e-5)
