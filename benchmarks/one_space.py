"""How often `one_space` alarms where an index holds one model, and where it holds two: the table of docs/vectors.md.

    python benchmarks/one_space.py [--texts NAME=FILE,FILE …] [--models NAME=MODEL …] [--draws 20] [--size 400]

Every corpus is encoded by every model once. One of several files, such as of several languages, has as many texts of
each. Indexes of one model are draws of `--size` texts; indexes of two have 1, 5
or 30 % of their rows from another model of the same dimension (a narrower one is projected at random), from the first
model turned at random (another training of it), or from other texts. An alarm is an interval above the floor.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders import as_encoder
from poolscope.metrics.one_space import OneSpace, one_space
from poolscope.numbers.intervals import share_of
from poolscope.numbers.pooling import pool
from poolscope.texts import read_texts

Vectors = NDArray[np.float64]
CORPORA = {"manuals": "builtin:manuals", "docstrings": "builtin:docstrings"}
MODELS = {"minilm": "builtin:minilm", "wordllama": "builtin:wordllama"}
SHARES = (0.01, 0.05, 0.3)
MOST = 550


def texts_of(sources: str, most: int) -> list[str]:
    """At most so many different texts, as many of each source; sources are set apart by commas."""
    named = sources.split(",")
    return list(dict.fromkeys(text for source in named for text in read_texts(source, limit=most // len(named)).texts))


def encoded(texts: list[str], model: str) -> Vectors:
    """Unit vectors of the texts."""
    table = pool(as_encoder(model).encode(texts)[-1])
    return np.asarray(table / np.linalg.norm(table, axis=1, keepdims=True))


def widened(table: Vectors, dimension: int, random: np.random.Generator) -> Vectors:
    """Vectors in another dimension, by a random projection; as they are where they have it."""
    if table.shape[1] == dimension:
        return table
    return table @ random.standard_normal((table.shape[1], dimension)) / np.sqrt(dimension)


def strangers(name: str, tables: Mapping[str, Vectors], random: np.random.Generator) -> Iterator[tuple[str, Vectors]]:
    """Vectors of the same texts that do not belong to the model of that name."""
    own = tables[name]
    for other, table in tables.items():
        if other != name:
            yield other, widened(table, own.shape[1], random)
    turn = np.linalg.qr(random.standard_normal((own.shape[1], own.shape[1])))[0]
    yield "turned", own @ turn
    yield "other texts", own[random.permutation(len(own))]


def alarms(result: OneSpace) -> bool:
    """Does the interval of the share lie above what one model gives?"""
    return result.above_floor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", nargs="*", default=[], metavar="NAME=FILE,FILE")
    parser.add_argument("--models", nargs="*", default=[], metavar="NAME=MODEL")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--mixed", type=int, default=2, help="of these draws, those that are mixed with others too")
    parser.add_argument("--corpora", nargs="*", default=list(CORPORA), choices=list(CORPORA))
    parser.add_argument("--size", type=int, default=400)
    parser.add_argument("--most", type=int, default=MOST, help="texts of a corpus that the draws are of")
    chosen = parser.parse_args()
    corpora = {name: CORPORA[name] for name in chosen.corpora} | dict(pair.split("=", 1) for pair in chosen.texts)
    models = MODELS | dict(pair.split("=", 1) for pair in chosen.models)
    shares = " | ".join(f"{share:.0%} of another" for share in SHARES)
    print(
        f"| corpus | model | false alarms | {shares} | share found at {SHARES[-1]:.0%} |\n|---|---|---|---|---|---|---|"
    )
    false = np.zeros(2, dtype=int)
    for corpus, source in corpora.items():
        texts = texts_of(source, chosen.most)
        tables = {name: encoded(texts, model) for name, model in models.items()}
        for name in models:
            random = np.random.default_rng(0)
            nulls, hits, found = [], {share: [] for share in SHARES}, []
            for draw in range(chosen.draws):
                rows = random.permutation(len(texts))[: chosen.size]
                drawn = [texts[k] for k in rows]
                nulls.append(alarms(one_space(tables[name][rows], drawn)))
                if draw >= chosen.mixed:
                    continue
                for _, others in strangers(name, {key: table[rows] for key, table in tables.items()}, random):
                    for share in SHARES:
                        mixed = tables[name][rows].copy()
                        replaced = random.permutation(len(rows))[: round(share * len(rows))]
                        mixed[replaced] = others[replaced]
                        result = one_space(mixed, drawn)
                        hits[share].append(alarms(result))
                        if share == SHARES[-1] and result.other.value is not None:
                            found.append(result.other.value)
            false += (sum(nulls), len(nulls))
            cells = " | ".join(f"{np.mean(hits[share]):.0%}" for share in SHARES)
            head = f"| {corpus} ({len(texts)}) | {name} | {sum(nulls)} of {len(nulls)}"
            print(f"{head} | {cells} | {np.median(found):.2f} |", flush=True)
    print(f"\nFalse alarms in all: {false[0]} of {false[1]}, {share_of(*map(int, false), each='indexes')}")


if __name__ == "__main__":
    main()
