"""The folder of the evidence, and its tables in pages of documentation."""

from __future__ import annotations

import os
import re
from pathlib import Path

from poolscope.charts import save_figure
from poolscope.digests import sealed
from poolscope.errors import InputError
from poolscope.files import atomic_path, check_folder, replaced_files, write_json
from poolscope.research.reproduce.experiment import attempt
from poolscope.research.zoo.evidence import CLAIMS, Evidence

MARKDOWN, JSON, TABLE = "evidence.md", "evidence.json", "evidence.csv"
_MARKED = re.compile(r"(<!-- begin (?P<name>[^>]+?) -->\n).*?(<!-- end (?P=name) -->)", re.DOTALL)


def parts(evidence: Evidence) -> dict[str, str]:
    """Everything that a page can hold, by name."""
    tables = {f"zoo {zoo.corpus['source']}": zoo.to_markdown() for zoo in evidence.zoos}
    claims = {f"claim {claim.key}": evidence.claim_markdown(claim.key) for claim in CLAIMS}
    return {**tables, **claims, "thresholds": evidence.threshold_markdown()}


def save_evidence(evidence: Evidence, folder: str | os.PathLike[str], *, ending: str = ".html") -> Path:
    """Write the tables as Markdown, CSV and JSON, and a figure a claim."""
    from pyarrow import csv

    target = check_folder(folder)
    drawn = {claim.key: attempt(evidence.figure, claim.key)[0] for claim in CLAIMS}
    figures = {key: figure for key, figure in drawn.items() if figure is not None}  # no number, no figure
    titles = {f"claim {claim.key}": f"## {claim.title}\n\n{claim.words}\n" for claim in CLAIMS}
    sections = (f"{titles.get(name, f'## {name}' + chr(10))}\n{content}" for name, content in parts(evidence).items())
    with replaced_files(target, stale=(MARKDOWN, JSON, TABLE)) as written:
        (written / MARKDOWN).write_text("\n".join(sections), encoding="utf-8")
        write_json(written / JSON, sealed(evidence.to_dict()))
        csv.write_csv(evidence.to_table(), written / TABLE)
        for key, figure in figures.items():
            save_figure(figure, written / f"claim-{key}{ending}")
    return target


def put_into_pages(evidence: Evidence, folder: str | os.PathLike[str]) -> list[Path]:
    """Replace what stands between the marks of Markdown pages by the tables of their names; the pages that changed."""
    tables = parts(evidence)
    changed = []
    pages = sorted(Path(folder).rglob("*.md"))
    if not pages:
        raise InputError(f"pages: received {folder}, which holds no Markdown page. Name the folder of the pages.")

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in tables:
            raise InputError(f"{page}: marks a place for {name!r}; there is {', '.join(tables)}. Correct the mark.")
        return f"{match[1]}\n{tables[name]}\n{match[3]}"

    for page in pages:
        content = page.read_text(encoding="utf-8")
        new = _MARKED.sub(table, content)
        if new != content:
            with atomic_path(page) as path:
                path.write_text(new, encoding="utf-8")
            changed.append(page)
    return changed
