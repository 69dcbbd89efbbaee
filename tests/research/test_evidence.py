"""What a zoo says of claims and thresholds: planted numbers, counted; tables put into pages."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from audit_data import topics
from command_line import run
from poolscope.errors import InputError, StoreError
from poolscope.research.zoo.evidence import CLAIMS, evidence, put_into_pages
from poolscope.research.zoo.run import zoo
from store_fakes import edit_json

NAMES = ("a", "b", "c", "d", "e")
TEXTS = [f"{who} {does} near the {place}" for who in ("A dog", "The sea") for does in ("sleeps", "waits")
         for place in ("old harbour", "house", "long road home")]  # fmt: skip


def number(value, reach=None):
    ends = None if reach is None else {"low": value - reach, "high": value + reach}
    interval = ends and {**ends, "level": 0.95, "answers": "texts", "method": "made up"}
    return {"value": value, "interval": interval, "floor": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The zoo of one model, under five names with planted numbers."""
    place = tmp_path_factory.mktemp("zoo")
    zoo({"a": "builtin:wordllama"}, TEXTS, output=place, cache=False)
    for name in NAMES[1:]:
        shutil.copytree(place / "models" / "a", place / "models" / name)
    content = json.loads((place / "zoo.json").read_text(encoding="utf-8"))
    rows = []
    for k, name in enumerate(NAMES):
        planted = {
            "concentration": number(1.0 + k),
            "socm": number(0.1 + 0.1 * k, 0.01),
            "ndcg": number((0.5, 0.9, 0.6, 0.7, 0.8)[k], 0.05),
            "temperature": number(0.0, 0.02) if k else number(-0.1, 0.02),
            "length_slope": number(0.05, 0.01),
            "length_slope_floor": number(0.01),
        }
        rows.append({**content["runs"][0], "model": name, "numbers": planted})
    edit_json(place / "zoo.json", runs=rows)
    return place


def row_of(result, words):
    (row,) = (row for row in result.tests if words in row.words)
    return row


def test_claims_are_counted_over_models(folder):
    result = evidence([folder])
    together = row_of(result, "ratio, median and SOCM, exact")
    assert (together.estimate.value, together.models, together.reading) == (1.0, 5, "agrees")
    assert together.p.value == pytest.approx(2 / 120)
    assert row_of(result, "of SOCM, exact and nDCG@10").reading == "cannot be told"
    heat = row_of(result, "won by τ")
    assert (heat.agree, heat.disagree, heat.open) == ((), ("a",), ("b", "c", "d", "e"))
    assert heat.reading == "disagrees in 1 of 5"
    assert row_of(result, "rise of the cosine").reading == "agrees"
    assert row_of(result, "of σₐ and length").models == 0
    assert row_of(result, "of σₐ and length").reading == "cannot be told"
    assert (together.side, heat.side, row_of(result, "of σₐ and length").side) == ("for", "against", "open")
    counts = list(map(int, re.findall(r"\d+", result.seen()[0])))
    assert counts[0] == len(result.tests) == sum(counts[3:])
    assert "Drawn: SOCM goes with quality" in result._repr_html_()


def test_a_child_beside_its_backbone(folder):
    result = evidence([folder], children={"a": "b"})  # the same audit twice: nothing differs
    rows = [row for row in result.tests if row.claim == "contrastive"]
    assert {row.words.partition(" ")[0] for row in rows} == {"socm", "socm_trace", "concentration_ratio"}
    assert {row.estimate.value for row in rows} == {0.0}
    assert {row.reading for row in rows} == {"cannot be told"}
    assert "No model of these zoos" in evidence([folder]).claim_markdown("contrastive")
    with pytest.raises(InputError, match="not other"):
        evidence([folder], children={"a": "other"})


def test_thresholds_stand_beside_what_they_judge(folder):
    result = evidence([folder])
    (scores,) = (row for row in result.thresholds if row.number == "cut_off")
    assert (scores.watch, scores.repair) == (0.7, 0.9)
    assert len(set(scores.values.values())) == 1  # one audit, copied
    assert scores.quality.value is None  # constant: no correlation
    assert len(scores.levels) == 5
    assert "`cut_off`" in result.threshold_markdown()


def test_pages_take_the_tables(folder, tmp_path):
    result = evidence([folder])
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- begin claim quality -->\nstale line\n<!-- end claim quality -->\nafter\n", encoding="utf-8"
    )
    assert put_into_pages(result, tmp_path) == [page]
    content = page.read_text(encoding="utf-8")
    assert result.claim_markdown("quality") in content
    assert "stale line" not in content
    assert content.startswith("before\n")
    assert content.endswith("after\n")
    assert put_into_pages(result, tmp_path) == []  # again nothing changes
    page.write_text("<!-- begin claim none -->\n<!-- end claim none -->\n", encoding="utf-8")
    with pytest.raises(InputError, match="marks a place for 'claim none'"):
        put_into_pages(result, tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no Markdown page"):
        put_into_pages(result, tmp_path / "empty")


def test_command(folder, tmp_path):
    shown = run("research", "evidence", folder, "-o", tmp_path / "out", "--child", "a=b")
    assert "agrees: ρ over models of concentration ratio" in " ".join(shown.split())
    names = {path.name for path in (tmp_path / "out").iterdir()}
    drawn = {f"claim-{claim.key}.html" for claim in CLAIMS} - {"claim-norms.html"}  # of which nothing is planted
    assert names == {"evidence.md", "evidence.json", "evidence.csv", *drawn}


def test_what_is_no_zoo(folder, tmp_path):
    with pytest.raises(InputError, match=r"holds no zoo\.json"):
        evidence([tmp_path])
    with pytest.raises(InputError, match="every corpus once"):
        evidence([folder, folder])
    with pytest.raises(InputError, match="a list of folders"):
        evidence(folder)
    with pytest.raises(InputError, match="received 'x'; allowed: contrastive"):
        evidence([folder]).figure("x")


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"corpus": {}, "runs": [{}]}',
        '{"corpus": {}, "runs": [{"status": "not reached", "numbers": 7}]}',
        "[" * 9999,
    ],
)
def test_a_damaged_table_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "zoo.json").write_text(content)
    with pytest.raises(InputError, match="needed: a folder that `poolscope research zoo` wrote"):
        evidence([tmp_path])


def test_a_changed_number_of_a_table_is_noticed(tmp_path):
    zoo({"table": "builtin:wordllama"}, topics(12), output=tmp_path, cache=False, audits=False, parts=["search"])
    assert evidence([tmp_path]).corpora == ("memory",)
    path = tmp_path / "zoo.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    next(number for number in content["runs"][0]["numbers"].values() if number)["value"] = 0.123
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(StoreError, match="its digest differs"):
        evidence([tmp_path])
