"""The table of families in docs/layers.md, made from the models that the tests run.

    python tests/support_matrix.py

writes it into the page; a test fails where the page says something else.
"""

from __future__ import annotations

from pathlib import Path

import zoo
from poolscope.errors import ModelError
from poolscope.files import atomic_file
from poolscope.lab.capture import OpenModel

DOCUMENT = Path(__file__).parent.parent / "docs" / "layers.md"
BEGIN, END = "<!-- matrix: written by tests/support_matrix.py -->\n", "<!-- end of matrix -->"

_HEAD = (
    "| family | class | norm | attention reads | values | key/value heads | added to H | theorem 1 |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def matrix() -> str:
    """One row a family, from what was found in its tiny model; then the families that are refused, and why."""
    rows = [_row(name) for name in zoo.FAMILIES]
    refused = [f"- {name}: no {_reason(name)}." for name in zoo.REFUSED]
    return _HEAD + "\n".join(rows) + "\n\nRefused, with the piece that cannot be seen:\n\n" + "\n".join(refused) + "\n"


def _row(name: str) -> str:
    model, tokenizer = zoo.family(name)
    sites = OpenModel((model, tokenizer)).sites
    site = sites[-1]
    projections = site.projections
    shared = ", layers shared" if len({id(s.block) for s in sites}) < len(sites) else ""
    cells = (
        name,
        f"`{type(model).__name__}`",
        ("pre-norm" if site.pre_norm else "post-norm") + shared,
        "U = norm(H)" if site.pre_norm else "U = H",
        "one projection with queries and keys" if projections.merged else "own projection",
        "grouped" if projections.value_heads < projections.heads else "one a head",
        "norm(A U W_V W_O)" if site.post_norm else "A U W_V W_O",
        "does not apply" if site.post_norm else "checked",
    )
    return "| " + " | ".join(cells) + " |"


def _reason(name: str) -> str:
    try:
        OpenModel(zoo.refused(name))
    except ModelError as error:
        piece = str(error).partition("cannot show the ")[2].partition(":")[0]
        return piece.removesuffix(" of attention 1")
    raise AssertionError(f"{name} was not refused")


def main() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    with atomic_file(DOCUMENT) as stream:
        stream.write((before + matrix() + after).encode("utf-8"))


if __name__ == "__main__":
    main()
