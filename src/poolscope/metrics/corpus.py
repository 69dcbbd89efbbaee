"""What a corpus looks like to a model: lengths, cut texts, norms of the mean vectors, and texts that stand there twice.

Everything here is a count or a sum, so that parts merge to exactly the numbers of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from poolscope.clouds import TokenClouds
from poolscope.clouds.token_clouds import check_clouds
from poolscope.clouds.vectors import Vectors
from poolscope.errors import InputError, require
from poolscope.metrics.length.bins import histogram_bins
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Estimate, left_out_estimate, share_estimate, share_of
from poolscope.numbers.moments import text_moments
from poolscope.numbers.streaming import added, document_marks, histogram_quantile, marks_of, row_marks, text_marks
from poolscope.results import Result, bulk, origin, provenance
from poolscope.show.charts import COLOURS, panel
from poolscope.texts.groups import plain_text

_GROUPS = 50  # of texts, by their marks, those of a document together: left out in turn


@dataclass(frozen=True, repr=False, kw_only=True)
class CorpusSummary(Result):
    """The texts of a corpus as a model reads them.

    `truncated` is the share of texts that were cut, `tokens_cut` how many tokens that lost. `norm` is the mean length
    of the mean vectors, `smallest_norm` and `largest_norm` its range. `repeated` is the share of texts that equal an
    earlier one but for letter case and blanks; no value where the clouds do not hold their texts. The intervals are
    over texts, and over documents where the ids of the texts name them (doc#3). `lengths` counts the texts of every
    number of tokens, `cut_by_length` those that were cut.
    """

    texts: int
    tokens: int
    dimension: int
    truncated: Estimate
    tokens_cut: int
    norm: Estimate
    smallest_norm: float
    largest_norm: float
    repeated: Estimate
    lengths: Index = bulk(required=True)
    cut_by_length: Index = bulk(required=True)
    provenance: Mapping[str, Any] = origin()

    field_words: ClassVar[Mapping[str, str]] = {
        "truncated": "share of texts truncated",
        "norm": "mean length of vectors",
        "smallest_norm": "shortest vector",
        "largest_norm": "longest vector",
        "repeated": "texts that repeat another",
    }

    def in_words(self) -> tuple[str, ...]:
        """How long the texts are, and what was lost."""
        lines = [f"Half of the {self.texts:,} texts have {self.quantile(0.5):,} tokens or fewer."]
        if self.tokens_cut:
            share = self.tokens_cut / (self.tokens + self.tokens_cut)
            lines.append(
                f"{self.truncated.value_or_raise:.0%} of the texts are truncated: the model never reads "
                f"{self.tokens_cut:,} tokens ({share:.0%} of all)."
            )
        else:
            lines.append("Every text is read to its end.")
        if self.repeated.value:
            lines.append(f"{self.repeated.value:.1%} of the texts repeat an earlier one.")
        return tuple(lines)

    def quantile(self, share: float) -> int:
        """The number of tokens that a share of the texts does not exceed."""
        return histogram_quantile(self.lengths, share)

    @property
    def counted_lengths(self) -> tuple[Index, Index]:
        """The lengths that there are, from short to long, and the number of texts of each."""
        present = np.flatnonzero(self.lengths)
        return present, self.lengths[present]

    def derived(self) -> dict[str, Any]:
        """Shortest, median and longest text."""
        return {"shortest": self.quantile(0.0), "median": self.quantile(0.5), "longest": len(self.lengths) - 1}

    def rows(self) -> list[dict[str, Any]]:
        """One row a bin of lengths: how many texts, and how many of them were cut."""
        bins = histogram_bins(self.lengths, min_texts=1)
        numbers = np.arange(len(self.lengths))
        cut = np.histogram(numbers, bins.edges, weights=self.cut_by_length)[0].astype(np.int64)
        return [
            {"tokens": label, "texts": int(count), "truncated": int(lost)}
            for label, count, lost in zip(bins.labels, bins.counts, cut, strict=True)
        ]

    def figure(self) -> Any:
        """How many texts there are of every length, and how many of them were cut."""
        go, rows = require("plotly.graph_objects", "report"), self.rows()
        labels, cut = [row["tokens"] for row in rows], [row["truncated"] for row in rows]
        whole = [row["texts"] - row["truncated"] for row in rows]
        parts = (("read to the end", whole, COLOURS[0]), ("cut", cut, COLOURS[1]))
        bars = [go.Bar(x=labels, y=y, name=name, marker={"color": colour}) for name, y, colour in parts]
        figure = panel(*bars, title="How long the texts are", across="tokens", along="texts", height=380)
        return figure.update_layout(barmode="stack")


@dataclass(frozen=True, eq=False)
class CorpusCounts:
    """Counts of some texts; `marks` are the marks of the texts in pieces, or None if they are not kept."""

    dimension: int
    tokens_cut: int
    lengths: Index
    cut_by_length: Index
    counts: Array  # of texts by group, as are the next two
    cut: Array
    norms: Array
    documents: bool
    norm_range: tuple[float, float]
    marks: tuple[Index, ...] | None
    clouds: Mapping[str, Any] = field(default_factory=dict)

    def merge(self, other: CorpusCounts) -> CorpusCounts:
        """The counts of the texts of both."""
        names = ("lengths", "cut_by_length", "counts", "cut", "norms")
        sums: dict[str, Any] = {name: added(getattr(self, name), getattr(other, name)) for name in names}
        (low, high), (also_low, also_high) = self.norm_range, other.norm_range
        return replace(
            self,
            **sums,
            tokens_cut=self.tokens_cut + other.tokens_cut,
            documents=self.documents or other.documents,
            norm_range=(min(low, also_low), max(high, also_high)),
            marks=None if self.marks is None or other.marks is None else self.marks + other.marks,
        )


def corpus_summary(clouds: TokenClouds) -> CorpusSummary:
    """Lengths, cut texts, norms and repeated texts of clouds.

    Parameters
    ----------
    clouds : TokenClouds
        Of any model and layer.

    Returns
    -------
    CorpusSummary
        Counts, and the shares of texts that were cut or repeat an earlier one, with their intervals.

    Examples
    --------
    >>> arrays = [[[1.0]], [[2.0], [2.0]], [[3.0]]]
    >>> result = corpus_summary(TokenClouds.from_arrays(arrays, texts=["a", "b c", "A"], truncated=[0, 4, 0]))
    >>> result.tokens, result.tokens_cut, round(result.repeated.value, 3), result.norm.value
    (4, 4, 0.333, 2.0)

    """
    return corpus_finish(corpus_part(check_clouds(clouds, "corpus_summary")))


def corpus_part(shard: TokenClouds | Vectors) -> CorpusCounts:
    """The counts of some clouds, or of vectors that know the lengths of their texts and what was cut off."""
    if isinstance(shard, TokenClouds):
        norms, dimension, source = text_moments(shard).norms, shard.dimension, shard.provenance
        marks = text_marks(shard, np.arange(len(shard)))
    else:
        norms, dimension, source = np.linalg.norm(shard.vectors, axis=1), shard.vectors.shape[1], {}
        marks = row_marks(shard.vectors, shard.texts)
    documents = document_marks(shard.ids)
    groups = np.where(documents < 0, marks, documents) % _GROUPS
    lengths, cut = shard.lengths, shard.truncated
    if lengths is None or cut is None:
        raise InputError("received vectors without lengths and cut tokens; needed: clouds, or a store of moments.")
    longest = int(lengths.max()) + 1
    return CorpusCounts(
        dimension=dimension,
        tokens_cut=int(cut.sum(dtype=np.int64)),
        lengths=np.bincount(lengths),
        cut_by_length=np.bincount(lengths[cut > 0], minlength=longest),
        counts=np.bincount(groups, minlength=_GROUPS).astype(np.float64),
        cut=np.bincount(groups, cut > 0, _GROUPS).astype(np.float64),
        documents=bool((documents >= 0).any()),
        norms=np.bincount(groups, norms, _GROUPS).astype(np.float64),
        norm_range=(float(norms.min()), float(norms.max())),
        marks=None if shard.texts is None else (np.unique(marks_of(map(plain_text, shard.texts))),),
        clouds={name: value for name, value in source.items() if name in ("model", "options")},
    )


def _truncated(counts: CorpusCounts, texts: int) -> Estimate:
    """The share of texts that were cut; where some are of one document, its interval is over groups of documents."""
    if not counts.documents:
        return share_of(int(counts.cut.sum()), texts, each="texts")
    filled = counts.counts > 0
    return share_estimate(counts.cut[filled], counts.counts[filled], each="groups of documents", most=texts)


def corpus_finish(counts: CorpusCounts) -> CorpusSummary:
    """The summary of what was counted."""
    texts = int(counts.lengths.sum())
    total, smallest, largest = float(counts.norms.sum()), *counts.norm_range
    without = (total - counts.norms) / np.maximum(texts - counts.counts, 1)
    distinct = None if counts.marks is None else len(np.unique(np.concatenate(counts.marks)))
    content = provenance(settings={})
    content["clouds"] = [dict(counts.clouds)]
    return CorpusSummary(
        texts=texts,
        tokens=int(counts.lengths @ np.arange(len(counts.lengths))),
        dimension=counts.dimension,
        truncated=_truncated(counts, texts),
        tokens_cut=counts.tokens_cut,
        norm=left_out_estimate(total / texts, without, counts.counts, unit="groups of texts"),
        smallest_norm=smallest,
        largest_norm=largest,
        repeated=Estimate(None) if distinct is None else Estimate((texts - distinct) / texts),
        lengths=counts.lengths,
        cut_by_length=counts.cut_by_length,
        provenance=content,
    )
