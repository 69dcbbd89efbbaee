"""An audit or a comparison for CI: JUnit (one test a cause or audit) and SARIF 2.1.0 (one result a finding)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from poolscope import __version__
from poolscope.auditing.compare import Comparison
from poolscope.auditing.result import Audit
from poolscope.errors import InputError
from poolscope.files import atomic_file
from poolscope.words import clean

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_SARIF_LEVELS = {"fix": "error", "look": "warning", "unchecked": "note", "ok": "none"}
_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class _Case:
    """One thing that CI shows: its rule, title and sentence, how serious it is, and whether it was looked at."""

    rule: str
    title: str
    sentence: str
    level: str
    looked: bool = True


def _cases(result: Audit | Comparison) -> Iterator[_Case]:
    if isinstance(result, Audit):
        for finding in result.findings:
            looked = finding.reason != "not looked at" and finding.level != "unchecked"
            yield _Case(finding.cause, finding.title, clean(" ".join(finding.in_words())), finding.level, looked)
        return
    for change in result.changes:
        level = "fix" if change.worse else "ok"
        yield _Case("worse", clean(f"{change.first} to {change.second}"), clean(" ".join(change.in_words())), level)


def junit(result: Audit | Comparison) -> str:
    """JUnit XML: a cause that is `fix`, or an audit that is worse, fails; what was not checked is skipped.

    A cause that is `look` passes, and its sentence stands in the output of the test.
    """
    cases = list(_cases(result))
    counts = {
        "tests": len(cases),
        "failures": sum(case.level == "fix" for case in cases),
        "errors": 0,
        "skipped": sum(not case.looked for case in cases),
    }
    numbers = {name: str(value) for name, value in counts.items()}
    root = ElementTree.Element("testsuites", numbers)
    suite = ElementTree.SubElement(root, "testsuite", {"name": f"poolscope {_kind(result)}", **numbers})
    for case in cases:
        test = ElementTree.SubElement(
            suite, "testcase", {"classname": f"poolscope.{_kind(result)}.{case.rule}", "name": _xml(case.title)}
        )
        if case.level == "fix":
            ElementTree.SubElement(test, "failure", {"message": _xml(case.sentence), "type": "fix"})
        elif not case.looked:
            ElementTree.SubElement(test, "skipped", {"message": _xml(case.sentence)})
        elif case.level == "look":
            ElementTree.SubElement(test, "system-out").text = _xml(case.sentence)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def sarif(result: Audit | Comparison, *, file: str = "audit.json") -> str:
    """SARIF 2.1.0: one rule a cause, one result a cause that is `fix` or `look`; `file` is what results point at."""
    cases = list(_cases(result))
    rules = {case.rule: case.title if isinstance(result, Audit) else "Worse than before" for case in cases}
    shown = [case for case in cases if case.level in ("fix", "look")]
    content: dict[str, Any] = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "poolscope",
                        "version": __version__,
                        "rules": [
                            {"id": name, "name": name, "shortDescription": {"text": title}}
                            for name, title in rules.items()
                        ],
                    }
                },
                "results": [
                    {
                        "ruleId": case.rule,
                        "ruleIndex": list(rules).index(case.rule),
                        "level": _SARIF_LEVELS[case.level],
                        "message": {"text": f"{case.title}: {case.sentence}"},
                        "locations": [
                            {
                                "physicalLocation": {
                                    "artifactLocation": {"uri": file},
                                    "region": {"startLine": 1},
                                }
                            }
                        ],
                        "partialFingerprints": {"poolscope/v1": f"{case.rule}:{case.title}"},
                    }
                    for case in shown
                ],
            }
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def workflow_lines(result: Audit | Comparison) -> list[str]:
    """Workflow commands of GitHub: an error for `fix`, a warning for `look`; words of others cannot end a command."""
    words = {"fix": "error", "look": "warning"}
    return [
        f"::{words[case.level]} title={_escaped(case.title, title=True)}::{_escaped(case.sentence)}"
        for case in _cases(result)
        if case.level in words
    ]


def save_for_ci(
    result: Audit | Comparison,
    *,
    junit_file: str | os.PathLike[str] | None = None,
    sarif_file: str | os.PathLike[str] | None = None,
    texts: str | None = None,
) -> None:
    """Write the files that were asked for; results of SARIF point at the file of the texts where it is a plain path."""
    if junit_file is not None:
        _write(junit_file, junit(result), ".xml", "--junit")
    if sarif_file is not None:
        plain = texts is not None and re.fullmatch(r"[\w.-]+(/[\w.-]+)*", texts) and not texts.startswith("/")
        _write(sarif_file, sarif(result, file=texts if plain and texts else "audit.json"), ".sarif", "--sarif")


def _write(path: str | os.PathLike[str], content: str, ending: str, option: str) -> None:
    if Path(path).suffix.lower() not in (ending, ".json"):
        raise InputError(f"{option} {path}: the ending is not known. Choose {ending}.")
    with atomic_file(path) as stream:
        stream.write(content.encode())


def _kind(result: Audit | Comparison) -> str:
    return "audit" if isinstance(result, Audit) else "compare"


def _xml(text: str) -> str:
    return _NO_XML.sub("�", text)


def _escaped(text: str, *, title: bool = False) -> str:
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return escaped.replace(":", "%3A").replace(",", "%2C") if title else escaped
