"""Suggested commands: quoted, with the options of the audit, and accepted by the real parser."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import numpy as np
import pytest

from audit_data import bag_of_words, sentences, topics
from command_line import commands, run
from poolscope.auditing.commands import Named, calling
from poolscope.auditing.result import Audit
from poolscope.auditing.run import audit
from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.texts import read_texts
from tiny_models import declare, save_model

READING = {"column": "the body", "id_column": "name", "limit": 50, "seed": 3}
OPTIONS = {"max_length": 16, "prompt": "- query: ", "trust_remote_code": True}
SETTINGS = {"trial": 0, "threshold": {"cut_watch": 0.02, "cut_off_watch": -1.0}}


def parsed(line: str) -> list[dict]:
    """The parameters of each command of a line, as the application itself reads them."""
    known = commands()
    found = []
    for part in line.split(" && "):
        program, verb, *arguments = shlex.split(part)
        assert program == "poolscope"
        found.append(known[verb].make_context(verb, arguments).params)
    return found


@pytest.mark.parametrize("verb", ["audit", "length", "tune", "chunk"])
def test_names_and_options_come_through_the_parser_as_they_were(verb):
    named = Named("my models/one; rm", "it's here.csv", READING, OPTIONS, SETTINGS)
    more = {"output": "chunks.jsonl"} if verb == "chunk" else {}
    (found,) = parsed(named.command(verb, **more))
    assert (found["model"], found["texts"]) == ("my models/one; rm", "it's here.csv")
    assert found["seed"] == 3
    assert (found["max_length"], found["prompt"], found["trust_remote_code"]) == (16, "- query: ", True)
    assert found["columns" if verb == "tune" else "column"] == "the body"
    assert found["limit"] == 50
    if verb != "tune":
        assert found["id_column"] == "name"
    if verb == "audit":
        assert found["trial"] == 0
    if verb in ("audit", "length"):  # both judge by them
        assert list(found["threshold"]) == ["cut_watch=0.02", "cut_off_watch=-1.0"]


def test_what_was_not_said_is_not_said_again():
    assert Named("m", "t.txt", {"column": None, "seed": 0}).command("audit") == "poolscope audit m t.txt"
    assert Named("m", "").command("audit", fail_on="watch") == "poolscope audit m --fail-on watch"


def test_chunks_are_cut_from_the_texts_and_audited_with_the_same_model():
    named = Named("m", "t.csv", READING, OPTIONS, {**SETTINGS, "vectors": "mine.npy"})
    cut, again = parsed(named.rechunk(tokens=40))
    assert (cut["texts"], cut["tokens"], str(cut["output"])) == ("t.csv", 40, again["texts"])
    assert (again["column"], again["limit"], again["vectors"]) == (None, None, None)
    assert cut["max_length"] == again["max_length"] == 16


@pytest.mark.parametrize(
    ("group", "carried"), [("file", "file"), ("name", "document_id"), ("group", None), ("id", None), (None, None)]
)
def test_chunks_are_audited_by_the_same_documents(group, carried):
    """`name` has the ids of the texts; a column that chunks have of their own is not that of the texts."""
    line = Named("m", "t.csv", {**READING, "group": group}, queries="q.jsonl").rechunk(tokens=40)
    assert parsed(line)[1]["group"] == carried


def test_chunks_have_the_column_that_the_next_audit_names(tmp_path):
    path = tmp_path / "t.jsonl"
    rows = [{"text": f"one two three {k} four five", "file": f"f{k // 3}"} for k in range(12)]
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    line = Named("builtin:wordllama", str(path), {"column": "text", "group": "file"}).rechunk(tokens=4)
    for part in line.replace("t-chunks.jsonl", str(tmp_path / "t-chunks.jsonl")).split(" && "):
        told = run(*shlex.split(part)[1:], *(["--no-files", "--trial", 0] if " audit " in part else []))
    assert "4 documents by column 'file'" in told


def test_a_command_without_roles_gets_the_prompt_itself():
    (found,) = parsed(Named("m", "t.txt", {}, {"role": "document"}).command("tune", prompt="passage: "))
    assert found["prompt"] == "passage: "
    (found,) = parsed(Named("m", "t.txt", {}, {"role": "document"}).command("length", prompt="passage: "))
    assert found["role"] == "document"


def test_objects_in_memory_get_calls_in_python():
    named = Named(None, None, {"seed": 2}, {"max_length": 8}, SETTINGS)
    assert named.command("tune") == "poolscope.tune(model, texts, seed=2, max_length=8)"
    assert named.command("length") == (
        "poolscope.length_verdicts(poolscope.length_report(model, texts, seed=2, max_length=8), "
        "{'cut_watch': 0.02, 'cut_off_watch': -1.0})"
    )
    assert named.command("audit").endswith("trial_texts=0, thresholds={'cut_watch': 0.02, 'cut_off_watch': -1.0})")
    assert Named(None, "t.txt").command("tune") == "poolscope.tune(model, poolscope.read_texts('t.txt', limit=None))"
    assert Named(None, "t.txt").command("audit") == "poolscope.audit(model, 't.txt')"
    assert named.rechunk() is None
    assert named.command("audit", fail_on="watch") is None


def suggestions(found: Audit) -> list[str]:
    return [answer.action.command for answer in found.answers if answer.action and answer.action.command]


# Every question asks for something: the commands of all of them are seen.
EVERYTHING = dict.fromkeys(("cut_off_watch", "short_watch", "length_watch", "position_watch"), -9.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = save_model(tmp_path_factory.mktemp("a model"))
    return declare(folder, prompts={"query": "query : ", "document": "document : "})


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("my texts") / "long ones.txt"
    path.write_text("\n".join(sentences(40, high=60)) + "\n", encoding="utf-8")
    return path


def test_every_suggestion_of_an_audit_is_accepted_by_the_parser(model, texts):
    named = Named(str(model), str(texts), {"seed": 0}, {"max_length": 24}, {"trial": 20, "threshold": EVERYTHING})
    with calling(named):
        found = audit(model, texts, thresholds=EVERYTHING, trial_texts=20, max_length=24)
    lines = suggestions(found)
    assert {line.split()[1] for line in lines} >= {"audit", "chunk"}
    for line in lines:
        for parameters in parsed(line):
            assert parameters["model"] == str(model)
            assert parameters["max_length"] == 24
    assert parsed(found["pooling"].action.command)[0]["role"] == "document"
    assert parsed(found["truncation"].action.command)[0]["texts"] == str(texts)
    (whole,) = parsed(named.without("max_length").command("audit"))
    assert (whole["texts"], whole["max_length"], whole["trial"]) == (str(texts), None, 20)


def test_ready_clouds_are_not_sent_to_commands_that_need_a_model(model, texts, tmp_path):
    path = tmp_path / "clouds.arrow"
    as_encoder(model).encode(texts.read_text().splitlines())[-1].save(path)
    lines = suggestions(audit(path, thresholds=EVERYTHING))
    assert all(line.startswith("poolscope audit ") for line in lines)
    kept = TokenClouds.from_arrays(bag_of_words(topics(40)))
    assert suggestions(audit(kept, thresholds=EVERYTHING)) == []


def test_texts_of_an_unknown_reading_are_not_named_on_a_command_line(model, texts):
    found = audit(str(model), read_texts(texts, limit=40), thresholds=EVERYTHING, trial_texts=0)
    assert suggestions(found)
    assert all(line.startswith("poolscope.") and ", texts" in line for line in suggestions(found))


def test_vectors_of_a_file_are_named_again_and_an_array_is_not(model, texts):
    wrong = np.random.default_rng(0).normal(size=(40, 16))
    found = audit(model, texts, vectors=wrong, trial_texts=0)
    assert found["pooling"].action.command is None
    named = Named(str(model), str(texts), settings={"vectors": "mine.npy"})
    with calling(named):
        again = audit(model, texts, vectors=wrong, trial_texts=0)["pooling"].action.command
    assert str(parsed(again)[0]["vectors"]) == "mine.npy"


def test_what_was_called_in_python_is_answered_in_python_where_there_is_a_call():
    named = Named("org/model", "texts.csv", {"seed": 0}, python=True)
    assert named.command("audit", trial=40) == "poolscope.audit('org/model', 'texts.csv', trial_texts=40)"
    assert named.command("chunk", output="x").startswith("poolscope chunk org/model texts.csv")  # no call does it all
    assert replace(named, python=False).command("audit", trial=40).startswith("poolscope audit org/model")
