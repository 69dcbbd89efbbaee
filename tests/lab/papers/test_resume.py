"""Every kind of cell of every paper, on tiny models: a run that is stopped after each of them goes on with the next."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from poolscope.lab.papers import sources
from poolscope.lab.papers.catalogue import PAPERS
from poolscope.lab.papers.cell import Entry, Part
from poolscope.lab.papers.data_sets import DATA_SETS
from poolscope.lab.papers.runner import run_paper
from poolscope.lab.papers.sources import Places
from tiny_models import WORDS, save_model

RANDOM = np.random.default_rng(2)
TEXTS = [" ".join(RANDOM.choice(WORDS, size=length)) for length in (*RANDOM.integers(8, 25, size=38), 160, 170)]
SHORT = [" ".join(text.split()[:4]) for text in TEXTS]
LABELS = [str(k % 2) for k in range(40)]
DECODERS = {"causal bound"}  # what asks for attention that does not see later tokens


class Stopped(BaseException):
    """As Ctrl-C, between two cells."""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    save_model(folder / "encoder")
    save_model(folder / "decoder", "Llama")
    rows = {
        "texts": [{"text": text} for text in TEXTS],
        "pairs": [{"query": a, "negative": b} for a, b in zip(SHORT, TEXTS, strict=True)],
        "labelled": [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)],
        "similarity": [
            {"sentence1": a, "sentence2": b, "score": k % 6}
            for k, (a, b) in enumerate(zip(TEXTS, TEXTS[::-1], strict=True))
        ],
        "scores": [{"model": "encoder", "task": 0.5}],
    }
    own = {}
    for data in DATA_SETS.values():
        if data.form == "retrieval":
            own[data.name] = str(folder / "search")
        elif data.form in rows:
            named = [dict(zip(row, row.values(), strict=True)) for row in rows[data.form]]
            if data.form == "labelled":
                named = [dict(zip(data.columns, row.values(), strict=True)) for row in named]
            path = folder / f"{data.name}.{'csv' if data.form == 'scores' else 'jsonl'}"
            if data.form == "scores":
                path.write_text("model,task\nencoder,0.5\n")
            else:
                path.write_text("\n".join(map(json.dumps, named)))
            own[data.name] = str(path)
    search = folder / "search" / "qrels"
    search.mkdir(parents=True)
    lines = [{"_id": f"d{k}", "title": "", "text": text} for k, text in enumerate(TEXTS)]
    (search.parent / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
    asked = [{"_id": f"q{k}", "text": text} for k, text in enumerate(SHORT)]
    (search.parent / "queries.jsonl").write_text("\n".join(map(json.dumps, asked)))
    judged = "".join(f"q{k}\td{k}\t1\n" for k in range(40))
    (search / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    models = {name: str(folder / name) for name in ("encoder", "decoder")}
    return Places(files=folder / "none", models=models, texts=own)


def one_of_each(paper):
    """The paper with one entry, of one cell a kind."""
    parts = {}
    for part in (part for entry in paper.entries for part in entry.parts):
        model = ("decoder",) if part.kind in DECODERS else ("encoder",)
        parts.setdefault(part.kind, Part(part.kind, part.models and model, part.data[:1], part.settings[:1], False))
    assert set(parts) | {"norms"} >= set(paper.kinds) - _elsewhere(paper)
    return replace(paper, entries=(Entry("figure-1", "one cell of each kind", tuple(parts.values())),)), len(parts)


def _elsewhere(paper):
    """Kinds that a paper shares with others and does not ask for itself."""
    asked = {part.kind for entry in paper.entries for part in entry.parts}
    return {kind for kind in paper.kinds if kind not in asked}


@pytest.mark.parametrize("name", PAPERS)
def test_a_run_goes_on_after_every_kind_of_cell(name, places, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "hub_out_of_reach", lambda: "no network")
    monkeypatch.setattr("poolscope.lab.papers.runner.hub_out_of_reach", lambda: "no network")
    paper, cells = one_of_each(PAPERS[name])
    said, left = [], []

    def stop_after_one(line):
        said.append(line)
        if counted := re.match(r"\d+ cells: (\d+) kept, (\d+) to measure", line):
            left.append(int(counted[2]))
        if line.startswith("2 of "):
            raise Stopped

    def run(say):
        models = {"encoder": None, "decoder": None}
        return run_paper(paper, tmp_path / "out", models=models, places=places, limit=40, cache=False, say=say)

    for _ in range(cells):
        try:
            done = run(stop_after_one)
        except Stopped:
            continue
        break
    assert not [line for line in said if line.startswith("not measured")]
    assert left == list(range(cells, 0, -1))  # each run measured one cell, and found those before it
    assert done.entries[0]["measured"] == cells
    with (tmp_path / "out" / "figure-1" / "numbers.csv").open() as stream:
        first = list(csv.DictReader(stream))
    again = []
    run(again.append)
    assert f"{cells} cells: {cells} kept, 0 to measure." in again
    with (tmp_path / "out" / "figure-1" / "numbers.csv").open() as stream:
        assert list(csv.DictReader(stream)) == first
