"""What users read is plain: pages, help texts and errors keep the same few rules as the templates of the audit."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import click
import pytest
import typer

from plain_words import number_faults
from poolscope.auditing.words import MOST_LABEL
from poolscope.cli import GROUPS, app
from poolscope.metrics.base import METRICS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MOST_WORDS = 30
UNCLEAR = ("is not shown", "can be told", "anew", "hang on", "hangs on", "cut off", "cut-off")
AVOIDED = (*UNCLEAR, "of them.")
UNPLAIN = re.compile(r"\bstands (?!out\b|in for\b)|[\d%\]], which is ")  # "stands" for "is"; a clause behind a number
MOST_PAGES, MOST_WORDS_OF_DOCS, MOST_LINES = 30, 45_000, 100
HOLLOW = re.compile(
    r"(Ask for (more|less|fewer)|(Pass|Write|Name|Choose|Give|Take|Use) (one|it|them|another|another one)"
    r"( \([^)]*\))?|Check (it|them)|name the file so)\.$"
)  # an instruction that does not say what to type


def faults(sentence: str) -> list[str]:
    """The rules that a sentence breaks; numbers and signs are no words.

    >>> faults("Texts are cut off, with 73 % left.")
    ["'cut off'", 'a blank before %: 3 %']
    """
    words = sum(any(letter.isalpha() for letter in word) for word in sentence.split())
    broken = [f"{words} words"] if words > MOST_WORDS else []
    broken += ["semicolons or colons"] if len(re.findall(r"[;:](?=\s|$)", sentence)) > 2 else []
    broken += [repr(words) for words in AVOIDED if words in sentence]
    broken += [repr(found[0]) for found in UNPLAIN.finditer(sentence)]
    return broken + number_faults(sentence)


def sentences(text: str) -> list[str]:
    """The sentences of a paragraph; emphasis may close one."""
    return [part for part in re.split(r"(?<=[.!?])[*_]*\s+", " ".join(text.split())) if part]


def prose(page: str) -> list[str]:
    """The paragraphs and items of a page without tables, titles, code, comments and addresses."""
    page = re.sub(r"^```.*?^```|<!--.*?-->", "", page, flags=re.DOTALL | re.MULTILINE)
    parts = re.split(r"\n\s*\n|\n(?=[-*|#>] |\d+\. )", page)
    kept = [part for part in parts if not part.lstrip().startswith(("|", "#", "!", "<"))]
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"!\[.*?\]\(.*?\)", "", part)) for part in kept]
    return [re.sub(r"`[^`]*`", "X", part) for part in plain]


def broken(paragraphs):
    return [(fault, each) for part in paragraphs for each in sentences(part) if (fault := faults(each))]


def test_the_rules_find_what_they_are_for():
    assert faults("word " * 31)
    assert faults("One: two; three: four.")
    assert faults("The text was cut off.")
    assert faults("It keeps 73 % here.")
    assert faults("The number stands below the table.")
    assert faults("It loses 12%, which is much.")
    assert not faults("A good sentence, with 73% and [+0.017, −0.042]; one score stands out.")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_plain(page):
    assert broken(prose(page.read_text(encoding="utf-8"))) == []


def test_pages_are_few_and_short():
    pages = PAGES[1:]
    assert len(pages) <= MOST_PAGES
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= MOST_WORDS_OF_DOCS
    assert len(PAGES[0].read_text(encoding="utf-8").splitlines()) <= MOST_LINES  # README


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_plain(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    words = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert broken(part for each in words for part in prose(each)) == []


# -- help ------------------------------------------------------------------------------------------------------------


def commands():
    """Every command with the words that call it."""
    root = typer.main.get_command(app)
    for name in root.list_commands(click.Context(root)):
        command = root.get_command(click.Context(root), name)
        if name in GROUPS:
            yield from ((f"{name} {own}", command.get_command(None, own)) for own in command.list_commands(None))
        else:
            yield name, command


COMMANDS = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_it_answers_and_shows_an_example_that_can_be_copied(name):
    command = COMMANDS[name]
    first, example, *_ = command.help.split("\n\n")
    assert first.strip().endswith((".", "?"))
    assert len(" ".join(first.split())) <= 120
    program, *words = shlex.split(" ".join(example.split()).removeprefix("Example: "))
    called = name.split()
    assert (program, words[: len(called)]) == ("poolscope", called)
    command.make_context(name, words[len(called) :])  # the parser takes the example


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_plain(name):
    command = COMMANDS[name]
    options = [part.help for part in command.params if getattr(part, "help", None)]
    paragraphs = [part for part in command.help.split("\n\n") if not part.strip().startswith("Example:")]
    assert broken([*paragraphs, *options]) == []


def test_metrics_say_what_they_answer_in_one_line():
    assert broken(metric.words for metric in METRICS.values()) == []


# -- errors ----------------------------------------------------------------------------------------------------------


def shown_strings(tree):
    """The strings of a module that may be shown: all but docstrings."""
    hidden = {
        node.body[0].value for node in ast.walk(tree) if isinstance(node, _DOCUMENTED) and ast.get_docstring(node)
    }
    hidden |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node not in hidden and (words := text_of(node)):
            yield words


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_numbers_in_the_source_keep_the_rules(path):
    said = shown_strings(ast.parse(path.read_text(encoding="utf-8")))
    assert [(fault, words) for words in said if (fault := number_faults(words))] == []


def text_of(node) -> str:
    """The words of a message as they stand in the source, with x for each value."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
    return text_of(node.left) + text_of(node.right) if isinstance(node, ast.BinOp) else ""


def messages(path):
    """The messages of all errors that a module raises."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from (words for argument in node.exc.args if (words := text_of(argument)))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_errors_instruct(path):
    said = list(messages(path))
    assert [(found[0], each) for each in said if (found := HOLLOW.search(each.rstrip()))] == []
    assert [(words, each) for each in said for words in UNCLEAR if words in each] == []


# -- labels ----------------------------------------------------------------------------------------------------------


def test_labels_of_causes_and_cures_are_short():
    from poolscope.auditing.cause import all_causes

    labels = [cause.title for cause in all_causes().values()]
    labels += [cure.label for cause in all_causes().values() for cure in cause.cures]
    assert [label for label in labels if len(label) > MOST_LABEL] == []


def named_fields(path):
    """The labels of the fields of results in a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "field_words":
            yield from (each.value for each in getattr(node.value, "values", []) if isinstance(each, ast.Constant))


def test_labels_of_results_are_short():
    labels = [label for path in SOURCES for label in named_fields(path)]
    assert len(labels) > 40
    assert [label for label in labels if len(label) > MOST_LABEL] == []
