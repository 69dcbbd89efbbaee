"""Refuse a release whose version, date or addresses are missing or disagree; `--notes` writes what changed in it.

    python tools/check_release.py --tag v0.1.0 --notes notes.md

What is unknown before publication (addresses, a contact) stands in pyproject.toml only, and is asked for here.
Everything that is wrong is printed at once; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
URLS = ("Repository", "Documentation", "Issues", "Changelog", "Security")
RESERVED = re.compile(r"(^|[.@])(example\.(com|net|org)|(example|invalid|test|local|localhost))$")  # RFC 2606 and 6761


@dataclass(frozen=True)
class Section:
    """One version of the changelog: the word after its name (a date once it is released) and what is below it."""

    date: str
    content: str


def problems(root: Path, tag: str | None = None) -> list[str]:
    """What stands in the way of a release, one sentence each; an empty list lets it through."""
    project = tomllib.loads(_read(root, "pyproject.toml"))["project"]
    version = package_version(root)
    sections = changelog(root)
    citation = _read(root, "CITATION.cff")
    return [
        *_addresses(project),
        *_tag(tag, version),
        *_changelog(sections, version),
        *_citation(citation, version, sections.get(version), project.get("urls", {}).get("Repository")),
    ]


def package_version(root: Path) -> str:
    """`__version__` of the package, read without importing it."""
    return _one(r'^__version__ = "([^"]+)"', _read(root, "src/poolscope/__init__.py")) or "unknown"


def changelog(root: Path) -> dict[str, Section]:
    """The sections of CHANGELOG.md by version."""
    heading = r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>[^\n]+))?\n"
    sections = re.finditer(heading + r"(?P<content>.*?)(?=^## |\Z)", _read(root, "CHANGELOG.md"), re.M | re.S)
    return {each["version"]: Section((each["date"] or "").strip(), each["content"].strip()) for each in sections}


def is_public(address: str) -> bool:
    """Is it an https address of a host that can exist?

    >>> is_public("https://python.org/downloads"), is_public("https://project.example/x"), is_public("")
    (True, False, False)
    """
    parts = urlsplit(address)
    host = parts.hostname or ""
    return parts.scheme == "https" and "." in host and not RESERVED.search(host)


def _addresses(project: dict[str, Any]) -> list[str]:
    urls, people = project.get("urls", {}), [*project.get("authors", []), *project.get("maintainers", [])]
    wrong = [
        f"pyproject.toml, [project.urls]: {name} is {urls.get(name)!r}; needed is the https address. Write it there."
        for name in URLS
        if not is_public(urls.get(name, ""))
    ]
    contacts = [person["email"] for person in people if "email" in person]
    if not contacts or any(RESERVED.search(contact.lower()) for contact in contacts):
        wrong.append(
            f"pyproject.toml, authors and maintainers: the mail addresses are {contacts}; needed is one that is "
            f"read, for reports of vulnerabilities and of conduct. Write it there."
        )
    return wrong


def _tag(tag: str | None, version: str) -> list[str]:
    if tag is None or tag == f"v{version}":
        return []
    return [f"the tag is {tag!r} and the package says {version!r}; needed is the tag v{version}. Change one of them."]


def _changelog(sections: dict[str, Section], version: str) -> list[str]:
    wrong = []
    if version not in sections:
        wrong.append(f"CHANGELOG.md has no section [{version}]; move what is released there.")
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", sections[version].date):
        wrong.append(
            f"CHANGELOG.md, [{version}]: its date is {sections[version].date!r}; needed is the day of the release, "
            f"as 2026-01-31. Write it after the version."
        )
    if "Unreleased" not in sections:
        wrong.append("CHANGELOG.md has no section [Unreleased]; the next changes need one. Add it, empty.")
    elif sections["Unreleased"].content:
        wrong.append(f"CHANGELOG.md, [Unreleased] is not empty; move its entries to [{version}].")
    return wrong


def _citation(citation: str, version: str, section: Section | None, repository: str | None) -> list[str]:
    date = section.date if section else "the day of the release"
    address = repository or "the address of the repository"
    needed = {"version": version, "date-released": date, "repository-code": address}
    stated = {key: _one(rf'^{key}: "?([^"\n]+)"?$', citation) for key in needed}
    return [
        f"CITATION.cff: {key} is {stated[key]!r}; needed is {value!r}, as elsewhere. Write it there."
        for key, value in needed.items()
        if stated[key] != value
    ]


def _one(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text, re.M)
    return match[1] if match else None


def _read(root: Path, name: str) -> str:
    return (root / name).read_text(encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Print what is wrong; 0 if nothing is."""
    parser = argparse.ArgumentParser(description="Refuse a release that is not ready.")
    parser.add_argument("--tag", help="the tag that is released, such as v0.1.0")
    parser.add_argument("--notes", type=Path, help="write the section of the changelog to this file")
    options = parser.parse_args(arguments)
    wrong = problems(ROOT, options.tag)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    if not wrong and options.notes:
        options.notes.write_text(changelog(ROOT)[package_version(ROOT)].content + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
