"""Refuse a release whose version, date or addresses are missing or disagree; write what is made from them.

    python tools/check_release.py --fill
    python tools/check_release.py --tag v0.1.0 --notes notes.md --server server.json

What is unknown before publication (addresses, a contact) stands in pyproject.toml only, and is asked for here.
`--fill` copies it to CITATION.cff. `--notes` writes what changed, `--server` the entry for the registry of MCP servers.
Everything that is wrong is printed at once; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
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
    return [
        *_addresses(project),
        *_tag(tag, version),
        *_changelog(sections, version),
        *_citation(root, project.get("urls", {}).get("Repository")),
    ]


def package_version(root: Path) -> str:
    """`__version__` of the package, read without importing it."""
    return _one(r'^__version__ = "([^"]+)"', _read(root, "src/poolscope/__init__.py")) or "unknown"


def changelog(root: Path) -> dict[str, Section]:
    """The sections of CHANGELOG.md by version."""
    heading = r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>[^\n]+))?\n"
    sections = re.finditer(heading + r"(?P<content>.*?)(?=^## |\Z)", _read(root, "CHANGELOG.md"), re.M | re.S)
    return {each["version"]: Section((each["date"] or "").strip(), each["content"].strip()) for each in sections}


def server_entry(root: Path) -> dict[str, Any]:
    """The entry of `poolscope mcp` for the registry of MCP servers; its name is that of the repository's owner."""
    project = tomllib.loads(_read(root, "pyproject.toml"))["project"]
    version, address = package_version(root), project["urls"]["Repository"]
    command = {"type": "positional", "value": "mcp"}
    extras = {"type": "named", "name": "--with", "value": f"poolscope[mcp,defaults]=={version}"}
    package = {
        "registryType": "pypi",
        "identifier": "poolscope",
        "version": version,
        "runtimeHint": "uvx",
        "runtimeArguments": [extras],
        "packageArguments": [command],
        "transport": {"type": "stdio"},
    }
    return {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": server_name(address),
        "description": "Says which queries an embedding search misses, why, and what is proven to help.",
        "version": version,
        "repository": {"url": address, "source": (urlsplit(address).hostname or "").removesuffix(".com")},
        "packages": [package],
    }


def server_name(repository: str) -> str:
    """The name of the server: the host backwards and the owner, as the registry grants names.

    >>> server_name("https://github.com/Someone/poolscope"), server_name("https://code.python.org/poolscope")
    ('io.github.Someone/poolscope', 'org.python.code/poolscope')
    """
    parts = urlsplit(repository)
    host = "github.io" if parts.hostname == "github.com" else str(parts.hostname)
    owner = parts.path.strip("/").split("/")[:-1]
    return ".".join([*reversed(host.split(".")), *owner]) + "/poolscope"


def fill(root: Path) -> None:
    """Copy version, date and address to CITATION.cff."""
    project = tomllib.loads(_read(root, "pyproject.toml"))["project"]
    needed = _needed(root, project.get("urls", {}).get("Repository"))
    place = root / "CITATION.cff"
    text = place.read_text(encoding="utf-8")
    for key, value in needed.items():
        if value is None:
            continue
        line = f"{key}: {value}" if key == "version" else f'{key}: "{value}"'
        text, count = re.subn(rf"(?m)^{key}: .*$", lambda _, line=line: line, text)
        text = text if count else f"{text.rstrip()}\n{line}\n"
    place.write_text(text, encoding="utf-8")


def _needed(root: Path, repository: str | None) -> dict[str, str | None]:
    """What CITATION.cff has to say; None for what is not known yet."""
    version = package_version(root)
    section = changelog(root).get(version)
    date = section.date if section and _DATE.fullmatch(section.date) else None
    return {"version": version, "date-released": date, "repository-code": repository}


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
    elif not _DATE.fullmatch(sections[version].date):
        wrong.append(
            f"CHANGELOG.md, [{version}]: its date is {sections[version].date!r}; needed is the day of the release, "
            f"as 2026-01-31. Write it after the version."
        )
    if "Unreleased" not in sections:
        wrong.append("CHANGELOG.md has no section [Unreleased]; the next changes need one. Add it, empty.")
    elif sections["Unreleased"].content:
        wrong.append(f"CHANGELOG.md, [Unreleased] is not empty; move its entries to [{version}].")
    return wrong


def _citation(root: Path, repository: str | None) -> list[str]:
    unknown = {"date-released": "the day of the release", "repository-code": "the address of the repository"}
    citation = _read(root, "CITATION.cff")
    stated = {key: _one(rf'^{key}: "?([^"\n]+)"?$', citation) for key in ("version", *unknown)}
    return [
        f"CITATION.cff: {key} is {stated[key]!r}; needed is {value or unknown[key]!r}. Run this with --fill."
        for key, value in _needed(root, repository).items()
        if stated[key] != value or value is None
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
    parser.add_argument("--server", type=Path, help="write the entry for the registry of MCP servers to this file")
    parser.add_argument("--fill", action="store_true", help="copy version, date and address to CITATION.cff first")
    options = parser.parse_args(arguments)
    if options.fill:
        fill(ROOT)
    wrong = problems(ROOT, options.tag)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    if not wrong and options.notes:
        options.notes.write_text(changelog(ROOT)[package_version(ROOT)].content + "\n", encoding="utf-8")
    if not wrong and options.server:
        options.server.write_text(json.dumps(server_entry(ROOT), indent=2) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
