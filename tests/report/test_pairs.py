"""The pairs of a page: which are kept, what is shown of each, and how small it stays."""

from __future__ import annotations

import base64
import itertools

import numpy as np
import pytest
from scipy.linalg import sqrtm

import report_data
from poolscope import TokenClouds, socm
from poolscope.auditing.questions.averaging import EXPLORED
from poolscope.encoders.tokens import Vocabulary
from poolscope.errors import InputError
from poolscope.metrics.socm.pair import pair_figure, project_pair, socm_pair, token_contributions
from poolscope.numbers.moments import unit_mean_factor
from poolscope.report import pair_explorer, render_page
from poolscope.report.pairs import (
    DRAWN_TOKENS,
    MARKED_TOKENS,
    MOST,
    NEIGHBOUR,
    RANDOM,
    WORST,
    drawn_positions,
    token_spans,
)
from poolscope.report.sections import json_block

# -- contributions of tokens ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m", "d"), [(5, 8, 12), (9, 4, 3), (1, 6, 4), (7, 1, 4), (1, 1, 3)])
def test_contributions_sum_to_the_distance(n, m, d):
    random = np.random.default_rng(n)
    X, Y = random.standard_normal((n, d)) + 1, random.standard_normal((m, d)) + 1
    left, right = token_contributions(X, Y)
    assert (len(left), len(right)) == (n, m)
    np.testing.assert_allclose(left.sum() + right.sum(), 4 * socm_pair(X, Y).covariance_distance, atol=1e-12)


def test_contributions_by_the_root_of_a_matrix():
    random = np.random.default_rng(0)
    X, Y = random.standard_normal((4, 9)) + 1, random.standard_normal((6, 9)) + 1
    (_, F), (_, G) = unit_mean_factor(X), unit_mean_factor(Y)
    left, right = token_contributions(X, Y)
    # sqrtm of a singular matrix is good to about 1e-8, the root of the rounding
    np.testing.assert_allclose(left, (F * F).sum(1) - np.diag(sqrtm(F @ G.T @ G @ F.T)).real, atol=1e-7)
    np.testing.assert_allclose(right, (G * G).sum(1) - np.diag(sqrtm(G @ F.T @ F @ G.T)).real, atol=1e-7)


def test_contributions_follow_their_tokens():
    random = np.random.default_rng(1)
    X, Y = random.standard_normal((5, 6)) + 1, random.standard_normal((4, 6)) + 1
    rotation, _ = np.linalg.qr(random.standard_normal((6, 6)))
    order = random.permutation(5)
    left, right = token_contributions(X, Y)
    turned = token_contributions(3 * X[order] @ rotation, Y @ rotation)
    np.testing.assert_allclose(turned[0], left[order], atol=1e-12)
    np.testing.assert_allclose(turned[1], right, atol=1e-12)
    np.testing.assert_allclose(token_contributions(Y, X)[0], right, atol=1e-12)
    np.testing.assert_allclose(np.concatenate(token_contributions(X, X)), 0, atol=1e-12)


# -- places of tokens -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names", "spans"),
    [
        ("Ünder the Sea", ["under", "the", "sea"], [(0, 5), (6, 9), (10, 13)]),
        ("hello world", ["▁hello", "▁world"], [(0, 5), (6, 11)]),
        ("hello world", ["hello", "Ġworld"], [(0, 5), (6, 11)]),
        ("embedding", ["em@@", "bedding</w>"], [(0, 2), (2, 9)]),
        ("a 😀 b", ["a", "[UNK]", "b"], [(0, 1), None, (4, 5)]),
        ("## x", ["##", "x"], [(0, 2), (3, 4)]),
        ("İstanbul", ["istanbul"], [(0, 8)]),
        ("", ["[CLS]"], [None]),
    ],
)
def test_tokens_are_found(text, names, spans):
    assert token_spans(text, names) == spans


def test_a_token_that_was_changed_does_not_draw_the_others_away():
    text = "x² and y" + " filler" * 30 + " x2 end"
    assert token_spans(text, ["x2", "and", "y"]) == [None, (3, 6), (7, 8)]


def test_few_tokens_of_a_long_cloud_are_drawn():
    for tokens in (1, 5, DRAWN_TOKENS, DRAWN_TOKENS + 1, 999):
        drawn = drawn_positions(tokens)
        assert len(np.unique(drawn)) == len(drawn) == min(tokens, DRAWN_TOKENS)
        assert drawn[0] == 0
        assert drawn[-1] < tokens


# -- which pairs ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clouds():
    return report_data.hostile_clouds()[0]


@pytest.fixture(scope="module")
def result(clouds):
    return socm(clouds)


def pairs_of(explorer, clouds):
    """(i, j) of the corpus for every pair, by the ids of its texts."""
    place = {name: k for k, name in enumerate(clouds.ids)}
    back = [place[text["id"]] for text in explorer.data["texts"]]
    columns = explorer.data["pairs"]
    return [(back[i], back[j]) for i, j in zip(columns["i"], columns["j"], strict=True)]


def test_the_worst_of_both_lists_and_random_pairs_once_each(clouds, result):
    explorer = report_data.explorer()
    found = pairs_of(explorer, clouds)
    assert len(explorer) == len(found) == len({tuple(sorted(pair)) for pair in found})
    reasons = np.array(explorer.data["pairs"]["reasons"])
    members = {
        reason: {tuple(sorted(found[row])) for row in np.flatnonzero(reasons & reason)}
        for reason in (NEIGHBOUR, WORST, RANDOM)
    }
    near = socm(clouds, neighbours=1)
    assert members[WORST] == {(one.i, one.j) for one in result.worst(10)}
    assert members[NEIGHBOUR] == {tuple(sorted((one.i, one.j))) for one in near.worst(10)}
    assert len(members[RANDOM]) == 20
    assert not members[RANDOM] & (members[WORST] | members[NEIGHBOUR])
    values = {
        (int(i), int(j)): value for i, j, value in zip(result.pairs.i, result.pairs.j, result.pairs.socm, strict=True)
    }
    expected = [values[tuple(sorted(pair))] for pair in found]
    np.testing.assert_allclose(explorer.data["pairs"]["socm"], expected, rtol=1e-4)
    assert list(explorer.data["pairs"]["socm"]) == sorted(explorer.data["pairs"]["socm"], reverse=True)
    both = len(members[WORST] & members[NEIGHBOUR])
    assert len(found) == 40 - both
    twice = f" ({both} of them are in both lists)" if both else ""
    assert explorer.thinning == (
        f"{len(found)} pairs are shown: the 10 of highest SOCM of the {near.count} pairs of nearest neighbours, "
        f"the 10 of highest SOCM of all 276 pairs{twice}, and 20 more, drawn at random."
    )
    assert explorer.data["kinds"][:2] == [
        f"highest SOCM among the {near.count} pairs of nearest neighbours",
        "highest SOCM of all 276 pairs",
    ]


def test_a_pair_of_both_lists_counts_in_both(clouds, result):
    every = pair_explorer(clouds, result, worst=276, nearest=276, random=5)
    near = socm(clouds, neighbours=1)
    both = NEIGHBOUR | WORST
    assert (np.array(every.data["pairs"]["reasons"]) == both).sum() == near.count
    assert every.thinning == (
        f"276 pairs are shown: the {near.count} pairs of nearest neighbours and all 276 pairs "
        f"({near.count} of them are in both lists)."
    )
    sampled = pair_explorer(clouds, socm(clouds, pairs=50, seed=1), worst=5, nearest=5, random=5)
    assert sampled.data["kinds"][1] == "highest SOCM of the 50 sampled pairs"


def test_the_sample_is_that_of_its_seed(clouds):
    first, again, other = (pairs_of(report_data.explorer(seed=seed), clouds) for seed in (0, 0, 1))
    assert first == again != other


def test_small_corpora_and_results_without_their_pairs(clouds, result):
    two = clouds.select([0, 1])
    assert len(pair_explorer(two, socm(two))) == 1
    forgotten = socm(clouds, keep=0, top=5)
    assert forgotten.pairs is None
    explorer = pair_explorer(clouds, forgotten, worst=5, nearest=0, random=7)
    assert sorted(explorer.data["pairs"]["reasons"]) == [WORST] * 5 + [RANDOM] * 7
    given = socm(clouds, neighbours=2)
    assert pairs_of(pair_explorer(clouds, result, neighbours=given, worst=1, random=0), clouds)
    with pytest.raises(InputError, match="needed: pairs within one corpus"):
        pair_explorer(clouds, socm(clouds, two))
    with pytest.raises(InputError, match="needed: pairs within one corpus"):
        pair_explorer(two, result)


# -- what is shown ----------------------------------------------------------------------------------------------


def test_pictures_are_those_of_the_projection(clouds, result):
    explorer = report_data.explorer()
    for (i, j), detail in zip(pairs_of(explorer, clouds), explorer.data["details"], strict=True):
        picture = project_pair(clouds[i], clouds[j])
        for side, flat in zip(detail["sides"], (picture.left, picture.right), strict=True):
            points = np.frombuffer(base64.b64decode(side["points"]), "<i2").reshape(-1, 2) * detail["unit"]
            np.testing.assert_allclose(points, flat.points, atol=2 * detail["unit"])
            axes = np.array(side["axes"]) * detail["unit"]
            np.testing.assert_allclose(
                axes.T @ axes, flat.covariance, atol=1e-3 * max(1, np.abs(flat.covariance).max())
            )
            np.testing.assert_allclose(np.array(side["mean"]) * detail["unit"], flat.mean, atol=2 * detail["unit"])
        assert detail["kept"] == pytest.approx(picture.kept, rel=1e-2)


def test_marked_tokens_add_most(clouds):
    explorer = report_data.explorer()
    data = explorer.data
    for row, pair in enumerate(pairs_of(explorer, clouds)):
        parts = token_contributions(*(clouds[k] for k in pair))
        total = sum(part.sum() for part in parts)
        for side, k in enumerate(pair):
            marked = data["details"][row]["marked"][side]
            best = sorted((part / total for part in parts[side] if part > 0), reverse=True)[:MARKED_TOKENS]
            assert [one[3] for one in marked] == [round(1000 * share) for share in best]
            for word, start, end, *_ in marked:
                name = data["words"][word]
                assert name in report_data.WORDS
                if start >= 0:
                    assert clouds.texts[k][start:end].lower() == name.removeprefix("##").lower()


def test_an_excerpt_holds_the_tokens_that_matter():
    """The token that is far from all others stands behind more characters than are kept."""
    words = [*(f"word{k}" for k in range(250)), "needle"]
    text = " ".join(f"{word:<34}" for word in words)
    assert text.index("needle") > MOST
    ids = np.arange(len(words), dtype=np.int32)
    arrays = [np.random.default_rng(k).standard_normal((len(words), 4)) * 0.01 + 1 for k in (0, 1)]
    arrays[1][-1] = [40, -40, 40, -40]
    clouds = TokenClouds.from_arrays(arrays, texts=["short", text], token_ids=[ids, ids])
    data = pair_explorer(clouds, socm(clouds), vocabulary=Vocabulary.of_words(words)).data
    short, kept = (one["text"] for one in data["texts"])
    assert short == "short"
    assert (len(kept["text"]), kept["length"]) == (MOST, len(text))
    assert text[kept["start"] :].startswith(kept["text"])
    needle = data["details"][0]["marked"][1][0]
    assert data["words"][needle[0]] == "needle"
    assert kept["text"][needle[1] - kept["start"] : needle[2] - kept["start"]] == "needle"


def test_what_is_not_known_is_left_out():
    bare = TokenClouds.from_arrays(np.random.default_rng(0).standard_normal((4, 3, 5)) + 1)
    data = pair_explorer(bare, socm(bare)).data
    assert {text["text"] for text in data["texts"]} == {None}
    assert data["words"] == []
    marked = [one for detail in data["details"] for side in detail["marked"] for one in side]
    assert marked
    assert {place for one in marked for place in one[:3]} == {-1}
    alike = TokenClouds.from_arrays([[[1.0, 2.0]], [[2.0, 4.0]]])  # one token each: no spread, nothing to mark
    assert pair_explorer(alike, socm(alike)).data["details"][0]["marked"] == [[], []]


def test_the_page_fills_the_traces_of_the_picture_by_their_order():
    figure = pair_figure(project_pair([[1, 1], [1, -1]], [[1, 2], [1, -2], [1, 0]]))
    kinds = [(trace.mode, len(trace.x)) for trace in figure.data]
    assert (
        kinds
        == [("lines", 120), ("lines", 120), ("markers", 2), ("lines", 120), ("lines", 120), ("markers", 3)]
        + [("lines+markers", 2)] * 2
    )


def test_a_thousand_texts_stay_below_a_megabyte_and_a_half():
    """Worse than real corpora: texts longer than what is kept, in letters of two bytes, with more tokens than drawn."""
    random = np.random.default_rng(0)
    words = [f"слово{k}" for k in range(3000)]
    lengths = random.integers(200, 260, 1000)
    ids = [random.integers(0, len(words), n).astype(np.int32) for n in lengths]
    clouds = TokenClouds.from_arrays(
        [random.standard_normal((n, 4)).astype(np.float32) + 1 for n in lengths],
        texts=[" ".join(words[k] for k in row) for row in ids],
        token_ids=ids,
    )
    explorer = pair_explorer(clouds, socm(clouds, pairs=2000), vocabulary=Vocabulary.of_words(words), **EXPLORED)
    assert len(explorer) == sum(EXPLORED.values())
    page = render_page("t", "s", report_data.sections(), explorer=explorer)
    assert len(page.encode()) < 1_500_000
    spread = len(json_block(list(itertools.islice(explorer.data["details"], 100)))) / 100
    assert spread < 3000  # bytes a pair
