"""--temperature on the commands that measure a model: its attention runs at it, and nothing else changes."""

from __future__ import annotations

import json

import numpy as np
import pytest

import poolscope
from command_line import run
from poolscope import as_encoder, tempscale
from poolscope.errors import InputError
from poolscope.repairs.temperature.rules import ByRole, Constant, LogLength, YarnLike, rule_from_words
from tiny_models import WORDS, save_model

RANDOM = np.random.default_rng(3)
TEXTS = [" ".join(RANDOM.choice(WORDS, size=length)) for length in RANDOM.integers(3, 20, size=24)]


@pytest.fixture
def named(tmp_path):
    save_model(tmp_path / "tiny")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    return tmp_path / "tiny", tmp_path / "texts.txt"


def measured(command, named, tmp_path, *more):
    run(command, *named, *more, "--json", tmp_path / "out.json")
    return json.loads((tmp_path / "out.json").read_text())


def at(named, tau, measure):
    encoder = as_encoder(str(named[0]))
    with tempscale(encoder, tau):
        return measure(encoder)


def test_socm(named, tmp_path):
    here = measured("socm", named, tmp_path, "--temperature", "0.2")["mean"]
    expected = at(named, 0.2, lambda encoder: poolscope.socm(encoder.encode(TEXTS)[-1]).mean)
    plain = measured("socm", named, tmp_path)["mean"]
    assert here == pytest.approx(expected, rel=1e-5)
    assert abs(here - plain) > 1e-4 * plain


def test_layers(named, tmp_path):
    here = measured("layers", named, tmp_path, "--temperature", "yarn:2", "--socm-texts", 0)
    expected = at(named, YarnLike(2), lambda encoder: poolscope.layers(encoder, TEXTS, socm_texts=0).to_dict())
    assert here["means"]["sigma_a"]["mean"] == pytest.approx(expected["means"]["sigma_a"]["mean"], rel=1e-4)
    assert here["means"]["sigma_a"] != measured("layers", named, tmp_path, "--socm-texts", 0)["means"]["sigma_a"]


def test_length(named, tmp_path):
    here = measured("length", named, tmp_path, "--no-probes", "--temperature", "0.2", "--min-texts", 5)
    plain = measured("length", named, tmp_path, "--no-probes", "--min-texts", 5)
    vectors = at(named, 0.2, lambda encoder: np.stack([np.mean(x, axis=0) for x in encoder.encode(TEXTS)[-1]]))
    lengths = [len(cloud) for cloud in as_encoder(str(named[0])).encode(TEXTS)[-1]]
    expected = poolscope.length_profile(vectors, lengths, min_texts=5).slope.value
    assert here["profile"]["slope"]["value"] == pytest.approx(expected, abs=1e-5)
    assert here["profile"]["slope"]["value"] != plain["profile"]["slope"]["value"]


def test_tokens_by_role(named, tmp_path):
    asked = ("--temperature", "query=1,document=0.2")
    plain = measured("tokens", named, tmp_path, "--min-count", 2)["layers"]
    for role, tau in (("query", 1.0), ("document", 0.2)):
        here = measured("tokens", named, tmp_path, "--min-count", 2, *asked, "--role", role)["layers"]
        expected = at(named, tau, lambda encoder: poolscope.token_statistics(encoder, TEXTS, min_count=2).to_dict())
        assert here[-1]["mean_share"] == pytest.approx(expected["layers"][-1]["mean_share"], rel=1e-4)
        assert (here[-1]["mean_share"] == plain[-1]["mean_share"]) == (role == "query")


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("0.8", Constant(0.8)),
        ("log:5", LogLength(5.0)),
        ("yarn:0.01", YarnLike(0.01)),
        ("query=0.9,document=yarn:0.1", ByRole(query=0.9, document=YarnLike(0.1))),
    ],
)
def test_rules_by_words(words, rule):
    assert rule_from_words(words) == rule


@pytest.mark.parametrize("words", ["cold", "yarn:", "steps:3", "query=1", "document=0.8,query=no", "0", "-1"])
def test_other_words_are_refused(words, named):
    with pytest.raises(InputError):
        run("socm", *named, "--temperature", words)


@pytest.mark.parametrize("command", ["socm", "tokens", "length"])
def test_engines_and_vectors_have_no_temperature(command, named, tmp_path):
    asked = ("--temperature", "0.8")
    with pytest.raises(InputError, match="workers"):
        run(command, *named, *asked, "--engine", "processes")
    run("encode", *named, "-o", tmp_path / "store")
    with pytest.raises(InputError, match="--temperature"):
        run(command, tmp_path / "store", *asked)


def test_roles_must_be_named(named):
    with pytest.raises(InputError, match="--role"):
        run("layers", *named, "--temperature", "query=1,document=0.8")
