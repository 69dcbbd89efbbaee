"""Models with a planted defect, from words to token arrays: what repairs them is known."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

DIMENSION = 24


def word_vector(word: str, dimension: int = DIMENSION) -> np.ndarray:
    """A random vector that belongs to the word, in every process."""
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).normal(size=dimension)


def topic_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of 20 words, each from a few words of its own: one half tells of the other."""
    random = np.random.default_rng(seed)
    own = [[f"w{word}" for word in random.integers(400, size=6)] for _ in range(count)]
    return [" ".join(random.choice(words, size=20)) for words in own]


def sound(texts: Sequence[str]) -> list[np.ndarray]:
    """Nothing is wrong: a token is the vector of its word."""
    return [np.stack([word_vector(word) for word in text.split()]) for text in texts]


def common_direction(texts: Sequence[str]) -> list[np.ndarray]:
    """All tokens share a large component, more or less of it by text: mean removal by projection repairs it."""
    shared = np.ones(DIMENSION) / np.sqrt(DIMENSION)
    return [
        cloud + 8 * np.exp(word_vector(f"scale of {text}")[0]) * shared
        for text, cloud in zip(texts, sound(texts), strict=True)
    ]


def only_the_first_token(texts: Sequence[str]) -> list[np.ndarray]:
    """The first token holds the text, the others are noise: pooling by the first token repairs it."""
    return [
        np.stack([cloud.mean(axis=0), *(5 * word_vector(f"{text} {k}") for k in range(len(cloud)))])
        for text, cloud in zip(texts, sound(texts), strict=True)
    ]


def two_defects(texts: Sequence[str]) -> list[np.ndarray]:
    """Noise in all tokens but the first, and a common direction in all of them: only both repairs together help."""
    shared = np.ones(DIMENSION) / np.sqrt(DIMENSION)
    clouds = []
    for text, cloud in zip(texts, sound(texts), strict=True):
        noise = [2 * word_vector(f"{text} {k}") for k in range(len(cloud))]
        size = 8 * np.exp(word_vector(f"scale of {text}")[0])
        clouds.append(np.stack([cloud.mean(axis=0), *noise]) + size * shared)
    return clouds


def blobs(seed: int = 0, *, spread: float = 0.6, each: int = 25) -> tuple[np.ndarray, np.ndarray]:
    """Points around four centres (texts × 6), and the centre of each."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(4), each)
    centres = random.normal(size=(4, 6))
    return centres[labels] + spread * random.normal(size=(len(labels), 6)), labels
