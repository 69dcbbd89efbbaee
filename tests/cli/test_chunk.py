"""The chunk command through the real parser, on a tiny stored model."""

from __future__ import annotations

import json
import re

import pytest

from chunk_data import assert_whole
from command_line import invoke, last_command, run
from length_data import word_tokenizer
from poolscope import Audit, read_texts
from poolscope.errors import InputError
from poolscope.texts import read_queries
from poolscope.texts.groups import group_column, groups_of_ids
from poolscope.texts.sources import open_table
from tiny_models import save_model


def words(count):
    return " ".join(f"w{k % 40}" for k in range(count))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    return save_model(place, vocab_size=47, pad_token_id=0, max_position_embeddings=128, tokenizer=word_tokenizer())


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.jsonl"
    rows = [{"name": f"n{k}", "body": words(20 * k + 1), "kind": "ab"[k % 2]} for k in range(8)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


COLUMNS = ("--column", "body", "--id-column", "name", "--label-column", "kind")


def test_the_screen_and_the_file(folder, texts, tmp_path):
    output = tmp_path / "my chunks.jsonl"
    printed = run("chunk", folder, texts, "-o", output, *COLUMNS, "--details")
    source = read_texts(texts, column="body", id_column="name", label_column="kind")
    chunks = read_texts(output, id_column="id", label_column="label")
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    tokens = sorted(row["tokens"] for row in rows)
    assert f"{folder} · 8 texts of texts.jsonl" in printed
    shown = " ".join(printed.split())
    assert shown.startswith("4 of 8 texts are longer than 64 tokens.")
    assert f"there are {len(chunks)} chunks." in shown
    lengths = {"shortest": 3, "median": tokens[len(tokens) // 2], "longest": tokens[-1]}
    assert all(f"tokens of the {name} chunk {value}" in shown for name, value in lengths.items())
    assert f"at a space {len(chunks) - 8} inside a word 0" in shown
    assert "special tokens and prompt 2" in shown
    assert f"written: {output}" in printed
    assert last_command(printed) == ["poolscope", "audit", str(folder), str(output), "--id-column", "id"]
    kinds = dict(zip(source.ids, source.labels, strict=True))
    assert [kinds[row["document_id"]] for row in rows] == [row["label"] for row in rows] == list(chunks.labels)
    assert len(source) == 8


def test_what_it_writes_can_be_audited(folder, texts, tmp_path):
    """The command that the audit suggests after a finding of truncation, and its own next step."""
    run("chunk", folder, texts, "--column", "body", "--output", tmp_path / "chunks.jsonl", "--max-length", 32)
    chosen = ("--max-length", 32, "--no-encode", "--no-cache", "--no-page")
    run("audit", folder, tmp_path / "chunks.jsonl", *chosen, "--output", tmp_path / "audit")
    assert Audit.load(tmp_path / "audit")["truncation"].number.value_or_raise == 0


def test_options(folder, texts, tmp_path):
    options = ("--tokens", 30, "--overlap", 5, "--prompt", "dog cat ", "--limit", 6, "--seed", 3)
    target = tmp_path / "numbers.json"
    printed = run(
        "chunk", folder, texts, "-o", tmp_path / "c.parquet", *COLUMNS, *options, "--json", target, "--details"
    )
    found = json.loads(target.read_text(encoding="utf-8"))
    assert (found["limit"], found["added"], found["overlap"], found["texts"]) == (30, 4, 5, 6)
    assert found["chunks"] == len(read_texts(tmp_path / "c.parquet"))
    assert re.search(r"\b30 tokens", printed)
    numbers = " ".join(printed.split())
    assert "special tokens and prompt 4" in numbers
    assert "repeated from the previous chunk 5" in numbers
    assert "6 of 8 texts selected." in printed
    following = last_command(printed)
    named = ["poolscope", "audit", str(folder), str(tmp_path / "c.parquet")]
    assert following == [*named, "--id-column", "id", "--prompt", "dog cat "]


def test_json_on_the_screen_is_all_of_standard_output(folder, texts, tmp_path):
    command = ["chunk", str(folder), str(texts), "--column", "body", "-o", str(tmp_path / "c.jsonl"), "--json", "-"]
    assert json.loads(invoke(*command).stdout)["split"] == 4


def test_nothing_is_lost(folder, texts, tmp_path):
    from poolscope.chunks import Chunk, Chunks

    run("chunk", folder, texts, "-o", tmp_path / "c.jsonl", *COLUMNS, "--tokens", 17)
    rows = [json.loads(line) for line in (tmp_path / "c.jsonl").read_text(encoding="utf-8").splitlines()]
    source = read_texts(texts, column="body", id_column="name")
    chunks = Chunks("c", 17, 2, 0, {}, chunks=tuple(Chunk(**row) for row in rows))
    assert_whole(chunks, dict(zip(source.ids, source, strict=True)))


def test_files_that_must_not_be_written(folder, texts, tmp_path):
    before = texts.read_bytes()
    with pytest.raises(InputError, match=f"{texts}: the chunks"):
        run("chunk", folder, texts, "-o", texts)
    assert texts.read_bytes() == before
    with pytest.raises(InputError, match=r"allowed: \.jsonl"):
        run("chunk", folder, texts, "-o", tmp_path / "chunks.txt")
    with pytest.raises(InputError, match="takes 64 tokens"):
        run("chunk", folder, texts, "--column", "body", "-o", tmp_path / "c.jsonl", "--tokens", 65)
    assert not (tmp_path / "c.jsonl").exists()


@pytest.mark.model
def test_with_nothing_named(tmp_path):
    printed = run("chunk", "-o", tmp_path / "chunks.jsonl", "--limit", 30)
    assert "30 texts of builtin:docstrings" in printed
    following = f"poolscope audit builtin:minilm {tmp_path / 'chunks.jsonl'} --id-column id"
    assert printed.splitlines()[-1] == following


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_other_columns_and_the_documents_stay(folder, tmp_path, ending):
    """What a row says besides is kept under its own name, and who belongs together is known again from the file."""
    source, output = tmp_path / "texts.jsonl", tmp_path / f"chunks.{ending}"
    rows = [
        {"name": f"n{k}", "body": words(40 * k + 1), "doc_id": f"d{k // 3}", "lang": "en", "tokens": k}
        for k in range(6)
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    screen = run("chunk", folder, source, "--column", "body", "--id-column", "name", "-o", output)
    assert ": tokens." in screen
    table = open_table(output)
    assert {"lang", "doc_id", "group", "document_id", "id", "text", "tokens"} <= table.kinds.keys()
    kept = [dict(zip(table.kinds, row, strict=True)) for row in table.rows(list(table.kinds))]
    assert len(kept) > 6
    for row in kept:
        number = int(row["document_id"][1:])
        assert (row["group"], row["doc_id"], row["lang"]) == (f"d{number // 3}", f"d{number // 3}", "en")
        assert row["tokens"] > number
    assert group_column(output, ("text", "id")) == "group"
    texts = read_texts(output, column="text", id_column="id")
    judged = read_queries({"a question": ["n5"]}).among(texts.ids, documents=[groups_of_ids(texts.ids)])
    assert {kept[text]["document_id"] for _, text in judged.relevant} == {"n5"}
    assert len(judged.relevant) > 1
    ids = [{"id": f"book#{k}" if k < 4 else f"leaf#{k}", "text": words(40 * k + 1)} for k in range(6)]
    source.write_text("".join(json.dumps(row) + "\n" for row in ids), encoding="utf-8")
    run("chunk", folder, source, "--column", "text", "--id-column", "id", "-o", output)
    told = {tuple(row) for row in open_table(output).rows(["document_id", "group"])}
    assert told == {(row["id"], row["id"].partition("#")[0]) for row in ids}
