"""How a decoder goes on after a context in several forms: the likelihood of what follows, and what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
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


def plain_tokens(encoder: TokenEncoder, texts: Sequence[str]) -> tuple[Index, list[Index]]:
    """Ids of the special tokens before a text, and those of each text without any special token.

    A token that the tokenizer puts before every text (BOS) belongs to no window: the model rests its attention on it.
    """
    tokenizing = tokenizer_of(encoder)
    special = tokenizing.vocabulary.special_ids
    tokens = tokenizing.tokenize(list(texts), None)
    rows, lead = [], np.zeros(0, np.int64)
    for text in range(len(texts)):
        ids = tokens.ids[tokens.offsets[text] : tokens.offsets[text + 1]].astype(np.int64)
        plain = np.array([int(k) not in special for k in ids], dtype=bool)
        if plain.any():
            lead = ids[: int(np.flatnonzero(plain)[0])]
        rows.append(ids[plain])
    return lead, rows


def context_tokens(
    encoder: TokenEncoder, texts: Sequence[str], length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Index]:
    """Ids of leading special tokens; the first `length` further ids of each long enough text; places of these texts."""
    lead, rows = plain_tokens(encoder, texts)
    long_enough = [text for text, ids in enumerate(rows) if len(ids) >= length]
    ids = np.array([rows[text][:length] for text in long_enough], dtype=np.int64).reshape(len(long_enough), length)
    return lead, ids, np.array(long_enough, dtype=np.int64)


@dataclass(frozen=True)
class Continued:
    """What a decoder makes of the tokens behind one form of their context, one value a text.

    `likelihood`: their mean log-likelihood (nats a token). `written`: how many of them, from the first one on, it would
    write itself, taking the likeliest token each time.
    """

    likelihood: Array
    written: Index


def continued(
    encoder: TokenEncoder,
    lead: Index,
    ids: NDArray[np.int64],
    *,
    context: int,
    ratios: Sequence[int],
    given: int = 1,
    own: bool = False,
) -> dict[str, Continued]:
    """How a decoder goes on after `context` tokens and `given` further ones, by form of the context.

    ids: one row a text, context and continuation (N × n). The given tokens are read in every form and scored in none,
    so that all forms score the same tokens. `own`: the tokens that are scored are those that the decoder writes after
    the full context, in place of the last ones of `ids`. Forms: "full"; "none"; "mean:ρ", the input embeddings
    of windows of ρ tokens replaced by their means, at the position of the centre of each; "adaptive:ρ", as many
    windows, cut where the embeddings change; "last:ρ", as many of the last tokens of the context as they are.
    """
    model = attention_of(encoder)[0]
    torch = require("torch", "torch")
    table = torch.from_numpy(unembedding_of(encoder)).to(model.device, model.dtype)
    going = _Continuing(model, partial(_scores, model=model, table=table), lead, context, given)
    batch = max(1, _BATCH_STATES // (ids.shape[1] + len(lead)))
    parts: list[dict[str, Continued]] = []
    with torch.inference_mode():
        for start in range(0, len(ids), batch):
            rows = ids[start : start + batch]
            parts.append(going.forms(going.written(rows) if own else rows, ratios))
    names = [field.name for field in fields(Continued)]
    return {
        form: Continued(*(np.concatenate([getattr(part[form], name) for part in parts]) for name in names))
        for form in parts[0]
    }


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


@dataclass(frozen=True)
class _Continuing:
    """A decoder with its head, and how its rows are parted: `lead`, context, tokens that are given, tokens scored."""

    model: Any
    head: Any
    lead: Index
    context: int
    given: int

    def states(self, ids: NDArray[np.int64]) -> Any:
        """Input embeddings of rows of ids, the leading special tokens before them."""
        import torch

        rows = np.concatenate([np.broadcast_to(self.lead, (len(ids), len(self.lead))), ids], axis=1)
        return self.model.get_input_embeddings()(torch.from_numpy(rows).to(self.model.device))

    def scores(self, embeddings: Any, positions: Any, last: int) -> Any:
        """Scores of all words for the token behind each of the `last` states."""
        import torch

        options = {"use_cache": False} if "use_cache" in signature(self.model.forward).parameters else {}
        mask = torch.ones(embeddings.shape[:2], dtype=torch.long, device=self.model.device)
        output = self.model(inputs_embeds=embeddings, position_ids=positions, attention_mask=mask, **options)
        return self.head(output.last_hidden_state[:, -last:]).float()

    def places(self, states: Any) -> Any:
        import torch

        return torch.arange(states.shape[1], device=self.model.device).expand(len(states), -1)

    def written(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows with the tokens that the decoder writes after context and given tokens in place of the last ones."""
        rows = ids[:, : self.context + self.given]
        while rows.shape[1] < ids.shape[1]:
            states = self.states(rows)
            likeliest = self.scores(states, self.places(states), 1).argmax(-1).cpu().numpy()
            rows = np.concatenate([rows, likeliest], axis=1)
        return rows

    def forms(self, ids: NDArray[np.int64], ratios: Sequence[int]) -> dict[str, Continued]:
        """What becomes of the continuation of each row, by form of the context."""
        import torch

        states = self.states(ids)
        start, stop = len(self.lead), len(self.lead) + self.context
        before, inside, after = states[:, :start], states[:, start:stop], states[:, stop:]
        places = self.places(states)
        first, middle, last = places[:, :start], places[:, start:stop], places[:, stop:]
        wanted = torch.from_numpy(ids[:, self.context + self.given :]).to(self.model.device)

        def run(states_between: Any, at: Any) -> Continued:
            embeddings, positions = (
                torch.cat(parts, dim=1) for parts in ((before, states_between, after), (first, at, last))
            )
            scores = self.scores(embeddings, positions, wanted.shape[1] + 1)[:, :-1]
            chosen = scores.log_softmax(-1).gather(-1, wanted[..., None])[..., 0]
            same = (scores.argmax(-1) == wanted).long().cumprod(dim=1).sum(dim=1)
            return Continued(chosen.double().mean(dim=1).cpu().numpy(), same.cpu().numpy())

        forms = {FULL: run(inside, middle), NONE: run(inside[:, :0], middle[:, :0])}
        spans = [Spans.of(one.float().cpu().numpy()) for one in inside]
        for ratio in ratios:
            plain = [window_bounds(self.context, ratio)] * len(ids)
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
