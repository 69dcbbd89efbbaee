"""The audit, compare and fix commands through the real parser, on a tiny stored model."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from audit_data import sentences
from command_line import invoke
from command_line import run as run_command
from poolscope import Audit, fix, read_index, write_index
from poolscope.digests import KEY, sealed
from poolscope.encoders import as_encoder
from poolscope.encoders.transformers import OwnCodeWarning
from poolscope.errors import InputError
from poolscope.numbers.pooling import pool
from tiny_models import declare, save_model

run = partial(run_command, "audit")
COUNT = 40
TEXTS = sentences(COUNT, high=20, seed=4)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path_factory, monkeypatch):
    """The default folder is in the current one."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return declare(save_model(tmp_path_factory.mktemp("model")))


def written(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def texts_in(folder, texts):
    return written(folder / "texts.jsonl", [{"id": str(k), "text": text} for k, text in enumerate(texts)])


def queries_in(folder, texts):
    rows = [{"query": " ".join(text.split()[:6]), "relevant": str(k)} for k, text in enumerate(texts)]
    return written(folder / "queries.jsonl", rows)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return texts_in(tmp_path_factory.mktemp("texts"), TEXTS)


@pytest.fixture(scope="module")
def queries(tmp_path_factory):
    return queries_in(tmp_path_factory.mktemp("queries"), TEXTS)


def test_one_screen_of_80_columns_with_what_is_found_and_every_cause(folder, texts, queries, tmp_path):
    output = run(folder, texts, "--queries", queries, "--output", tmp_path / "out")
    found = Audit.load(tmp_path / "out")
    assert found.sentences()[0] in output
    assert max(map(len, output.splitlines())) <= max(80, len(f"page: {tmp_path / 'out' / 'report.html'}"))
    shown = [finding.title for finding in found.findings if finding.reason != "not looked at"]
    assert all(title in output for title in shown)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert found.sentences()[0] in page


def test_files_go_to_a_folder_of_their_own_or_nowhere(folder, texts, queries):
    quick = (folder, texts, "--queries", queries, "--no-encode", "--no-page")
    run(*quick, "--no-files")
    assert not Path("poolscope-audit").exists()
    run(*quick)
    assert Path("poolscope-audit", "audit.json").exists()
    assert not Path("poolscope-audit", "report.html").exists()


def test_a_file_in_the_place_of_the_folder_is_named_before_the_work(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"output: .*/file"):
        run("no-such-model-folder/at/all", "--output", tmp_path / "file")


def test_json_to_the_screen_is_json_and_nothing_else(folder, texts, queries):
    result = invoke("audit", folder, texts, "--queries", queries, "--no-encode", "--json", "-", "--no-files")
    assert json.loads(result.stdout)["corpus"]["texts"] == COUNT


def test_fail_on_sets_the_exit_code(folder, texts, queries, tmp_path):
    quick = (folder, texts, "--queries", queries, "--no-encode", "--no-files")
    clouds = as_encoder(folder).encode(TEXTS)[-1]
    np.save(tmp_path / "cls.npy", pool(clouds, "cls").astype(np.float32))
    np.save(tmp_path / "mean.npy", pool(clouds, "mean").astype(np.float32))
    assert "(--fail-on fix)" in run(*quick, "--vectors", tmp_path / "cls.npy", "--fail-on", "fix", expect=1)
    run(*quick, "--vectors", tmp_path / "mean.npy", "--matters", 0.9, "--fail-on", "fix")
    with pytest.raises(InputError, match="--fail-on everything"):
        run(*quick, "--fail-on", "everything")


def test_what_a_server_did_is_named(folder, texts, queries, tmp_path):
    clouds = as_encoder(folder).encode(TEXTS)[-1]
    np.save(tmp_path / "mine.npy", pool(clouds, "cls").astype(np.float32))
    output = run(folder, texts, "--queries", queries, "--vectors", tmp_path / "mine.npy", "--no-encode", "--no-files")
    assert "cls" in output


def test_clouds_in_place_of_a_model_have_symptoms_only(folder, texts, tmp_path):
    as_encoder(folder).encode(TEXTS)[-1].save(tmp_path / "clouds.arrow")
    output = run(tmp_path / "clouds.arrow", "--output", tmp_path / "out")
    assert Audit.load(tmp_path / "out").queries == 0
    assert "--queries" in output
    with pytest.raises(InputError, match="apply: TEXTS, limit"):
        run(tmp_path / "clouds.arrow", texts, "--limit", 5)


def test_quiet_says_nothing_and_writes_verbose_says_what_it_took_and_both_are_refused(folder, texts, queries, tmp_path):
    quick = ("audit", folder, texts, "--queries", queries, "--no-encode", "--no-page", "--output", tmp_path)
    assert invoke(*quick, "--quiet").output == ""
    assert (tmp_path / "audit.json").exists()
    assert "token clouds" in invoke(*quick, "--verbose").output
    with pytest.raises(InputError, match="--quiet and --verbose"):
        invoke(*quick, "-q", "-v")


def test_two_audits_are_compared_and_a_worse_one_fails(folder, texts, queries, tmp_path):
    for name, extra in (("a", ()), ("b", ("--max-length", 4))):
        run(folder, texts, "--queries", queries, "--no-encode", "--no-page", "--output", tmp_path / name, *extra)
    output = run_command("compare", tmp_path / "a", tmp_path / "b", "--output", tmp_path / "c")
    assert f"of {COUNT} queries" in " ".join(output.split())
    assert (tmp_path / "c" / "comparison.json").exists()
    same = run_command("compare", tmp_path / "a", tmp_path / "a", "--fail-on", "worse")
    assert "+0.000" in same
    with pytest.raises(InputError, match="worse"):
        run_command("compare", tmp_path / "a", tmp_path / "b", "--fail-on", "everything")


def test_a_card_for_a_pull_request(folder, texts, queries, tmp_path):
    quick = (folder, texts, "--queries", queries, "--no-encode", "--no-files")
    run(*quick, "--card", tmp_path / "card.md")
    assert (tmp_path / "card.md").read_text(encoding="utf-8").startswith("**")


@pytest.mark.parametrize(
    ("cure", "files"),
    [
        ("maxsim", ["setting.json"]),
        ("mean-projected", ["repair.safetensors", "vectors.parquet"]),
        ("length-offset", ["offsets.npy", "setting.json"]),
        ("hubs-by-queries", ["offsets.npy", "setting.json"]),
        ("temperature", ["repair.safetensors"]),
    ],
)
def test_a_cure_is_carried_out_and_shown_before_and_after(folder, texts, queries, tmp_path, cure, files):
    carry_out(folder, texts, queries, tmp_path, cure, files)


def test_late_chunks_are_carried_out_as_several_vectors_a_text(tmp_path):
    model = declare(save_model(tmp_path / "model", max_position_embeddings=160), bert={"max_seq_length": 150})
    long = sentences(COUNT, low=70, high=140, seed=4)
    texts, queries = texts_in(tmp_path, long), queries_in(tmp_path, long)
    carry_out(model, texts, queries, tmp_path, "late-chunks-64", ["setting.json", "vectors.parquet"])


def carry_out(folder, texts, queries, tmp_path, cure, files):
    run(folder, texts, "--queries", queries, "--no-page", "--output", tmp_path / "a")
    trials = Audit.load(tmp_path / "a").trials
    tried, trial = len(trials), next(each for each in trials if each.name == cure)
    told = run_command("fix", tmp_path / "a", "--cure", cure, "--dry-run", "-o", tmp_path / "f")
    assert not (tmp_path / "f").exists()
    assert files[0] in told
    run_command("fix", tmp_path / "a", "--cure", cure, "-o", tmp_path / "f", "--json", tmp_path / "f.json")
    assert {path.name for path in (tmp_path / "f").iterdir() if not path.name.startswith(".")} == set(files)
    if "setting.json" in files:  # whole words, no template
        assert "{" not in json.loads((tmp_path / "f" / "setting.json").read_text())["does"]
    change = json.loads((tmp_path / "f.json").read_text())["change"]
    assert change["queries"] == COUNT
    if trial.queries == COUNT:  # what was proposed is what was done: the same change as on trial
        assert change["gain"]["value"] == pytest.approx(trial.gain.value_or_raise, abs=2e-3)
    assert json.loads((tmp_path / "f.json").read_text())["unproven"] == (0 if trial.proven else tried)


@pytest.mark.parametrize("cure", ["stripped", "merged-copies", "chunks-that-fit"])
def test_a_cure_without_its_cause_is_not_carried_out(folder, texts, queries, tmp_path, cure):
    run(folder, texts, "--queries", queries, "--no-page", "--no-encode", "--output", tmp_path / "a")
    with pytest.raises(InputError, match=cure):
        run_command("fix", tmp_path / "a", "--cure", cure, "-o", tmp_path / "f")


def test_a_temperature_is_refused_for_a_model_without_attention_and_nothing_is_written(texts, queries, tmp_path):
    run("builtin:wordllama", texts, "--queries", queries, "--no-page", "--output", tmp_path / "a")
    with pytest.raises(InputError, match="--cure temperature"):
        run_command("fix", tmp_path / "a", "--cure", "temperature", "-o", tmp_path / "f")
    assert not (tmp_path / "f").exists()


def test_merged_copies_of_documents_keep_their_answers(folder, tmp_path):
    rows = [{"id": f"d{k}#{n}", "text": text} for k in range(COUNT) for n, text in enumerate((TEXTS[0], TEXTS[k]))]
    asked = [{"query": TEXTS[k].split(maxsplit=3)[-1], "relevant": f"d{k}"} for k in range(1, COUNT)]
    for name, lines in (("pages", rows), ("asked", asked)):
        text = "".join(f"{json.dumps(row)}\n" for row in lines)
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    run(folder, tmp_path / "pages.jsonl", "--queries", tmp_path / "asked.jsonl", "--no-page", "-o", tmp_path / "a")
    run_command("fix", tmp_path / "a", "-o", tmp_path / "f", "--json", tmp_path / "f.json")  # the decision
    done = json.loads((tmp_path / "f.json").read_text())
    assert done["cure"] == "merged-copies"
    kept = (tmp_path / "f" / "texts.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(kept) == len(set(TEXTS))
    # Without the text that all documents share nothing is found less.
    assert done["change"]["gain"]["value"] >= 0
    assert done["change"]["found_after"] >= done["change"]["found_before"]


def test_chunks_that_fit_are_written_and_joined_by_query(folder, queries, tmp_path):
    rows = [
        {"id": str(k), "text": f"{TEXTS[k]} {text}"} for k, text in enumerate(sentences(COUNT, low=30, high=60, seed=4))
    ]
    (tmp_path / "long.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    run(folder, tmp_path / "long.jsonl", "--queries", queries, "--max-length", 16, "--no-page", "-o", tmp_path / "a")
    run_command("fix", tmp_path / "a", "--cure", "chunks-that-fit", "-o", tmp_path / "f", "--json", tmp_path / "f.json")
    lines = (tmp_path / "f" / "chunks.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) > COUNT
    assert json.loads((tmp_path / "f.json").read_text())["change"]["queries"] == COUNT


def test_changed_vectors_go_into_a_new_collection_and_never_over_an_old_one(folder, texts, queries, tmp_path):
    run(folder, texts, "--queries", queries, "--no-page", "--output", tmp_path / "a")
    call = ("fix", tmp_path / "a", "--cure", "mean-projected", "--into", tmp_path / "new.npz")
    run_command(*call, "-o", tmp_path / "f")
    written = read_index(tmp_path / "new.npz")
    assert written.ids == tuple(map(str, range(COUNT)))
    assert np.abs(written.vectors.mean(axis=0)).max() < 0.1
    run_command(*call, "-o", tmp_path / "g")  # the same vectors are there already
    other = ["mean-subtracted" if each == "mean-projected" else each for each in call]
    with pytest.raises(InputError, match=r"new\.npz"):
        run_command(*other, "-o", tmp_path / "h")
    with pytest.raises(InputError, match="maxsim"):
        run_command("fix", tmp_path / "a", "--cure", "maxsim", "--into", tmp_path / "b.npz")
    with pytest.raises(InputError, match="no place"):  # said before the work, in a dry run too
        run_command("fix", tmp_path / "a", "--cure", "mean-projected", "--into", "nowhere://x", "--dry-run")


def test_a_fix_goes_on_after_its_vectors_were_written_and_changes_nothing_that_it_read(
    folder, texts, queries, tmp_path, monkeypatch
):
    run(folder, texts, "--queries", queries, "--no-page", "--output", tmp_path / "a")
    call = ("fix", tmp_path / "a", "--cure", "mean-projected", "-o", tmp_path / "f")
    with monkeypatch.context() as stopped:
        stopped.setattr("poolscope.auditing.fix._Work.measured", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fix(tmp_path / "a", tmp_path / "f", cure="mean-projected")
    written = (tmp_path / "f" / "vectors.parquet").read_bytes()
    run_command(*call, "--json", tmp_path / "f.json")
    assert json.loads((tmp_path / "f.json").read_text())["change"]["queries"] == COUNT
    assert (tmp_path / "f" / "vectors.parquet").read_bytes() == written
    other = ("fix", tmp_path / "a", "--cure", "mean-subtracted", "-o", tmp_path / "f")
    with pytest.raises(InputError, match=r"f.vectors\.parquet"):
        run_command(*other)
    assert (tmp_path / "f" / "vectors.parquet").read_bytes() == written
    (tmp_path / "b").mkdir()
    mine = tmp_path / "b" / "texts.jsonl"
    mine.write_bytes(texts.read_bytes())
    run(folder, mine, "--queries", queries, "--no-page", "--output", tmp_path / "c")
    with pytest.raises(InputError, match=r"texts\.jsonl"):
        run_command("fix", tmp_path / "c", "--cure", "stripped", "-o", tmp_path / "b")
    assert mine.read_bytes() == texts.read_bytes()


def test_an_index_is_fixed_by_the_model_that_made_it(folder, texts, queries, tmp_path):
    vectors = pool(as_encoder(folder).encode(TEXTS)[-1], "mean")
    write_index(tmp_path / "index.parquet", vectors + 2, ids=[str(k) for k in range(COUNT)], texts=TEXTS)
    run(tmp_path / "index.parquet", "--reference", folder, "--queries", queries, "--no-page", "-o", tmp_path / "a")
    call = ("fix", tmp_path / "a", "--cure", "mean-subtracted", "-o", tmp_path / "f", "--json", tmp_path / "f.json")
    run_command(*call)
    assert json.loads((tmp_path / "f.json").read_text())["change"]["queries"] == COUNT
    assert len(read_index(tmp_path / "f" / "vectors.parquet")) == COUNT


def test_an_audit_without_a_proven_cure_asks_for_a_name(folder, texts, queries, tmp_path):
    run(folder, texts, "--queries", queries, "--no-encode", "--no-page", "--output", tmp_path / "a")
    if not Audit.load(tmp_path / "a").decision.step:
        with pytest.raises(InputError, match="--cure"):
            run_command("fix", tmp_path / "a", "-o", tmp_path / "f")
    with pytest.raises(InputError, match="--cure magic"):
        run_command("fix", tmp_path / "a", "--cure", "magic", "-o", tmp_path / "f")


def received(folder, **options):
    """Turn an audit into one that someone else hands over: another model and options are written into it."""
    path = folder / "audit.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["provenance"]["called"]["options"] |= options
    path.write_text(json.dumps(sealed({key: value for key, value in content.items() if key != KEY})), encoding="utf-8")
    return folder


def test_an_audit_of_someone_else_names_nothing_that_fix_opens(folder, texts, queries, tmp_path):
    run(folder, texts, "--queries", queries, "--no-encode", "--no-page", "--output", tmp_path / "a")
    fix = ("fix", received(tmp_path / "a", batch_tokens=512), "--cure", "maxsim", "-o", tmp_path / "f")
    with pytest.raises(InputError, match=str(queries)):
        run_command(*fix)
    assert not (tmp_path / "f").exists()
    run_command(*fix, "--trust")
    assert (tmp_path / "f" / "setting.json").exists()


def test_an_audit_of_someone_else_runs_no_code(texts, queries, tmp_path):
    model = declare(save_model(tmp_path / "model"))
    run(model, texts, "--queries", queries, "--no-encode", "--no-page", "--output", tmp_path / "a")
    settings = json.loads((model / "config.json").read_text(encoding="utf-8"))
    settings["auto_map"] = {"AutoModel": "evil.Model", "AutoConfig": "evil.Config"}
    (model / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    (model / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')", encoding="utf-8")
    audit = received(tmp_path / "a", trust_remote_code=True, allow_pickle=True)
    with pytest.warns(OwnCodeWarning):
        run_command("fix", audit, "--cure", "maxsim", "--trust", "-o", tmp_path / "f")
    assert not (tmp_path / "ran").exists()


# -- calibrate --------------------------------------------------------------------------------------------------------


def test_calibrate_prints_a_row_a_world_and_writes_it(folder, texts, tmp_path):
    queries = tmp_path / "queries.jsonl"
    queries.write_text("\n".join(json.dumps({"query": text, "relevant": str(k)}) for k, text in enumerate(TEXTS)))
    chosen = ("--world", "random relevance", "--world", "copies", "--runs", 2, "--texts", 30, "--queries-count", 20)
    shown = run_command(
        "calibrate", texts, "--model", folder, "--queries", queries, *chosen, "--json", tmp_path / "c.json"
    )
    written = json.loads((tmp_path / "c.json").read_text())
    assert [(row["world"], row["runs"], row["count"]) for row in written["worlds"]] == [
        ("random relevance", 2, 0),
        ("copies", 2, 2),
    ]
    assert all(len(line) <= 80 for line in shown.splitlines() if not line.startswith("written"))
    assert "copies" in shown
    assert "duplicates" in shown
    with pytest.raises(InputError):
        run_command("calibrate", texts, "--model", folder, "--queries", queries, "--world", "nowhere")


@pytest.mark.parametrize(
    ("command", "cause", "name", "asks"),
    [("hubs", "hubs", "largest", True), ("spread", "shared-direction", "mean_cosine", False)],
)
def test_a_command_of_one_number_shows_that_of_the_audit(folder, tmp_path, command, cause, name, asks):
    rows = [{"id": f"d{k // 2}#{k % 2}", "text": text} for k, text in enumerate(TEXTS)]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    asked = [{"query": " ".join(row["text"].split()[:6]), "relevant": row["id"]} for row in rows]
    (tmp_path / "q.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in asked), encoding="utf-8")
    given = (folder, tmp_path / "t.jsonl", "--queries", tmp_path / "q.jsonl")
    run(*given, "--no-page", "--no-encode", "-o", tmp_path / "a")
    run_command(command, *(given if asks else given[:2]), "--id-column", "id", "--json", tmp_path / "n.json")
    number = Audit.load(tmp_path / "a")[cause].number
    content = json.loads((tmp_path / "n.json").read_text())
    alone = content.get("shared", content)[name]
    assert alone["value"] == pytest.approx(number.value_or_raise)
    if number.interval is not None:
        assert alone["interval"]["unit"] == "documents"
        assert alone["interval"]["low"] == pytest.approx(number.interval.low)
