"""Parts of a layer, pairs and centres by length, backbones beside children; and what was added to SOCM, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope import as_encoder, read_texts
from poolscope.encoders.capabilities import attention_of
from poolscope.errors import InputError
from poolscope.evaluation import ClassificationTask, RetrievalTask, SimilarityTask
from poolscope.lab.capture.model import capture
from poolscope.lab.papers import beyond, length_parts, proof, socm
from poolscope.lab.papers.cell import Material
from poolscope.metrics.socm.pair import socm_pair
from poolscope.numbers.maxsim import maxsim
from poolscope.numbers.ranking import rank_scores
from tiny_models import WORDS, save_model

RANDOM = np.random.default_rng(8)
TEXTS = [" ".join(RANDOM.choice(WORDS, size=length)) for length in RANDOM.integers(3, 25, size=40)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return as_encoder(save_model(tmp_path_factory.mktemp("model") / "tiny"))


def material(encoder, data):
    return Material(encoder, data, {}, cache=False)


def unit(rows):
    rows = np.asarray(rows, dtype=np.float64)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_changes_of_all_parts_add_up_to_that_of_the_layers(encoder):
    rows = length_parts.parts_by_length(material(encoder, read_texts(TEXTS))).rows
    assert {row["part"] for row in rows} == set(length_parts.PARTS)

    def high_over_low(tokens):
        tokens = np.asarray(tokens, dtype=np.float64)
        n = len(tokens)
        low = np.ones((n, n)) / n @ tokens
        return np.log(np.linalg.norm(tokens - low) / np.linalg.norm(low))

    whole, lengths = [], []
    for batch in capture(encoder, TEXTS):
        for text in batch.texts():
            layers = text.layers
            whole.append((high_over_low(layers[-1].X) - high_over_low(layers[0].H)) / len(layers))
            lengths.append(len(layers[0].H))
    slopes = {row["part"]: row["slope"].value_or_raise for row in rows if "slope" in row}
    assert sum(slopes.values()) == pytest.approx(np.polyfit(np.log2(lengths), whole, 1)[0], abs=1e-6)


@pytest.mark.parametrize("family", ["Bert", "Llama"])
def test_norms_and_the_feed_forward_part_are_told_apart(family, tmp_path):
    encoder = as_encoder(save_model(tmp_path / family, family))
    rows = length_parts.parts_by_length(material(encoder, read_texts(TEXTS[:20]))).rows
    found = {row["part"]: row["mean"].value_or_raise for row in rows if "mean" in row}
    network = attention_of(encoder)[0]
    outputs = {}

    def log_ratio(tokens):
        tokens = tokens[0].numpy().astype(np.float64)
        mean = tokens.mean(axis=0, keepdims=True).repeat(len(tokens), axis=0)
        return np.log(np.linalg.norm(tokens - mean) / np.linalg.norm(mean))

    for name, module in network.named_modules():
        module.register_forward_hook(lambda module, given, gave, name=name: outputs.update({name: (given, gave)}))
    norms, fed = [], []
    for text in dict.fromkeys(TEXTS[:20]):
        encoder.encode([text])
        for layer in range(2):
            if family == "Llama":  # no norm on the main path
                norms.append(0.0)
                continue
            block = f"encoder.layer.{layer}"
            pairs = [
                (outputs[f"{block}.{place}.LayerNorm"][0][0], outputs[f"{block}.{place}.LayerNorm"][1])
                for place in ("attention.output", "output")
            ]
            norms.append(sum(log_ratio(after) - log_ratio(before) for before, after in pairs))
            fed.append(log_ratio(pairs[1][0]) - log_ratio(pairs[0][1]))
    assert found["norms"] == pytest.approx(np.mean(norms), abs=1e-5)
    if fed:
        assert found["feed-forward"] == pytest.approx(np.mean(fed), abs=1e-5)


def test_slopes_within_beginnings_of_the_same_texts(encoder):
    texts = [" ".join(RANDOM.choice(WORDS, size=170)) for _ in range(3)]
    rows = length_parts.parts_of_cut_texts(material(encoder, read_texts([*texts, *TEXTS]))).rows
    assert {row["texts"] for row in rows} == {3}
    slopes = []
    for text in texts:
        course = []
        for words in (15, 30, 60, 120):
            (batch,) = capture(encoder, [" ".join(text.split()[:words])])
            (own,) = batch.texts()
            course.append(
                (np.log2(len(own.layers[0].H)), np.mean([log_ratio(x.Z) - log_ratio(x.H) for x in own.layers]))
            )
        slopes.append(np.polyfit(*np.array(course).T, 1)[0])
    assert rows[0]["part"] == "attention"
    assert rows[0]["cut_slope"].value_or_raise == pytest.approx(np.mean(slopes), abs=1e-5)


def log_ratio(tokens):
    tokens = np.asarray(tokens, dtype=np.float64)
    mean = tokens.mean(axis=0)
    return np.log(np.linalg.norm(tokens - mean) / (np.sqrt(len(tokens)) * np.linalg.norm(mean)))


def test_pairs_by_length(encoder):
    gold = np.linspace(0, 5, 20)
    task = SimilarityTask(TEXTS[:20], TEXTS[20:], gold)
    rows = length_parts.pairs_by_length(material(encoder, task)).rows
    first, second = (
        unit([np.mean(cloud, axis=0) for cloud in encoder.encode(side)[-1]]) for side in (TEXTS[:20], TEXTS[20:])
    )
    cosines = (first * second).sum(axis=1)
    related = [row["cosine"].value_or_raise for row in rows if row.get("pairs") == "Related"]
    assert len(related) == 1  # too few texts for two bins
    assert related[0] == pytest.approx(cosines[gold >= np.quantile(gold, 0.8)].mean(), abs=1e-5)
    strange = (first * np.roll(second, 1, axis=0)).sum(axis=1)
    won = [row["strangers_win"].value_or_raise for row in rows if "strangers_win" in row]
    assert won[0] == pytest.approx((strange > np.median(cosines[gold >= np.quantile(gold, 0.8)])).mean())


def test_a_text_has_no_part_in_its_centre(encoder):
    labels = [str(k % 2) for k in range(40)]
    rows = length_parts.pull_of_long_texts(material(encoder, ClassificationTask(TEXTS, labels))).rows
    own = [row for row in rows if row["centres"] == "label"]
    assert len(own) == 5
    assert [row["mean_length"] for row in own] == sorted(row["mean_length"] for row in own)
    clouds = encoder.encode(TEXTS)[-1]
    units, lengths = unit([np.mean(cloud, axis=0) for cloud in clouds]), np.array([len(cloud) for cloud in clouds])
    cosines = []
    for k in range(40):
        others = [i for i in range(40) if i != k and labels[i] == labels[k]]
        cosines.append(unit(units[others].mean(axis=0)) @ units[k])
    shortest = lengths <= np.quantile(lengths, 0.2)
    assert own[0]["cosine"].value_or_raise == pytest.approx(np.array(cosines)[shortest].mean(), abs=1e-5)


def test_a_child_is_set_beside_its_backbone():
    rows = [
        {"model": "BERT", "slope": 0.03, "slope_low": 0.02, "slope_high": 0.04},
        {"model": "BGE", "slope": 0.01, "slope_low": -0.02, "slope_high": 0.04},
        {"model": "E5", "slope": 0.05, "slope_low": 0.04, "slope_high": 0.06},
    ]
    bge, e5 = length_parts.child_minus_backbone(rows, {})
    assert (bge["model"], bge["backbone"], bge["child_slope"], e5["child_slope"]) == ("BGE", "BERT", 0.01, 0.05)
    assert bge["child_minus_backbone"] == pytest.approx(-0.02)
    assert bge["child_minus_backbone_high"] == pytest.approx(-0.02 + np.hypot(0.01, 0.03))


def test_the_eigenvalues_of_causal_attention_are_its_diagonal(tmp_path):
    decoder = as_encoder(save_model(tmp_path / "decoder", "Llama"))
    row = proof.low_pass(material(decoder, read_texts(TEXTS[:6]))).rows[-1]
    second = []
    for batch in capture(decoder, TEXTS[:6], layers=[-1]):
        for text in batch.texts():
            diagonals = [np.sort(np.diag(head))[:-1].max() for head in np.asarray(text.layers[0].A, dtype=np.float64)]
            second.append(np.mean(diagonals))
    assert row["second_eigenvalue"].value_or_raise == pytest.approx(np.mean(second), abs=1e-5)


def test_causal_attention_is_set_beside_a_bound_that_grows(tmp_path, encoder):
    decoder = as_encoder(save_model(tmp_path / "causal", "Llama"))
    *rows, summary = proof.causal_attention(material(decoder, read_texts(TEXTS[:12]))).rows
    even = np.tril(np.ones((rows[0]["tokens"],) * 2))
    even /= even.sum(axis=1, keepdims=True)
    centred = even - even.mean(axis=0)
    assert rows[0]["even_weights"] <= np.linalg.norm(centred, ord=2) + 1e-12
    assert rows[0]["even_weights"] == pytest.approx(np.linalg.norm(centred[:, 0]))
    assert summary["holds"].value_or_raise == np.mean([row["sigma_a"] <= row["causal_bound"] for row in rows])
    with pytest.raises(InputError):  # tokens of an encoder see later ones
        proof.causal_attention(material(encoder, read_texts(TEXTS[:12])))


@pytest.mark.parametrize("variance", [0.0, 0.25, 1.0])
def test_the_causal_bound_is_that_of_drawn_scores(variance):
    random = np.random.default_rng(3)
    for n in (20, 200):
        scores = random.normal(size=(30, n, n)) * np.sqrt(variance)
        weights = np.tril(np.exp(scores))
        weights /= weights.sum(axis=2, keepdims=True)
        frobenius = np.sqrt((weights**2).sum(axis=(1, 2)).mean())
        low, high = proof.causal_bounds(n, np.array([variance]))
        assert frobenius == pytest.approx(high[0], rel=0.2)
        assert frobenius <= high[0] * 1.001
        assert low < np.linalg.norm(weights[0] - weights[0].mean(axis=0), ord=2)


def test_a_search_by_surrogates_keeps_the_means(encoder):
    task = RetrievalTask([text.split()[0] for text in TEXTS[:12]], TEXTS, [(k, k) for k in range(12)])
    rows = {row.get("tokens"): row for row in beyond.search_by_surrogates(material(encoder, task)).rows}
    assert rows["mean, real"]["ndcg"].value == pytest.approx(rows["mean, same mean and covariance"]["ndcg"].value)
    assert rows["real"]["ndcg"].value == pytest.approx(
        task.evaluation(
            rank_scores(maxsim(*(encoder.encode(side.texts)[-1] for side in task.sides)), task.relevant)
        ).scores.mean()
    )
    clouds = encoder.encode(TEXTS[:5])[-1]
    made = beyond.surrogate_clouds(clouds, 0)
    for k in range(5):
        own, other = (np.asarray(side[k], dtype=np.float64) for side in (clouds, made))
        np.testing.assert_allclose(other.mean(axis=0), own.mean(axis=0), atol=1e-4)
        np.testing.assert_allclose(np.cov(other.T, bias=True), np.cov(own.T, bias=True), atol=1e-4)
        assert not np.allclose(np.sort(own[:, 0]), np.sort(other[:, 0]), atol=1e-3)


def test_poolings_that_are_no_mean(encoder):
    rows = {row["pooling"]: row for row in beyond.weighted_poolings(material(encoder, read_texts(TEXTS[:10]))).rows}
    clouds = encoder.encode(TEXTS[:10])[-1]
    pairs = [(i, j) for i in range(10) for j in range(i + 1, 10)]
    for name, pool in (("first token", lambda x: x[0]), ("max", lambda x: np.max(x, axis=0))):
        vectors = unit([pool(np.asarray(cloud)) for cloud in clouds])
        values = [
            (1 - ((vectors[i] - vectors[j]) ** 2).sum() / 4) * socm_pair(clouds[i], clouds[j]).covariance_distance
            for i, j in pairs
        ]
        assert rows[name]["socm"].value_or_raise == pytest.approx(np.mean(values), abs=1e-6)
    assert 0 <= rows["attention"]["d_mu"] <= 1


def test_random_directions_keep_means_and_traces(encoder):
    rows = {
        row["control"]: row for row in beyond.controls(material(encoder, read_texts(TEXTS[:12]))).rows if "socm" in row
    }
    turned, plain = (rows[name]["socm"].value_or_raise for name in ("directions at random", "as it is"))
    assert turned > plain  # random directions share nothing, so the covariances are further apart


def test_exact_and_gaussian_transport_are_timed_side_by_side(encoder):
    *pairs, summary = beyond.exact_and_gaussian(material(encoder, read_texts(TEXTS[:8]))).rows
    assert len(pairs) == 28
    assert all(row["gaussian"] <= row["exact"] * (1 + 1e-9) for row in pairs)
    assert summary["times_as_long"].value_or_raise > 0


def test_gains_of_the_last_norm_stand_beside_the_trace(encoder):
    import torch

    row = socm.trace_bound(material(encoder, read_texts(TEXTS[:6]))).rows[0]
    norms = [module for module in attention_of(encoder)[0].modules() if isinstance(module, torch.nn.LayerNorm)]
    gain = norms[-1].weight.detach().numpy()
    assert row["variation_of_gains"] == pytest.approx(gain.std() / np.abs(gain).mean(), abs=1e-4)


def test_socm_by_type_of_task():
    rows = [
        {"model": model, "data": data, "compatible": value, "socm": value}
        for model, own in (("BERT", (0.4, 0.6)), ("GTE base", (0.1, 0.3)))
        for data, value in zip(("nfcorpus", "imdb"), own, strict=True)
    ]
    *found, spread = socm._by_type(rows, {})
    assert [(row["model"], row["type"]) for row in found][:2] == [("BERT", "BeirRetr."), ("BERT", "Class.")]
    assert (spread["between_models"], spread["between_types"]) == pytest.approx((0.15, 0.1))
