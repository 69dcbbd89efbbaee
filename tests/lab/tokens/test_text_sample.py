"""The sample of texts: the same for every cut, order and merge, with exact numbers of copies."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from poolscope.lab.tokens.moments import SampledText, TextSample
from poolscope.numbers.streaming import mark_of


def text(mark: int, tokens: int, *, copies: int = 1) -> SampledText:
    """A text that can be told from its mark."""
    return SampledText(copies, np.full(tokens, mark % 5), {0: np.full((tokens, 2), float(mark))})


def content(sample: TextSample) -> list[tuple[int, int, int]]:
    return [(mark, kept.copies, len(kept.keys)) for mark, kept in sample.items()]


def smallest(marks: list[int], *, texts: int, tokens: int) -> list[tuple[int, int, int]]:
    """By definition: different marks in rising order, while fewer texts and tokens than the limits came before."""
    result: list[tuple[int, int, int]] = []
    for mark in sorted(set(marks)):
        if len(result) < texts and sum(entry[2] for entry in result) < tokens:
            result.append((mark, marks.count(mark), mark % 4))
    return result


@settings(max_examples=200)
@given(marks=st.lists(st.integers(0, 40), max_size=60), cut=st.integers(0, 60), seed=st.integers(0, 5))
def test_parts_in_any_order_merge_to_the_smallest_marks_of_all(marks, cut, seed):
    shuffled = [marks[k] for k in np.random.default_rng(seed).permutation(len(marks))]
    parts = [TextSample(most_texts=7, most_tokens=9) for _ in range(2)]
    for position, mark in enumerate(shuffled):
        parts[position >= cut].add(mark, text(mark, mark % 4))
    expected = smallest(marks, texts=7, tokens=9)
    for merged in (parts[0].merge(parts[1]), parts[1].merge(parts[0])):
        assert content(merged) == expected
        assert merged.tokens == sum(entry[2] for entry in expected)


def test_merging_leaves_both_as_they_were():
    first, second = TextSample(), TextSample()
    first.add(1, text(1, 2))
    second.add(1, text(1, 2))
    assert content(first.merge(second)) == [(1, 2, 2)]
    assert content(first) == content(second) == [(1, 1, 2)]


def test_special_tokens_are_left_out_and_vectors_copied():
    rows = {0: np.arange(10.0).reshape(5, 2), 3: -np.arange(5.0).reshape(5, 1)}
    sample = TextSample()
    sample.take([8, 4], np.array([2, 3]), np.array([-1, 5, 6, -2, 7]), rows)
    rows[0][:] = 0
    (low, second), (high, first) = sample.items()
    assert (low, high) == (4, 8)
    assert first.keys.tolist() == [5]
    assert second.keys.tolist() == [6, 7]
    assert first.rows[0].tolist() == [[2.0, 3.0]]
    assert second.rows[3].tolist() == [[-2.0], [-4.0]]


def test_the_sample_is_bounded_by_texts_and_by_tokens():
    many, long = TextSample(), TextSample()
    for number in range(1000):
        mark = mark_of(str(number).encode())
        many.add(mark, text(mark, 1))
        long.add(mark, text(mark, 1000))
    assert len(many) == 256
    assert len(long) == 9  # the ninth passes 8,192 tokens
    assert [mark for mark, _ in long.items()] == sorted(mark_of(str(k).encode()) for k in range(1000))[:9]


def test_marks_are_as_good_as_random_and_fit_the_file():
    marks = np.array([mark_of(f"text {number}".encode()) for number in range(4000)], dtype=np.int64)
    shares = marks / 2**63
    assert abs(shares.mean() - 0.5) < 3 * np.sqrt(1 / 12 / 4000)
    assert abs(np.corrcoef(shares, np.arange(4000))[0, 1]) < 0.05


def test_keys_can_be_renumbered():
    sample = TextSample()
    sample.add(3, SampledText(2, np.array([0, 1, 0]), {0: np.ones((3, 1))}))
    assert sample.renumbered({0: 7, 1: 2}).items()[0][1].keys.tolist() == [7, 2, 7]
    assert content(sample.renumbered({0: 7, 1: 2})) == content(sample)
