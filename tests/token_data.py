"""An encoder of words that is arithmetic, and the token statistics straight from their definitions."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import ModelCard, Progress
from poolscope.encoders.tokens import Vocabulary
from poolscope.texts import ReadReport, Texts

WORDS = ["[CLS]", "the", "a", "cat", "dog", "sat", "on", "mat", "tree", "river", "blue", "red", "old", "runs", "far"]
CARD = ModelCard("fake/words", "fake", 6, revision="r1", layers=2, max_length=64, pooling=("mean",))


def sentences(count: int = 40, *, seed: int = 0) -> list[str]:
    """Sentences in which early words of the list are frequent."""
    generator = np.random.default_rng(seed)
    shares = 1 / np.arange(1, len(WORDS)) ** 1.2
    lengths = generator.integers(1, 12, size=count)
    return [" ".join(generator.choice(WORDS[1:], size=n, p=shares / shares.sum())) for n in lengths]


class WordEncoder:
    """One token a word after a [CLS]; its vector depends on the word, its place, the text and the layer."""

    vocabulary = Vocabulary(Vocabulary.of_words(WORDS).name_of, len(WORDS), frozenset({0}))

    def __init__(self, card: ModelCard = CARD, *, before: Callable[[int], None] | None = None) -> None:
        self.card = card
        self.calls: list[list[str]] = []
        self._before = before or (lambda call: None)

    def encode(
        self, texts: Sequence[str], *, layers: Sequence[int] | None = None, progress: Progress | None = None
    ) -> dict[int, TokenClouds]:
        self._before(len(self.calls))
        self.calls.append(list(texts))
        ids = [[0, *(WORDS.index(word) for word in text.split())] for text in texts]
        keys = (-1,) if layers is None else layers
        clouds = {
            layer: TokenClouds.from_arrays(
                [self._cloud(text, row, layer) for text, row in zip(texts, ids, strict=True)],
                texts=list(texts),
                token_ids=[np.array(row) for row in ids],
                truncated=[int(len(row) > 10) for row in ids],
                provenance={"model": self.card.to_dict(), "options": {}, "layer": layer},
            )
            for layer in keys
        }
        if progress is not None:
            progress(len(texts), sum(map(len, ids)))
        return clouds

    def _cloud(self, text: str, ids: Sequence[int], layer: int) -> np.ndarray:
        layer %= CARD.layers + 1  # -1 is the last
        noise = np.random.default_rng(zlib.crc32(f"{layer} {text}".encode())).normal(size=(len(ids), 6))
        words = np.stack([np.random.default_rng(number).normal(size=6) for number in ids])
        return (2 * words + (layer + 1) * noise).astype(np.float32)


def definitions(clouds: TokenClouds, *, special: Sequence[int] = (0,), groups: Sequence[str] | None = None):
    """{group: (count, Q, M, V)} and (Q, M, V_W, V_B, mean cosine) of the ordinary tokens, two passes in float128."""
    rows = defaultdict(list)
    for text in range(len(clouds)):
        for vector, number in zip(clouds[text], clouds.token_ids(text).tolist(), strict=True):
            own = number if groups is None else groups[text]
            rows[("special", number) if number in special else own].append(vector.astype(np.longdouble))
    stacks = {group: np.stack(vectors) for group, vectors in rows.items()}
    table = {
        group: (
            len(X),
            float((X**2).sum(1).mean()),
            float((X.mean(0) ** 2).sum()),
            float(((X - X.mean(0)) ** 2).sum(1).mean()),
        )
        for group, X in stacks.items()
    }
    ordinary = [X for group, X in stacks.items() if not isinstance(group, tuple)]
    everything = np.concatenate(ordinary)
    centre, n = everything.mean(0), len(everything)
    unit = (everything / np.sqrt((everything**2).sum(1, keepdims=True))).astype(np.float64)
    cosines = unit @ unit.T
    corpus = (
        float((everything**2).sum(1).mean()),
        float((centre**2).sum()),
        float(sum(((X - X.mean(0)) ** 2).sum() for X in ordinary) / n),
        float(sum(len(X) * ((X.mean(0) - centre) ** 2).sum() for X in ordinary) / n),
        float((cosines.sum() - np.trace(cosines)) / (n * (n - 1))),
    )
    return table, corpus


TEXTS = sentences()


def corpus(texts=TEXTS, labels=None):
    ids = tuple(str(k) for k in range(len(texts)))
    return Texts(ids, tuple(texts), labels, "memory", ReadReport(read=len(texts), kept=len(texts)))


def rows_of(result, layer):
    """{name: (count, Q, M, V)} of the ordinary groups of a layer."""
    columns = result[layer].types
    values = (result.types.counts, columns.mean_squares, columns.norms_of_means, columns.variances)
    return dict(zip(result.types.names, zip(*(array.tolist() for array in values), strict=True), strict=True))


def assert_equal_results(first, second, *, tolerance=1e-10):
    assert first.types.names == second.types.names
    assert first.types.counts.tolist() == second.types.counts.tolist()
    for mine, other in zip(first.layers, second.layers, strict=True):
        for name in ("mean_squares", "norms_of_means", "variances"):
            for part in ("types", "special"):
                np.testing.assert_allclose(
                    getattr(getattr(mine, part), name), getattr(getattr(other, part), name), rtol=tolerance, atol=1e-12
                )
        for name in ("mean_square", "norm_of_mean", "within", "between"):
            assert getattr(mine.corpus, name) == pytest.approx(getattr(other.corpus, name), rel=tolerance)
        assert mine.mean_cosine == pytest.approx(other.mean_cosine, rel=tolerance)
        assert mine.intervals.keys() == other.intervals.keys()
        for name, interval in mine.intervals.items():
            assert interval.low == pytest.approx(other.intervals[name].low, rel=tolerance)
            assert interval.high == pytest.approx(other.intervals[name].high, rel=tolerance)


def assert_is_by_definition(result, layer, clouds, **choices):
    table, (square, mean, within, between, cosine) = definitions(clouds, **choices)
    found = rows_of(result, layer)
    by_type = choices.get("groups") is None
    expected = {WORDS[k] if by_type else k: row for k, row in table.items() if not isinstance(k, tuple)}
    assert found.keys() == expected.keys()
    for name, row in expected.items():
        assert found[name] == pytest.approx(row, rel=1e-10, abs=1e-12)
    part = result[layer].corpus
    measured = (part.mean_square, part.norm_of_mean, part.within, part.between, result[layer].mean_cosine)
    assert measured == pytest.approx((square, mean, within, between, cosine), rel=1e-10, abs=1e-12)
