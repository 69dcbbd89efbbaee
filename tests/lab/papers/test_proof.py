"""The debugger of the proof: identities that must hold, and links that must break where they are built to."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope import as_encoder, read_texts
from poolscope.lab.capture.keys import queries_and_keys
from poolscope.lab.capture.model import capture
from poolscope.lab.papers import proof
from poolscope.lab.papers.cell import Material
from tiny_models import WORDS, save_model, tiny_model, tiny_tokenizer

RANDOM = np.random.default_rng(3)
TEXTS = [" ".join(RANDOM.choice(WORDS, size=length)) for length in RANDOM.integers(4, 20, size=30)]


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    encoder = as_encoder(save_model(tmp_path_factory.mktemp("model") / "tiny"))
    return Material(encoder, read_texts(TEXTS), {}, cache=False)


def random_attention(heads, n, spread, seed=0):
    scores = np.random.default_rng(seed).normal(size=(heads, n, n)) * spread
    weights = np.exp(scores)
    return weights / weights.sum(axis=2, keepdims=True)


def test_the_chain_by_hand():
    A = random_attention(2, 9, 1.5)
    numbers = proof.chain(A, np.random.default_rng(0))
    P = np.eye(9) - 1 / 9
    for head in range(2):
        assert numbers["sigma_a"][head] == pytest.approx(np.linalg.svd(P @ A[head], compute_uv=False)[0])
        assert numbers["frobenius"][head] == pytest.approx(np.linalg.norm(A[head]))
        printed = 0.0
        for row in A[head]:  # Eq 20 as it is printed, with e^x = a: the constant of a row cancels
            products = np.outer(row, row)
            products[np.diag_indices(9)] = 0
            printed += (row**2).sum() / (2 * products.sum() + (row**2).sum())
        assert numbers["eq_20"][head] == pytest.approx(np.sqrt(printed))
    assert (numbers["sigma_a"] <= numbers["spectral"] + 1e-12).all()
    assert (numbers["spectral"] <= numbers["frobenius"] + 1e-12).all()
    assert (numbers["eq_20"] < numbers["frobenius"]).all()  # no equality: products are counted twice


def test_gaussian_scores_give_what_the_simulation_says():
    A = random_attention(1, 60, 1.0)
    numbers = proof.chain(A, np.random.default_rng(1))
    assert numbers["gaussian"][0] == pytest.approx(numbers["frobenius"][0], rel=0.15)


def test_theorem_3_names_the_link_that_breaks(material):
    outcome = proof.theorem_3(material)
    links = {row["link"]: row for row in outcome.rows if "link" in row}
    assert links["Eq 17"]["holds"] == links["Eq 18"]["holds"] == 1
    assert links["Eq 19–20"]["holds"] == 0
    assert links["Eq 19–20"]["breaks_first"] == 1
    (note,) = outcome.notes
    assert "Eq 19–20" in note


def test_queries_and_keys_are_those_of_the_projections(material):
    model, tokenizer = tiny_model(), tiny_tokenizer()
    encoder = as_encoder((model, tokenizer))
    (queries, keys), *_ = queries_and_keys(encoder, TEXTS[:2])
    seen = {}
    layer = model.encoder.layer[-1].attention.self
    layer.query.register_forward_hook(lambda module, given, output: seen.update(H=given[0]))
    encoder.encode([TEXTS[0]])
    expected = seen["H"][0].numpy() @ layer.query.weight.detach().numpy().T + layer.query.bias.detach().numpy()
    np.testing.assert_allclose(queries, expected, atol=1e-5)
    assert keys.shape == queries.shape


def test_assumptions_are_measured(material):
    rows = {row["assumption"]: row["value"] for row in proof.theorem_3(material).rows if "assumption" in row}
    q = np.concatenate([queries.ravel() for queries, _ in queries_and_keys(material.encoder, TEXTS[:1])])
    one = Material(material.encoder, read_texts(TEXTS[:1]), {}, cache=False)
    alone = {row["assumption"]: row["value"].value for row in proof._assumptions(one)}
    assert alone["sigma_q"] == pytest.approx(q.std())
    assert alone["tau_s"] == pytest.approx(1 / np.sqrt(alone["sigma_s_squared"]))
    assert {"sigma_k", "c_cross", "correlation_q_k", "kurtosis_q"} <= set(rows)


def test_attention_is_a_low_pass_filter_at_the_rate_of_its_second_eigenvalue(material):
    *course, summary = proof.low_pass(material).rows
    ratios = [row["log_ratio"].value for row in course]
    assert ratios[-1] < ratios[0] - 3
    assert summary["share_low_pass"] == 1
    assert summary["log_rate"].value == pytest.approx(summary["log_second_eigenvalue"], abs=0.3)


def test_spectra_add_up_and_start_with_the_mean(material):
    rows = proof.spectra(material).rows
    for layer in (0, 1, 2):
        assert sum(row["share"].value for row in rows if row["layer"] == layer) == pytest.approx(1)
    (batch,) = capture(material.encoder, TEXTS[:1])
    (text,) = batch.texts()
    X = np.asarray(text.layers[-1].X, dtype=np.float64)
    one = Material(material.encoder, read_texts(TEXTS[:1]), {}, cache=False)
    (mean,) = [row for row in proof.spectra(one).rows if row["layer"] == 2 and row["band"] == "mean"]
    assert mean["share"].value == pytest.approx(len(X) * (X.mean(axis=0) ** 2).sum() / (X**2).sum())


def test_corollary_4_bound_is_one_for_equal_constant_vectors(material):
    rows = proof.corollary_4(material).rows
    assert rows
    for row in rows:
        assert 0 <= row["bound"] <= 1
        assert 0 <= row["holds"] <= 1


def test_depth_and_length(material):
    rows = proof.depth_and_length(material).rows
    assert {row["quantity"] for row in rows} == {"concentration_ratio", "cosine"}
    assert {row["layer"] for row in rows} == {0, 1, 2}
