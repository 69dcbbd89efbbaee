"""Where models and their numbers come from: audits, tables, folders of MTEB results; which model is which."""

from __future__ import annotations

import json
import re

import pytest

from evidence_data import audit, mteb_result
from poolscope.encoders import as_encoder
from poolscope.errors import InputError
from poolscope.lab.correlate.model_records import (
    ModelRecord,
    ModelRecords,
    join,
    read_audits,
    read_model_table,
    read_mteb_results,
)
from tiny_models import save_model, tiny_model


def named(source, *names, **options):
    return ModelRecords(source, tuple(ModelRecord(name, {"x": 1.0}) for name in names), **options)


# -- audits and tables --------------------------------------------------------------------------------------------


def test_audits_from_files_and_folders(tmp_path):
    first = audit(tmp_path / "a.json", "org/a", {"socm": 0.1, "floor": None}, dimension=384, parameters=22_000_000)
    second = audit(tmp_path / "b" / "audit.json", "org/b", {"socm": 0.2, "dimension": 768}).parent
    found = read_audits([first, second])
    assert [record.name for record in found.records] == ["org/a", "org/b"]
    assert [dict(record.numbers) for record in found.records] == [{"socm": 0.1}, {"socm": 0.2}]
    assert found.records[0].traits == {"parameters": 22e6, "dimension": 384.0}
    assert found.records[1].traits == {"dimension": 768.0}
    assert found.notes == ()
    with pytest.raises(InputError, match=r"one .* org/a"):
        read_audits([first, first])


def test_a_real_card_gives_its_parameters_to_control_for(tmp_path):
    card = as_encoder(save_model(tmp_path / "model")).card.to_dict()
    (found,) = read_audits([audit(tmp_path / "a.json", numbers={"socm": 0.1}, **card)]).records
    expected = sum(weights.numel() for weights in tiny_model().parameters())
    assert found.traits == {"parameters": expected, "dimension": card["dimension"]}


def test_audits_of_different_texts_are_called_so(tmp_path):
    numbers = {"socm": 0.1, "proven": True}
    paths = [audit(tmp_path / f"{name}.json", name, numbers, corpus=name) for name in ("a", "b")]
    found = read_audits(paths)
    assert found.records[0].numbers["proven"] == 1.0
    assert len(found.notes) == 1
    assert "2 corpora" in found.notes[0]


def test_what_is_no_audit_is_refused(tmp_path):
    (tmp_path / "bad.json").write_text('{"model": {"name": "a"}}', encoding="utf-8")
    for path in (tmp_path / "bad.json", tmp_path / "missing.json", tmp_path):
        with pytest.raises(InputError, match=rf"{re.escape(str(path))}.*: .*'findings'"):
            read_audits([path])
    with pytest.raises(InputError, match=r"'socm' .*'high'"):
        read_audits([audit(tmp_path / "c.json", "c", {"socm": "high"})])


def test_a_table_of_models(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(
        "model,aliases,family,parameters,mteb,sts,licence\n"
        "org/a,a-small; A1,X,100,60.5,,mit\n"
        "org/b,,,200,61,0.8,apache\n\n",
        encoding="utf-8",
    )
    found = read_model_table(path)
    first, second = found.records
    assert (first.name, first.aliases, first.family) == ("org/a", ("a-small", "A1"), "X")
    assert (dict(first.numbers), dict(first.traits)) == ({"mteb": 60.5}, {"parameters": 100.0})
    assert (second.family, dict(second.numbers)) == (None, {"mteb": 61.0, "sts": 0.8})
    assert found.numbers == ("mteb", "sts")
    assert len(found.notes) == 1
    assert found.notes[0].endswith(": licence.")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name,x\na,1", "no column 'model'"),
        ("model,x\n,1", "row 1 .* model"),
        ("model,x\na,1\na,2", r"more than .* a\b"),
        ("model,x\na,1\nb,inf", "column 'x' holds 'inf'"),
        ("model,x\na,1\nb,2\nc,61%", "row 3, column 'x' .*'61%'"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, content, message):
    (tmp_path / "t.csv").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_model_table(tmp_path / "t.csv")


# -- which model is which -----------------------------------------------------------------------------------------


def test_names_match_by_organisation_case_alias_and_last_part():
    left = named("metrics", "intfloat/e5-base-v2", "all-MiniLM-L6-v2", "thenlper/gte-base", "mine")
    aliased = ModelRecord("runs/17", {"y": 1.0}, aliases=("mine",))
    right = ModelRecords(
        "scores", (*named("", "Intfloat__E5-base-v2", "org/all-MiniLM-L6-v2", "who/gte-base").records, aliased)
    )
    found = join(left, right)
    assert [model.name for model in found.models] == ["intfloat/e5-base-v2", "all-MiniLM-L6-v2", "mine"]
    assert found.only_metrics == ("thenlper/gte-base",)  # another organisation is another model
    assert found.only_scores == ("who/gte-base",)
    assert [model.family for model in found.models] == ["BERT", "all-MiniLM-L6-v2", "mine"]


def test_names_that_may_mean_several_models_are_refused():
    with pytest.raises(InputError, match=r"gte-base .* a/gte-base, b/gte-base"):
        join(named("m", "gte-base"), named("s", "a/gte-base", "b/gte-base"))
    with pytest.raises(InputError, match=r"gte-base .* a/gte-base .* b/gte-base"):
        join(named("m", "a/gte-base", "b/gte-base"), named("s", "gte-base"))


# -- MTEB ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mteb_folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("mteb")
    for revision in ("r1", "r3", "r4"):
        mteb_result(root, "made/one", revision, "STS12", 0.5)
    mteb_result(root, "made/one", "r2", "STS12", 0.6, version="2.9.0")
    mteb_result(root, "made/one", "r1", "Banking77Classification", 0.8)
    card = mteb_result(root, "made/two", "r1", "STS12", 0.7, splits=("validation", "test")) / "model_meta.json"
    card.write_text(json.dumps({"name": "made/two", "revision": "r1", "n_parameters": 33_000_000, "embed_dim": 384}))
    return root


def test_mteb_results_by_mtebs_own_loader(mteb_folder):
    found = read_mteb_results(mteb_folder)
    assert found.tasks
    one, two = found.records
    assert dict(one.numbers) == {"STS12": 0.6, "Banking77Classification": 0.8}  # of four revisions the newest run
    assert dict(two.numbers) == pytest.approx({"STS12": 1.2})  # mean over the splits in the file
    assert dict(two.traits) == {"parameters": 33e6, "dimension": 384.0}
    assert read_mteb_results(mteb_folder / "results").records == found.records


def test_a_benchmark_takes_its_tasks_and_splits(mteb_folder):
    found = read_mteb_results(mteb_folder, benchmark="MTEB(eng, v2)")
    one, two = found.records
    assert dict(two.numbers) == pytest.approx({"STS12": 1.7})  # the test split alone
    assert set(one.numbers) == {"STS12", "Banking77Classification"}
    with pytest.raises(InputError, match=r"benchmark: .*'MTEB\(nowhere\)'"):
        read_mteb_results(mteb_folder, benchmark="MTEB(nowhere)")


def test_folders_without_results_are_refused_and_left_alone(tmp_path):
    with pytest.raises(InputError, match=r"/none: .*folder"):
        read_mteb_results(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(InputError, match="without 'results'"):
        read_mteb_results(tmp_path)
    (tmp_path / "results").mkdir()
    with pytest.raises(InputError, match="results/ORGANISATION__MODEL"):
        read_mteb_results(tmp_path)
