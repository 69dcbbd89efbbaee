"""How often is a cure called proven where relevance is random? Many draws, each text encoded once.

    python benchmarks/false_alarms.py [--draws 1000] [--models builtin:minilm builtin:wordllama]

Docstrings are searched with self-made queries. Every cure ranks the texts once; then each draw gives every query a
relevant text by chance, and the trials of the audit say which cures are proven by a gain of 0.01 or more.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy import stats

from poolscope.auditing.cause import all_causes
from poolscope.auditing.worlds import Draw, Source
from poolscope.encoders import as_encoder
from poolscope.evaluation.paired import Family
from poolscope.numbers import Array
from poolscope.numbers.intervals import share_of
from poolscope.texts import read_texts

CELLS = ((100, 50), (300, 100), (1000, 300))
MATTERS, LEVEL, K = 0.01, 0.95, 10


def gains(draw: Draw) -> Array:
    """NDCG@10 of each text as the only relevant one, minus that of the model's own order (cures × queries × texts)."""
    search = draw.audit(draw.texts, encode=False).search
    tables = [_ndcg(search.own_scores(slice(0, len(search))))]
    for cure in {cure.name: cure for cause in all_causes().values() for cure in cause.cures}.values():
        whole = (
            cure.name != "temperature"
            and cure.can_try(search)
            and (cure.sample is None or cure.sample(search) is search)
        )
        tried = cure.tries(search) if whole else None
        if tried is not None:
            tables.append(_ndcg(np.concatenate([tried.scores(rows) for rows in search.blocks()])))
    return np.array(tables[1:]) - tables[0]


def _ndcg(scores: Array) -> Array:
    rank = stats.rankdata(-np.asarray(scores), axis=1)
    return np.where(rank <= K, 1 / np.log2(1 + rank), 0.0)


def main() -> None:
    """Print one row a model and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["builtin:minilm", "builtin:wordllama"])
    parser.add_argument("--draws", type=int, default=1000)
    args = parser.parse_args()
    texts = list(read_texts("builtin:docstrings", limit=4000).texts)
    print("| model | texts | queries | cures | draws | fix by chance | any interval above 0 |")
    print("|---|---|---|---|---|---|---|")
    for model in args.models:
        source = Source.of(as_encoder(model), texts, None)
        for count, asked in CELLS:
            table = gains(source.drawn(count, asked, 0))
            random = np.random.default_rng(0)
            fixed = above = 0
            for _ in range(args.draws):
                relevant = random.integers(count, size=table.shape[1])
                units = np.unique(relevant, return_inverse=True)[1]
                family = Family.of(table[:, np.arange(len(relevant)), relevant].T, units, "texts")
                trials = family.estimates(LEVEL, *family.bounds(LEVEL, draws=1999))
                proven = [each.value_or_raise for each in trials if each.interval is not None and each.interval.low > 0]
                above += bool(proven)
                fixed += any(gain >= MATTERS for gain in proven)
            shares = " | ".join(str(share_of(number, args.draws, each="draws")) for number in (fixed, above))
            print(f"| {model} | {count} | {asked} | {len(table)} | {args.draws} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
