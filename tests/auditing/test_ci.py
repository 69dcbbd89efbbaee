"""JUnit and SARIF as their readers read them; annotations that words of others cannot end."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from command_line import run
from poolscope import audit, compare
from poolscope.auditing.ci import junit, sarif, workflow_lines


@pytest.fixture(scope="module")
def audited():
    texts = [f"text number {k} about subject {k % 7}" for k in range(60)]
    found = audit("builtin:wordllama", texts, queries={f"number {k}": str(k) for k in range(60)})
    levels = ["fix", "look", *("ok" for _ in found.findings[2:])]
    findings = [
        replace(finding, level=level, reason="defect" if level == "fix" else finding.reason)
        for finding, level in zip(found.findings, levels, strict=True)
    ]
    odd = replace(findings[0], sentence="<b>&\x00\n::error::x %")
    return replace(found, findings=(odd, *findings[1:]))


def test_junit_has_one_test_a_cause(audited):
    root = ElementTree.fromstring(junit(audited).encode())
    suite = root.find("testsuite")
    cases = suite.findall("testcase")
    assert len(cases) == int(suite.get("tests")) == len(audited.findings)
    assert [bool(case.findall("failure")) for case in cases] == [f.level == "fix" for f in audited.findings]
    assert int(suite.get("failures")) == 1
    assert int(suite.get("skipped")) == len(suite.findall("testcase/skipped"))


def test_sarif_has_the_required_fields(audited):
    content = json.loads(sarif(audited, file="data/texts.jsonl"))
    assert content["version"] == "2.1.0"
    (only,) = content["runs"]
    driver = only["tool"]["driver"]
    assert driver["name"] == "poolscope"
    ids = [rule["id"] for rule in driver["rules"]]
    assert ids == [finding.cause for finding in audited.findings]
    assert [result["level"] for result in only["results"]] == ["error", "warning"]
    for result in only["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["message"]["text"]
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "data/texts.jsonl"
        assert place["region"]["startLine"] >= 1


def test_annotations_are_one_line_each(audited):
    lines = workflow_lines(audited)
    assert [line.split(" ")[0] for line in lines] == ["::error", "::warning"]
    assert not any("\n" in line for line in lines)


def test_a_comparison_that_is_worse_fails(audited, tmp_path):
    same = compare(audited, audited)
    assert ElementTree.fromstring(junit(same).encode()).get("failures") == "0"
    assert json.loads(sarif(same))["runs"][0]["results"] == []
    worse = replace(same, changes=(replace(same.changes[0], levels=(("Truncation", "ok", "fix"),)),))
    assert ElementTree.fromstring(junit(worse).encode()).get("failures") == "1"
    assert len(json.loads(sarif(worse))["runs"][0]["results"]) == 1


def test_compare_writes_both(audited, tmp_path):
    audited.save(tmp_path / "one", page=False)
    run("compare", tmp_path / "one", tmp_path / "one", "--junit", tmp_path / "c.xml", "--sarif", tmp_path / "c.sarif")
    assert ElementTree.parse(tmp_path / "c.xml").getroot().tag == "testsuites"
    assert json.loads((tmp_path / "c.sarif").read_text())["version"] == "2.1.0"
