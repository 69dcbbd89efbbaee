"""The layers and pair commands through the real parser, on a tiny stored model."""

from __future__ import annotations

import json
import re

import pyarrow.parquet as pq
import pytest

from command_line import invoke, run
from poolscope import encode, socm_pair
from poolscope.errors import InputError, ModelError
from poolscope.lab.layers.measure import layers
from poolscope.numbers.moments import concentration_ratio
from tiny_models import TEXTS, save_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"), "Llama")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("other"), "Bert")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


def test_the_table_shows_the_means_and_both_theorems(folder, texts):
    output = run("layers", "--details", folder, texts)
    result = layers(str(folder), TEXTS)
    for name in ("lambda", "r", "C", "concentration_ratio", "cosine", "sigma_a", "high_frequency"):
        for mean in result.means(name).mean:
            assert f"{mean:.3f}" in output
    assert result.means("r").no_interval in output  # of five texts
    for state in result.socm:
        around = "" if state.high is None else f" ±{state.high - state.mean:.3f}"
        assert f"{state.mean:.3f}{around}" in output
    assert "Pre-norm" in output
    assert "'output' is" in output
    checks = result.theorem_1()
    met, held = sum(check.premise for check in checks), sum(check.premise_holds for check in checks)
    flat = " ".join(output.split())
    assert f" {met} of 10 texts × layers" in flat
    assert re.search(rf"\(from λ\) .* {held} .* 10 of all", flat)
    published = result.means("high_frequency_published").mean
    assert f"(without W_O) {published.min():+.2f} to {published.max():+.2f}" in flat
    for state in result.socm:
        assert (f" {state.state} ({state.above_trace:.0%})" in flat) == (state.above_trace > 0)
    assert "40 of 40 pairs" in output


def test_a_wide_screen_shows_intervals_of_enough_texts(folder, tmp_path):
    lines = [f"{text} {text}" if k else text for text in TEXTS for k in range(3)]
    (tmp_path / "more.txt").write_text("\n".join(lines))
    output = run("layers", folder, tmp_path / "more.txt", "--socm-texts", 0)
    means = layers(str(folder), lines, socm_texts=0).means("r")
    for mean, low, high in zip(means.mean, means.low, means.high, strict=True):
        assert f"{mean:.3f} ±{(high - low) / 2:.3f}" in output
    assert "interval over texts" in output


def test_a_narrow_screen_shows_the_means(folder, texts):
    output = run("layers", folder, texts, "--socm-texts", 0, width=80)
    assert "±" not in output
    assert "SOCM" not in output.replace("poolscope", "")
    assert "…" not in output
    assert f"{layers(str(folder), TEXTS).means('r').mean[0]:.3f}" in output


def test_files_of_one_model(folder, texts, tmp_path):
    arguments = ("--json", tmp_path / "r.json", "--parquet", tmp_path / "r.parquet", "--figure", tmp_path / "r.html")
    output = run("layers", folder, texts, *arguments, "--max-length", 5)
    assert output.count("written:") == 3
    assert "3 of the" in output
    stored = json.loads((tmp_path / "r.json").read_text())
    assert stored["states"] == ["0", "1", "2", "output"]
    assert stored["texts_truncated"] == 3
    assert stored["provenance"]["settings"]["max_length"] == 5
    assert pq.read_table(tmp_path / "r.parquet").num_rows == len(TEXTS) * 4
    assert "Anatomy" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_two_models_beside_each_other(folder, other, texts, tmp_path):
    run("layers", folder, texts, "--compare", other, "--json", tmp_path / "r.json", "--figure", tmp_path / "r.html")
    models = json.loads((tmp_path / "r.json").read_text())["models"]
    assert [model["pre_norm"] for model in models] == [[True, True], [False, False]]
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert all(path.name in page for path in (folder, other))


def test_json_to_the_screen_is_json_and_nothing_else(folder, texts):
    result = invoke("layers", str(folder), str(texts), "--json", "-")
    assert json.loads(result.stdout)["texts"] == len(TEXTS)


def test_what_cannot_be_written_is_refused_first(folder, texts, tmp_path):
    with pytest.raises(InputError, match=r"'\.gif'; allowed: \.html"):
        run("layers", "no/model", texts, "--figure", tmp_path / "r.gif")
    with pytest.raises(InputError, match=r"--parquet .*--compare"):
        run("layers", "no/model", texts, "--compare", "other", "--parquet", tmp_path / "r.parquet")
    with pytest.raises(InputError, match=r"'\.txt'"):
        run("pair", "a", "b", "--model", "no/model", "-o", tmp_path / "pair.txt")


def test_a_model_that_hides_a_piece_is_refused(tmp_path, texts):
    folder = save_model(tmp_path, "Falcon", hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    with pytest.raises(ModelError, match="residual sum"):
        run("layers", folder, texts)


def test_a_pair_of_texts(folder, tmp_path):
    clouds = encode(str(folder), TEXTS[:2])
    expected = socm_pair(clouds[0], clouds[1])
    output = run("pair", *TEXTS[:2], "--model", folder, "-o", tmp_path / "pair.html", "--json", tmp_path / "pair.json")
    assert f"SOCM {expected.socm:.4f}" in " ".join(output.split())
    assert "8 and 4 tokens" in output
    assert output.count("written:") == 2
    stored = json.loads((tmp_path / "pair.json").read_text())
    assert stored["socm"] == pytest.approx(expected.socm)
    assert stored["d_mu"] == pytest.approx(expected.mean_distance)
    assert stored["tokens"] == [8, 4]
    traces = [concentration_ratio(cloud) for cloud in clouds]
    assert stored["traces"] == pytest.approx(traces)
    assert stored["above_trace"] == sum(trace > 2 for trace in traces)
    assert stored["d_sigma_trace"] == pytest.approx(4 * expected.covariance_distance / sum(traces))
    page = (tmp_path / "pair.html").read_text(encoding="utf-8")
    assert f"SOCM {expected.socm:.3f}" in page
    assert "cat" in page


def test_a_pair_in_another_layer_and_cut(folder):
    clouds = encode(str(folder), TEXTS[1:3], layers=[0], max_length=6)[0]
    output = run("pair", *TEXTS[1:3], "--model", folder, "--layer", 0, "--max-length", 6, "--details")
    assert f"d_Σ {socm_pair(clouds[0], clouds[1]).covariance_distance:.4f}" in " ".join(output.split())
    traces = [concentration_ratio(cloud) for cloud in clouds]
    assert max(traces) > 2
    assert f"tr Σ {traces[0]:.2f} and {traces[1]:.2f}" in " ".join(output.split())
    assert "tr Σ above 2" in output
    assert "layer 0" in output
    assert "0 and 13 tokens" in output
    shown = json.loads(invoke("pair", "cat", "dog", "--model", str(folder), "--json", "-").stdout)
    assert shown["texts"] == ["cat", "dog"]
