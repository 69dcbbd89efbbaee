"""Does the advice hold on queries that were kept back? The decision of one half of the queries, tried on the other.

    python benchmarks/held_back.py [--models builtin:wordllama builtin:minilm] [--corpora NAME …] [--splits 3]

The corpora are those of `selfmade.py`. Each split draws other halves of the queries; both halves are audited, and the
cure that one half proves is looked up among the trials of the other.
"""

from __future__ import annotations

import argparse
import random
from typing import Any

import numpy as np

import poolscope
from poolscope.texts import Queries, Texts
from selfmade import corpora


def halves(queries: Queries, seed: int) -> list[dict[str, list[str]]]:
    """The queries in two halves, each with the ids that answer them."""
    named: list[list[str]] = [[] for _ in queries.texts]
    for query, name in zip(queries.query.tolist(), queries.named, strict=True):
        named[query].append(name)
    order = list(range(len(queries.texts)))
    random.Random(seed).shuffle(order)
    middle = len(order) // 2
    return [{queries.texts[k]: named[k] for k in sorted(part)} for part in (order[:middle], order[middle:])]


def decided(
    model: str, texts: Texts, queries: Queries, *, seed: int, encode: bool, reaches: list[float]
) -> list[tuple[float, float]]:
    """The gain of the cure that each half proves, and its gain on the other half; `reaches` takes √units·smallest."""
    audits = [poolscope.audit(model, texts, queries=half, cache=True, encode=encode) for half in halves(queries, seed)]
    reaches += [each.decision.smallest * each.units**0.5 for each in audits if each.decision.smallest]
    pairs = []
    for own, other in (audits, audits[::-1]):
        proven: Any = own.decision.gain if own.decision.kind == "cure" else None
        gains = {trial.name: trial.gain.value_or_raise for trial in other.trials}
        if proven is not None and own.decision.step in gains:
            pairs.append((proven.value_or_raise, gains[own.decision.step]))
    return pairs


def main() -> None:
    """Print one row a corpus and model, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["builtin:wordllama", "builtin:minilm"])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--corpora", nargs="+", metavar="NAME", help="those of selfmade.py; by default all")
    parser.add_argument("--no-encode", action="store_true", help="leave out cures that re-encode")
    args = parser.parse_args()
    print(
        "| model | corpus | queries a half | halves that prove a cure | its gain there | on the other half | above 0 |"
    )
    print("|---|---|---|---|---|---|---|")
    everything: list[tuple[float, float]] = []
    reaches: list[float] = []
    for model in args.models:
        for name, texts, queries in corpora():
            if name not in (args.corpora or [name]):
                continue
            rounds = range(args.splits)
            pairs = [
                pair
                for seed in rounds
                for pair in decided(model, texts, queries, seed=seed, encode=not args.no_encode, reaches=reaches)
            ]
            everything += pairs
            shown = row_of(pairs)
            count = f"{len(pairs)} of {2 * args.splits}"
            print(
                f"| {model.removeprefix('builtin:')} | {name} | {len(queries.texts) // 2} | {count} | {shown} |",
                flush=True,
            )
    print(f"| all | | | {len(everything)} | {row_of(everything)} |")
    low, middle, high = np.quantile(reaches, (0.1, 0.5, 0.9))
    print(f"smallest gain that would have shown, times √units: {middle:.2f} (eight in ten {low:.2f} to {high:.2f})")


def row_of(pairs: list[tuple[float, float]]) -> str:
    """Both mean gains, and how many of the second are above 0."""
    if not pairs:
        return "– | – | –"
    own, other = np.array(pairs).T
    return f"{own.mean():+.3f} | {other.mean():+.3f} | {(other > 0).sum()} of {len(other)}"


if __name__ == "__main__":
    main()
