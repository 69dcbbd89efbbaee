"""The audit of a large corpus: what merges is of all texts, the rest of a draw whose size follows the precision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from command_line import run
from engine_data import corpus, write_vectors
from poolscope import audit
from poolscope.auditing import material, screen
from poolscope.auditing.material import is_planned, make_plan
from poolscope.auditing.screen import Watch
from poolscope.encoders import as_encoder
from poolscope.errors import InputError
from poolscope.stores.writer import encode_to_store

COUNT = 200


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_vectors(tmp_path_factory.mktemp("model") / "vectors.txt")


@pytest.fixture
def small(monkeypatch):
    """A plan that begins with few texts."""
    monkeypatch.setattr(material, "LEAST", 60)
    monkeypatch.setattr(material, "_BATCH", 50)
    monkeypatch.setattr(material, "_COMPARED", 20)


class Listening(Watch):
    def __init__(self):
        self.said, self.phases, self.texts = [], [], 0

    def planned(self, sentences):
        self.said += sentences

    def opened(self, phase):
        self.phases.append(phase)

    def encoded(self, texts, tokens):
        self.texts += texts


def test_counts_are_of_all_texts_and_pairs_of_the_draw(model, small):
    texts, watch = corpus(COUNT), Listening()
    settings = {"trial_texts": 0, "max_length": 30}
    groups = [f"d{k // 4}" for k in range(COUNT)]
    planned = audit(model, texts, precision=0.2, progress=watch, groups=groups, **settings)
    whole = audit(model, texts, **settings)
    assert planned.corpus["texts"] == 100
    for name in ("share_cut", "texts_cut"):
        assert planned["truncation"].numbers[name] == pytest.approx(whole["truncation"].numbers[name])
    assert planned["truncation"].numbers["share_cut"] > 0.1
    # Fifths of the texts, counted from the lengths, may end at another token than those of one pass.
    assert planned["long"].numbers["length_slope"] == pytest.approx(whole["long"].numbers["length_slope"], abs=0.01)
    assert sum(planned["long"].tables["length"]["texts"].to_pylist()) == COUNT
    assert planned.provenance["settings"]["plan"]["sample"] == 100
    assert any("On all 200 texts" in note for note in planned.corpus["notes"])
    assert watch.texts == COUNT
    assert any("about" in sentence for sentence in watch.said)
    assert watch.phases[-1] == "measuring all 200 texts"


def test_texts_that_stand_twice_are_counted_over_all(model, small):
    texts = list(corpus(COUNT).texts)
    texts[100:150] = texts[:50]
    answer = audit(model, texts, precision=0.2, trial_texts=0)["hubs"]
    assert answer.numbers["equal_texts"] >= 0.25
    assert any("25.00% equal an earlier one" in line for line in answer.verdict.evidence)


def test_the_draw_grows_with_the_precision_that_is_asked_for(model):
    encoder, some = as_encoder(model), corpus(COUNT)
    ids = tuple(map(str, range(25_000)))
    texts = replace(some, ids=ids, texts=some.texts * (len(ids) // COUNT))
    plans = [make_plan(encoder, texts, precision) for precision in (0.2, 0.02, 0.005)]
    assert [plan.sample for plan in plans] == [1000, 2500, 20_000]
    most = plans[-1]
    assert most.decides == "a share of the texts"
    assert most.reached == pytest.approx(0.98 / 20_000**0.5)
    assert "±0.0069" in most.sentences()[1]
    assert plans[0].pairs < plans[1].pairs


def test_few_texts_and_texts_with_queries_are_not_planned(model, small):
    assert is_planned(range(61), 0.1)
    assert not is_planned(range(60), 0.1)
    assert not is_planned(range(material.PLANNED_FROM), None)
    assert is_planned(range(material.PLANNED_FROM + 1), None)
    for wrong in (0, 1, -0.1, "fine"):
        with pytest.raises(InputError, match="precision: received"):
            is_planned(range(9), wrong)
    with pytest.raises(InputError, match="precision: received with queries"):
        audit(model, corpus(COUNT), precision=0.1, queries={"w1": ["id-1"]})


@pytest.mark.parametrize("kept", [{}, {"keep": "vectors", "keep_tokens": 70}])
def test_a_store_is_planned_too(model, small, tmp_path, kept):
    texts, encoder = corpus(COUNT), as_encoder(model)
    encode_to_store(encoder, texts, tmp_path / "store", shard_texts=50, **kept)
    watch = Listening()
    result = audit(tmp_path / "store", precision=0.2, progress=watch)
    assert result.corpus["texts"] == kept.get("keep_tokens", 100)
    assert "On all 200 texts" in watch.said[0]
    assert not any("Encoding all" in sentence for sentence in watch.said)
    assert sum(result["long"].tables["length"]["texts"].to_pylist()) == COUNT


def test_the_command_says_the_plan_and_takes_an_engine(model, small, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("POOLSCOPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "texts.txt").write_text("\n".join(corpus(COUNT).texts))
    command = ["audit", model, tmp_path / "texts.txt", "--precision", "0.2", "--trial", "0", "--no-files"]
    output = run(*command, "--engine", "local")
    assert "On all 200 texts" in output + capsys.readouterr().err


def test_a_log_says_how_far_encoding_is(capsys):
    watch = screen.PlanOnly(every=0.0)
    watch.begin("model", 100, 1000)
    watch.encoded(40, 0)  # of an earlier run
    assert capsys.readouterr().err == ""
    watch.encoded(10, 200)
    assert "50 of 100 texts, about 1 s left" in capsys.readouterr().err
