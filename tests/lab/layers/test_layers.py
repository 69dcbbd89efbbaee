"""The anatomy of the layers: against a computation by hand, invariances, both theorems, edge cases, stored values."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from scipy.stats import ortho_group

import zoo
from layers_by_hand import REFERENCE, bert_layers, by_hand, llama_layers
from poolscope import TokenClouds, encode, socm
from poolscope.errors import DegenerateCloudError, InputError
from poolscope.lab.layers.measure import (
    LayerSums,
    StateClouds,
    centred_attention,
    contraction,
    layers,
    squared_norms,
)
from poolscope.lab.layers.result import QUANTITIES
from poolscope.numbers.cosines import largest_singular_values
from poolscope.numbers.intervals import mean_estimate
from poolscope.numbers.moments import cloud_moments
from poolscope.numbers.streaming import shuffled_order
from tiny_models import TEXTS, declare, save_model, tiny_model, tiny_tokenizer


def single_words():
    """A tokenizer that adds nothing, so that a word is a text of one token."""
    return tiny_tokenizer(template=None)


@pytest.mark.parametrize(("name", "layers_of"), [("BERT", bert_layers), ("Llama", llama_layers)])
@pytest.mark.parametrize("tokenizer", [tiny_tokenizer(), single_words()], ids=["with ends", "words only"])
def test_every_quantity_is_that_computed_by_hand(name, layers_of, tokenizer):
    model, _ = zoo.family(name)
    result = layers((model, tokenizer), TEXTS)
    for position, text in enumerate(TEXTS):
        expected = by_hand(layers_of, model, tokenizer, text)
        assert set(expected) == set(QUANTITIES)
        for quantity, values in expected.items():
            found = result[quantity][position]
            if QUANTITIES[quantity].over == "states" and "output" in result.states:
                found = found[:-1]
            np.testing.assert_allclose(found, values, rtol=2e-4, atol=2e-5, err_msg=f"{quantity} of text {position}")


@pytest.mark.model
def test_the_embedded_model_gives_the_stored_values():
    stored = json.loads(REFERENCE.read_text(encoding="utf-8"))
    result = layers("builtin:minilm", stored["texts"], device="cpu", socm_texts=0)
    for position, values in enumerate(stored["values"]):
        for quantity, expected in values.items():
            np.testing.assert_allclose(result[quantity][position], expected, rtol=5e-5, atol=2e-6, err_msg=quantity)


@pytest.mark.parametrize("name", ["BERT", "Mistral"])
def test_batches_and_order_change_nothing(name):
    model = zoo.family(name)
    whole = layers(model, TEXTS, batch_tokens=10_000)
    order = [3, 1, 4, 0, 2]
    cut = layers(model, [TEXTS[k] for k in order], batch_tokens=1)
    for quantity in QUANTITIES:
        np.testing.assert_allclose(cut[quantity], whole[quantity][order], rtol=2e-4, atol=1e-5, err_msg=quantity)
    for ours, theirs in zip(whole.socm, cut.socm, strict=True):
        assert ours.mean == pytest.approx(theirs.mean, rel=1e-4)


def test_batches_at_the_same_time_do_not_mix():
    model = zoo.family("Qwen3")
    texts = [text for text in TEXTS for _ in range(4)]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = layers(model, texts, batch_tokens=20)
        torch.set_num_threads(4)
        four = layers(model, texts, batch_tokens=20)
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(threads)
    for quantity in QUANTITIES:
        np.testing.assert_allclose(four[quantity], one[quantity], rtol=1e-5, atol=1e-6, err_msg=quantity)
    assert [state.mean for state in four.socm] == pytest.approx([state.mean for state in one.socm])


@pytest.mark.parametrize("name", zoo.FAMILIES)
def test_every_family_is_measured_and_keeps_both_theorems(name):
    result = layers(zoo.family(name), TEXTS)
    gemma = name in {"Gemma 2", "Gemma 3"}
    assert result.states[:4] == ("0", "1", "2", "3")
    for check in result.theorem_1():
        assert check.texts == (0 if gemma else len(TEXTS))
        assert check.proven_holds == check.texts
    assert all(state.violations == 0 and 0 < state.largest_share <= 1 for state in result.socm)
    branch, bound = result["high_frequency_branch"], result["high_frequency_bound"]
    assert (branch <= bound + 1e-6).all()
    json.dumps(result.to_dict(), allow_nan=False)


def test_rounding_breaks_no_theorem():
    """Deep in a random model all tokens are one but for their last bits, and deviations are rounding."""
    result = layers(zoo.family("BERT", num_hidden_layers=14), TEXTS)
    assert result.means("concentration_ratio").mean[-1] < 1e-9
    assert all(check.proven_holds == check.texts for check in result.theorem_1())
    assert all(state.violations == 0 for state in result.socm)


def test_clouds_are_those_that_the_model_pools():
    model = zoo.family("GPT-2")
    result = layers(model, TEXTS)
    clouds = encode(model, TEXTS, layers=[0, 1, 3])
    assert result.states == ("0", "1", "2", "3", "output")
    for state, own in ((0, clouds[0]), (1, clouds[1]), (4, clouds[3])):
        assert result.socm[state].mean == pytest.approx(socm(own).mean, rel=1e-6)
        assert result.socm[state].estimate.no_interval == socm(own).estimate.no_interval != ""  # of so few texts
        ratios = [cloud_moments(cloud, np.array([0, len(cloud)])).ratio[0] for cloud in own]
        np.testing.assert_allclose(result["concentration_ratio"][:, state], ratios, rtol=1e-6)


def test_a_prompt_that_is_not_pooled_takes_part_in_attention_only(tmp_path):
    folder = str(save_model(tmp_path))
    declare(tmp_path, pooling={"pooling_mode": "mean", "include_prompt": False}, prompts={"query": "query : "})
    result = layers(folder, TEXTS, role="query")
    clouds = encode(folder, TEXTS, role="query")
    assert (result.lengths == clouds.lengths + 3).all()  # <s> and the two words of the prompt
    assert result.socm[-1].mean == pytest.approx(socm(clouds).mean, rel=1e-6)
    model, tokenizer = tiny_model(), tiny_tokenizer()
    expected = by_hand(bert_layers, model, tokenizer, "query : " + TEXTS[0])
    np.testing.assert_allclose(result["r"][0], expected["r"], rtol=1e-4)


def test_texts_of_one_token():
    result = layers((tiny_model(), single_words()), ["cat", "dog ran", "tree"])
    assert result.lengths.tolist() == [1, 2, 1]
    for quantity in ("lambda", "sigma_a", "r", "spread_input", "spread_branch"):
        assert (result[quantity][[0, 2]] == 0).all()
    assert (result["concentration_ratio"][[0, 2]] == 0).all()
    np.testing.assert_allclose(result["cosine"][[0, 2]], 1)
    for quantity in ("C", "slack", "slack_proven", "high_frequency", "high_frequency_branch", "high_frequency_bound"):
        assert np.isnan(result[quantity][[0, 2]]).all()
        assert np.isfinite(result[quantity][1]).all()
        assert result.means(quantity).texts.tolist() == [1, 1]
    assert [check.texts for check in result.theorem_1()] == [1, 1]
    assert result.to_dict()["one_token_texts"] == 2
    alone = layers((tiny_model(), single_words()), ["cat"])
    assert alone.socm is None
    assert alone.theorem_1()[0].smallest_slack is None
    assert np.isnan(alone.means("C").mean).all()
    json.dumps(alone.to_dict(), allow_nan=False)


def test_means_carry_the_interval_over_texts():
    result = layers(
        zoo.family("BERT"), [f"{text} {text}" if k else text for text in TEXTS for k in range(2)], socm_texts=0
    )
    found = result.means("lambda", level=0.9)
    values = result["lambda"].mean(axis=2)
    for layer in range(result.layers):
        expected = mean_estimate(values[:, layer], level=0.9)
        assert expected.interval is not None
        assert (found.low[layer], found.high[layer]) == (expected.interval.low, expected.interval.high)
    assert found.texts.tolist() == [10, 10, 10]
    with pytest.raises(InputError, match="allowed: concentration_ratio"):
        result.means("nonsense")


def test_table_and_files(tmp_path):
    result = layers(zoo.family("Llama"), TEXTS, ids=list("abcde"))
    table = result.to_table()
    assert table.num_rows == len(TEXTS) * 5
    row = table.slice(5 + 2, 1).to_pylist()[0]  # second text, state 2
    assert (row["id"], row["state"], row["layer"], row["tokens"]) == ("b", "2", 2, 4)
    assert row["r"] == result["r"][1, 1]
    assert row["cosine"] == result["cosine"][1, 2]
    assert row["lambda_by_head"] == result["lambda"][1, 1].tolist()
    assert row["lambda"] == pytest.approx(result["lambda"][1, 1].mean())
    ends = table.slice(5, 1).to_pylist() + table.slice(9, 1).to_pylist()
    assert [end["state"] for end in ends] == ["0", "output"]
    assert all(end["r"] is None and end["sigma_a_by_head"] is None and end["cosine"] is not None for end in ends)
    result.save_parquet(tmp_path / "layers.parquet")
    again = pq.read_table(tmp_path / "layers.parquet")
    assert again.equals(table)
    assert json.loads(again.schema.metadata[b"poolscope"])["model"]["name"] == "LlamaModel"
    stored = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert stored["means"]["r"]["mean"] == pytest.approx(result["r"].mean(axis=0).tolist())
    assert stored["provenance"]["settings"]["socm_texts"] is None  # as many as are drawn by default
    assert "LlamaModel: 5 texts, 3 layers" in repr(result)


def test_socm_of_some_texts_only():
    model = zoo.family("BERT")
    few = layers(model, TEXTS, socm_texts=3, seed=1)
    assert [state.pairs for state in few.socm] == [3] * 4
    assert layers(model, TEXTS, socm_texts=3, seed=1).socm == few.socm
    assert layers(model, TEXTS, socm_texts=0).socm is None


def test_many_texts_are_compared_in_groups_and_all_pairs_where_their_number_is_given():
    """Each pair of a group is exact: the mean is that of all pairs of each group, put together."""
    random = np.random.default_rng(0)
    rows = [random.normal(1, 1, size=(int(n), 8)) for n in random.integers(2, 9, size=70)]
    lengths, ids = np.array([len(part) for part in rows]), [f"t{k}" for k in range(70)]
    found = {}
    for count in (None, 70):
        clouds = StateClouds(ids, ids, count, "", seed=0)
        clouds.add(0, np.concatenate(rows), lengths, np.arange(70))
        (found[count],) = clouds.socm(["0"], np.ones((70, 1)), np.zeros(1, dtype=bool))
    assert found[70].pairs == 70 * 69 // 2
    assert found[70].mean == pytest.approx(socm(TokenClouds.from_arrays(rows)).mean, rel=1e-12)
    drawn = shuffled_order(ids, seed=0)
    parts = [socm(TokenClouds.from_arrays([rows[k] for k in np.sort(drawn[g::4])])) for g in range(4)]
    assert found[None].pairs == sum(part.count for part in parts) == 2 * 153 + 2 * 136
    for name in ("mean", "mean_distance", "covariance_distance"):
        together = sum(getattr(part, name) * part.count for part in parts) / found[None].pairs
        assert getattr(found[None], name) == pytest.approx(together, rel=1e-6)
    widths = [found[count].high - found[count].low for count in (None, 70)]
    assert widths[0] == pytest.approx(widths[1], rel=0.1)


def test_neither_the_order_of_the_batches_nor_what_lies_in_files_changes_a_byte(tmp_path):
    random, found = np.random.default_rng(0), []
    batches = [(np.array(at), random.normal(1, 1, size=(sum(n), 8))) for at, n in (((3, 0), (9, 4)), ((1, 2), (4, 9)))]
    for order, memory in (
        (batches, 10**6),
        (batches[::-1], 10**6),
        (batches, 0),
        (batches[::-1], batches[1][1].nbytes),
    ):
        clouds = StateClouds("abcd", "abcd", 4, str(tmp_path), seed=0, memory=memory)
        for positions, rows in order:
            lengths = np.array([{0: 4, 1: 4, 2: 9, 3: 9}[k] for k in positions.tolist()])
            clouds.add(0, rows, lengths, positions)
        found.append(clouds.socm(["0"], np.ones((4, 1)), np.zeros(1, dtype=bool)))
    assert all(other == found[0] for other in found)


def test_wrong_arguments_are_named():
    model = zoo.family("BERT")
    with pytest.raises(InputError, match=r"ids: received 2 .* 5 texts"):
        layers(model, TEXTS, ids=["a", "b"])
    with pytest.raises(InputError, match=r"ids: received 5 .* 5 texts"):
        layers(model, TEXTS, ids=["a"] * 5)
    with pytest.raises(InputError, match="socm_texts: received 1"):
        layers(model, TEXTS, socm_texts=1)
    with pytest.raises(InputError, match="unknown options"):
        layers(model, TEXTS, batch=3)


def test_a_zero_mean_is_an_error_that_names_the_text():
    model, tokenizer = tiny_model(), single_words()
    for layer in model.encoder.layer:  # the output of every layer is zero
        for parameter in layer.output.LayerNorm.parameters():
            parameter.data.zero_()
    with pytest.raises(DegenerateCloudError, match=r"text 'b'.*\(state 1\)"):
        layers((model, tokenizer), ["cat sat"], ids=["b"])


# -- the mathematics ----------------------------------------------------------------------------------------------


def attention(n, seed=0, heads=2, dtype=np.float64, sharp=1.0):
    scores = sharp * np.random.default_rng(seed).standard_normal((heads, n, n))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 30, 64, 130])
@pytest.mark.parametrize("kind", ["smooth", "sharp", "permutation", "two sinks", "uniform", "diagonal and noise"])
def test_largest_singular_values_are_those_of_a_decomposition(kind, n, dtype):
    random = np.random.default_rng(1)
    stack = {
        "smooth": lambda: attention(n),
        "sharp": lambda: attention(n, sharp=20.0),
        "permutation": lambda: np.stack([np.eye(n)[random.permutation(n)], np.eye(n)]),
        "two sinks": lambda: np.eye(n)[random.integers(min(n, 2), size=(2, n))],
        "uniform": lambda: np.full((2, n, n), 1 / n),
        "diagonal and noise": lambda: 0.9 * np.eye(n) + 0.1 * attention(n),
    }[kind]()
    M = centred_attention(stack.astype(dtype), n)
    exact = np.linalg.svd(M.astype(np.float64), compute_uv=False)[:, 0]
    # float32 knows a matrix of norm 1 to 1e-7 or so; the uniform one is zero but for that
    np.testing.assert_allclose(largest_singular_values(M), exact, rtol=2e-6, atol=2e-6 if dtype is np.float32 else 1e-7)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_matrices_of_low_rank_need_no_decomposition(rank, monkeypatch):
    from poolscope.numbers import cosines

    monkeypatch.setattr(cosines, "_full", None)
    random = np.random.default_rng(0)
    M = (random.standard_normal((2, 80, rank)) @ random.standard_normal((2, rank, 80))).astype(np.float32)
    exact = np.linalg.norm(M.astype(float), ord=2, axis=(1, 2))
    np.testing.assert_allclose(largest_singular_values(M), exact, rtol=2e-6)


def test_matrices_that_do_not_converge_are_decomposed():
    """Singular values that lie as close together as these are not told apart in the steps that there are."""
    random, values = np.random.default_rng(0), np.linspace(0.9, 1, 400)
    M = np.stack([ortho_group.rvs(400, random_state=random) * values, attention(400)[0]])
    assert largest_singular_values(M)[0] == pytest.approx(1, rel=1e-12)
    assert largest_singular_values(M)[1] == pytest.approx(np.linalg.norm(M[1], ord=2), rel=1e-6)


def test_padding_is_no_part_of_the_centring():
    A = attention(6)
    padded = np.full((2, 9, 9), np.nan)
    padded[:, :6, :6] = A
    np.testing.assert_array_equal(centred_attention(padded, 6), centred_attention(A, 6))
    np.testing.assert_allclose(centred_attention(A, 6).sum(axis=1), 0, atol=1e-15)
    np.testing.assert_allclose(squared_norms(A), (A**2).sum(axis=(1, 2)), rtol=1e-12)


def sums_of(H, A, W_V, W_O):
    """One post-norm layer whose output is Y, as `LayerSums` takes it."""
    n = len(H)
    Z = sum(A[h] @ H @ W_V[h] @ W_O[h] for h in range(len(A)))
    offsets = np.array([0, n])
    moments = {
        letter: cloud_moments(X, offsets) for letter, X in zip("HUBZYX", (H, H, Z, Z, H + Z, H + Z), strict=True)
    }
    norms = np.linalg.norm(W_V @ W_O, ord=2, axis=(1, 2))
    centred = centred_attention(A, n)
    return LayerSums(
        spread={letter: m.spread[None] for letter, m in moments.items()},
        mean_square={letter: m.mean_square[None] for letter, m in moments.items()},
        contraction=contraction(norms, squared_norms(centred), n)[None, None],
        sigma=np.linalg.norm(centred, ord=2, axis=(1, 2))[None, None],
        norms=norms[None],
        value_norms=np.linalg.norm(W_V, ord=2, axis=(1, 2))[None],
        linear=np.array([True]),
        precision=2.0**-52,
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_proven_bound_holds_for_any_layer(seed):
    random = np.random.default_rng(seed)
    n, d = int(random.integers(2, 20)), int(random.integers(2, 12))
    H = random.standard_normal((n, d)) * random.exponential(size=d) + random.standard_normal(d)
    W_V, W_O = random.standard_normal((2, d, 3)), random.standard_normal((2, 3, d))
    found = sums_of(H, attention(n, seed, sharp=float(random.exponential(5))), W_V, W_O).quantities()
    assert found["slack_proven"].min() >= 1 - 1e-12
    assert (found["high_frequency_branch"] <= found["high_frequency_bound"] + 1e-12).all()


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_from_lambda_holds_for_tokens_without_a_preferred_direction(seed):
    """Where the deviations of the tokens are orthogonal and equally long but for their sum, S(Z_h) ≤ λ_h S(H)."""
    n, d = 8, 12
    random = np.random.default_rng(seed)
    axes = np.linalg.qr(random.standard_normal((d, n)))[0].T
    H = axes - axes.mean(axis=0) + random.standard_normal(d)  # (PH)(PH)ᵀ = P
    W_V, W_O = random.standard_normal((2, d, 3)), random.standard_normal((2, 3, d))
    sums = sums_of(H, attention(n, seed, sharp=8.0), W_V, W_O)
    assert sums.quantities()["slack"].min() >= 1 - 1e-12
    one = sums_of(H, attention(n, seed, heads=1), W_V[:1], W_O[:1])
    assert one.spread["Z"][0, 0] <= one.contraction[0, 0, 0] * one.spread["H"][0, 0] * (1 + 1e-12)


def test_no_bound_from_lambda_alone_holds_for_every_text():
    """Half of the tokens look at one token, half at another: λ stays near 1/2 while the spread grows with n."""
    slacks = []
    for n in (10, 100, 1000):
        H = np.zeros((n, 2))
        H[0, 0], H[1, 0] = 1.0, -1.0
        H[:, 1] = 1.0
        A = np.zeros((1, n, n))
        A[0, : n // 2, 0], A[0, n // 2 :, 1] = 1.0, 1.0
        sums = sums_of(H, A, np.eye(2)[None], np.eye(2)[None])
        assert 0.5 <= sums.contraction[0, 0, 0] <= 0.56
        found = sums.quantities()
        assert found["slack_proven"][0, 0] >= 1
        slacks.append(found["slack"][0, 0])
    assert slacks[0] > slacks[1] > slacks[2]
    assert slacks[2] < 0.01
