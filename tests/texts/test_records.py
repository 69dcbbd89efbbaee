"""Texts as a sequence: slices, digest, samples; and the examples of the documentation."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolscope.errors import InputError
from poolscope.texts import ReadReport, Texts, read_texts


def test_texts_is_a_sequence_of_its_texts() -> None:
    texts = read_texts({"text": ["a", "b", "c"], "label": [1, 2, 3]}, label_column="label")
    assert (len(texts), texts[-1], list(texts), "b" in texts) == (3, "c", ["a", "b", "c"], True)
    assert (texts[1:].ids, texts[1:].texts, texts[1:].labels) == (("1", "2"), ("b", "c"), ("2", "3"))
    assert "3 texts from memory" in repr(texts)
    (note,) = texts[1:].report.notes()
    assert note.startswith("2 of 3 texts ")
    assert read_texts(texts) is texts
    report = ReadReport(read=2, kept=2)
    with pytest.raises(InputError, match="2 texts, 1 ids "):
        Texts(("0",), ("a", "b"), None, "memory", report)
    with pytest.raises(InputError, match="2 texts, 2 ids and 1 "):
        Texts(("0", "1"), ("a", "b"), ("x",), "memory", report)
    with pytest.raises(InputError, match=r"2 ids .* 1 "):
        Texts(("0", "0"), ("a", "b"), None, "memory", report)


def test_digest_frames_ids_and_texts() -> None:
    def digest(*pairs: tuple[str, str]) -> str:
        ids, texts = zip(*pairs, strict=True)
        return Texts(ids, texts, None, "memory", ReadReport(len(ids), len(ids))).digest

    framed = b"".join(len(s.encode()).to_bytes(8, "little") + s.encode() for s in ("1", "ü", "2", "b"))
    assert digest(("1", "ü"), ("2", "b")) == hashlib.sha256(framed).hexdigest()
    others = [digest(("2", "b"), ("1", "ü")), digest(("1ü", ""), ("2", "b")), digest(("1", "ü2"), ("b", ""))]
    assert len({digest(("1", "ü"), ("2", "b")), *others}) == 4


@given(size=st.integers(1, 40), small=st.integers(1, 50), more=st.integers(0, 10), seed=st.integers(0, 99))
def test_samples_are_ordered_nested_and_repeatable(size: int, small: int, more: int, seed: int) -> None:
    texts = read_texts([f"text {i}" for i in range(size)])
    sample = texts.sample(small, seed)
    assert len(sample) == min(small, size)
    positions = [int(i) for i in sample.ids]
    assert positions == sorted(set(positions))
    assert all(texts[p] == text for p, text in zip(positions, sample, strict=True))
    assert set(sample) <= set(texts.sample(small + more, seed))
    assert texts.sample(small, seed) == sample
    assert read_texts(list(texts), limit=small, seed=seed) == sample  # drawn while reading: the same


def test_sample_is_the_same_on_every_machine_and_even() -> None:
    texts = read_texts([str(i) for i in range(1000)])
    assert texts.sample(5).texts == ("40", "186", "402", "583", "993")
    assert len({texts.sample(5, seed).texts for seed in range(20)}) == 20
    drawn = [int(text) for seed in range(200) for text in texts.sample(10, seed)]
    assert abs(np.mean(drawn) - 499.5) < 4 * 1000 / np.sqrt(12 * len(drawn))
    for wrong in (0, -1, 1.5):
        with pytest.raises(InputError, match=f"size of {wrong};"):
            texts.sample(wrong)
        with pytest.raises(InputError, match=f"size of {wrong};"):
            read_texts(["a"], limit=wrong)
