"""Figure 1b with a language model that shortens texts, behind an endpoint on this machine."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from poolscope import as_encoder, read_texts
from poolscope.errors import InputError, PoolscopeError
from poolscope.lab.papers import length_symptoms
from poolscope.lab.papers.cell import Material
from poolscope.lab.papers.rewriting import Rewriter
from tiny_models import WORDS, save_model

RANDOM = np.random.default_rng(6)
TEXTS = [" ".join(RANDOM.choice(WORDS, size=length)) for length in RANDOM.integers(15, 30, size=12)]


@pytest.fixture
def served():
    """Answers with the first words of the text: two for the prompt of ten tokens, else five; one text gets nothing."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, body))
            prompt = body["messages"][0]["content"]
            words = next(text for text in TEXTS if text in prompt).split()
            content = "" if TEXTS[3] in prompt else " ".join(words[: 2 if "10 tokens" in prompt else 5])
            answer = {"choices": [{"message": {"content": content}}]} if body["model"] == "small" else {"odd": 1}
            written = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)

        def log_message(self, *_):
            """Nothing on the screen."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", asked
    server.shutdown()
    server.server_close()


def test_the_model_shortens_by_the_prompts_of_the_paper(served, tmp_path):
    url, asked = served
    encoder = as_encoder(save_model(tmp_path / "tiny"))
    material = Material(encoder, read_texts(TEXTS), {}, cache=False, rewriter=Rewriter.of(f"small@{url}"))
    outcome = length_symptoms.three_versions(material)
    lengths = {row["version"]: row["length"] for row in outcome.rows if "length" in row}
    assert (lengths["few sentences"], lengths["ten words"]) == (5 + 2, 2 + 2)  # with both special tokens
    assert {path for path, _ in asked} == {"/v1/chat/completions"}
    assert len(asked) == 24
    assert sum(row["version"] == "whole" for row in outcome.rows if "x" in row) == 11  # one was not rewritten
    assert "by small" in outcome.notes[0]


def test_without_a_model_texts_are_shortened_by_rule(tmp_path):
    encoder = as_encoder(save_model(tmp_path / "tiny"))
    outcome = length_symptoms.three_versions(Material(encoder, read_texts(TEXTS), {}, cache=False))
    assert "by rule" in outcome.notes[0]
    assert "t-SNE" in outcome.notes[0]


def test_an_answer_without_a_message_is_refused(served):
    with pytest.raises(PoolscopeError, match="no message"):
        Rewriter.of(f"other@{served[0]}").rewrite(TEXTS[:1], "{text}")


@pytest.mark.parametrize("words", ["http://localhost:8000", "model", "model@localhost", "@http://localhost"])
def test_a_rewriter_is_a_model_at_an_address(words):
    with pytest.raises(InputError, match="MODEL@http"):
        Rewriter.of(words)
