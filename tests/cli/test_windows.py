"""`poolscope windows` through the real parser."""

from __future__ import annotations

import json

import numpy as np
import pytest

from command_line import run
from poolscope import TokenClouds
from poolscope.errors import InputError, ModelError


@pytest.fixture
def store(tmp_path):
    random = np.random.default_rng(0)
    clouds = TokenClouds.from_arrays([random.normal(size=(20, 6)) + 1 for _ in range(6)])
    clouds.save(tmp_path / "clouds.arrow")
    return tmp_path / "clouds.arrow"


def test_clouds_are_measured_and_written(store, tmp_path):
    screen = run(
        "windows", "--details", store, "--ratio", "4,2", "--json", tmp_path / "w.json", "--table", tmp_path / "w.csv"
    )
    content = json.loads((tmp_path / "w.json").read_text())
    assert [row["ratio"] for row in content["ratios"]] == [2, 4]
    assert content["likelihood"] is None
    assert len((tmp_path / "w.csv").read_text().splitlines()) == 3
    assert "hurt most" in screen


def test_eighty_columns_show_every_number(store):
    assert "…" not in run("windows", store, width=80)


def test_what_cannot_be_is_refused(store, tmp_path):
    for wrong in ("two", "0,4"):
        with pytest.raises(InputError, match=rf"--ratio: received '?{wrong[0]}"):
            run("windows", store, "--ratio", wrong)
    with pytest.raises(InputError, match=r"--likelihood .*a model"):
        run("windows", store, "--likelihood")
    (tmp_path / "texts.txt").write_text("one text that is short\nanother text\n")
    with pytest.raises(ModelError, match="no decoder"):
        run("windows", "builtin:minilm", tmp_path / "texts.txt", "--likelihood", "--context", 4, "--continuation", 2,
            "--ratio", 2)  # fmt: skip
