"""The notebooks of examples/ run from the first cell to the last, and show what they promise."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks need nbclient and a kernel")
nbclient = pytest.importorskip("nbclient", reason="notebooks need nbclient and a kernel")
pytest.importorskip("ipykernel", reason="notebooks need nbclient and a kernel")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def test_there_is_one_for_each_reader():
    assert [path.stem for path in NOTEBOOKS] == ["model_developer", "rag_engineer", "researcher"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_without_output_and_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert notebook.cells[0].source.startswith("# ")
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [data for cell in code for output in cell.outputs if (data := output.get("data"))]
    pages = [data["text/html"] for data in shown if "text/html" in data]
    assert pages
    assert all("<table" in page or "<p" in page for page in pages)
    drawn = any("application/vnd.plotly.v1+json" in data for data in shown)
    assert drawn or path.stem == "rag_engineer"  # which shows tables only
    assert max(map(len, pages)) < 150_000  # small enough to be kept
