"""What a lower precision of the model costs: measured on a sample, and said, wherever one was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from poolscope.auditing.search import Search, Units, query_encoder, vectors_of
from poolscope.auditing.words import fill
from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.pooling import TextPooling

_TOKENS, _TEXTS = 40_000, 64  # of the sample, with queries and without
_EXACT = (None, "float32", "float64")
_COSINE = "In {dtype} the vectors keep a mean cosine of {cosine} with those in float32 ({texts:count text})."
_CHANGE = "On {queries:count query} of that sample, nDCG@{k} changes by {change:signed}."
PRECISION_WORDS = (_COSINE, _CHANGE)


def precision_notes(search: Search, dtype: str | None, in_float: Callable[[], TokenEncoder]) -> tuple[str, ...]:
    """What the precision that was asked for changes; nothing where it is float32 or more.

    `in_float` opens the same model in float32.
    """
    if dtype in _EXACT or not search.can_encode:
        return ()
    exact = in_float()
    if not len(search):
        return (_said(dtype, _vectors(exact, search.texts[:_TEXTS]), search.vectors[:_TEXTS]),)
    part = search.part(_TOKENS)
    texts, queries = _vectors(exact, part.texts), _vectors(query_encoder(exact, None), part.queries)
    outcome = part.outcome(lambda rows: np.asarray(queries[rows] @ texts.T))
    change = float((part.before.ndcg - outcome.ndcg).mean())
    values = {"k": search.k, "change": change, "queries": len(part)}
    return _said(dtype, texts, part.vectors), fill(_CHANGE, values)


def _said(dtype: str | None, exact: Units, own: Units) -> str:
    cosine = float(np.einsum("nd,nd->n", exact, own).mean())
    return fill(_COSINE, {"dtype": dtype, "cosine": f"{cosine:.5f}", "texts": len(own)})


def _vectors(encoder: TokenEncoder, texts: Sequence[str]) -> Units:
    return vectors_of(encoder, TextPooling.of(encoder), texts)
