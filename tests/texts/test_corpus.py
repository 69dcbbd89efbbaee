"""The built-in corpus: what is gathered, in which order, and a cache that may break."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from poolscope.errors import InputError
from poolscope.texts import ReadReport, Texts, corpus, read_pairs, read_texts
from poolscope.texts.corpus import docstrings, summary_body_pairs

INIT = '''"""The root of a package made for this test."""
raise RuntimeError("imported")
'''
SHAPES = '''
class Outer:
    """Outer class, five words here.

        Indented more
    than the rest.
    """

    async def method(self):
        """A method with five words."""
        def inner():
            """Inner function with five words."""

    class Inner:
        "Written with simple quotes, five."

try:
    import nothing
except ImportError:
    def fallback():
        """Only defined after an error."""
else:
    with x:
        for y in x:
            def deep():
                """Deep inside of three blocks."""
match x:
    case 1:
        def matched():
            """Defined in a match statement."""

def short():
    """Only four words here."""

def twice():
    """The first of two definitions."""

def twice():
    """The second of two definitions."""

def copied():
    """A method with five words."""

def plain():
    "not" "a docstring of five words" + x

def broken():
    """Escapes such as \\d and \\udcff here."""
'''
FILES = {
    "__init__.py": INIT,
    "shapes.py": SHAPES,
    "sub/__init__.py": "",
    "sub/deeper/leaf.py": '"""A leaf two folders down."""',
    "tests/test_a.py": '"""A test module is left out."""',
    "bad.py": '"""A file that does not parse."""\nthis is no Python:',
    "nul.py": "\0",
    "no-module.py": '"""No import statement names this file."""',
    "no.folder/a.py": '"""No import statement names this folder."""',
    "stub.pyi": '"""A stub file is left out."""',
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "poolscope"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "lib" / "corpusfixture"
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    monkeypatch.syspath_prepend(tmp_path / "lib")
    return folder


def read_fixture() -> Texts:
    return docstrings(packages=["corpusfixture"])


@pytest.mark.usefixtures("package")
def test_what_is_gathered() -> None:
    texts = read_fixture()
    assert dict(zip(texts.ids, texts, strict=True)) == {
        "corpusfixture": "The root of a package made for this test.",
        "corpusfixture.shapes:Outer": "Outer class, five words here.\n\n    Indented more\nthan the rest.",
        "corpusfixture.shapes:Outer.Inner": "Written with simple quotes, five.",
        "corpusfixture.shapes:Outer.method": "A method with five words.",
        "corpusfixture.shapes:Outer.method.<locals>.inner": "Inner function with five words.",
        "corpusfixture.shapes:broken": "Escapes such as \\d and \ufffd here.",
        "corpusfixture.shapes:deep": "Deep inside of three blocks.",
        "corpusfixture.shapes:fallback": "Only defined after an error.",
        "corpusfixture.shapes:matched": "Defined in a match statement.",
        "corpusfixture.shapes:twice": "The first of two definitions.",
        "corpusfixture.sub.deeper.leaf": "A leaf two folders down.",
    }
    assert list(texts.ids) == sorted(texts.ids)
    assert texts.labels is not None
    assert set(texts.labels) == {"corpusfixture", "corpusfixture.shapes", "corpusfixture.sub"}
    assert texts.report == ReadReport(read=11, kept=11)
    assert "corpusfixture" not in sys.modules
    assert gc.isenabled()


def test_packages_that_are_not_there(package: Path) -> None:
    for name in ("no_such_package", "not a name", "os"):
        with pytest.raises(InputError, match=f"package '{name}'"):
            docstrings(packages=[name])
    for path in package.rglob("*.py"):
        path.unlink()
    with pytest.raises(InputError, match=r"\['corpusfixture'\]"):
        read_fixture()


def forbid_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(sources: object) -> None:
        raise AssertionError("gathered again")

    monkeypatch.setattr(corpus, "_gather", gather)


@pytest.mark.usefixtures("package")
def test_second_time_comes_from_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read_fixture()
    assert [path.suffix for path in cache.iterdir()] == [".parquet"]  # no temporary file left
    with monkeypatch.context() as context:
        forbid_gathering(context)
        assert read_fixture() == first


def test_changed_files_are_noticed(package: Path) -> None:
    before = read_fixture()
    (package / "new.py").write_text('"""A module that came later."""')
    assert set(read_fixture()) - set(before) == {"A module that came later."}
    (package / "new.py").write_text('"""A module that was edited later."""')
    assert set(read_fixture()) - set(before) == {"A module that was edited later."}


def rewrite(change: Callable[[dict[str, list[str]]], None]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        table = pq.read_table(path)
        columns = table.to_pydict()
        change(columns)
        pq.write_table(type(table).from_pydict(columns, metadata=table.schema.metadata), path)

    return damage


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "foreign": lambda path: path.write_text("not Parquet"),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "one text changed": rewrite(lambda columns: columns["text"].__setitem__(0, "forged")),
    "null": rewrite(lambda columns: columns["text"].__setitem__(0, None)),
    "row lost": rewrite(lambda columns: [column.pop() for column in columns.values()]),
    "column lost": rewrite(lambda columns: columns.pop("id")),
    "no digest": lambda path: pq.write_table(pq.read_table(path).replace_schema_metadata(None), path),
}


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_cache_is_gathered_again(
    cache: Path, damage: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read_fixture()
    (path,) = cache.iterdir()
    damage(path)
    assert read_fixture() == first
    if path.is_file():  # and repaired
        forbid_gathering(monkeypatch)
        assert read_fixture() == first


@pytest.mark.usefixtures("package")
def test_cache_that_cannot_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    first = read_fixture()
    assert len(first) == 11

    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(corpus, "user_cache_folder", homeless)
    assert read_fixture() == first


def test_summary_and_body(package: Path) -> None:
    body = "word " * 19 + "end"
    documented = {
        "good": f"A summary on\n    two lines.\n\n    {body}",
        "three": f"Only three words.\n\n    {body}",
        "longest": f"{'word ' * 40}\n\n    {body}",
        "too_long": f"{'word ' * 41}\n\n    {body}",
        "brief": f"The body is too short.\n\n    {body.removesuffix(' end')}",
        "blank": f"Blank line with some spaces.\n  \t \n    {body} more\n\n    and more",
        "same": f"A summary that stands twice.\n\n    {body} a",
        "again": f"A summary that stands twice.\n\n    {body} b",
        "alone": "A summary without any body.",
    }
    for path in package.rglob("*.py"):
        path.unlink()
    (package / "__init__.py").write_text(
        "".join(f'def {name}():\n    """{text}\n    """\n' for name, text in documented.items())
    )
    pairs = summary_body_pairs(packages=["corpusfixture"])
    found = {pairs.queries.ids[q]: (pairs.queries[q], pairs.documents[d]) for q, d in pairs.index}
    assert found == {
        "corpusfixture:blank": ("Blank line with some spaces.", f"{body} more\n\nand more"),
        "corpusfixture:good": ("A summary on two lines.", body),
        "corpusfixture:longest": (" ".join(["word"] * 40), body),
    }
    assert len(pairs.documents) == 2  # equal bodies are one document
    assert pairs.report == ReadReport(read=3, kept=3)


def test_real_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = read_texts("builtin:docstrings")
    assert texts.source == "builtin:docstrings"
    assert len(texts) > 9_000
    assert len(set(texts)) == len(texts)
    assert texts.report.notes() == []
    assert texts.labels is not None
    assert {"json", "asyncio", "numpy.linalg", "scipy.stats"} <= set(texts.labels)
    assert not {"numpy", "scipy", "json.decoder", "test"} & (set(texts.labels) - {"numpy", "scipy"})
    assert all(len(text.split()) >= 5 for text in texts)
    assert not any(".tests" in id_ or "idle_test" in id_ or "site-packages" in id_ for id_ in texts.ids)
    by_id = dict(zip(texts.ids, texts, strict=True))
    assert by_id["json:dumps"].startswith("Serialize ``obj`` to a JSON formatted")

    forbid_gathering(monkeypatch)  # the rest comes from the cache just written
    assert docstrings().digest == texts.digest
    assert read_texts("builtin:docstrings", limit=7, seed=1) == texts.sample(7, 1)
    pairs = read_pairs("builtin:docstrings")
    assert len(pairs) == len(pairs.queries) > 3_000
    assert all(4 <= len(query.split()) <= 40 and "\n" not in query for query in pairs.queries)
    assert all(len(document.split()) >= 20 for document in pairs.documents)
    assert len(read_pairs("builtin:docstrings", limit=9)) == 9
