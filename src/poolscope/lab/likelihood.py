"""Cost of a compressed context for a decoder: the likelihood of the continuation, between full context and none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poolscope.encoders import as_encoder
from poolscope.encoders.base import check_texts
from poolscope.encoders.capabilities import require_capability
from poolscope.errors import InputError, whole_number
from poolscope.lab.capture.continuation import FULL, NONE, check_continues, context_tokens, continued
from poolscope.numbers import Array
from poolscope.numbers.intervals import Estimate, RatioParts, mean_estimate
from poolscope.results import Result, bulk, cells, origin, provenance
from poolscope.show.charts import GREY, ratios_figure
from poolscope.texts.groups import checked_groups

RATIOS = (2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class CompressedContext:
    """A context of `states` vectors in place of the tokens: means of windows, means of windows that are cut where the
    embeddings change, or as many of the last tokens.

    `compressed`, `adaptive` and `truncated` are the change of the log-likelihood against the full context, in nats a
    token of the continuation; `kept…` are the share of what the full context gains over none (1: all of it; below 0:
    worse than no context). `over_truncated` is the log-likelihood of plain windows minus that of the last tokens.
    """

    ratio: int
    states: int
    compressed: Estimate
    adaptive: Estimate
    truncated: Estimate
    kept: Estimate
    kept_adaptive: Estimate
    kept_truncated: Estimate
    over_truncated: Estimate


@dataclass(frozen=True, repr=False, kw_only=True)
class ContextLikelihood(Result):
    """Log-likelihood of a continuation (nats a token) by the form of its context, over texts.

    `full` and `none` are those with the whole context and without; `gain` is their difference. `short` texts had too
    few tokens and were left out. `values` holds one log-likelihood a text for each of `forms`.
    """

    texts: int
    short: int
    context: int
    continuation: int
    full: Estimate
    none: Estimate
    gain: Estimate
    ratios: tuple[CompressedContext, ...] = field(repr=False)
    forms: tuple[str, ...] = field(repr=False)
    values: Array | None = bulk()
    provenance: Mapping[str, Any] = origin()

    def in_words(self) -> tuple[str, ...]:
        """Log-likelihood gained from the context, full and compressed, in words."""
        gain = (
            f"{self.gain.value_or_raise:.2f} nats a token" if self.gain.value is not None else "nothing that is known"
        )
        sentences = [f"A context of {self.context} tokens makes the next {self.continuation} likelier by {gain}."]
        if self.ratios and self.ratios[0].kept.value is not None:
            first = self.ratios[0]
            sentences.append(f"Means of {first.ratio} tokens in its place keep {first.kept.percent()} of that.")
        return tuple(sentences)

    def rows(self) -> list[dict[str, Any]]:
        """One row a ratio."""
        return [cells(vars(row)) for row in self.ratios]

    def figure(self) -> Any:
        """The share of the gain of the context that is kept, by ratio."""
        words = {"kept": "windows", "kept_adaptive": "cut where embeddings change", "kept_truncated": "last tokens"}
        figure = ratios_figure(
            [row.ratio for row in self.ratios],
            {word: [getattr(row, name) for row in self.ratios] for name, word in words.items()},
            title="What a compressed context keeps of the full one",
            across="tokens a state",
            along="share of the gain in likelihood",
        )
        figure.add_hline(0, line={"color": GREY, "dash": "dash"})
        return figure


def context_likelihood(
    model: Any,
    texts: Any,
    *,
    ratios: Sequence[int] = RATIOS,
    context: int = 256,
    continuation: int = 64,
    most: int = 32,
    groups: Sequence[Any] | None = None,
    **options: Any,
) -> ContextLikelihood:
    """How much less likely a decoder finds what follows, when the context is replaced by means of windows.

    The input embeddings of the context are replaced by the means of windows, each at the position of its centre. The
    model was not trained to read such means; one that was may do better.

    Parameters
    ----------
    model
        A decoder with its table of output words: a folder, a hub name, a `.gguf` file, or a pair (model with its
        language-model head, tokenizer).
    texts
        Texts, or what `read_texts` reads. Those with fewer tokens than context and continuation are left out.
    ratios : list of int
        Tokens of a window; the context must hold two windows at least.
    context, continuation : int
        Tokens that are given, and tokens whose likelihood is taken (but for the first, which is given too).
    most : int
        Of more texts the first `most` that are long enough are used.
    groups : list, optional
        The document of each text, where known: intervals are then over these.
    **options
        The fields of `EncoderOptions`.

    Returns
    -------
    ContextLikelihood
        For each ratio the change against the full context and the share of its gain that is kept, beside truncation to
        as many tokens, with intervals over texts.

    Examples
    --------
    >>> context_likelihood(lambda texts: [[[1.0]] for text in texts], ["a text"])
    Traceback (most recent call last):
    poolscope.errors.ModelError: <lambda>: received a model of kind 'function', which has no table that scores the ...

    """
    sizes = [whole_number(ratio, "ratios", least=2) for ratio in ratios]
    context, most = whole_number(context, "context", most=2**31), whole_number(most, "most")
    continuation = whole_number(continuation, "continuation", most=2**31)
    if not sizes or context < 2 * max(sizes) or continuation < 2:
        raise InputError(
            f"context: received {context} tokens, continuation {continuation} and ratios {sizes}; allowed: ratios of "
            f"which two windows fit into the context, and a continuation of two tokens or more. Change one of them."
        )
    encoder = as_encoder(model, **options)
    require_capability(encoder, "unembedding")
    check_continues(encoder)
    listed = check_texts(texts)
    lead, ids, long = context_tokens(encoder, listed, context + continuation)
    if len(long) < 2:
        raise InputError(
            f"texts: {len(long)} of {len(listed)} have the {context + continuation} tokens that a context of {context} "
            f"and a continuation of {continuation} need; at least two must. Pass longer texts, or ask for less."
        )
    made = continued(encoder, lead, ids[:most], context=context, ratios=sizes)
    forms = {form: each.likelihood for form, each in made.items()}
    settings = {"ratios": sizes, "context": context, "continuation": continuation, "most": most}
    about = {**provenance(settings=settings), "model": encoder.card.to_dict()}
    full, none = forms[FULL], forms[NONE]
    documents = None if groups is None else [checked_groups(groups, len(listed))[k] for k in long[:most]]
    return ContextLikelihood(
        texts=len(full),
        short=len(listed) - len(long),
        context=context,
        continuation=continuation,
        full=mean_estimate(full, documents),
        none=mean_estimate(none, documents),
        gain=mean_estimate(full - none, documents),
        ratios=tuple(_row(forms, ratio, context, documents) for ratio in sizes),
        forms=tuple(forms),
        values=np.stack(list(forms.values()), axis=1),
        provenance=about,
    )


def _row(forms: Mapping[str, Array], ratio: int, context: int, documents: Sequence[str] | None) -> CompressedContext:
    full, none = forms[FULL], forms[NONE]
    values = [forms[f"{form}:{ratio}"] for form in ("mean", "adaptive", "last")]
    gained, whole = np.stack(values, axis=1) - none[:, None], np.repeat((full - none)[:, None], 3, axis=1)
    parts = RatioParts(gained, whole, documents or ())
    plain, adaptive, truncated = values
    return CompressedContext(
        ratio=ratio,
        states=-(-context // ratio),
        compressed=mean_estimate(plain - full, documents),
        adaptive=mean_estimate(adaptive - full, documents),
        truncated=mean_estimate(truncated - full, documents),
        kept=parts.estimate(0),
        kept_adaptive=parts.estimate(1),
        kept_truncated=parts.estimate(2),
        over_truncated=mean_estimate(plain - truncated, documents),
    )
