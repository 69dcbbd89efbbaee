"""Texts and encoders for the tests of the audit: small, seeded, with known properties."""

from __future__ import annotations

import zlib

import numpy as np

from tiny_models import WORDS

DIMENSION = 24


def sentences(count: int, *, low: int = 8, high: int = 40, seed: int = 0) -> list[str]:
    """Texts of random words of the tiny models, all different; lengths are even on a log scale."""
    random = np.random.default_rng(seed)
    lengths = np.exp(random.uniform(np.log(low), np.log(high), size=count)).astype(int)
    return [" ".join(random.choice(WORDS[:17], size=length)) for length in lengths]


def topics(count: int, *, words: int = 24, shared: int = 40, seed: int = 0) -> list[str]:
    """Texts with four words of their own each, so that one half can find the other, among `shared` words of all."""
    random = np.random.default_rng(seed)
    own = [[f"w{k}x{n}" for n in range(4)] for k in range(count)]
    common = [f"c{n}" for n in range(shared)]
    return [
        " ".join(np.where(random.random(words) < 0.5, random.choice(own[k], words), random.choice(common, words)))
        for k in range(count)
    ]


def word_vector(word: str) -> np.ndarray:
    """A direction that hangs on the word alone."""
    return np.random.default_rng(zlib.crc32(word.encode())).normal(size=DIMENSION)


def bag_of_words(texts: list[str]) -> list[np.ndarray]:
    """One vector a word, whatever stands around it."""
    return [np.array([word_vector(word) for word in text.split()]) for text in texts]


def in_a_cone(texts: list[str]) -> list[np.ndarray]:
    """Bags of words beside a common direction, as long in each text as chance has it: removing it helps."""
    common = np.ones(DIMENSION)
    clouds = []
    for text, cloud in zip(texts, bag_of_words(texts), strict=True):
        much = 1 + 2 * np.random.default_rng(zlib.crc32(text.encode())).uniform()
        clouds.append(cloud + much * common)
    return clouds


def asking(texts: list[str], *, words: int = 3, every: int = 1) -> dict[str, str]:
    """Queries of some words of each text, its own first; the id of the answer is the place of the text."""
    queries = {}
    for place in range(0, len(texts), every):
        own = sorted(set(texts[place].split()), key=lambda word: (word[0] != "w", zlib.crc32(word.encode())))
        queries[" ".join(own[:words])] = str(place)
    return queries
