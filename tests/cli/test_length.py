"""The length command through the real parser, on a tiny stored model and on files of vectors."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import invoke, run
from length_data import with_effect, word_texts, word_tokenizer
from poolscope import audit, length_profile
from poolscope.errors import InputError
from poolscope.lab.commands.length import parse_bins
from tiny_models import save_model

TEXTS = [*word_texts(), *word_texts(200, seed=2, most=20)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    return save_model(place, vocab_size=47, pad_token_id=0, max_position_embeddings=128, tokenizer=word_tokenizer())


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    rows = [{"text": text, "label": "ab"[len(text) % 2]} for text in TEXTS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    path = tmp_path_factory.mktemp("vectors") / "vectors.npz"
    made, lengths = with_effect(0, slope=0.06)
    np.savez(path, vectors=made, lengths=lengths)
    return path


def test_a_model_with_everything(folder, texts, tmp_path):
    long = [text for text in TEXTS if 30 <= len(text.split()) <= 60]
    rows = [{"query": " ".join(text.split()[:6]), "document": text} for text in long]
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    written = ("--json", tmp_path / "r.json", "--figure", tmp_path / "r.html")
    output = run(
        "length",
        "--details",
        folder,
        texts,
        "--bins",
        3,
        "--pairs",
        pairs,
        "--labels",
        "--label-column",
        "label",
        *written,
    )
    stored = json.loads((tmp_path / "r.json").read_text())
    assert output.count("written:") == 2
    assert f"slope {stored['profile']['slope']['value']:+.4f}" in output
    for word in (
        "σₐ",
        "whole − averaged",
        "repeated",
        "texts joined: cosine",
        "on top of",
    ):
        assert word in output
    assert "limit of 64 tokens" in output
    assert all(stored[part] for part in ("mechanism", "nulls", "probes", "retrieval", "position", "labels"))
    assert [row["label"] for row in stored["profile"]["bins"]] == [row["label"] for row in stored["mechanism"]["bins"]]
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "only averaging?" in page
    assert "documents crowd" in page


def test_without_probes_on_a_narrow_screen(folder, texts):
    output = run("length", folder, texts, "--no-probes", "--limit", 60, "--max-length", 40, width=90)
    assert "whole − averaged" not in output
    assert "…" not in output
    assert "60 of 320 texts" in output


def test_vectors_alone(vectors, tmp_path):
    output = run("length", "--details", vectors, "--json", tmp_path / "r.json")
    held = np.load(vectors)
    expected = length_profile(held["vectors"], held["lengths"])
    assert f"{expected.slope.value:+.4f}" in output
    assert "poolscope length MODEL" in output
    stored = json.loads((tmp_path / "r.json").read_text())
    assert stored["profile"]["slope"]["value"] == pytest.approx(expected.slope.value)
    assert (stored["nulls"], stored["mechanism"], stored["model"]) == (None, None, None)
    shown = invoke("length", "--details", vectors, "--json", "-", "--bins", "0,40,600")
    assert [row["label"] for row in json.loads(shown.stdout)["profile"]["bins"]] == ["0–40", "40–600"]


def test_vectors_with_texts_and_labels_beside_them(texts, tmp_path):
    random = np.random.default_rng(0)
    np.save(tmp_path / "v.npy", random.standard_normal((len(TEXTS), 8)))
    output = run("length", tmp_path / "v.npy", texts, "--column", "text", "--label-column", "label", "--labels")
    assert "in words" in output
    assert "label" in output
    with pytest.raises(InputError, match=r"v\.npy: .*'lengths'"):
        run("length", tmp_path / "v.npy")
    with pytest.raises(InputError, match=r"--labels: .*v\.npy"):
        run("length", tmp_path / "v.npy", texts, "--column", "text", "--labels")


def test_what_cannot_apply_is_refused(vectors, folder, texts, tmp_path):
    with pytest.raises(InputError, match="cannot apply: --pairs, --max-length"):
        run("length", vectors, "--pairs", texts, "--max-length", 5)
    with pytest.raises(InputError, match=r"'\.gif'; allowed: \.html"):
        run("length", "no/model", "--figure", tmp_path / "r.gif")
    plain = tmp_path / "plain.txt"
    plain.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"--labels: .*--label-column"):
        run("length", folder, plain, "--labels")
    with pytest.raises(InputError, match="--bins: received 'few'"):
        parse_bins("few")


def test_names_of_columns_are_those_of_the_vectors(tmp_path):
    made, lengths = with_effect(0)
    columns = {"embedding": list(made), "body": [" ".join(["w"] * n) for n in lengths], "topic": ["a", "b"] * 150}
    pq.write_table(pa.table(columns), tmp_path / "v.parquet")
    named = ("--column", "body", "--label-column", "topic", "--labels")
    output = run("length", tmp_path / "v.parquet", *named)
    assert "in words" in output
    assert "label" in output
    with pytest.raises(InputError, match=r"'title'.* embedding, body"):
        run("length", tmp_path / "v.parquet", "--column", "title")
    np.save(tmp_path / "v.npy", made)
    with pytest.raises(InputError, match="name 'body'"):
        run("length", tmp_path / "v.npy", "--column", "body")


def test_texts_that_would_be_ignored_are_refused(vectors, texts, tmp_path):
    with pytest.raises(InputError, match="apply: --no-probes"):
        run("length", vectors, "--no-probes")
    lines = [f"word {k}" for k in range(300)]
    plain = tmp_path / "plain.txt"
    plain.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match=r"TEXTS \("):
        run("length", vectors, plain)
    labelled = tmp_path / "labelled.jsonl"
    rows = [{"text": line, "label": "ab"[k % 2]} for k, line in enumerate(lines)]
    labelled.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert "label" in run("length", vectors, labelled, "--label-column", "label", "--labels")
    np.save(tmp_path / "v.npy", np.load(vectors)["vectors"])
    plain.write_text("\n".join([*lines[:7], "", *lines[8:]]), encoding="utf-8")
    with pytest.raises(InputError, match=r"299 texts .* 300 vectors.* 1 text"):
        run("length", tmp_path / "v.npy", plain)


def test_eighty_columns_hold_every_table(folder, tmp_path):
    made = np.random.default_rng(3).integers(101, 125, size=240)
    rows = [" ".join(f"w{(k * n) % 40}" for k in range(n)) for n in made]
    plain = tmp_path / "texts.txt"
    plain.write_text("\n".join(rows) + "\n", encoding="utf-8")
    pairs = tmp_path / "pairs.jsonl"
    asked = [{"query": " ".join(row.split()[:6]), "document": row} for row in dict.fromkeys(rows)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in asked), encoding="utf-8")
    edges = ",".join(str(edge) for edge in range(103, 130, 3))
    options = ("--bins", edges, "--min-texts", 1, "--pairs", pairs, "--max-length", 128)
    output = run("length", "--details", folder, plain, *options, width=80)
    assert "…" not in output
    for header in ("eff.rank", "own bin", "‖PX‖²/n", "whole − averaged", "share/exp."):
        assert header in output
    lines = output.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.lstrip().startswith("124–127") for line in lines) == 3  # profile, mechanism, search: one line each


def test_what_was_encoded_on_top_and_columns_are_named_as_the_command_has_them(folder, texts, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    long = [text for text in TEXTS if 30 <= len(text.split()) <= 60]
    rows = [{"query": " ".join(text.split()[:6]), "document": text} for text in long]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    output = " ".join(run("length", "--details", folder, texts, "--no-probes", "--pairs", pairs).split())
    assert re.search(r"\d tokens, .* position of an", output)
    assert "--no-probes" not in output
    pairs.write_text('{"query": "a", "body": "b"}\n', encoding="utf-8")
    with pytest.raises(InputError, match="to 'document'") as refused:
        run("length", "--details", folder, texts, "--pairs", pairs)
    assert "--document-column" not in str(refused.value)


@pytest.mark.parametrize("column", ["doc_id", "id"])
def test_documents_are_known_by_the_column_or_the_ids_that_an_audit_knows_them_by(tmp_path, monkeypatch, column):
    names = {"doc_id": ["a", "a", "b", "b"], "id": ["a#1", "a#2", "b#1", "b#2"]}[column]
    path = tmp_path / "chunks.jsonl"
    path.write_text("".join(json.dumps({"text": f"text {k}", column: name}) + "\n" for k, name in enumerate(names)))
    told = {}
    monkeypatch.setattr("poolscope.lab.length.report.length_report", lambda *_, **given: told.update(given))
    invoke("length", "builtin:wordllama", path)
    assert told["groups"] == ["a", "a", "b", "b"]


def test_queries_among_all_texts_give_the_number_of_the_audit(folder, tmp_path):
    random = np.random.default_rng(0)
    made = [" ".join(random.choice([f"w{k}" for k in range(40)], n)) for n in random.integers(6, 30, size=70)]
    corpus, asked = tmp_path / "texts.jsonl", tmp_path / "queries.jsonl"
    rows = [{"id": f"t{k}", "text": text} for k, text in enumerate(made)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    questions = [{"query": " ".join(row["text"].split()[:3]), "ids": [row["id"]]} for row in rows[::2]]
    asked.write_text("".join(json.dumps(row) + "\n" for row in questions), encoding="utf-8")
    run("length", folder, corpus, "--no-probes", "--queries", asked, "--json", tmp_path / "length.json")
    held = json.loads((tmp_path / "length.json").read_text())["retrieval"]
    audited = audit(str(folder), str(corpus), queries=str(asked))["short-texts"].number
    assert held["documents"] == 70
    assert held["shortest"]["ratio"]["value"] == pytest.approx(audited.value)
    with pytest.raises(InputError, match="--pairs"):
        run("length", folder, corpus, "--pairs", asked, "--queries", asked)
