"""The three experiments end to end, offline: what is reached is measured, what is not has its reason."""

from __future__ import annotations

import dataclasses
import json
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest

from command_line import run as run_command
from poolscope import encode, layers, read_pairs, read_texts, socm, token_statistics
from poolscope.errors import InputError
from poolscope.research.correlate.model_records import SOCM_MODELS
from poolscope.research.reproduce import experiment, length_collapse, norm_variance, socm_paper
from poolscope.research.reproduce.experiment import Reproduction, Request
from tiny_models import WORDS, declare, save_model

BERT, SIMCSE, E5, GTE = (model.name for model in SOCM_MODELS[:4])


@pytest.fixture(autouse=True)
def _offline_and_quick(monkeypatch):
    """No network, and figures as their JSON: a browser takes seconds a figure."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    monkeypatch.setattr(experiment, "save_figure", lambda figure, path: path.write_text(figure.to_json()))


def words(count, seed, *, low=4, high=18):
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=generator.integers(low, high))) for _ in range(count)]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(words(12, 0)) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def triplets(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    rows = [f"{q},{p},{n}" for q, p, n in zip(words(9, 1), words(9, 2), words(9, 3), strict=True)]
    path.write_text("\n".join(["query,positive,negative", *rows]), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Four small models under the names of published ones: the first is the backbone of the others."""
    folder = tmp_path_factory.mktemp("models")
    names = (BERT, SIMCSE, E5, GTE)
    return {name: str(declare(save_model(folder / str(seed), seed=seed))) for seed, name in enumerate(names)}


def rows_of(done, table):
    return pq.read_table(done.folder / f"{table}.parquet").to_pylist()


# -- SOCM ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def request_of(models, texts, triplets):
    """All twelve models, of which four can be reached, and two of the three sets."""
    sources = {**socm_paper.MODELS, **models}
    return Request(models=sources, texts={**socm_paper.TEXTS, "wiki": texts, "hard": triplets}, cache=False)


def test_socm_of_what_can_be_reached(request_of, models, texts, triplets, tmp_path, monkeypatch):
    monkeypatch.setattr(socm_paper, "read_texts", _without_hub(socm_paper.read_texts))
    done = socm_paper.run(tmp_path / "out", request_of, command="the command")
    assert done.headline() == {"output": str(tmp_path / "out"), "measured": 8, "runs": 36}
    assert Reproduction.from_dict(done.to_dict()).runs == done.runs
    assert done.to_table().column("status").to_pylist() == [run["status"] for run in done.runs]
    rows = {(row["model"], row["set"]): row for row in rows_of(done, "averages")}
    clouds = encode(models[GTE], read_texts(texts).texts)
    wiki = rows[GTE, "wiki"]
    assert wiki["exact"] == pytest.approx(socm(clouds).mean, rel=1e-6)
    assert wiki["compatible"] == pytest.approx(socm(clouds, eps=1e-9).mean, rel=1e-6)
    assert wiki["exact_low"] < wiki["exact"] < wiki["exact_high"]
    assert (wiki["published"], wiki["pairs"], wiki["status"]) == (0.0175, 66, "measured")
    pairs = read_pairs(triplets, document_column="negative")
    sides = [encode(models[GTE], side.texts) for side in (pairs.queries, pairs.documents)]
    assert rows[GTE, "hard"]["exact"] == pytest.approx(socm(*sides, pairs=pairs.index).mean, rel=1e-6)
    assert rows[GTE, "marco"]["status"] == "not reached"
    assert "no hub here" in rows[GTE, "marco"]["reason"]
    assert rows["intfloat/e5-small-v2", "wiki"]["exact"] is None
    assert "cannot be reached" in rows["intfloat/e5-small-v2", "wiki"]["reason"]


def _without_hub(read):
    def reading(source, **options):
        if str(source).startswith("hub:"):
            raise InputError("no hub here")
        return read(source, **options)

    return reading


def test_the_tables_that_follow(request_of, models, texts, tmp_path):
    request = dataclasses.replace(
        request_of, models=models, texts={name: request_of.texts[name] for name in ("wiki", "hard")}
    )
    scores = tmp_path / "scores.csv"
    scores.write_text("\n".join(["model,mteb", *(f"{name},{k * k}" for k, name in enumerate(models))]))
    done = socm_paper.run(tmp_path / "out", request, scores=scores)
    averages = {(row["model"], row["set"]): row for row in rows_of(done, "averages")}
    tuned = rows_of(done, "tuning")
    assert len(tuned) == 6
    assert tuned[0]["backbone"] == BERT
    assert tuned[0]["change"] == pytest.approx(averages[SIMCSE, "wiki"]["exact"] - averages[BERT, "wiki"]["exact"])
    assert tuned[0]["published"] == pytest.approx(0.1930 - 0.3962)
    agreement = {row["set"]: row for row in rows_of(done, "agreement")}
    assert agreement["wiki"]["models"] == 4
    by_layer = [row for row in rows_of(done, "layers") if row["model"] == E5]
    expected = layers(models[E5], read_texts(texts).texts, socm_texts=0)
    for layer, row in enumerate(by_layer):
        assert row["lambda"] == pytest.approx(expected.means("lambda").mean[layer], rel=1e-5)
        ratio = expected.means("concentration_ratio").mean[layer + 1]
        assert row["concentration_ratio"] == pytest.approx(ratio, rel=1e-5)
    correlated = {row["metric"]: row for row in rows_of(done, "correlations")}
    assert set(correlated) == {
        f"{name}_{kind}" for name in ("socm", "concentration_ratio") for kind in ("wiki", "hard")
    }
    assert {row["model"] for row in rows_of(done, "example")} == set(models)
    page = (done.folder / "README.md").read_text(encoding="utf-8")
    assert f"The model {BERT} was loaded from {models[BERT]}" in page
    assert "socm_wiki against mteb over 4 models" in page
    assert "`averages.svg`" in page
    assert (done.folder / "layers-bert.svg").stat().st_size > 1000


def test_scores_of_other_models_are_a_note_and_no_failure(request_of, models, texts, tmp_path):
    request = dataclasses.replace(request_of, models={BERT: models[BERT]}, texts={"wiki": texts})
    (tmp_path / "scores.csv").write_text("model,mteb\nsomebody/else,1\n")
    done = socm_paper.run(tmp_path / "out", request, scores=tmp_path / "scores.csv")
    assert done.complete
    assert "0 models have" in (done.folder / "README.md").read_text(encoding="utf-8")
    assert not (done.folder / "correlations.csv").exists()


def test_each_detail_that_a_model_refuses_is_noted(request_of, models, texts, tmp_path, monkeypatch):
    def refuse(*arguments):
        raise InputError("no example here")

    monkeypatch.setattr(socm_paper, "_example", refuse)
    request = dataclasses.replace(request_of, models={BERT: models[BERT]}, texts={"wiki": texts})
    done = socm_paper.run(tmp_path / "out", request)
    assert "no example here" in (done.folder / "README.md").read_text(encoding="utf-8")
    assert len(rows_of(done, "layers")) == 2  # measured all the same


def test_an_unexpected_error_leaves_no_folder(request_of, models, texts, tmp_path, monkeypatch):
    def broken(*given, **named):
        raise RuntimeError("broken")

    monkeypatch.setattr(socm_paper, "averages_figure", broken)
    request = dataclasses.replace(request_of, models={BERT: models[BERT]}, texts={"wiki": texts})
    with pytest.raises(RuntimeError, match="broken"):
        socm_paper.run(tmp_path / "out", request)
    assert list(tmp_path.iterdir()) == []


# -- norm and variance --------------------------------------------------------------------------------------------


def test_norm_and_variance(models, texts, tmp_path):
    request = Request(models={"one": models[BERT], "two": "./nowhere"}, texts={"texts": texts})
    done = norm_variance.run(tmp_path / "out", request)
    assert [run["status"] for run in done.runs] == ["measured", "not reached"]
    expected = token_statistics(models[BERT], read_texts(texts).texts)
    table = rows_of(done, "layers")
    assert [row["model"] for row in table] == ["one"] * 3
    for row, layer in zip(table, expected.layers, strict=True):
        assert row["within_share"] == pytest.approx(layer.corpus.shares[1], rel=1e-6)
    assert len(rows_of(done, "types")) == len(expected.to_table())
    assert {row["norms"] for row in rows_of(done, "findings")} == {"post-norm"}


def test_findings_follow_from_the_layers(models, texts):
    result = token_statistics(models[E5], read_texts(texts).texts, min_count=2)
    found = {row["finding"]: row for row in norm_variance.findings("m", "post-norm", result)}
    shares = [layer.corpus.shares for layer in result.layers]
    rises = found["M/Q rises with depth"]
    assert (rises["first"], rises["last"]) == (shares[1][0], shares[-1][0])
    assert rises["holds"] is (shares[-1][0] > shares[1][0])
    assert found["V_B/Q falls with depth"]["holds"] is (shares[-1][2] < shares[1][2])
    single = dataclasses.replace(result, layers=result.layers[:1])
    assert norm_variance.findings("m", "none", single)[2]["first"] == shares[0][0]


# -- length -------------------------------------------------------------------------------------------------------


def test_length_and_temperature(models, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "texts.txt").write_text("\n".join(words(60, 4, low=2, high=21)), encoding="utf-8")
    queries, documents = words(20, 5), [" ".join(words(1, k, low=3 + k % 15, high=4 + k % 15)) for k in range(20)]
    rows = [f"{query},{document}" for query, document in zip(queries, documents, strict=True)]
    (folder / "pairs.csv").write_text("\n".join(["query,document", *rows]), encoding="utf-8")
    sources = {"texts": str(folder / "texts.txt"), "pairs": str(folder / "pairs.csv")}
    request = Request(models={"small": models[BERT], "none": "./nowhere"}, texts=sources)
    done = length_collapse.run(tmp_path / "out", request, temperatures=[0.5, 2.0])
    assert [run["status"] for run in done.runs] == ["measured", "not reached"]
    grid = rows_of(done, "grid")
    expected = [(tau, queries) for tau in (1.0, 2.0, 0.5) for queries in ("all", "longest fifth")]
    assert [(row["tau"], row["queries"]) for row in grid] == expected
    assert grid[0]["change"] == 0  # against which the others stand, whether hotter or colder
    for row in (grid[2], grid[4]):
        assert row["change"] == pytest.approx(row["ndcg"] - grid[0]["ndcg"])
    assert grid[1]["count"] < grid[0]["count"] == 20
    bins = rows_of(done, "bins")
    at = {tau: [row for row in bins if row["tau"] == tau] for tau in (1.0, 0.5)}
    assert [row["bin"] for row in at[1.0]] == [row["bin"] for row in at[0.5]]
    assert at[0.5][0]["sigma_a"] > at[1.0][0]["sigma_a"]  # sharper attention averages less
    assert at[0.5][0]["cosine"] != at[1.0][0]["cosine"]
    probes = [row for row in rows_of(done, "probes") if row["tau"] == 1.0]
    assert [row["times"] for row in probes] == [2**k for k in range(len(probes))]
    assert rows_of(done, "published")[0]["model"] == "ANCE"
    drawn = json.loads((done.folder / "grid.svg").read_text())["data"][0]["x"]  # as JSON, see above
    assert drawn == [2.0, 1.0, 0.5]
    assert (done.folder / "bins-small.svg").exists()


# -- the command --------------------------------------------------------------------------------------------------


run = partial(run_command, "research", "reproduce")


@pytest.mark.model
def test_the_command_on_the_embedded_model_and_corpus(tmp_path):
    arguments = ["--model", "mini=builtin:minilm", "--models", GTE, "--sets", "wiki", "--sets", "hard", "--limit", 8]
    texts = ["--texts", "wiki=builtin:docstrings", "--texts", "hard=builtin:docstrings"]
    output = run("socm-paper", "-o", tmp_path / "out", *arguments, *texts, "--no-cache")
    assert "2 of 4 runs gave numbers" in output
    rows = pq.read_table(tmp_path / "out" / "averages.parquet").to_pylist()
    mini = next(row for row in rows if row["model"] == "mini" and row["set"] == "wiki")
    corpus = read_texts("builtin:docstrings", limit=8)
    assert mini["exact"] == pytest.approx(socm(encode("builtin:minilm", corpus.texts)).mean, rel=1e-5)
    assert mini["published"] is None


def test_a_run_that_reaches_nothing_says_so(tmp_path, texts):
    choice = ("--models", "openai-community/gpt2", "--texts", f"texts={texts}")
    output = run("norm-variance", "-o", tmp_path / "out", *choice, expect=1)
    assert "0 of 1 runs gave numbers" in output
    assert "not reached" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_wrong_questions(tmp_path):
    out = ("-o", tmp_path / "out")
    with pytest.raises(InputError, match="received 'nonsense'; allowed: socm-paper, length-collapse"):
        run("nonsense", *out)
    with pytest.raises(InputError, match=r"--taus: .*socm-paper; .*length-collapse"):
        run("socm-paper", *out, "--taus", "0.5")
    with pytest.raises(InputError, match="--scores: received for norm-variance"):
        run("norm-variance", *out, "--scores", "s.csv")
    with pytest.raises(InputError, match="--taus: received 'hot'"):
        run("length-collapse", *out, "--taus", "hot")
    with pytest.raises(InputError, match="models: received who"):
        run("socm-paper", *out, "--models", "who")
    with pytest.raises(InputError, match="not empty"):
        run("socm-paper", "-o", tmp_path.parent)
    assert not (tmp_path / "out").exists()
