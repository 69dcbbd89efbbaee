"""Every kind of measurement on tiny models, against formulas written out by hand."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from scipy import stats

import poolscope
from poolscope import as_encoder, read_texts
from poolscope.evaluation import ClassificationTask, RetrievalTask, SimilarityTask, evaluate
from poolscope.lab.papers import (
    beyond,
    gradients,
    length_collapse,
    length_parts,
    length_symptoms,
    length_tasks,
    norm_variance,
    proof,
    socm,
)
from poolscope.lab.papers.catalogue import PAPERS, find_paper
from poolscope.lab.papers.cell import Cell, Material
from poolscope.lab.papers.quality import quality, quality_beside
from poolscope.texts import read_pairs
from tiny_models import WORDS, save_model

RANDOM = np.random.default_rng(5)
TEXTS = [" ".join(RANDOM.choice(WORDS, size=length)) for length in RANDOM.integers(3, 20, size=40)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return as_encoder(save_model(tmp_path_factory.mktemp("model") / "tiny"))


@pytest.fixture(scope="module")
def search():
    relevant = [(k, k) for k in range(12)]
    return RetrievalTask([text.split()[0] + " " + text.split()[-1] for text in TEXTS[:12]], TEXTS, relevant)


def material(encoder, data, **setting):
    return Material(encoder, data, setting, cache=False)


def unit(rows):
    rows = np.asarray(rows, dtype=np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def distances(x, y):
    """d_μ and d_Σ of two clouds, dense."""
    from scipy.linalg import sqrtm

    x, y = (
        np.asarray(cloud, dtype=np.float64) / np.linalg.norm(np.mean(cloud, axis=0, dtype=np.float64))
        for cloud in (x, y)
    )
    first = ((x.mean(axis=0) - y.mean(axis=0)) ** 2).sum() / 4
    left, right = (np.cov(cloud.T, bias=True) for cloud in (x, y))
    root = sqrtm(left).real
    return first, np.trace(left + right - 2 * sqrtm(root @ right @ root).real) / 4


def test_averages_of_all_pairs(encoder):
    texts = read_texts(TEXTS[:8])
    outcome = socm.pair_averages(material(encoder, texts))
    (row,) = outcome.rows
    clouds = encoder.encode(texts.texts)[-1]
    by_hand = [distances(clouds[i], clouds[j]) for i in range(8) for j in range(i + 1, 8)]
    values = np.array([(1 - first) * second for first, second in by_hand])
    assert row["socm"].value == pytest.approx(values.mean(), abs=1e-4)
    assert row["d_mu"] == pytest.approx(np.mean([first for first, _ in by_hand]), abs=1e-6)
    cases = [name for name in row if name.startswith("means_")]
    assert sum(row[name] for name in cases) == pytest.approx(1)
    near = np.array([first <= 0.25 and second > 0.25 for first, second in by_hand])
    assert row["means_alike_clouds_differ"] == pytest.approx(near.mean())
    np.testing.assert_allclose(np.sort(outcome.arrays["socm"]), np.sort(values), atol=1e-3)


def test_averages_of_given_pairs(encoder):
    pairs = read_pairs({"query": TEXTS[:5], "document": TEXTS[5:10]})
    (row,) = socm.pair_averages(material(encoder, pairs)).rows
    queries, documents = (encoder.encode(side.texts)[-1] for side in (pairs.queries, pairs.documents))
    values = [distances(queries[int(i)], documents[int(j)]) for i, j in pairs.index]
    assert row["pairs"] == 5
    assert row["socm"].value == pytest.approx(np.mean([(1 - a) * b for a, b in values]), abs=1e-4)


def test_tuned_minus_backbone_is_paired(encoder, tmp_path):
    other = as_encoder(save_model(tmp_path / "other", seed=3))
    texts = read_texts(TEXTS)
    outcomes = {
        Cell("socm", name, "wiki"): socm.pair_averages(material(model, texts))
        for name, model in (("BERT", encoder), ("GTE base", other))
    }
    means = [outcome.rows[0]["socm"].value for outcome in outcomes.values()]
    (row,) = socm.tuned_and_backbone([], outcomes)
    assert (row["model"], row["backbone"]) == ("GTE base", "BERT")
    assert row["tuned_minus_backbone"] == pytest.approx(means[1] - means[0], abs=1e-6)
    assert row["tuned_minus_backbone_low"] < row["tuned_minus_backbone"] < row["tuned_minus_backbone_high"]


def test_example_and_illustration(encoder):
    (numbers, *tokens) = socm.example_pair(material(encoder, None)).rows
    clouds = encoder.encode(socm.EXAMPLE)[-1]
    first, second = distances(clouds[0], clouds[1])
    assert numbers["socm"] == pytest.approx((1 - first) * second, abs=1e-4)
    assert len(tokens) == len(clouds[0]) + len(clouds[1]) + 2
    drawn = socm.equal_means(material(None, None)).rows
    for name in ("text 1", "text 2"):
        own = np.array([(row["x"], row["y"]) for row in drawn if row["of"] == name])
        np.testing.assert_allclose(own.mean(axis=0), [1, 1])


def test_map_of_socm():
    rows = {(row["d_mu"], row["d_sigma"]): row["socm"] for row in socm.socm_map(material(None, None)).rows}
    assert (rows[0.0, 1.0], rows[1.0, 1.0], rows[0.0, 0.0]) == (1, 0, 0)
    assert rows[0.5, 0.5] == pytest.approx(0.25)


def test_closed_form_of_the_trace_holds_for_tokens_of_one_length():
    def tokens(texts):
        clouds = []
        for text in texts:
            random = np.random.default_rng(len(text))
            cloud = random.normal(size=(len(text.split()) + 1, 6)) + 1
            clouds.append(cloud / np.linalg.norm(cloud, axis=1, keepdims=True))
        return clouds

    row, *_ = socm.trace_bound(material(as_encoder(tokens), read_texts(TEXTS[:10]))).rows
    assert row["difference"].value == pytest.approx(0, abs=1e-5)
    assert row["variation_of_token_norms"].value == pytest.approx(0, abs=1e-6)
    cosines = []
    for cloud in tokens(read_texts(TEXTS[:10]).texts):
        gram = cloud @ cloud.T
        cosines.append(gram[np.triu_indices(len(cloud), 1)].mean())
    assert row["mean_pair_cosine"].value == pytest.approx(np.mean(cosines), abs=1e-5)
    assert row["share_cosine_above_a_third"].value == np.mean(np.array(cosines) >= 1 / 3)


def test_card(encoder):
    (row,) = socm.model_card(material(encoder, None)).rows
    assert (row["dimension"], row["layers"]) == (16, 2)


def test_layers(encoder):
    from poolscope import layers

    rows = PAPERS["socm"].kinds["layers"](material(encoder, read_texts(TEXTS[:6]))).rows
    result = layers(encoder, list(TEXTS[:6]), socm_texts=0)
    assert [row["layer"] for row in rows] == [0, 1, 2]
    assert rows[2]["concentration_ratio"] == pytest.approx(result.means("concentration_ratio").mean[2])
    assert rows[1]["r"] == pytest.approx(result.means("r").mean[0])
    assert "r" not in rows[0]


@pytest.mark.parametrize("sign", [1, -1])
def test_quality_over_models(sign):
    values = np.linspace(0.1, 0.9, 8)
    rows = [
        {"model": f"m{k}", "compatible": 0.0, "socm": v, "concentration_ratio": v**2, "d_mu": -v}
        for k, v in enumerate(values)
    ]
    scores = sign * values + 0.05 * (np.arange(8) % 2)
    rows += [{"scored": f"owner__m{k}", "aliases": "", "score": score} for k, score in enumerate(scores)]
    found = {row["predictor"]: row for row in quality(rows, {}) if "predictor" in row}
    expected = stats.spearmanr(values, scores).statistic
    assert found["socm"]["rho"] == pytest.approx(expected)
    assert found["d_mu"]["rho"] == pytest.approx(-expected)
    assert found["socm"]["p"] < 0.01
    assert found["socm − concentration_ratio"]["rho"] == 0  # the same order
    beside = list(quality_beside(list(found.values())))
    assert {(ours.row, ours.column) for ours in beside} == {
        (name, column) for name in ("SOCM", "all models", "S(X)/‖μ(X)‖²") for column in ("ρ", "p")
    }
    assert not any(ours.same for ours in beside)  # eight models are not the twelve of the paper


@pytest.mark.parametrize(("models", "around"), [(5, False), (6, True)])
def test_a_correlation_over_few_models_has_no_interval(models, around):
    values = np.linspace(0.1, 0.9, models)
    rows = [{"model": f"m{k}", "socm": v, "concentration_ratio": v % 0.3, "d_mu": -v} for k, v in enumerate(values)]
    rows += [{"scored": f"m{k}", "aliases": "", "score": v % 0.5} for k, v in enumerate(values)]
    found = [row for row in quality(rows, {}) if "predictor" in row]
    assert len(found) == 4
    assert all((row.get("rho_low") is not None) == around for row in found)


# -- length collapse --------------------------------------------------------------------------------------------------


def test_symptoms_by_length(encoder):
    rows = length_symptoms.symptoms_by_length(material(encoder, read_texts(TEXTS), edges="0,10,30", tau=0.8)).rows
    bins = [row for row in rows if "bin" in row]
    assert sum(row["texts"] for row in bins) == len(set(TEXTS))
    assert "slope" in rows[-1]
    plain = length_symptoms.symptoms_by_length(material(encoder, read_texts(TEXTS), edges="0,10,30")).rows
    assert plain[0]["cosine"] != bins[0]["cosine"]


def test_ranks_are_those_of_the_cosines(encoder, search):
    rows = length_tasks.ranks_of_long(material(encoder, search, tau=1.0)).rows
    queries, documents = (unit(evaluate_vectors(encoder, side.texts)) for side in search.sides)
    scores = queries @ documents.T
    ranks = np.array([1 + (scores[k] > scores[k, k]).sum() for k in range(12)])
    lengths = np.array([len(text) for text in TEXTS])
    long = lengths[:12] >= np.quantile(lengths, 0.8)
    (row,) = [row for row in rows if row["group"] == "longest fifth" and "rank" in row]
    assert row["judgements"] == long.sum()
    assert row["rank"].value == pytest.approx(ranks[long].mean())
    counts = [row["count"] for row in rows if row["group"] == "shortest tenth" and "count" in row]
    assert sum(counts) == (lengths[:12] <= np.quantile(lengths[:12], 0.1)).sum()


def evaluate_vectors(encoder, texts):
    from poolscope.repairs import Repair

    return Repair().apply(encoder).encode(list(texts))


def test_similarities(encoder):
    gold = np.array([0, 0.5, 1, 2, 2.5, 3, 3.5, 4, 4.5, 5])
    task = SimilarityTask(TEXTS[:10], TEXTS[10:20], gold)
    found = length_tasks.similarities(material(encoder, task)).rows
    rows = {(row.get("reading", ""), row["pairs"]): row["cosine"].value for row in found}
    first, second = (unit(evaluate_vectors(encoder, side)) for side in (TEXTS[:10], TEXTS[10:20]))
    cosines = (first * second).sum(axis=1)
    expected = {"fifths of the gold score": (2, 8), "gold to 1 and from 4": (3, 7), "lowest and highest gold": (1, 9)}
    for reading, (low, high) in expected.items():
        assert rows[reading, "Random"] == pytest.approx(cosines.mean(), abs=1e-6)
        assert rows[reading, "Related"] == pytest.approx(cosines[high:].mean(), abs=1e-6)
        assert rows[reading, "Unrelated"] == pytest.approx(cosines[:low].mean(), abs=1e-6)


def test_the_nearest_reading_of_table_3_stands_beside_it():
    """Two models, one of which gives what is printed in one reading; the other one is farther away."""
    from poolscope.lab.papers.length_collapse import PAPER
    from poolscope.lab.papers.published import published

    entry = next(entry for entry in PAPER.entries if entry.key == "table-3")
    rows = []
    for cell in published("length-collapse"):
        if cell.table == "Table 3":
            data, pairs = cell.column.split()
            place = {"tau": float(cell.row.removeprefix("τ=")), "data": data.lower(), "pairs": pairs}
            for model, reading, shift in (("E5", "a", 0.0), ("E5", "b", 0.1), ("BGE", "a", -0.3)):
                rows.append({**place, "model": model, "reading": reading, "cosine": cell.number + shift})
    rows += entry.follow(rows, {})
    nearest = [(row["model"], row["nearest"]) for row in rows if "nearest" in row]
    assert nearest == [("E5", "a"), ("E5", "b"), ("BGE", "a")]
    ours = {(one.row, one.column): one.estimate.value for one in entry.compare(rows)}
    assert len(ours) == 27
    assert ours["τ=0.9", "STS13 Related"] == 0.9481


def test_grid_of_temperatures(encoder, search):
    rows = length_tasks.query_and_document_grid(material(encoder, search)).rows
    assert len(rows) == len(length_tasks.TAUS) ** 2
    by_place = {(row["query_tau"], row["document_tau"]): row for row in rows}
    assert by_place[1.0, 1.0]["change"].value == 0
    assert by_place[1.0, 1.0]["ndcg"] == pytest.approx(evaluate(encoder, search).value)
    assert by_place[0.5, 1.0]["ndcg"] != by_place[1.0, 0.5]["ndcg"]


def test_queries_by_length(encoder, search):
    rows = length_tasks.queries_by_length(material(encoder, search)).rows
    at_one = {row["queries"]: row["ndcg"].value for row in rows if row["tau"] == 1.0}
    scores = evaluate(encoder, search).scores
    long = np.array([len(query) for query in search.queries])
    long = long > np.median(long)
    assert at_one["long queries"] == pytest.approx(scores[long].mean())
    assert at_one["short queries"] == pytest.approx(scores[~long].mean())


def test_attention_maps_are_flat_at_high_and_sharp_at_low_temperatures(encoder):
    rows = length_symptoms.attention_maps(material(encoder, None)).rows
    largest = {}
    for tau in ("τ = 10", "τ = 1", "τ = 0.1"):
        own = [row for row in rows if row["tau"] == tau]
        n = max(row["row"] for row in own) + 1
        weights = np.zeros((n, n))
        for row in own:
            weights[row["row"], row["column"]] = row["weight"]
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)
        largest[tau] = weights.max(axis=1).mean() * n
    assert largest["τ = 10"] < largest["τ = 1"] < largest["τ = 0.1"]


def test_repeated_words_and_versions(encoder):
    rows = length_symptoms.repeated_words(material(encoder, None)).rows
    assert [row["times"] for row in rows[:3]] == [1, 2, 4]
    versions = length_symptoms.three_versions(material(encoder, read_texts(TEXTS))).rows
    lengths = {row["version"]: row["length"] for row in versions if "length" in row}
    assert lengths["ten words"] < lengths["whole"]
    assert sum("x" in row for row in versions) == 3 * len(set(TEXTS))


def test_labels_by_length(encoder):
    task = ClassificationTask(TEXTS, ["cat" if "cat" in text.split() else "none" for text in TEXTS])
    rows = length_symptoms.labels_at(material(encoder, task, edges="0,10,30", tau=0.9)).rows
    assert sum(row["texts"] for row in rows) == len(TEXTS)
    assert all(0 <= row["accuracy"].value <= 1 for row in rows)


@pytest.mark.parametrize("method", ["", "ours(τ=0.8)", "Flow", "Whitening", "Method1", "YaRN(λ=0.1)"])
def test_scores_by_method(encoder, search, method):
    (row,) = length_tasks.score_of(material(encoder, search, method=method)).rows
    plain = 100 * evaluate(encoder, search).value
    if method == "":
        assert row["score"].value == pytest.approx(plain)
    assert 0 <= row["score"].value <= 100
    assert row["metric"] == "nDCG@10"


def test_type_means_need_every_set_of_the_type():
    rows = [
        {"model": "BGE", "method": "", "data": name, "score": value, "score_low": value - 2, "score_high": value + 2}
        for name, value in (("nfcorpus", 30.0), ("scifact", 70.0), ("qmsum", 10.0))
    ]
    (mean,) = length_tasks.type_means(rows, {})
    assert (mean["type"], mean["mean"]) == ("BeirRetr.", 50.0)
    assert mean["mean_high"] - mean["mean"] == pytest.approx(np.sqrt(8) / 2)
    (ours,) = length_collapse._types_beside([mean])
    assert (ours.row, ours.column, ours.estimate.value) == ("BGE", "BeirRetr.", 50.0)


def test_alignment_and_uniformity(encoder, search):
    rows = {row["documents"]: row for row in length_tasks.alignment_and_uniformity(material(encoder, search)).rows}
    queries, documents = (unit(evaluate_vectors(encoder, side.texts)) for side in search.sides)
    assert rows["all"]["alignment"].value == pytest.approx(
        ((queries - documents[:12]) ** 2).sum(axis=1).mean(), abs=1e-5
    )
    apart = ((documents[:, None] - documents) ** 2).sum(axis=2)
    pairs = np.exp(-2 * apart[np.triu_indices(len(TEXTS), 1)])
    assert rows["all"]["uniformity"] == pytest.approx(np.log(np.mean(pairs)), abs=1e-5)
    assert set(rows) == {"all", "short", "long"}


def test_more_collapse_and_more_gain():
    rows = [
        {
            "model": f"m{k}",
            "tau": tau,
            "bin": place,
            "accuracy": 0.9 - 0.1 * k * (place == "long") + 0.01 * k * (tau < 1),
        }
        for k in range(5)
        for tau in (1.0, 0.8)
        for place in ("short", "long")
    ]
    *models, summary = length_symptoms.collapse_and_gain(rows, {})
    assert [round(row["lost_on_long"], 6) for row in models] == [0, 0.1, 0.2, 0.3, 0.4]
    assert summary == {"models": 5, "rho": 1.0}


def test_statistics_of_data(search):
    (row,) = length_tasks.data_statistics(material(None, search)).rows
    texts = [*search.queries, *search.documents]
    assert row["texts"] == len(texts)
    assert row["characters"].value == pytest.approx(np.mean([len(text) for text in texts]))


def test_labels_of_a_test_set_by_a_fit_on_the_training_set(encoder):
    from sklearn.linear_model import LogisticRegression

    labels = [str(k % 2) for k in range(40)]
    task = ClassificationTask(TEXTS, labels, trained=20, steps=100)
    rows = length_symptoms.labels_at(material(encoder, task, edges="0,10,30")).rows
    vectors = evaluate_vectors(encoder, TEXTS)
    fit = LogisticRegression(max_iter=100, C=2.0).fit(unit(vectors)[:20], labels[:20])
    right = fit.predict(unit(vectors)[20:]) == np.array(labels[20:])
    lengths = np.array([len(cloud) for cloud in encoder.encode(TEXTS)[-1]])[20:]
    assert [row["texts"] for row in rows] == [(lengths < 10).sum(), (lengths >= 10).sum()]
    assert [row["accuracy"].value for row in rows] == pytest.approx(
        [right[lengths < 10].mean(), right[lengths >= 10].mean()]
    )


def test_the_average_is_over_all_types_and_the_best_temperature_over_shared_ones():
    methods = {"": 0.0, "ours(τ=0.9)": 3.0, "ours(τ=0.8)": 1.0}
    rows = [
        {"model": "BGE", "method": method, "data": name, "score": 10.0 * place + gain}
        for method, gain in methods.items()
        for place, names in enumerate(length_tasks.SETS.values())
        for name in names
    ]
    assert sum(len(names) for names in length_tasks.SETS.values()) == 40
    means = length_tasks.type_means(rows, {})
    whole = {row["method"]: row["mean"] for row in means if row["type"] == "Avg."}
    assert whole == pytest.approx({"": 30.0, "ours(τ=0.9)": 33.0, "ours(τ=0.8)": 31.0})
    best = length_tasks.best_temperatures(rows, {})[-1]
    assert (best["best"], best["task_types"]) == (0.9, 7)
    assert best["gain"] == pytest.approx(3.0)
    fewer = [row for row in rows if row["data"] != "scifact" or row["method"] != "ours(τ=0.8)"]
    assert length_tasks.best_temperatures(fewer, {})[-1]["task_types"] == 6


# -- norms --------------------------------------------------------------------------------------------------------


def test_types_and_norms(encoder):
    rows = norm_variance.types_by_layer(material(encoder, read_texts(TEXTS))).rows
    layers = [row for row in rows if "variation" in row]
    assert [row["layer"] for row in layers] == [0, 1, 2]
    for row in layers:
        assert row["mean_square"] == pytest.approx(row["norm_of_mean"] + row["variance"], rel=1e-5)
    named = [{"model": "BERT", **row} for row in rows]
    found = {row["finding"]: row for row in norm_variance.findings(named, {})}
    assert found["M/Q rises with depth"]["holds"] == (layers[2]["mean_share"] > layers[1]["mean_share"])
    changed = norm_variance.other_norms(material(encoder, read_texts(TEXTS))).rows
    assert len({row["replacement"] for row in changed}) > 1


# -- the catalogue ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAPERS)
def test_entries_name_what_there_is(name):
    paper = find_paper(name)
    models = {model.name for model in paper.models}
    keys = [entry.key for entry in paper.entries]
    assert len(set(keys)) == len(keys)
    for entry in paper.entries:
        for part in entry.parts:
            assert part.kind in paper.kinds
            assert set(part.models) <= models
            assert set(part.data) <= set(paper.data)


def test_no_kind_takes_the_name_of_another():
    parts = (length_symptoms, length_tasks, length_parts, proof, gradients)
    names = [name for part in parts for name in part.KINDS]
    assert len(set(names)) == len(names)
    assert set(names) | {"layers"} == set(length_collapse.KINDS)
    assert not set(gradients.KINDS) & set(beyond.KINDS)


def test_every_kind_draws_and_writes(tmp_path, encoder, monkeypatch):
    """The figures of one model of the user, from the front door: each has a drawing and numbers."""
    from poolscope.lab.papers import sources

    monkeypatch.setattr(sources, "hub_out_of_reach", lambda: "no network")
    save_model(tmp_path / "tiny")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    run = poolscope.paper(
        "socm",
        tmp_path / "out",
        models={"mine": str(tmp_path / "tiny")},
        texts={"wiki": str(texts)},
        limit=12,
        cache=False,
    )
    drawn = {row["entry"] for row in run.entries if row["figure"]}
    assert {"figure-1", "figure-2", "figure-3", "figure-4", "figure-11", "figure-17", "table-1", "appendix-j"} <= drawn
    assert (tmp_path / "out" / "figure-17" / "figure.html").stat().st_size < 1_000_000
    with (tmp_path / "out" / "figure-17" / "numbers.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    for margin in ("d_mu", "d_sigma"):  # both histograms count all pairs of the 12 texts
        assert sum(int(row["count"]) for row in rows if row["margin"] == margin) == 12 * 11 // 2
    assert (tmp_path / "out" / "README.md").exists()


# -- the unit of intervals --------------------------------------------------------------------------------------------


def chunks_of_documents(count=36, each=2):
    random = np.random.default_rng(7)
    texts = [" ".join(random.choice(WORDS, size=length)) for length in random.integers(6, 24, size=count * each)]
    return {"id": [f"d{k // each}#{k % each}" for k in range(count * each)], "text": texts}


BY_DOCUMENTS = {
    "pairs": lambda own: socm.pair_averages(own).rows,
    "trace bound": lambda own: socm.trace_bound(own).rows,
    "moments": lambda own: beyond.higher_moments(own).rows,
    "distances": lambda own: beyond.other_distances(own).rows,
    "bins": lambda own: length_symptoms.symptoms_by_length(own).rows,
    "parts": lambda own: length_parts.parts_by_length(own).rows,
    "low pass": lambda own: proof.low_pass(own).rows,
    "spectra": lambda own: proof.spectra(own).rows,
    "depth": lambda own: proof.depth_and_length(own).rows,
}


@pytest.mark.parametrize("name", BY_DOCUMENTS)
def test_documents_are_the_unit_of_what_is_measured_on_chunks(encoder, name):
    texts = read_texts(chunks_of_documents(), id_column="id")
    rows = BY_DOCUMENTS[name](material(encoder, texts))
    units = {value.interval.unit for row in rows for value in row.values() if getattr(value, "interval", None)}
    assert units == {"documents"}


def test_a_tuned_model_is_compared_by_documents(encoder):
    texts = read_texts(chunks_of_documents(), id_column="id")
    first, second = socm.pair_averages(material(encoder, texts)), socm.pair_averages(material(encoder, texts))
    random = np.random.default_rng(1)
    moved = random.normal(size=36)  # each document's own change
    shift = moved[first.arrays["unit"][first.arrays["i"]]] + moved[first.arrays["unit"][first.arrays["j"]]]
    second.arrays["socm"] = (first.arrays["socm"] + shift).astype(np.float32)
    name, parent = next((name, parent) for name, parent in socm.PARENTS.items())
    outcomes = {Cell("socm", parent, "wiki"): first, Cell("socm", name, "wiki"): second}
    (row,) = socm.tuned_and_backbone([], outcomes)
    half = (row["tuned_minus_backbone_high"] - row["tuned_minus_backbone_low"]) / 2
    assert half == pytest.approx(2 * 1.96 * moved.std(ddof=1) / 6, rel=0.3)  # 2/√36 of a mean over documents
