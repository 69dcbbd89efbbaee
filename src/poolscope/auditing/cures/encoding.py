"""Cures that re-encode: chunks that fit, stripped boilerplate, a temperature of attention, other prompts.

Only what differs is encoded, each different text once for all cures and looks; where that is more than a share of the
corpus, on a part of the search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.cure import Cost, Cure, Tried, free
from poolscope.auditing.cures.late import best_of_spans
from poolscope.auditing.search import Search
from poolscope.chunks.splitting import TokenRuler, split_texts
from poolscope.encoders.base import TokenEncoder, resolve_prompt
from poolscope.encoders.capabilities import has_attention, options_of
from poolscope.encoders.pooling import TextPooling
from poolscope.errors import InputError, ModelError
from poolscope.numbers import Index
from poolscope.numbers.ranking import unit_rows
from poolscope.repairs.repair_file import encode_at
from poolscope.repairs.temperature.rules import PUBLISHED_TAU, Constant
from poolscope.texts.groups import Boilerplate, boilerplate

# Tokens that a cure may encode: a share of the corpus, but neither fewer nor more than these.
_SHARE, _FEWEST, _MOST = 0.25, 20_000, 100_000
# Chunks may take more, since most of what they show is lost in small parts. Of 1,000 docstrings 0.4 of the search, with
# chunks of 0.6 of the tokens, shows their gain as surely as the whole does (z 3.5 and 3.2).
_CHUNKS = 0.6
_LOOKED_AT = 20_000  # texts whose beginnings and ends are compared


def budget(search: Search, share: float = _SHARE) -> int:
    """How many tokens a cure may encode."""
    return int(min(max(search.lengths.sum() * share, _FEWEST), _MOST))


# -- chunks that fit --------------------------------------------------------------------------------------------------


def _sample_to_split(search: Search) -> Search:
    """So much of the search that its chunks are about as many tokens as may be encoded."""
    needed, most = _fitting_cost(search).tokens, budget(search, _CHUNKS)
    return search if needed <= most else search.part(int(search.lengths.sum()) * most // needed)


def _chunks(search: Search, cut: Index) -> list[list[str]] | None:
    """The chunks of some texts."""
    texts = [search.texts[k] for k in cut.tolist()]
    try:
        pieces = split_texts(texts, TokenRuler(search.encoder))
    except (InputError, ModelError):  # nothing here counts tokens, as of a server
        return None
    return [[piece.of(texts) for piece in parts] for parts in pieces]


def _fitting(search: Search) -> Tried | None:
    cut = np.flatnonzero(search.truncated > 0)
    chunks = _chunks(search, cut) if len(cut) else None
    if chunks is None:
        return None
    counts = np.ones(len(search.texts), np.int64)
    counts[cut] = [len(parts) for parts in chunks]
    vectors = np.repeat(search.vectors, counts, axis=0)
    owner = np.repeat(np.arange(len(counts)), counts)
    vectors[np.isin(owner, cut)] = search.encoded([chunk for parts in chunks for chunk in parts])

    def scores(rows: slice) -> NDArray[Any]:
        return best_of_spans(search.query_vectors[rows], vectors, counts)

    return Tried(search, scores)


def _fitting_cost(search: Search) -> Cost:
    cut = search.truncated > 0
    return Cost(texts=int(cut.sum()), tokens=int((search.lengths + search.truncated)[cut].sum()))


CHUNKS_THAT_FIT = Cure(
    name="chunks-that-fit",
    label="chunks that fit",
    does="Split the texts that are longer than the model reads.",
    needs="encoder",
    tries=_fitting,
    cost=_fitting_cost,
    step="chunks",
    sample=_sample_to_split,
)


# -- boilerplate ------------------------------------------------------------------------------------------------------


def shared_words(search: Search) -> Boilerplate:
    """The words that at least half of the texts begin or end with; of many texts, half of a sample."""
    return search.once_for_all(
        "boilerplate", lambda: boilerplate([search.texts[k] for k in search.drawn(_LOOKED_AT).tolist()])
    )


def _stripped(search: Search) -> Tried | None:
    shared = shared_words(search)
    if not shared:
        return None
    texts = [shared.parted(text)[1] for text in search.texts]
    vectors = _re_encoded(search, search.vectors, search.texts, texts)
    return Tried(search, lambda rows: np.asarray(search.query_vectors[rows] @ vectors.T))


def _re_encoded(
    search: Search, vectors: NDArray[Any], texts: Sequence[str], others: Sequence[str]
) -> NDArray[np.float32]:
    """Vectors of the changed texts; unchanged texts are not re-encoded."""
    changed = [k for k, pair in enumerate(zip(texts, others, strict=True)) if pair[0] != pair[1]]
    renewed = np.array(vectors, dtype=np.float32)
    if changed:
        renewed[changed] = search.encoded([others[k] for k in changed])
    return renewed


def _stripped_cost(search: Search) -> Cost:
    shared = shared_words(search)
    changed = np.array([shared.parted(text)[1] != text for text in search.texts])
    return Cost(texts=int(changed.sum()), tokens=int(search.lengths[changed].sum()))


STRIPPED = Cure(
    name="stripped",
    label="boilerplate stripped",
    does="Strip the words that most texts begin or end with before you encode.",
    needs="encoder",
    tries=_stripped,
    cost=_stripped_cost,
    step="chunks",
    sample=lambda search: search.part(budget(search, 1.0)) if shared_words(search) else search,
)


# -- temperature ------------------------------------------------------------------------------------------------------


def _temperature(search: Search, tau: float) -> Tried | None:
    if not has_attention(search.encoder):
        return None

    def encode(encoder: TokenEncoder, texts: list[str]) -> NDArray[np.float32]:
        return unit_rows(TextPooling.of(encoder).pool(encode_at(encoder, texts, Constant(tau))[-1]), "texts")

    queries = search.encoded(search.queries, way=f"queries at {tau:g}", by=partial(encode, search.asking))
    texts = search.encoded(search.texts, way=f"texts at {tau:g}", by=partial(encode, search.encoder))
    return Tried(search, lambda rows: np.asarray(queries[rows] @ texts.T))


def _everything(search: Search) -> Cost:
    return Cost(texts=len(search.texts), tokens=int(search.lengths.sum()))


TEMPERATURE = Cure(
    name="temperature",
    label=f"attention temperature {PUBLISHED_TAU:g}",
    does=f"Divide the attention logits of the model by {PUBLISHED_TAU:g}, and re-encode texts and queries.",
    needs="encoder",
    tries=partial(_temperature, tau=PUBLISHED_TAU),
    cost=_everything,
    step="model",
    setting={"temperature": PUBLISHED_TAU},
    sample=lambda search: search.part(budget(search)) if has_attention(search.encoder) else search,
)


# -- prompts ----------------------------------------------------------------------------------------------------------


def prompts_of(search: Search) -> Mapping[str, str]:
    """The prompts that queries could have: none, and each that the model declares; not the one in use."""
    used = resolve_prompt(search.asking.card, options_of(search.asking))
    others = {"": "", **dict(search.encoder.card.prompts)}
    return {name: prompt for name, prompt in others.items() if prompt != used}


def _prompted(search: Search) -> Tried | None:
    """The prompt that serves the queries of other folds best."""
    prompts = prompts_of(search)
    if not search.encoder.card.prompts or not prompts:
        return None
    tables = [search.encoded_queries(prompt) for prompt in prompts.values()]
    outcomes = [search.outcome(lambda rows, table=table: table[rows] @ search.vectors.T) for table in tables]  # type: ignore[misc]
    queries = np.empty_like(search.query_vectors)
    chosen = []
    for fold in np.unique(search.folds):
        others = search.folds != fold
        best = int(np.argmax([outcome.ndcg[others].mean() for outcome in outcomes])) if others.any() else 0
        queries[~others] = tables[best][~others]
        chosen.append(list(prompts)[best])
    prompt = max(set(chosen), key=chosen.count)
    return Tried(search, lambda rows: np.asarray(queries[rows] @ search.vectors.T), {"prompt": prompts[prompt]})


PROMPT = Cure(
    name="prompt",
    label="another prompt for queries",
    does="Encode the queries with another prompt that the model declares, or with none.",
    needs="encoder",
    tries=_prompted,
    cost=free,
    step="setting",
)
