"""The commands intervene and transport through the real parser, on a tiny stored model."""

from __future__ import annotations

import json
from functools import partial

import pytest

from command_line import invoke
from command_line import run as run_command
from poolscope import encode, intervene, transport
from poolscope.errors import InputError
from poolscope.show.screen import signed
from tiny_models import TEXTS, declare, save_model

run = partial(run_command, width=200)


QUERIES = ["cat mat", "a red dog", "blue tree", "the cat", "ran"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return declare(save_model(tmp_path_factory.mktemp("model")), prompts={"query": "query : "})


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    rows = [json.dumps({"q": q, "d": d}) for q, d in zip(QUERIES, TEXTS, strict=True)]
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def test_the_table_shows_what_the_library_measures(folder, pairs, tmp_path):
    arguments = (
        "--query-column",
        "q",
        "--document-column",
        "d",
        "--do",
        "rotate",
        "--do",
        "scale=2",
        "--k",
        2,
        "--details",
    )
    files = ("--json", tmp_path / "r.json", "--figure", tmp_path / "r.html")
    output = run("lab", "intervene", folder, pairs, *arguments, *files)
    documents, queries = encode(str(folder), TEXTS), encode(str(folder), QUERIES, role="query")
    expected = intervene(documents, queries, [(k, k) for k in range(5)], interventions=["rotate", "scale=2"], k=2)
    for effect in expected.effects:
        change = effect.socm.difference
        assert change.no_interval == "no interval: 5 texts, 30 are needed"
        assert f"{effect.socm.after:.4f}" in output
        assert f"{effect.name} {signed(change.value)}" in " ".join(output.split())
        assert f"{effect.quality['covariance'].after:.4f}" in output
    assert f"nDCG@2 {expected.baseline.quality.value:.4f}" in output
    assert "no intervention" in output
    assert "largest change" in output
    stored = json.loads((tmp_path / "r.json").read_text())
    assert stored["effects"][0]["socm"]["after"] == pytest.approx(expected["rotate"].socm.after)
    assert output.count("written:") == 2
    assert "Every mean" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_narrow_screen_and_json_to_the_screen(folder, pairs):
    arguments = ("lab", "intervene", folder, pairs, "--query-column", "q", "--document-column", "d", "--do", "scale=0")
    narrow = run(*arguments, width=80)
    assert "…" not in narrow
    assert "with 95% intervals" not in narrow
    shown = invoke(*map(str, arguments), "--json", "-").stdout
    assert json.loads(shown)["effects"][0]["name"] == "scale=0"


def test_layers_of_transport(folder, tmp_path):
    pytest.importorskip("ot")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    files = ("--json", tmp_path / "r.json", "--figure", tmp_path / "r.html")
    output = run("lab", "transport", folder, texts, "--pairs", 12, *files)
    expected = transport(encode(str(folder), TEXTS, layers=[0, 1, 2]), pairs=12)
    for entry in expected.layers:
        share = entry.two_moments
        around = "" if share.interval is None else f" ±{50 * (share.interval.high - share.interval.low):.1f}%"
        assert f"{100 * share.value:.1f}%{around}" in output
    assert [entry["layer"] for entry in json.loads((tmp_path / "r.json").read_text())["layers"]] == [0, 1, 2]
    assert "two moments" in (tmp_path / "r.html").read_text(encoding="utf-8")
    one = run("lab", "transport", folder, texts, "--pairs", 5, "--layers", "1", width=80)
    assert "…" not in one
    assert max(map(len, one.splitlines())) <= 80
    assert "layers" not in one
    assert "±" in one


def test_what_cannot_be_done_is_refused_before_any_work(tmp_path):
    with pytest.raises(InputError, match="received 'blur'"):
        run("lab", "intervene", "no/model", "no.csv", "--do", "blur")
    (tmp_path / "texts.txt").write_text("a\nb", encoding="utf-8")
    with pytest.raises(InputError, match=r"^PAIRS: .*texts\.txt"):
        run("lab", "intervene", "no/model", tmp_path / "texts.txt")
    for command in ("intervene", "transport"):
        with pytest.raises(InputError, match=r"'\.gif'; allowed: \.html"):
            run("lab", command, "no/model", "no.csv", "--figure", tmp_path / "r.gif")
    with pytest.raises(InputError, match="--layers: received 'x'"):
        run("lab", "transport", "no/model", "no.csv", "--layers", "x")
