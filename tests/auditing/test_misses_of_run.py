"""What a run misses, against ir-measures and ranx; runs of retrievers; files of TREC in and out; the command."""

from __future__ import annotations

import json

import numpy as np
import pytest

from command_line import run as command
from poolscope import audit_run, read_queries, read_run, run_of
from poolscope.auditing.misses_of_run import RunAudit
from poolscope.errors import InputError
from poolscope.texts.runs import Run, read_qrels, write_qrels

QUERIES, TEXTS, DEPTH = 40, 60, 20


@pytest.fixture(scope="module")
def judged():
    """Graded judgements and a run without ties: some relevant texts are deep, some absent, one query is unanswered."""
    random = np.random.default_rng(0)
    qrels, scores = {}, {}
    for q in range(QUERIES):
        names = [f"t{n}" for n in random.permutation(TEXTS)]
        qrels[f"q{q}"] = {name: int(random.integers(1, 4)) for name in names[: random.integers(1, 4)]}
        qrels[f"q{q}"][names[30]] = 0
        order = random.permutation(TEXTS)[:DEPTH]
        scores[f"q{q}"] = {f"t{n}": float(s) for n, s in zip(order, random.permutation(1000)[:DEPTH], strict=True)}
    del scores["q7"]
    return qrels, scores


def test_quality_is_that_of_ir_measures_and_ranx(judged):
    ir_measures, ranx = pytest.importorskip("ir_measures"), pytest.importorskip("ranx")
    qrels, scores = judged
    found = audit_run(scores, qrels)
    measures = [ir_measures.nDCG @ 10, ir_measures.RR @ 10, ir_measures.R @ 10, ir_measures.Success @ 10]
    whole = ir_measures.calc_aggregate(measures, qrels, {**scores, "q7": {"nothing": 1.0}})
    values = [found.ndcg.value, found.mrr.value, found.recall.value, found.found.value]
    assert values == pytest.approx([whole[each] for each in measures], abs=1e-9)
    other = ranx.evaluate(ranx.Qrels(qrels), ranx.Run({**scores, "q7": {"nothing": 1.0}}), "ndcg@10")
    assert found.ndcg.value == pytest.approx(other, abs=1e-6)
    assert (found.queries, found.unanswered, found.unjudged, found.depth) == (QUERIES, 1, 0, DEPTH)


def test_every_miss_is_a_query_without_a_relevant_text_in_the_top(judged):
    qrels, scores = judged
    found = audit_run(scores, qrels, k=5)
    expected = {}
    for query, texts in qrels.items():
        order = sorted(scores.get(query, {}), key=lambda name: -scores[query][name])
        places = [order.index(name) + 1 for name, grade in texts.items() if grade > 0 and name in order]
        if not places or min(places) > 5:
            expected[query] = min(places) if places else None
    assert {miss.query_id: miss.rank for miss in found.misses} == expected
    assert None in expected.values()
    assert any(rank for rank in expected.values())
    first = next(miss for miss in found.misses if miss.query_id != "q7")
    best = sorted(scores[first.query_id], key=lambda name: -scores[first.query_id][name])
    assert first.before == tuple(best[:3])
    assert RunAudit.from_dict(found.to_dict()) == found


def test_ties_count_with_their_expected_value():
    found = audit_run({"q": {"a": 1, "b": 1}}, {"q": {"b": 1}}, k=1)
    assert (found.found.value, found.misses[0].rank) == (0.5, 1.5)


def test_texts_tell_what_cannot_be_found_and_what_is_equal():
    texts = {"id": ["a", "b", "c"], "text": ["The same  words", "the same words", "other"]}
    found = audit_run({"q": {"b": 2, "c": 1, "a": 0.5}}, {"q": {"a": 1}, "r": {"gone": 1}}, texts, k=1)
    assert found.unknown == 1
    assert [miss.equal for miss in found.misses] == ["b", ""]
    assert any("not among" in sentence for sentence in found.in_words())


def test_files_of_trec_go_in_and_out(judged, tmp_path):
    qrels, scores = judged
    Run(scores).save(tmp_path / "a.run")
    again = read_run(tmp_path / "a.run")
    assert again.scores == scores
    write_qrels(read_qrels(qrels), tmp_path / "qrels.txt")
    ir_measures = pytest.importorskip("ir_measures")
    theirs = {(row.query_id, row.doc_id, row.score) for row in ir_measures.read_trec_run(str(tmp_path / "a.run"))}
    assert theirs == {(q, t, s) for q, texts in scores.items() for t, s in texts.items()}
    grades = {
        (row.query_id, row.doc_id, row.relevance) for row in ir_measures.read_trec_qrels(str(tmp_path / "qrels.txt"))
    }
    assert grades == {(q, t, g) for q, texts in qrels.items() for t, g in texts.items() if g > 0}
    whole = audit_run(tmp_path / "a.run", tmp_path / "qrels.txt")
    assert whole.ndcg == audit_run(list(ir_measures.read_trec_run(str(tmp_path / "a.run"))), qrels).ndcg
    with pytest.raises(InputError, match="without blanks"):
        Run({"q 1": {"a": 1.0}}).save(tmp_path / "b.run")


def test_retrievers_of_other_libraries_are_asked():
    from langchain_core.documents import Document
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from langchain_core.vectorstores import InMemoryVectorStore
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    documents = [Document(page_content=f"text {k}", id=f"d{k}") for k in range(9)]
    store = InMemoryVectorStore.from_documents(documents, DeterministicFakeEmbedding(size=8))
    queries = read_queries({f"text {k}": [f"d{k}"] for k in range(9)})
    run = run_of(store.as_retriever(search_kwargs={"k": 3}), queries)
    assert (len(run), run.depth) == (9, 3)
    assert audit_run(run, queries, k=1).missed == 0  # equal texts have equal vectors

    class Backwards(BaseRetriever):
        def _retrieve(self, query):
            return [NodeWithScore(node=TextNode(text="", id_=f"d{k}"), score=1.0) for k in range(8, -1, -1)]

    assert audit_run(run_of(Backwards(), queries, k=4), queries, k=2).missed == 7
    assert run_of(lambda query: ["d1", "d1", "d2"], queries).scores["0"] == {"d1": 3.0, "d2": 1.0}
    with pytest.raises(InputError, match=r"page_content='x'.* id\b"):
        run_of(lambda query: [Document(page_content="x")], queries)
    with pytest.raises(InputError, match="received int"):
        run_of(3, queries)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("q1 Q0 a 1 0.5\n", "line 1 .* 5 columns"),
        ("q1 Q0 a 1 high x\n", "query 'q1', text 'a': 'high'"),
        ("q1 Q0 a 1 nan x\n", "query 'q1', text 'a': 'nan'"),
        ("q1 Q0 a 1 1 x\nq1 Q0 a 2 0.5 x\n", "twice"),
        ("\n", "no query"),
        ("other Q0 a 1 1 x\n", "'other', .*'q1'"),
    ],
)
def test_what_is_no_run_is_refused_in_one_line(content, words, tmp_path):
    (tmp_path / "a.run").write_text(content)
    with pytest.raises(InputError, match=words):
        audit_run(tmp_path / "a.run", {"q1": {"a": 1}})


def test_what_is_no_object_is_refused():
    for wrong in (3, ["a"], {"q": 3}, {"q": {"a": "x"}}, {}):
        with pytest.raises(InputError):
            read_run(wrong)
        with pytest.raises(InputError):
            read_qrels(wrong)
    with pytest.raises(InputError, match="whole numbers"):
        write_qrels(read_qrels({"q": {"a": 0.5}}), "nowhere")


def test_the_command(judged, tmp_path):
    qrels, scores = judged
    Run(scores).save(tmp_path / "a.run")
    write_qrels(read_qrels(qrels), tmp_path / "qrels.txt")
    arguments = ["misses", str(tmp_path / "a.run"), str(tmp_path / "qrels.txt")]
    shown = command(*arguments, "--json", tmp_path / "m.json")
    missed = audit_run(scores, qrels).missed
    assert f"{QUERIES - missed} of {QUERIES} queries " in shown
    assert json.loads((tmp_path / "m.json").read_text())["queries"] == QUERIES
    command(*arguments, "--fail-below", "1", expect=1)
    command(*arguments, "--fail-below", "0")
    for wrong in ([*arguments, "--fail-below", "2"], ["misses", tmp_path / "none", tmp_path / "qrels.txt"]):
        with pytest.raises(InputError):
            command(*wrong)
