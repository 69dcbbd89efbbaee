"""The socm command through the real parser, on stored clouds (the model has its own tests)."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest

from cloud_data import random_clouds
from command_line import invoke
from command_line import run as run_command
from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.metrics.socm.measure import socm
from poolscope.texts import read_texts

run = partial(run_command, "socm")


@pytest.fixture
def stored(tmp_path):
    clouds = random_clouds(0, [4, 9, 6, 3, 12, 7], 16, dtype="float32")
    clouds.save(tmp_path / "clouds.arrow")
    return tmp_path / "clouds.arrow", clouds


def test_summary_shows_mean_interval_rate_check_and_worst_texts(stored):
    path, clouds = stored
    output = run(path, "--top", 2, "--threshold", 0.05, "--neighbours", 5, "--details")
    result = socm(clouds)
    assert f"{result.mean:.4f}" in output
    assert "6 texts, 30 " in output
    assert f"{result.collapse_rate(0.05):.2%}" in output
    assert "all 6 texts" in output
    assert output.count("text number") == 4
    assert result.estimate.no_interval in run(path, "--details")


def test_worst_pairs_and_rate_are_those_of_pairs_that_a_search_would_confuse(tmp_path):
    random = np.random.default_rng(0)
    means = np.repeat(random.normal(size=(40, 24)), 2, axis=0)
    scale = np.where(np.arange(80) % 4 == 1, 1.0, 0.1)[:, None, None]
    arrays = means[:, None] + scale * random.normal(size=(80, 30, 24))
    ids, texts = [f"d{k % 4}-{k}" for k in range(80)], [f"text number {k}" for k in range(80)]
    clouds = TokenClouds.from_arrays(list(arrays), ids=ids, texts=texts)
    clouds.save(tmp_path / "clouds.arrow")
    run(tmp_path / "clouds.arrow", "--json", tmp_path / "r.json", "--top", 3, "--details")
    content = json.loads((tmp_path / "r.json").read_text())
    alike = content["confusable"]
    assert content["mean"] == socm(clouds).mean
    assert alike["cut_off"] > 0.5
    assert all(pair["cosine"] >= alike["cut_off"] - 1e-6 for pair in alike["worst"])
    assert {(pair["i"] % 4, pair["j"] - pair["i"]) for pair in alike["worst"]} == {(0, 1)}
    assert alike["worst"][0]["differs_j"][0][0].startswith("position ")
    assert 0.05 < alike["differing"]["value"] < 1
    assert alike["excess"]["value"] > 0
    output = run(tmp_path / "clouds.arrow", "--top", 3, "--details")
    assert f"{alike['cut_off']:.3f} or more, which 1%" in output
    by_document = clouds.described(ids=[f"d{k // 2}#{k % 2}" for k in range(80)])
    by_document.save(tmp_path / "chunks.arrow")
    run(tmp_path / "chunks.arrow", "--json", tmp_path / "c.json", "--details")
    worst = json.loads((tmp_path / "c.json").read_text())["confusable"]["worst"]
    assert all(pair["id_i"].split("#")[0] != pair["id_j"].split("#")[0] for pair in worst)


def test_json_to_screen_is_json_and_nothing_else(stored):
    path, clouds = stored
    result = invoke("socm", str(path), "--json", "-")
    assert json.loads(result.stdout)["mean"] == socm(clouds).mean


def test_files_pairs_and_selections(stored, tmp_path):
    path, _ = stored
    (tmp_path / "pairs.csv").write_text("i,j\n0,1\n4,2\n")
    run(
        path,
        "--pairs",
        tmp_path / "pairs.csv",
        "--json",
        tmp_path / "r.json",
        "--parquet",
        tmp_path / "r.parquet",
        "--details",
    )
    assert json.loads((tmp_path / "r.json").read_text())["pairs"] == 2
    assert pq.read_table(tmp_path / "r.parquet")["j"].to_pylist() == [1, 2]
    assert "2 nearest neighbours" in run(path, "--neighbours", 2, "--details")
    assert "regression" in run(path, "--pairs", 60, "--details")
    other = random_clouds(3, [5, 5], 16, dtype="float32")
    other.save(tmp_path / "other.arrow")
    assert "12 pairs (crossed" in run(path, "--against", tmp_path / "other.arrow", "--details")


def test_options_reach_the_computation(stored):
    path, clouds = stored
    for options, arguments in (
        (["--scale", "trace"], {"scale": "trace"}),
        (["--eps", "1e-9"], {"eps": 1e-9}),
        (["--a", "2", "--b", "0.5"], {"a": 2, "b": 0.5}),
    ):
        result = invoke("socm", str(path), "--json", "-", *options)
        assert json.loads(result.stdout)["mean"] == pytest.approx(socm(clouds, **arguments).mean, rel=1e-12)


def test_worst_only_says_how_much_it_looked_at(stored, tmp_path):
    path, clouds = stored
    output = run(path, "--worst-only", "--top", 3, "--json", tmp_path / "w.json")
    assert "15 pairs" in output
    listed = json.loads((tmp_path / "w.json").read_text())["worst"]
    assert [(p["i"], p["j"]) for p in listed] == [(p.i, p.j) for p in socm(clouds).worst(3)]
    with pytest.raises(InputError, match="--worst-only"):
        run(path, "--worst-only", "--pairs", 10)
    with pytest.raises(InputError, match="--worst-only"):
        run(path, "--worst-only", "--threshold", 0.2)


@pytest.mark.parametrize("option", ["--threshold", "--fail-above"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_numbers_that_compare_with_nothing_are_refused(stored, option, value):
    with pytest.raises(InputError, match=f"{option}: received {value}"):
        run(stored[0], option, value)


def test_fail_above_sets_the_exit_code(stored):
    path, clouds = stored
    mean = socm(clouds).mean
    assert "--fail-above" in run(path, "--fail-above", mean - 0.001, expect=1)
    run(path, "--fail-above", mean + 0.001)


def test_large_corpora_are_sampled_and_told_so(tmp_path):
    path = tmp_path / "clouds.arrow"
    TokenClouds.from_arrays(np.random.default_rng(0).normal(size=(2001, 2, 3)) + 1).save(path)
    output = run(path)
    assert "2,001,000 pairs: 20,000 " in output
    assert "--worst-only" in output
    output = run(path, "--all")
    assert "all pairs" in output
    assert "drawn at" not in output


def test_broken_assumption_is_shown(tmp_path):
    wild = np.array([[1, 5.0], [1, -5.0]])
    type(random_clouds(0, [1], 2)).from_arrays([wild, wild + 0.1, wild - 0.2]).save(tmp_path / "w.arrow")
    output = run(tmp_path / "w.arrow", "--details")
    assert "100.0% of 3 texts" in output
    assert "--scale trace" in output


def test_texts_cannot_write_to_the_terminal(tmp_path):
    clouds = random_clouds(0, [3, 4], 6)
    hostile = type(clouds).from_arrays(list(clouds), texts=["\x1b[31m[bold]red[/bold]\x07", "tab\tline\nend " * 500])
    hostile.save(tmp_path / "h.arrow")
    output = run(tmp_path / "h.arrow")
    assert "\x1b[31m" not in output
    assert "[bold]red[/bold]" in output
    assert "…" in output


def test_errors_are_one_line_and_exit_2(tmp_path):
    code = "import sys; from poolscope.cli import main; sys.argv = ['poolscope', 'socm', sys.argv[1]]; main()"
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path / "no.arrow")], capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.startswith("poolscope: ")
    assert "no.arrow" in result.stderr
    assert "Traceback" not in result.stderr


def test_clouds_with_model_options_are_refused(stored):
    with pytest.raises(InputError, match="cannot apply: TEXTS, max_length"):
        run(stored[0], "texts.txt", "--max-length", 5)


def test_pairs_are_named_by_the_ids_that_are_shown(tmp_path):
    texts = read_texts(["zero", "", "two", "three"])
    clouds = random_clouds(0, [4, 9, 6], 16, dtype="float32").described(ids=texts.ids, texts=texts.texts)
    clouds.save(tmp_path / "clouds.arrow")
    (tmp_path / "pairs.csv").write_text("i,j\n3,2\n")
    run(tmp_path / "clouds.arrow", "--pairs", tmp_path / "pairs.csv", "--json", tmp_path / "r.json")
    (worst,) = json.loads((tmp_path / "r.json").read_text())["worst"]
    assert (worst["id_i"], worst["id_j"]) == ("3", "2")
    # a table of results, which counts positions, names the same pairs when it is read again
    run(tmp_path / "clouds.arrow", "--pairs", tmp_path / "pairs.csv", "--parquet", tmp_path / "r.parquet")
    run(tmp_path / "clouds.arrow", "--pairs", tmp_path / "r.parquet", "--json", tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text())["worst"] == [worst]
    (tmp_path / "pairs.csv").write_text("i,j\n0,1\n")
    with pytest.raises(InputError, match=r"text '1', .* 3 texts"):
        run(tmp_path / "clouds.arrow", "--pairs", tmp_path / "pairs.csv")
