"""Vectors of many texts from a server: a run that was stopped goes on, and nothing is kept once it is whole."""

from __future__ import annotations

import os
import stat
import time

import numpy as np
import pytest

from poolscope.connect.servers.answers import _remove_old, server_vectors
from poolscope.connect.servers.endpoint import Endpoint
from poolscope.connect.servers.http import EndpointError
from runtime_server import Words, serving

TEXTS = [f"text number {k} of many" for k in range(40)]


@pytest.fixture
def server():
    with serving(Words()) as running:
        yield running


@pytest.fixture(autouse=True)
def answers(tmp_path, monkeypatch):
    monkeypatch.setenv("POOLSCOPE_CACHE", str(tmp_path))
    return tmp_path / "answers"


def source(server):
    return Endpoint(server.url, batch=4, concurrency=1, retries=0, pause=0.001)


def stopped(server, after=5):
    """A run whose server fails after some requests."""
    embed, count = server.model.embed, iter(range(1000))

    class Failing:
        def embed(self, texts, way="right"):
            if next(count) >= after:
                server.fault, server.failures = "500", None
                raise ConnectionResetError
            return embed(texts, way)

    right, server.model = server.model, Failing()
    with pytest.raises(EndpointError, match="20 of 40 texts"):
        server_vectors(source(server), TEXTS)
    server.model, server.fault = right, ""
    server.asked.clear()


def test_a_stopped_run_goes_on_and_leaves_nothing_behind(server, answers):
    stopped(server)
    (folder,) = answers.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.npy")] == [0o600] * 5
    assert np.allclose(server_vectors(source(server), TEXTS), Words().embed(TEXTS))
    assert len(server.asked) == 1 + 5  # one text again, then what was missing
    assert list(answers.iterdir()) == []


def test_a_server_that_changed_meanwhile_is_asked_for_everything(server, caplog):
    stopped(server)

    class Other:
        def embed(self, texts, way="right"):
            return [row[::-1] for row in Words().embed(texts)]

    server.model = Other()
    assert np.allclose(server_vectors(source(server), TEXTS), Other().embed(TEXTS))
    assert "other vectors" in caplog.text


def test_damaged_and_old_answers_are_asked_again(server, answers):
    stopped(server)
    (folder,) = answers.iterdir()
    (folder / "00000001.npy").write_bytes(b"no array")
    changed = bytearray((folder / "00000003.npy").read_bytes())
    changed[150] ^= 1  # of a number
    (folder / "00000003.npy").write_bytes(changed)
    assert np.allclose(server_vectors(source(server), TEXTS), Words().embed(TEXTS))
    assert len(server.asked) == 1 + 7
    stopped(server)
    (folder,) = answers.iterdir()
    for path in folder.glob("*.npy"):
        os.utime(path, (time.time() - 2 * 86400,) * 2)
    server_vectors(source(server), TEXTS)
    assert len(server.asked) == 10


def test_other_texts_and_other_models_have_answers_of_their_own(server, answers):
    stopped(server)
    server_vectors(source(server), TEXTS[::-1])
    assert len(server.asked) == 10
    assert len(list(answers.iterdir())) == 1


def test_without_keeping_nothing_is_written(server, answers):
    server_vectors(source(server), TEXTS, keep=False)
    assert not answers.exists()


@pytest.mark.parametrize("years", [-50, 50])
def test_a_clock_that_jumps_and_another_process_that_tidies_change_no_answer(server, answers, monkeypatch, years):
    embed, now = server.model.embed, time.time

    class Jumping:
        def embed(self, texts, way="right"):
            monkeypatch.setattr(time, "time", lambda: now() + years * 365 * 86400)
            (answers / "gone").mkdir(exist_ok=True)
            if not (answers / "gone" / "00000000.npy").is_symlink():
                (answers / "gone" / "00000000.npy").symlink_to("taken by another process")
            _remove_old(answers)
            return embed(texts, way)

    server.model = Jumping()
    assert np.allclose(server_vectors(source(server), TEXTS), Words().embed(TEXTS))
