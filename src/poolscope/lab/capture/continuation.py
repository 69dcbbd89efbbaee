"""The likelihood of a continuation for a decoder, given a context in several forms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.capabilities import attention_of, tokenizer_of, unembedding_of
from poolscope.encoders.decoders import check_decoder
from poolscope.errors import ModelError, require
from poolscope.numbers import Array, Index
from poolscope.numbers.moments import Spans, window_bounds

FULL, NONE = "full", "none"
# Settings of a configuration that change the scores of words beyond the table, with the value that changes nothing.
_SCALED = {"logit_scale": 1.0, "logits_scaling": 1.0}
_BATCH_STATES = 2048


def context_tokens(
    encoder: TokenEncoder, texts: Sequence[str], length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Index]:
    """Ids of leading special tokens; the first `length` further ids of each long enough text; positions of these texts.

    A token that the tokenizer puts before every text (BOS) belongs to no window: the model rests its attention on it.
    """
    tokenizing = tokenizer_of(encoder)
    special = tokenizing.vocabulary.special_ids
    tokens = tokenizing.tokenize(list(texts), None)
    rows, long_enough, lead = [], [], np.zeros(0, np.int64)
    for text in range(len(texts)):
        ids = tokens.ids[tokens.offsets[text] : tokens.offsets[text + 1]].astype(np.int64)
        plain = np.array([int(k) not in special for k in ids], dtype=bool)
        if plain.sum() >= length:
            first = int(np.flatnonzero(plain)[0])
            rows.append(ids[first:][plain[first:]][:length])
            long_enough.append(text)
            lead = ids[:first]
    return lead, np.array(rows, dtype=np.int64).reshape(len(rows), length), np.array(long_enough, dtype=np.int64)


def continuation_likelihoods(
    encoder: TokenEncoder, lead: Index, ids: NDArray[np.int64], *, context: int, ratios: Sequence[int]
) -> dict[str, Array]:
    """Mean log-likelihood (nats a token) of what follows `context` tokens, one value a text, by form of the context.

    ids: one row a text, context and continuation (N × n). The first token of the continuation is read in every form
    and scored in none, so that all forms score the same tokens. Forms: "full"; "none"; "mean:ρ", the input embeddings
    of windows of ρ tokens replaced by their means, at the position of the centre of each; "adaptive:ρ", as many
    windows, cut where the embeddings change; "last:ρ", as many of the last tokens of the context as they are.
    """
    model = attention_of(encoder)[0]
    torch = require("torch", "torch")
    table = torch.from_numpy(unembedding_of(encoder)).to(model.device, model.dtype)
    head = partial(_scores, model=model, table=table)
    batch = max(1, _BATCH_STATES // (ids.shape[1] + len(lead)))
    parts: list[dict[str, Array]] = []
    with torch.inference_mode():
        for start in range(0, len(ids), batch):
            parts.append(_batch_likelihoods(model, head, lead, ids[start : start + batch], context, ratios))
    return {form: np.concatenate([part[form] for part in parts]) for form in parts[0]}


def check_continues(encoder: TokenEncoder) -> None:
    """Refuse a model that cannot be asked for the likelihood of a continuation after states in place of tokens."""
    model = attention_of(encoder)[0]
    accepted = signature(model.forward).parameters
    if lacks := [name for name in ("inputs_embeds", "position_ids") if name not in accepted]:
        raise ModelError(
            f"{encoder.card.name}: its class ({type(model).__name__}) takes no {' and no '.join(lacks)}; a compressed "
            f"context needs both. Pass a decoder such as Llama, Qwen, Gemma or GPT-2."
        )
    check_decoder(encoder, purpose="the likelihood of a continuation")
    if scaled := [name for name, plain in _SCALED.items() if getattr(model.config, name, plain) not in (plain, None)]:
        raise ModelError(
            f"{encoder.card.name}: it scales the scores of words ({', '.join(scaled)}), which poolscope does not know "
            f"how to do. Pass another decoder."
        )


def _batch_likelihoods(
    model: Any, head: Any, lead: Index, ids: NDArray[np.int64], context: int, ratios: Sequence[int]
) -> dict[str, Array]:
    import torch

    rows = np.concatenate([np.broadcast_to(lead, (len(ids), len(lead))), ids], axis=1)
    states = model.get_input_embeddings()(torch.from_numpy(rows).to(model.device))
    start, stop = len(lead), len(lead) + context
    before, inside, after = states[:, :start], states[:, start:stop], states[:, stop:]
    places = torch.arange(rows.shape[1], device=model.device).expand(len(ids), -1)
    first, middle, last = places[:, :start], places[:, start:stop], places[:, stop:]
    wanted = torch.from_numpy(ids[:, context:]).to(model.device)

    def run(states_between: Any, at: Any) -> Array:
        embeddings, positions = torch.cat([before, states_between, after], dim=1), torch.cat([first, at, last], dim=1)
        options = {"use_cache": False} if "use_cache" in signature(model.forward).parameters else {}
        mask = torch.ones(embeddings.shape[:2], dtype=torch.long, device=model.device)
        output = model(inputs_embeds=embeddings, position_ids=positions, attention_mask=mask, **options)
        scores = head(output.last_hidden_state[:, -after.shape[1] : -1])
        chosen = scores.float().log_softmax(-1).gather(-1, wanted[:, 1:, None])[..., 0]
        values: Array = chosen.double().mean(dim=1).cpu().numpy()
        return values

    forms = {FULL: run(inside, middle), NONE: run(inside[:, :0], middle[:, :0])}
    spans = [Spans.of(one.float().cpu().numpy()) for one in inside]
    for ratio in ratios:
        plain = [window_bounds(context, ratio)] * len(ids)
        count = len(plain[0]) - 1
        forms[f"mean:{ratio}"] = run(*_window_means(inside, middle, plain))
        forms[f"adaptive:{ratio}"] = run(*_window_means(inside, middle, [span.bounds(count) for span in spans]))
        forms[f"last:{ratio}"] = run(inside[:, -count:], middle[:, -count:])
    return forms


def _window_means(states: Any, places: Any, bounds: Sequence[Index]) -> tuple[Any, Any]:
    """Means of the windows of each row of states (B × n × d), as many in each, and the positions of their centres."""
    import torch

    means, centres = [], []
    for row, cuts in enumerate(bounds):
        pieces = [slice(int(a), int(b)) for a, b in pairwise(cuts)]
        means.append(torch.stack([states[row, piece].mean(dim=0) for piece in pieces]))
        centres.append(torch.stack([places[row, (piece.start + piece.stop - 1) // 2] for piece in pieces]))
    return torch.stack(means), torch.stack(centres)


def _scores(states: Any, *, model: Any, table: Any) -> Any:
    """The scores of all words; Gemma 2 flattens large ones."""
    scores = states @ table.T
    cap: float | None = getattr(model.config, "final_logit_softcapping", None)
    return scores if not cap else cap * (scores / cap).tanh()
