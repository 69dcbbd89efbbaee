"""The audit of a server: only pooled vectors can be had, and everything that these allow is answered."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from audit_data import topics
from command_line import invoke, run
from poolscope import audit, check_runtime
from poolscope.encoders.endpoint import Endpoint
from poolscope.encoders.http import EndpointError
from poolscope.errors import InputError
from runtime_server import Words, serving

TEXTS = topics(60)


@pytest.fixture(scope="module")
def server():
    with serving(Words()) as running:
        yield running


def test_a_server_is_audited_as_its_vectors_are(server):
    found = audit(server.url, TEXTS, trial_texts=0)
    alone = audit(np.array(Words().embed(TEXTS), dtype=np.float32), TEXTS, trial_texts=0)
    assert found.verdicts.keys() == alone.verdicts.keys()
    for key, verdict in alone.verdicts.items():
        assert found.verdicts[key].level == verdict.level
        assert found.verdicts[key].value == pytest.approx(verdict.value)
    assert found["averaging"].verdict.level == "unchecked"
    assert any(answer.verdict.level != "unchecked" for answer in found.answers)


def test_the_command_takes_an_address_and_writes_no_key(server, tmp_path, monkeypatch):
    monkeypatch.setenv("SERVER_KEY", "sk-secret")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    called = ("audit", server.url, tmp_path / "texts.txt", "--no-page", "-o", tmp_path / "audit", "--trial", 0)
    run(*called, "--server-model", "words", "--key-variable", "SERVER_KEY")
    assert server.asked[-1]["model"] == "words"
    assert server.headers[-1]["Authorization"] == "Bearer sk-secret"
    written = (tmp_path / "audit" / "audit.json").read_text()
    assert "sk-secret" not in written
    assert json.loads(written)["corpus"]["texts"] == 60


def test_what_cannot_be_is_refused(server):
    with pytest.raises(InputError, match="texts: received none for a server"):
        audit(Endpoint(server.url))
    with pytest.raises(InputError, match="max_length, which are for a model"):
        audit(server.url, TEXTS, max_length=5)
    with pytest.raises(InputError, match="for the address of a server"):
        invoke("audit", "builtin:minilm", "--server-model", "x")


@pytest.mark.parametrize("fault", ["429", "500", "401", "html", "nan", "few", "ragged", "changing", "stops", "absent"])
@pytest.mark.parametrize("door", ["audit", "runtime"])
def test_every_bad_end_is_one_line_and_what_was_answered_is_kept(tmp_path, monkeypatch, fault, door):
    monkeypatch.setenv("POOLSCOPE_CACHE", str(tmp_path))
    with serving(Words()) as running:
        running.fault, running.key = ("", "another") if fault == "401" else (fault, None)
        quick = {"protocol": "openai", "retries": 0, "batch": 8, "concurrency": 1, "pause": 0}
        asked = Endpoint("http://127.0.0.1:9/v1/embeddings" if fault == "absent" else running.url, **quick)
        called = {
            "audit": lambda: audit(asked, TEXTS, cache=True, trial_texts=0),
            "runtime": lambda: check_runtime(asked, lambda texts: [[row] for row in Words().embed(texts)]),
        }[door]
        with pytest.raises(EndpointError) as ended:
            called()
        assert "\n" not in str(ended.value)
        assert str(ended.value).endswith(".")
        if door == "audit" and fault != "absent":  # once it is mended the run goes on
            assert re.search(r"\d+ of 60 texts", str(ended.value))
            running.fault, running.key = "", None
            assert audit(asked, TEXTS, cache=True, trial_texts=0).corpus["texts"] == 60


def test_an_embedding_object_is_a_source_too(server):
    class Embeddings:
        def embed_documents(self, texts):
            return Words().embed(texts)

    found = audit(Embeddings(), TEXTS, trial_texts=0)
    assert found.model["name"] == "Embeddings"
    assert found["scores"].verdict.value == audit(server.url, TEXTS, trial_texts=0)["scores"].verdict.value
