"""`poolscope lab correlate` through the real parser."""

from __future__ import annotations

import json
import re
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest

from command_line import invoke
from command_line import run as run_command
from evidence_data import audit, mteb_result
from poolscope import correlate
from poolscope.errors import InputError
from poolscope.show.screen import digits

run = partial(run_command, "lab", "correlate")


@pytest.fixture(scope="module")
def audits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audits")
    values = np.random.default_rng(0).normal(size=(2, 6))
    return [
        audit(folder / f"{k}.json", f"org/m{k}", {"socm": values[0, k], "length_slope": values[1, k]}, dimension=10 + k)
        for k in range(6)
    ]


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    path = tmp_path_factory.mktemp("scores") / "scores.csv"
    rows = [f"org__m{k},{50 + 3 * k},{'old' if k < 3 else 'new'}" for k in range(5)]
    path.write_text("\n".join(["model,mteb,family", *rows, "org/nobody,3,old"]), encoding="utf-8")
    return path


def test_the_screen_and_the_files(audits, scores, tmp_path):
    files = [tmp_path / "c.json", tmp_path / "c.parquet", tmp_path / "c.html"]
    written = ("--json", files[0], "--parquet", files[1], "--figure", files[2])
    output = run(*audits, "--scores", scores, "--details", *written)
    study = correlate(audits, scores)
    row = study["socm", "mteb"]
    assert digits(row.spearman.estimate.value, 2) in output
    assert "fewer than 6" in output
    assert "no scores: org/m5" in output
    assert "no metrics: org/nobody" in output
    assert output.count("2 degrees") == 1  # for both metrics
    assert "all metrics" in output
    assert "cannot show" not in output
    assert f"|ρ| = {row.detectable:.2f}" in output
    assert output.count("written:") == 3
    assert json.loads(files[0].read_text())["models"] == [f"org/m{k}" for k in range(5)]
    assert pq.read_table(files[1]).num_rows == 2
    assert "over 5 models" in files[2].read_text(encoding="utf-8")


def test_choices(audits, scores):
    result = invoke("lab", "correlate", *map(str, audits), "--scores", str(scores), "--json", "-")
    assert len(json.loads(result.stdout)["rows"]) == 2
    output = run(*audits, "--scores", scores, "--metric", "socm", "--control", "none", "--details")
    assert "length_slope" not in output
    assert "accounting for" not in output


def test_a_narrow_screen_cuts_nothing_off(audits, scores):
    output = run(*audits, "--scores", scores, "--details", width=80)
    row = correlate(audits, scores)["socm", "mteb"]
    assert "…" not in output
    assert max(map(len, output.splitlines())) <= 80
    for found in (row.spearman, row.kendall, row.pearson):
        assert re.search(rf"{re.escape(str(found).replace('-', '−'))} +{re.escape(str(found.p))}", output)


def test_metrics_from_a_table(audits, scores):
    output = run("--metrics", scores, "--scores", scores)
    assert "1.00" in output
    assert run(scores, "--scores", scores) == output
    with pytest.raises(InputError, match=r"scores\.csv: .*an audit"):
        run(*audits, scores, "--scores", scores)


def test_scores_from_mteb(audits, tmp_path):
    for k in range(5):
        mteb_result(tmp_path, f"org/m{k}", "r", "STS12", 0.1 * k)
    output = run(*audits, "--scores", tmp_path, "--benchmark", "MTEB(eng, v2)", "--details")
    assert re.search(r"mean .*\b1 tasks .*: STS12", output)


def test_what_is_missing_is_named(audits, scores, tmp_path):
    with pytest.raises(InputError, match=r"^--scores is missing"):
        run(*audits)
    with pytest.raises(InputError, match="audits and --metrics"):
        run("--scores", scores)
    for choice in ((), ("--benchmark", "MTEB(eng, v2)")):
        with pytest.raises(InputError, match=r"^--scores: received .*none\.csv; ") as missing:
            run(*audits, "--scores", tmp_path / "none.csv", *choice)
        assert "hub" not in str(missing.value)
    (tmp_path / "typo.csv").write_text("model,mteb\norg/m0,1\norg/m1,x\norg/m2,3", encoding="utf-8")
    with pytest.raises(InputError, match=r"typo\.csv: row 2, .*'mteb' .*'x'"):
        run(*audits, "--scores", tmp_path / "typo.csv")
    with pytest.raises(InputError, match=r"benchmark .*scores\.csv"):
        run(*audits, "--scores", scores, "--benchmark", "MTEB(eng, v2)")
    with pytest.raises(InputError, match=r"'\.gif'; allowed"):
        run(*audits, "--scores", scores, "--figure", tmp_path / "x.gif")
