"""One question, one number: whatever command shows a number that the audit shows, it is the audit's."""

from __future__ import annotations

import json

import pytest

from audit_data import topics
from command_line import run

MODEL = "builtin:wordllama"


@pytest.fixture(scope="module", params=["ids", "column"])
def shown(request, tmp_path_factory):
    """What the audit and the commands write about texts in documents, of which two are copies."""
    folder = tmp_path_factory.mktemp("numbers")
    texts = topics(120)
    rows = [{"id": f"d{k // 2}#{k % 2}", "text": text} for k, text in enumerate([*texts, texts[3], texts[50]])]
    if request.param == "column":
        rows = [{"id": f"t{k}", "text": row["text"], "doc_id": f"d{k // 3}"} for k, row in enumerate(rows)]
    asked = [
        {"query": " ".join(text.split()[:4]), "relevant": [rows[k if k % 3 else (k + 7) % 120]["id"]]}
        for k, text in enumerate(texts)
    ]
    for name, lines in {"texts": rows, "queries": asked}.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    named, queries = [MODEL, folder / "texts.jsonl"], ["--queries", folder / "queries.jsonl"]
    calls = {
        "audit": [*named, *queries, "--no-files", "--details"],
        "scores": [*named, *queries],
        "hubs": [*named, *queries],
        "spread": named,
        "corpus": named,
        "length": [*named, *queries, "--no-probes"],
        "evaluate": [*named, *queries],
        "cost": [*named, *queries],
    }
    written, printed = {}, {}
    for command, words in calls.items():
        printed[command] = run(command, *words, "--json", folder / f"{command}.json")
        written[command] = json.loads((folder / f"{command}.json").read_text())
    return written, printed


def numbers(estimate, *, interval=True):
    """The value, and the ends of its interval where both commands make it in the same way."""
    around = estimate["interval"] or {}
    return [estimate["value"], *([around.get("low"), around.get("high")] if interval else [])]


def same(one, other, **options):
    for mine, theirs in zip(numbers(one, **options), numbers(other, **options), strict=True):
        assert mine == theirs or mine == pytest.approx(theirs, rel=1e-6)


def test_every_number_that_a_command_and_the_audit_show_is_one(shown):
    written, _ = shown
    found = written["audit"]
    causes = {finding["cause"]: finding["number"] for finding in found["findings"]}
    same(causes["shared-direction"], written["spread"]["shared"]["mean_cosine"])
    same(causes["hubs"], written["hubs"]["largest"])
    same(causes["long-texts"], written["length"]["profile"]["slope"])
    same(causes["short-texts"], written["length"]["retrieval"]["shortest"]["ratio"])
    same(causes["truncation"], written["corpus"]["truncated"], interval=False)  # merged shards know fewer documents
    same(causes["duplicates"], written["corpus"]["repeated"], interval=False)
    assert causes["duplicates"]["value"] > 0
    for name in ("threshold", "recall", "precision", "relevant", "wrong"):
        same(found["threshold"][name], written["scores"][name])


def test_quality_is_the_same_whoever_measures_it(shown):
    written, _ = shown
    found, before = written["audit"], written["evaluate"]["before"]
    # `evaluate` takes no column of documents, so that its interval is then over queries.
    same(found["ndcg"], before, interval=before["interval"]["unit"] == found["ndcg"]["interval"]["unit"])
    others = {"mrr": "MRR@10", "recall": "recall@10", "found": "found@10"}
    for name, other in others.items():
        assert found[name]["value"] == pytest.approx(before["others"][other], rel=1e-6)
    mean = next(way for way in written["cost"]["ways"] if way["name"] == "mean")
    assert found["ndcg"]["value"] == pytest.approx(mean["ndcg"]["value"], rel=1e-6)


def test_the_score_threshold_is_the_same_sentence(shown):
    _, printed = shown
    sentence = next(line for line in printed["scores"].splitlines() if line.startswith("A score threshold of"))
    assert sentence.split("keeps")[0].strip() in " ".join(printed["audit"].split())
