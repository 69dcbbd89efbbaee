"""What a decoder writes after a compressed context: its own continuation again, or the answer to a question.

A likelihood says how surprised a decoder is; here is what it would write, taking the likeliest token each time. A
target is written whole exactly when each of its tokens is the likeliest after those before it. So one pass over the
target tells what writing token by token would give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poolscope.encoders import as_encoder
from poolscope.encoders.base import TokenEncoder, check_texts
from poolscope.encoders.capabilities import require_capability
from poolscope.errors import InputError, whole_number
from poolscope.lab.capture.continuation import (
    FULL,
    NONE,
    Continued,
    check_continues,
    context_tokens,
    continued,
    plain_tokens,
)
from poolscope.numbers import Array
from poolscope.numbers.intervals import Estimate, mean_estimate, share_estimate
from poolscope.results import Result, cells, origin, provenance
from poolscope.show.charts import GREY, ratios_figure
from poolscope.texts.groups import checked_groups
from poolscope.texts.sources import open_table

RATIOS = (2, 4, 8, 16)
FORMS = {"mean": "windows", "adaptive": "cut where embeddings change", "last": "last tokens"}
OWN, ANSWERS = "what it writes after the full context", "answers"
COLUMNS = ("context", "question", "answer")
_ASK, _ANSWER = "\nQuestion: {}\nAnswer:", " {}"
_Forms = dict[str, Continued]


@dataclass(frozen=True)
class WrittenAfter:
    """What is written after one form of the context.

    `same`: share of the tokens of the target before the first one that differs. `whole`: share of the targets that are
    written to the end. `likelihood`: nats a token of the target. `ratio` is None for the full context and for none.
    """

    form: str
    ratio: int | None
    same: Estimate
    whole: Estimate
    likelihood: Estimate


@dataclass(frozen=True, repr=False, kw_only=True)
class ContextWriting(Result):
    """What a decoder writes after a compressed context, over texts or questions.

    `target`: what is to be written. `tokens`: mean length of a target. `short` texts had too few tokens and were left
    out.
    """

    target: str
    texts: int
    short: int
    tokens: float
    forms: tuple[WrittenAfter, ...] = field(repr=False)
    provenance: Mapping[str, Any] = origin()

    def at(self, form: str, ratio: int | None = None) -> WrittenAfter:
        """What is written after one form: "full", "none", or "mean", "adaptive", "last" at a ratio."""
        return next(row for row in self.forms if (row.form, row.ratio) == (form, ratio))

    def in_words(self) -> tuple[str, ...]:
        """How much is written after the full context, after none, and after the shortest windows."""
        named = {FULL: "the full context", NONE: "no context"}
        shown = [row for row in self.forms if row.form in named or row.form == "mean"][:3]
        what = "answers" if self.target == ANSWERS else "continuations"
        return tuple(
            f"After {named.get(row.form, f'means of {row.ratio} tokens')} the decoder writes {row.whole.percent()} of "
            f"{self.texts} {what} word for word."
            for row in shown
            if row.whole.value is not None and not (row.form == FULL and self.target == OWN)
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a form of the context."""
        return [cells(vars(row)) for row in self.forms]

    def figure(self) -> Any:
        """The share of targets written whole, by ratio, beside that after no context."""
        ratios = sorted({row.ratio for row in self.forms if row.ratio is not None})
        figure = ratios_figure(
            ratios,
            {words: [self.at(form, ratio).same for ratio in ratios] for form, words in FORMS.items()},
            title="What is written after a compressed context",
            across="tokens a state",
            along="share of the target that is written",
        )
        for form, words in ((NONE, "no context"), (FULL, "full context")):
            if self.target != OWN or form != FULL:
                height = self.at(form).same.value
                figure.add_hline(height, line={"color": GREY, "dash": "dash"}, annotation_text=words)
        figure.update_yaxes(range=[0, 1.02])
        return figure


def context_writing(
    model: Any,
    texts: Any,
    *,
    ratios: Sequence[int] = RATIOS,
    context: int = 128,
    length: int = 16,
    most: int = 32,
    groups: Sequence[Any] | None = None,
    **options: Any,
) -> ContextWriting:
    """Does a decoder go on in the same words when its context is replaced by means of windows?

    What it writes after the full context is the target; one token of the text stands between context and target in
    every form. The model was not trained to read means.

    Parameters
    ----------
    model
        A decoder with its table of output words, as in `context_likelihood`.
    texts
        Texts. Those with no more tokens than the context are left out.
    ratios : list of int
        Tokens of a window; the context must hold two windows at least.
    context, length : int
        Tokens of the context, and tokens that are written.
    most : int
        Of more texts the first `most` that are long enough are used.
    groups : list, optional
        The document of each text, where known: intervals are then over these.
    **options
        The fields of `EncoderOptions`.

    Returns
    -------
    ContextWriting
        The share of the target that is written after each form of the context.

    Examples
    --------
    >>> context_writing(lambda texts: [[[1.0]] for text in texts], ["a text"])
    Traceback (most recent call last):
    poolscope.errors.ModelError: <lambda>: received a model of kind 'function', which has no table that scores the ...

    """
    sizes = _sizes(ratios)
    context, length, most = (
        whole_number(value, name, most=2**31)
        for value, name in ((context, "context"), (length, "length"), (most, "most"))
    )
    if context < 2 * max(sizes):
        raise InputError(
            f"context: received {context} tokens and ratios {sizes}; allowed: ratios of which two windows fit into the "
            f"context. Change one of them."
        )
    encoder = _decoder(model, options)
    listed = check_texts(texts)
    lead, ids, long = context_tokens(encoder, listed, context + 1)
    if len(long) < 2:
        raise InputError(
            f"texts: {len(long)} of {len(listed)} have the {context + 1} tokens that a context of {context} needs; at "
            f"least two must. Pass longer texts, or ask for a shorter context."
        )
    ids = np.pad(ids[:most], ((0, 0), (0, length)))  # what is written takes the place of these zeros
    forms = continued(encoder, lead, ids, context=context, ratios=sizes, own=True)
    documents = None if groups is None else [checked_groups(groups, len(listed))[k] for k in long[:most]]
    return ContextWriting(
        target=OWN,
        texts=len(ids),
        short=len(listed) - len(long),
        tokens=float(length),
        forms=_rows(forms, np.full(len(ids), float(length)), documents),
        provenance=_about(encoder, {"ratios": sizes, "context": context, "length": length, "most": most}),
    )


def context_answers(
    model: Any, questions: Any, *, ratios: Sequence[int] = RATIOS, most: int = 100, **options: Any
) -> ContextWriting:
    """Does a decoder still answer when the context of a question is replaced by means of windows?

    The question follows the context as "Question: … Answer:"; the answer counts where it is written word for word.

    Parameters
    ----------
    model
        A decoder with its table of output words, as in `context_likelihood`.
    questions
        A table with the columns `context`, `question` and `answer`: a path, a hub name, a dict of lists.
    ratios : list of int
        Tokens of a window.
    most : int
        The first `most` questions are used.
    **options
        The fields of `EncoderOptions`.

    Returns
    -------
    ContextWriting
        The share of answers that are written after each form of the context, with the likelihood of the answers.

    Examples
    --------
    >>> context_answers(lambda texts: [[[1.0]] for text in texts], {"context": [], "question": [], "answer": []})
    Traceback (most recent call last):
    poolscope.errors.ModelError: <lambda>: received a model of kind 'function', which has no table that scores the ...

    """
    sizes, most = _sizes(ratios), whole_number(most, "most", most=2**31)
    encoder = _decoder(model, options)
    table = open_table(questions)
    for column in COLUMNS:
        table.require(column, column)
    listed = [tuple(map(str, row)) for row, _ in zip(table.rows(list(COLUMNS)), range(most), strict=False)]
    parts = (
        [row[0] for row in listed],
        [_ASK.format(row[1]) for row in listed],
        [_ANSWER.format(row[2]) for row in listed],
    )
    lead, tokens = np.zeros(0, np.int64), []
    for pieces in parts:
        lead, rows = plain_tokens(encoder, pieces) if pieces else (lead, [])
        tokens.append(rows)
    made, lengths = [], []
    for before, ask, answer in zip(*tokens, strict=True):
        if len(before) < 2 or not len(answer):
            continue
        ids = np.concatenate([before, ask, answer])[None]
        made.append(continued(encoder, lead, ids, context=len(before), ratios=sizes, given=len(ask)))
        lengths.append(float(len(answer)))
    if len(made) < 2:
        raise InputError(
            f"questions: {len(made)} of {len(listed)} have a context of two tokens or more and an answer; at least two "
            f"must. Name a table with more of them."
        )
    forms = {
        form: Continued(
            *(np.concatenate([getattr(each[form], name) for each in made]) for name in ("likelihood", "written"))
        )
        for form in made[0]
    }
    return ContextWriting(
        target=ANSWERS,
        texts=len(made),
        short=len(listed) - len(made),
        tokens=float(np.mean(lengths)),
        forms=_rows(forms, np.array(lengths), None),
        provenance=_about(encoder, {"ratios": sizes, "most": most}),
    )


def _sizes(ratios: Sequence[int]) -> list[int]:
    sizes = [whole_number(ratio, "ratios", least=2) for ratio in ratios]
    if not sizes:
        raise InputError("ratios: received none; allowed: whole numbers, 2 or more, such as [2, 8].")
    return sizes


def _decoder(model: Any, options: Mapping[str, Any]) -> TokenEncoder:
    encoder = as_encoder(model, **options)
    require_capability(encoder, "unembedding")
    check_continues(encoder)
    return encoder


def _about(encoder: TokenEncoder, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**provenance(settings=settings), "model": encoder.card.to_dict()}


def _rows(forms: _Forms, lengths: Array, documents: Sequence[str] | None) -> tuple[WrittenAfter, ...]:
    each = "texts"
    rows = []
    for name, own in forms.items():
        form, _, ratio = name.partition(":")
        written = own.written.astype(np.float64)
        rows.append(
            WrittenAfter(
                form=form,
                ratio=int(ratio) if ratio else None,
                same=share_estimate(written / lengths, units=documents, each=each),
                whole=share_estimate((written == lengths).astype(np.float64), units=documents, each=each),
                likelihood=mean_estimate(own.likelihood, documents, each=each),
            )
        )
    return tuple(rows)
