"""Matches of tokens: their parts add up to both scores, special tokens, drawing; the pair command with a query."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from functools import partial

import numpy as np
import pytest

from command_line import invoke
from command_line import run as run_command
from poolscope import TokenClouds, save_figure, token_matches
from poolscope.errors import InputError
from poolscope.evaluation.match_drawing import drawing_of
from poolscope.evaluation.matches import TokenMatches, lead_words, match_tokens
from poolscope.numbers.maxsim import maxsim
from tiny_models import WORDS, declare, save_model

run = partial(run_command, width=80)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return declare(save_model(tmp_path_factory.mktemp("model"), "Bert"))


@pytest.mark.parametrize("special", [None, [True, False, False, True]])
def test_the_parts_add_up_to_both_scores(special):
    random = np.random.default_rng(0)
    Q, X = random.standard_normal((4, 5)) + 1, random.standard_normal((7, 5)) + 1
    mask = None if special is None else np.array(special)
    score, cosine, matches, tokens = match_tokens(Q, X, list("abcd"), list("tuvwxyz"), special=mask)
    counted = Q if mask is None else Q[~mask]
    sides = [TokenClouds.from_arrays([side]) for side in (counted, X)]
    assert score == pytest.approx(float(maxsim(*sides)[0, 0]), abs=1e-6)
    means = [side.mean(axis=0) / np.linalg.norm(side.mean(axis=0)) for side in (Q, X)]
    assert cosine == pytest.approx(means[0] @ means[1])
    assert sum(match.contribution for match in matches) == pytest.approx(score - cosine)
    for name, whole in (("in_maxsim", score), ("in_cosine", cosine)):
        assert sum(getattr(match, name) for match in matches) == pytest.approx(whole)
        assert sum(getattr(token, name) for token in tokens) == pytest.approx(whole)
    unit = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (Q, X)]
    best = (unit[0] @ unit[1].T).argmax(axis=1)
    assert [match.position for match in matches] == best.tolist()
    assert [match.match for match in matches] == ["tuvwxyz"[k] for k in best]
    assert [match.counts for match in matches] == ([True] * 4 if mask is None else (~mask).tolist())


def test_a_mean_without_direction_and_an_empty_query_are_refused(folder):
    with pytest.raises(InputError, match="direction"):
        match_tokens([[1.0, 0.0], [-1.0, 0.0]], [[1.0, 0.0]], "ab", "c")
    with pytest.raises(InputError, match="query"):
        token_matches(str(folder), " ", "word")


def test_special_tokens_do_not_count_and_the_record_comes_back(folder, tmp_path):
    found = token_matches(str(folder), " ".join(WORDS[:2]), " ".join(WORDS[1:9]))
    assert [match.counts for match in found.matches] == [False, True, True, False]
    assert found.matches[1].token == WORDS[0]
    found.save(tmp_path / "m.json")
    assert TokenMatches.load(tmp_path / "m.json") == found
    assert [row["contribution"] for row in found.rows()] == [match.contribution for match in found.matches]


def test_the_drawing_links_each_counted_token_to_what_it_found(folder, tmp_path):
    found = token_matches(str(folder), " ".join(WORDS[:3]), " ".join(WORDS[3:]))
    root = ET.fromstring(drawing_of([found, found]).svg)
    assert sum(element.tag.endswith("path") for element in root.iter()) == 2 * 3
    words = [element for element in root.iter() if element.tag.endswith("text")]
    assert [element.text for element in words].count(WORDS[3]) == 2
    assert max(float(element.get("x")) for element in words) < 860
    parts = [f"{match.contribution:+.3f}".replace("-", "−") for match in found.matches if match.counts]
    assert [element.text for element in words if element.text in parts] == 2 * parts
    assert [element.text.split(":")[0] for element in words if ": MaxSim" in element.text] == ["Text 1", "Text 2"]
    save_figure(found.figure(), tmp_path / "m.svg")
    save_figure(found.figure(), tmp_path / "m.html")
    assert (tmp_path / "m.svg").read_text(encoding="utf-8") == found.figure().svg


def test_markup_in_a_text_stays_text():
    letters = lambda texts: [[[float(ord(c) % 7 == k) + 0.1 for k in range(7)] for c in text] for text in texts]  # noqa: E731
    _, _, matches, tokens = match_tokens(*letters(["ab", "cd"]), ["<b>", "&"], ["</svg>", "<script>"])
    found = TokenMatches(model="m", query="q", text="t", maxsim=0.0, cosine=0.0, matches=matches, tokens=tokens)
    root = ET.fromstring(drawing_of([found]).svg)
    assert "<script>" in [element.text for element in root.iter() if element.tag.endswith("text")]


def test_the_pair_command_shows_what_a_query_finds(folder, tmp_path):
    query, texts = " ".join(WORDS[:3]), (" ".join(WORDS[:8]), " ".join(WORDS[8:16]))
    found = [token_matches(str(folder), query, text) for text in texts]
    output = run("pair", *texts, "--query", query, "-m", folder, "--figure", tmp_path / "m.svg")
    assert " ".join(output.split()).startswith(" ".join(lead_words(*found)))
    assert all(len(line) <= 80 for line in output.splitlines() if not line.startswith("written: "))  # a path as it is
    rows = [line.split() for line in output.replace("−", "-").splitlines()]
    rows = [row for row in rows if row and row[-1][0] in "+-" and row[-1][1:].replace(".", "").isdigit()]
    matches = [match for each in found for match in each.matches if match.counts]
    for row, match in zip(rows, matches, strict=True):
        assert row[:2] == [match.token, match.match]
        numbers = [f"{match.similarity:.2f}", f"{match.to_mean:.2f}", f"{match.contribution:+.3f}"]
        assert [part for part in row[2:] if part.strip("█▏▎▍▌▋▊▉")] == numbers
        assert row[2].count("█") == round(8 * 14 * max(match.similarity, 0)) // 8
    assert (tmp_path / "m.svg").exists()
    shown = json.loads(invoke("pair", texts[0], "--query", query, "-m", folder, "--json", "-").stdout)
    assert shown["texts"][0]["maxsim"] == pytest.approx(found[0].maxsim)


def test_one_text_without_a_query_is_refused(folder):
    with pytest.raises(InputError, match="--query"):
        run("pair", "one", "-m", folder)
    with pytest.raises(InputError, match="--layer"):
        run("pair", "one", "--query", "two", "--layer", "0", "-m", folder)
