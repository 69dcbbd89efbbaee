"""The tokens command through the real parser, on stored clouds, saved states and a tiny model."""

from __future__ import annotations

import json
from functools import partial

import pyarrow.parquet as pq
import pytest
from tests.tiny_models import TEXTS as TINY_TEXTS
from tests.tiny_models import save_model
from tests.token_data import WordEncoder, sentences
from typer.testing import CliRunner

from command_line import invoke
from command_line import run as run_command
from poolscope.cli import app
from poolscope.encoders.batching import BatchedEncoder
from poolscope.errors import InputError, OutputError
from poolscope.files import what_is_kept
from poolscope.lab.tokens.measure import token_statistics
from poolscope.lab.tokens.moments import load_state
from poolscope.lab.tokens.summary import summarise
from poolscope.stores.writer import encode_to_store
from poolscope.texts import ReadReport, Texts

run = partial(run_command, "tokens", width=100)


TEXTS = sentences()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    ids = tuple(str(k) for k in range(len(TEXTS)))
    labels = tuple("even" if k % 2 == 0 else "odd" for k in range(len(TEXTS)))
    texts = Texts(ids, tuple(TEXTS), labels, "memory", ReadReport(read=len(TEXTS), kept=len(TEXTS)))
    folder = tmp_path_factory.mktemp("stores") / "words"
    encode_to_store(WordEncoder(), texts, folder, layers=[0, 1, 2], shard_texts=9)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_model(folder)
    texts = folder.parent / "texts.jsonl"
    rows = [{"text": text, "kind": ["long", "short"][len(text) < 10]} for text in TINY_TEXTS * 3]
    texts.write_text("\n".join(map(json.dumps, rows)))
    return folder, texts


def test_a_store_gives_a_row_a_layer(store):
    output = run(store, "--min-count", 3, "--details")
    expected = token_statistics(store, min_count=3)
    rows = [line.split() for line in output.splitlines() if line.strip()[:1].isdigit()]
    shares = expected[1].corpus.shares
    reaches = [expected[1].intervals[f"{name}_share"].high for name in ("mean", "within", "between")]
    assert rows[1][2:5] == [f"{share:.3f}±{high - share:.3f}" for share, high in zip(shares, reaches, strict=True)]
    assert rows[1][5].startswith(f"{expected[1].mean_cosine:.3f}±")
    square = expected[1].estimate("mean_square")
    assert rows[1][1] == f"{square.value:.2f}±{square.interval.high - square.value:.2f}"
    assert all(
        meaning.partition(";")[0] in " ".join(output.split()) for meaning in expected.interval_meanings().values()
    )


def test_the_tables_fit_a_terminal_of_80_columns(store):
    output = run(store, "--min-count", 3, width=80)
    assert "…" not in output
    assert max(map(len, output.splitlines())) <= 80


def test_json_parquet_and_figure(store, tmp_path):
    output = run(
        store, "--min-count", 3, "--layers", "0,-1", "--json", tmp_path / "r.json", "--parquet", tmp_path / "r.parquet",
        "--figure", tmp_path / "r.html",
    )  # fmt: skip
    expected = token_statistics(store, layers=[0, 2], min_count=3)
    stored = json.loads((tmp_path / "r.json").read_text())
    assert [layer["layer"] for layer in stored["layers"]] == [0, 2]
    assert stored["layers"][0]["within"] == expected[0].corpus.within
    assert stored["norms"] is None
    assert pq.read_table(tmp_path / "r.parquet").num_rows == expected.to_table().num_rows
    assert "Plotly.newPlot" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert output.count("written:") == 3


def test_json_on_the_screen_is_nothing_but_json(store):
    result = invoke("tokens", str(store), "--json", "-")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["grouping"] == "token type"


def test_groups_by_the_labels_of_a_store(store):
    output = run(store, "--group-by", "label", "--min-count", 1, "--details")
    assert "2 of 2 labels" in output
    assert "fewer than 6" in " ".join(output.split())
    assert "[low, high]" not in output
    with pytest.raises(InputError, match=r"--group-by: received 'word'; allowed: type, label"):
        run(store, "--group-by", "word", "--details")


def test_a_model_with_texts_names_its_norms_and_special_tokens(model):
    folder, texts = model
    output = run(folder, texts, "--min-count", 3, "--details")
    assert "15 texts of texts.jsonl" in output
    assert "post-norm (5 LayerNorm" in output
    assert "1.00 to 1.00" in output
    assert "<s> · 15" in output


def test_groups_by_a_column_of_labels(model):
    folder, texts = model
    output = run(
        folder,
        texts,
        "--column",
        "text",
        "--label-column",
        "kind",
        "--group-by",
        "label",
        "--min-count",
        1,
        "--details",
    )
    assert "2 of 2 labels" in output
    with pytest.raises(InputError, match="--label-column"):
        run(folder, texts, "--column", "text", "--group-by", "label", "--details")


def test_vocabulary_names_the_tokens_of_a_store(model, tmp_path):
    from poolscope.encoders import as_encoder

    folder, _ = model
    ids = tuple(str(k) for k in range(len(TINY_TEXTS)))
    texts = Texts(ids, tuple(TINY_TEXTS), None, "memory", ReadReport(read=5, kept=5))
    encode_to_store(as_encoder(str(folder)), texts, tmp_path / "store", layers=[0, 1])
    run(tmp_path / "store", "--vocabulary", folder, "--parquet", tmp_path / "t.parquet")
    names = set(pq.read_table(tmp_path / "t.parquet").column("name").to_pylist())
    assert {"the", "cat", "<s>", "</s>"} <= names


def test_two_models_beside_each_other(model, store, tmp_path):
    folder, texts = model
    second = save_model(tmp_path / "second", "GPT2")
    output = run(folder, texts, "--compare", second, "--min-count", 3, "--json", tmp_path / "both.json",
                 "--parquet", tmp_path / "both.parquet", "--figure", tmp_path / "both.html", width=300)  # fmt: skip
    assert output.count("all share") == 2
    both = json.loads((tmp_path / "both.json").read_text())["models"]
    assert [part["norms"]["layout"] for part in both] == ["post-norm", "pre-norm"]
    table = pq.read_table(tmp_path / "both.parquet")
    assert len(set(table.column("model").to_pylist())) == 2
    with pytest.raises(InputError, match=r"--compare .*--state"):
        run(store, "--compare", store, "--state", tmp_path / "s.npz")


def test_states_are_saved_continued_and_merged(model, tmp_path):
    folder, texts = model
    lines = texts.read_text().splitlines()
    parts = []
    for number, part in enumerate((lines[:6], lines[6:])):
        source = tmp_path / f"part{number}.jsonl"
        source.write_text("\n".join(part))
        parts.append(tmp_path / f"part{number}.npz")
        run(folder, source, "--column", "text", "--state", parts[-1])
    run(parts[0], "--merge", parts[1], "--min-count", 3, "--json", tmp_path / "merged.json")
    run(folder, texts, "--column", "text", "--min-count", 3, "--json", tmp_path / "whole.json")
    merged, whole = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("merged", "whole"))
    assert merged["coverage"] == whole["coverage"]
    assert merged["layers"][1]["within"] == pytest.approx(whole["layers"][1]["within"], rel=1e-5)  # other batches
    with pytest.raises(InputError, match="apply: TEXTS, --max-length"):
        run(parts[0], texts, "--max-length", 9)


def saved(result, path):
    result.save_state(path)
    return path


def test_merged_shards_and_clouds_are_saved_and_nothing_is_replaced(store, tmp_path):
    shards = [
        saved(token_statistics(WordEncoder(), part), tmp_path / f"{k}.npz")
        for k, part in enumerate((TEXTS[:9], TEXTS[9:]))
    ]
    target = tmp_path / "all.npz"
    assert f"written: {target}" in run(shards[0], "--merge", shards[1], "--state", target, width=300)
    both = load_state(target)
    assert both.texts == len(TEXTS)
    assert summarise(both).coverage == token_statistics(WordEncoder(), TEXTS).coverage
    with pytest.raises(InputError, match=r"all\.npz"):
        run(shards[0], "--merge", shards[1], "--state", target)
    run(store, "--state", tmp_path / "clouds.npz")
    assert load_state(tmp_path / "clouds.npz").tokens == token_statistics(store).coverage.tokens
    with pytest.raises(InputError, match=r"--state .*some/model"):
        run("some/model", "--merge", shards[0], "--state", tmp_path / "new.npz")


def test_options_of_texts_go_to_the_model_and_not_to_what_stands_beside_it(model, store, tmp_path):
    folder, texts = model
    choices = (folder, texts, "--column", "text", "--max-length", 8, "--min-count", 3)
    own = tmp_path / "own.npz"
    run(*choices, "--state", own)
    for beside in (store, own):
        output = run(*choices, "--compare", beside, width=300)
        assert output.count("all share") == 2
    assert "15 texts of texts.jsonl" in run(own, texts, "--column", "text", "--compare", folder)
    run(*choices, "--merge", own, "--json", tmp_path / "twice.json")
    assert json.loads((tmp_path / "twice.json").read_text())["coverage"]["texts"] == 30


@pytest.mark.parametrize(
    ("option", "value"),
    [("--layers", "0"), ("--max-types", "10000"), ("--group-by", "type"), ("--vocabulary", "nosuch"), ("--limit", "0")],
)
def test_a_state_is_measured_already(option, value, tmp_path):
    state = saved(token_statistics(WordEncoder(), TEXTS[:5]), tmp_path / "a.npz")
    with pytest.raises(InputError, match=rf"a state, .*: {option}\."):
        run(state, option, value)


def test_a_vocabulary_is_for_clouds():
    with pytest.raises(InputError, match=r": --vocabulary\. .* clouds"):
        run("no/such/model", "--vocabulary", "nosuch")


def test_the_result_is_shown_before_it_is_written(store, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OutputError("cannot be written")

    monkeypatch.setattr("poolscope.lab.commands.tokens.put_json", fail)
    result = CliRunner().invoke(app, ["tokens", str(store), "--json", str(tmp_path / "r.json")])
    assert isinstance(result.exception, OutputError)
    assert "all share" in result.output


def test_an_interrupted_run_says_how_to_go_on(model, tmp_path, monkeypatch):
    folder, texts = model
    state, first = tmp_path / "run.npz", tmp_path / "first.jsonl"
    first.write_text("".join(texts.read_text().splitlines(keepends=True)[:10]))
    run(folder, first, "--column", "text", "--state", state)

    encode = BatchedEncoder.encode

    def strike(self, texts, **choices):
        if len(texts) == 5:  # those that the first run left
            raise KeyboardInterrupt
        return encode(self, texts, **choices)

    monkeypatch.setattr(BatchedEncoder, "encode", strike)
    run(folder, texts, "--column", "text", "--state", state, expect=130)
    assert f"Progress is saved in {state}" in " ".join(what_is_kept())
    monkeypatch.undo()
    run(folder, texts, "--column", "text", "--state", state, "--json", tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["coverage"]["texts"] == 15


def test_what_cannot_apply_is_refused_before_the_work(store, tmp_path):
    with pytest.raises(InputError, match="apply: --limit"):
        run(store, "--limit", 5)
    with pytest.raises(InputError, match=r"figure .*'\.doc'"):
        run("no/such/model/at/all", "--figure", tmp_path / "figure.doc")
    clouds = tmp_path / "one.arrow"
    WordEncoder().encode(TEXTS, layers=[0])[0].save(clouds)
    with pytest.raises(InputError, match=r"--group-by label: .*one\.arrow"):
        run(clouds, "--group-by", "label")
    with pytest.raises(InputError, match=r"--state: .* ends in \.npz"):
        run(store, "--state", tmp_path / "state.bin")
    with pytest.raises(InputError, match=r"--merge: .*needed: a \.npz file"):
        run(store, "--merge", tmp_path / "none.npz")
    with pytest.raises(InputError, match="--layers: received 'first'"):
        run(store, "--layers", "first")
