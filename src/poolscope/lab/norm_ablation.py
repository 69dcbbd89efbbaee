"""Where the norms of tokens come from: measured with the gains and biases of the norms replaced, then put back.

Behind a norm, x = gain ⊙ z + bias with ‖z‖² = d for every token. With equal gains and no bias every token has the same
norm, Q does not vary, and M and V of a type are two parts of one constant; what varies in a real model comes from here.
In a pre-norm model the tokens between the layers are sums that no norm has touched, and Q varies with or without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poolscope.encoders import as_encoder
from poolscope.encoders.capabilities import attention_of
from poolscope.lab.capture.norms import REPLACEMENTS, NormLayout, Replacement, norm_layout, replaced_norms
from poolscope.lab.tokens.measure import MIN_COUNT, token_statistics
from poolscope.lab.tokens.result import TokenStatistics
from poolscope.numbers.intervals import Estimate
from poolscope.results import Result, origin, plain, transient
from poolscope.show.charts import curves_figure


@dataclass(frozen=True, repr=False)
class NormAblation(Result):
    """What the tokens of one model do on the same texts under each replacement, and its norms as they were.

    layers: one row a replacement and layer, with the columns of `TokenStatistics.layer_table`; statistics: those behind
    them, one a replacement, in this process only.
    """

    norms: NormLayout
    replacements: tuple[Replacement, ...]
    layers: tuple[Mapping[str, Any], ...]
    statistics: tuple[TokenStatistics, ...] | None = transient()
    provenance: Mapping[str, Any] = origin()

    def headline(self) -> dict[str, Any]:
        """The model, the layout of its norms, and how many replacements."""
        return {"model": self.norms.model, "layout": self.norms.layout, "replacements": len(self.replacements)}

    def _shares(self) -> dict[str, dict[int, Estimate]]:
        """By replacement and layer, the share of the squared length that is a direction of all tokens."""
        shares: dict[str, dict[int, Estimate]] = {}
        for row in self.layers:
            shares.setdefault(row["replacement"], {})[row["layer"]] = Estimate(row["mean_share"])
        return shares

    def in_words(self) -> tuple[str, ...]:
        """What the norms do to the direction that all tokens share, in the last layer."""
        last = [f"{share[max(share)].value_or_raise:.0%} ({name})" for name, share in self._shares().items()]
        return (f"In the last layer a direction of all tokens holds of their squared length: {', '.join(last)}.",)

    def figure(self) -> Any:
        """The direction that all tokens share, layer by layer, a line a replacement."""
        title = "How much of the tokens one direction holds, with other norms"
        return curves_figure(self._shares(), title=title, along="share of the squared length")

    def rows(self) -> list[dict[str, Any]]:
        """One row a replacement and layer."""
        return [dict(row) for row in self.layers]


def norm_ablation(
    model: Any,
    texts: Sequence[str],
    *,
    replacements: Sequence[Replacement] = REPLACEMENTS,
    min_count: int = MIN_COUNT,
    **options: Any,
) -> NormAblation:
    """Measure the tokens of a model under each replacement of the gains and biases of its norms, then restore them.

    All norms are replaced at once but those of queries and keys. A loaded model is changed for the time of a pass and
    is bit by bit the same afterwards, whatever happens.

    Parameters
    ----------
    model
        A transformer on torch, as `as_encoder` takes it.
    texts : list of str
        The texts, the same under every replacement.
    replacements : sequence of Replacement
        What becomes of gains and biases; by default five, of which the first changes nothing.
    min_count : int
        Token types with fewer tokens have no part in variations and correlations.
    **options
        The fields of `EncoderOptions`.

    Returns
    -------
    NormAblation
        One row a replacement and layer, and the norms as they were.

    Examples
    --------
    >>> from poolscope import norm_ablation
    >>> result = norm_ablation("builtin:minilm", ["the cat and the dog"] * 3 + ["the dog ran"] * 3, min_count=3)
    >>> result.norms.layout, len(result.replacements)
    ('post-norm', 5)

    """
    encoder = as_encoder(model, **options)
    layout = norm_layout(encoder)
    statistics = []
    for replacement in replacements:
        with replaced_norms(attention_of(encoder), layout, replacement):
            statistics.append(token_statistics(encoder, texts, min_count=min_count))
    layers = [
        {"replacement": str(replacement), **row}
        for replacement, measured in zip(replacements, statistics, strict=True)
        for row in measured.layer_table().to_pylist()
    ]
    return NormAblation(
        layout, tuple(replacements), tuple(layers), tuple(statistics), provenance=plain(statistics[0].provenance)
    )
