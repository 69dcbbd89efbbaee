"""Do self-made queries stand for real ones? The gain of every cure by both, on every corpus here that has queries.

    python benchmarks/selfmade.py [--models builtin:minilm builtin:wordllama] [--json FILE]

The corpora are the built-in manuals, summaries and bodies of 600 docstrings, and those that `tools/corpora.py` wrote.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import poolscope
from poolscope.texts import Queries, Texts, read_pairs, read_queries, read_texts

DOCSTRINGS = 600


def corpora() -> Iterator[tuple[str, Texts, Queries]]:
    """Every corpus with queries: its name, its texts and its queries."""
    yield "manuals", read_texts("builtin:manuals"), read_queries("builtin:manuals")
    pairs = read_pairs("builtin:docstrings", limit=DOCSTRINGS)
    asked = {pairs.queries.texts[q]: pairs.documents.ids[d] for q, d in pairs.index.tolist()}
    yield "docstrings", pairs.documents, read_queries(asked)
    folder = Path(os.environ.get("POOLSCOPE_CORPORA") or Path.home() / ".cache" / "poolscope" / "corpora")
    for place in sorted(folder.glob("*/texts.jsonl")):
        yield place.parent.name, read_texts(place), read_queries(place.parent / "queries.jsonl")


def compared(model: str, texts: Texts, queries: Queries) -> dict[str, Any]:
    """The gains of every cure by real and by self-made queries, and what the decision was by each."""
    audits = [poolscope.audit(model, texts, queries=asked, cache=True) for asked in (queries, None)]
    gains: list[dict[str, float]] = [
        {trial.name: trial.gain.value_or_raise for trial in audit.trials} for audit in audits
    ]
    proven = [{trial.name for trial in audit.trials if trial.proven} for audit in audits]
    both = [name for name in gains[0] if name in gains[1]]
    real, made = (np.array([each[name] for name in both]) for each in gains)
    return {
        "queries": [audit.queries for audit in audits],
        "kind": audits[1].self_made,
        "ndcg": [audit.ndcg.value_or_raise for audit in audits],
        "cures": {name: [float(a), float(b)] for name, a, b in zip(both, real, made, strict=True)},
        "correlation": float(stats.spearmanr(real, made).statistic),
        "best": [max(both, key=lambda name, each=each: each[name]) for each in gains],
        "proven": [sorted(names) for names in proven],
    }


def main() -> None:
    """Print one row a corpus and model, and one a cure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["builtin:minilm", "builtin:wordllama"])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = {}
    print("| model | corpus | queries real / self-made | nDCG@10 | ρ over cures | best cure, real | by self-made |")
    print("|---|---|---|---|---|---|---|")
    for model in args.models:
        for name, texts, queries in corpora():
            row = rows[f"{model} {name}"] = compared(model, texts, queries)
            counts, scores = row["queries"], row["ndcg"]
            best = [f"{cure} {row['cures'][cure][k]:+.3f}" for k, cure in enumerate(row["best"])]
            print(
                f"| {model.removeprefix('builtin:')} | {name} | {counts[0]} / {counts[1]} ({row['kind']}s) | "
                f"{scores[0]:.2f} / {scores[1]:.2f} | {row['correlation']:.2f} | {best[0]} | {best[1]} |",
                flush=True,
            )
    cures = dict.fromkeys(cure for row in rows.values() for cure in row["cures"])
    print(
        "\n| cure | corpora | mean gain, real | by self-made | same sign | ρ over corpora |\n|---|---|---|---|---|---|"
    )
    for cure in cures:
        real, made = np.array([row["cures"][cure] for row in rows.values() if cure in row["cures"]]).T
        correlation = f"{stats.spearmanr(real, made).statistic:.2f}" if len(real) > 4 else ""
        same = int((np.sign(real) == np.sign(made)).sum())
        print(f"| {cure} | {len(real)} | {real.mean():+.3f} | {made.mean():+.3f} | {same} | {correlation} |")
    claims = [(name, cure) for name, row in rows.items() for cure in row["proven"][1]]
    held = sum(rows[name]["cures"].get(cure, [0.0])[0] > 0 for name, cure in claims)
    print(f"\nproven by self-made queries: {len(claims)}; of these a gain by real ones too: {held}")
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
