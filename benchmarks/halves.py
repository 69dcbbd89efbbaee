"""Print what the permutation floor of d_Σ says of two random halves of one text, and of two different texts.

Halves of one text are exchangeable: p should be uniform, 5 % of pairs should differ, and the mean excess should be 0.

    python benchmarks/halves.py --pairs 400
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from scipy import stats

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.metrics.socm.floor import DEALS, dealt_pairs
from poolscope.numbers import Array
from poolscope.texts import read_texts


def halves(clouds: TokenClouds, tokens: int, pairs: int, random: np.random.Generator) -> Iterator[Array]:
    """Two clouds of tokens/2 random tokens of one text, `pairs` times."""
    for text in np.resize(np.flatnonzero(clouds.lengths >= tokens), pairs):
        chosen = random.permutation(int(clouds.lengths[text]))[:tokens]
        yield from (np.asarray(clouds[int(text)])[part] for part in np.split(chosen, 2))


def different(clouds: TokenClouds, tokens: int, pairs: int, random: np.random.Generator) -> Iterator[Array]:
    """Clouds of tokens/2 random tokens of two texts, `pairs` times."""
    enough = np.flatnonzero(clouds.lengths >= tokens)
    for _ in range(pairs):
        for text in random.choice(enough, 2, replace=False):
            yield np.asarray(clouds[int(text)])[random.permutation(int(clouds.lengths[text]))[: tokens // 2]]


def row(model: str, of: str, tokens: int, arrays: list[Array], random: np.random.Generator) -> str:
    """Return one line of the table: d_Σ, floor, excess with its standard error, share that differs, uniformity of p."""
    observed, dealt = dealt_pairs(TokenClouds.from_arrays(arrays), np.arange(len(arrays)).reshape(-1, 2))
    excess = observed - dealt.floor
    error = excess.std(ddof=1) / np.sqrt(len(excess))
    uniform = stats.kstest(dealt.p - random.random(len(dealt.p)) / (DEALS + 1), "uniform").pvalue
    return (
        f"| {model} | {of} | {tokens // 2} | {observed.mean():.4f} | {dealt.floor.mean():.4f} | "
        f"{excess.mean():+.4f} ± {1.96 * error:.4f} | {(dealt.p <= 0.05).mean():.1%} | {uniform:.2g} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["builtin:minilm", "builtin:wordllama"])
    parser.add_argument("--corpus", default="builtin:manuals")
    parser.add_argument("--tokens", nargs="+", type=int, default=[10, 30, 60, 120, 250], help="tokens of both halves")
    parser.add_argument("--pairs", type=int, default=400)
    args = parser.parse_args()
    print("| model | two clouds of | tokens each | d_Σ | floor | excess, 95 % | p ≤ 0.05 | p uniform? (KS) |")
    print("|---|---|---|---|---|---|---|---|")
    for model in args.models:
        clouds = as_encoder(model).encode(read_texts(args.corpus).texts)[-1]
        for tokens in args.tokens:
            random = np.random.default_rng(tokens)
            for of, made in (("one text", halves), ("two texts", different)):
                arrays = list(made(clouds, tokens, args.pairs, random))
                print(row(model.removeprefix("builtin:"), of, tokens, arrays, random), flush=True)


if __name__ == "__main__":
    main()
