"""What the contrastive loss asks of a model, seen from its gradient: of the spread of tokens, and of the temperature.

Two open questions of the papers. Why does contrastive training concentrate tokens? The loss sees the means of tokens
alone, so it gives every token of a text the same gradient, and moving tokens along it leaves their spread as it is.
What concentrates them are the weights, which tokens share: following the loss by a small step, the ratio changes by the
product of both gradients. Can the temperature be learned? It is one number in the same loss, and has a gradient too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.capabilities import attention_of, planner_of
from poolscope.encoders.torch_backend import resting
from poolscope.errors import InputError, require
from poolscope.evaluation import RetrievalTask, compare_scores
from poolscope.evaluation.tasks import halve
from poolscope.lab.papers.cell import Kind, Material, Outcome, Row
from poolscope.lab.papers.common import texts_of
from poolscope.numbers.intervals import Estimate, mean_estimate
from poolscope.repairs.repair_file import Repair
from poolscope.repairs.temperature.rules import Constant
from poolscope.repairs.temperature.tempscale import tempscale

_TAU = 0.05  # temperature of the loss, as in SimCSE
_BATCH, _BATCHES = 16, 4
_WORDS = 8  # a text with fewer has no two halves
_STEPS, _RATE = 30, 0.05


@contextmanager
def _trainable(network: Any) -> Iterator[list[Any]]:
    """The weights of a network, with gradients for the time being, and without dropout."""
    before = [(weights, weights.requires_grad) for weights in network.parameters()]
    with resting(network):
        try:
            for weights, _ in before:
                weights.requires_grad_(weights.is_floating_point())
            yield [weights for weights, _ in before if weights.requires_grad]
        finally:
            for weights, needed in before:
                weights.requires_grad_(needed)


def tokens_with_gradients(encoder: TokenEncoder, texts: Sequence[str]) -> tuple[Any, Any]:
    """The pooled tokens (texts × positions × d) and their mask, as torch has them, with gradients to the weights."""
    torch = require("torch", "torch")
    network = attention_of(encoder)[0]
    plan = replace(planner_of(encoder).plan(tuple(texts)), room=None)
    rows: dict[int, tuple[Any, Any]] = {}
    for at, batch in zip(plan.groups(), plan, strict=True):
        given = {"input_ids": batch.ids, "attention_mask": batch.mask.astype(np.int64)}
        inputs = {name: torch.from_numpy(values).to(network.device) for name, values in given.items()}
        states = network(**inputs, return_dict=True).last_hidden_state
        keep = torch.from_numpy(batch.keep).to(network.device)
        rows |= {int(place): (states[row], keep[row]) for row, place in enumerate(at)}
    pad = torch.nn.utils.rnn.pad_sequence
    tokens, masks = (pad([rows[k][part] for k in range(len(texts))], batch_first=True) for part in (0, 1))
    return tokens, masks


def contrastive_loss(tokens: Any, mask: Any, *, shift: int = 0) -> Any:
    """Of the means of tokens: text k of the first half belongs to text k + `shift` of the second half, in a circle."""
    torch = require("torch", "torch")
    means = means_of_tokens(tokens, mask)
    units = torch.nn.functional.normalize(means, dim=1)
    first, second = units.chunk(2)
    wanted = (torch.arange(len(first), device=units.device) + shift) % len(first)
    return torch.nn.functional.cross_entropy(first @ second.T / _TAU, wanted)


def means_of_tokens(tokens: Any, mask: Any) -> Any:
    """The mean of the tokens of every text."""
    return (tokens * mask.unsqueeze(-1)).sum(dim=1) / mask.sum(dim=1, keepdim=True)


def spread_and_square(tokens: Any, mask: Any) -> tuple[Any, Any]:
    """S(X) and ‖μ(X)‖² of every text."""
    means = means_of_tokens(tokens, mask)
    away = ((tokens - means.unsqueeze(1)) * mask.unsqueeze(-1)).square().sum(dim=(1, 2)) / mask.sum(dim=1)
    return away, means.square().sum(dim=1)


@dataclass(frozen=True)
class Pull:
    """How much the mean logarithm of a number changes as the loss falls by one, along its gradient."""

    ratio: float
    spread: float
    square: float
    direct: float


def pull(encoder: TokenEncoder, texts: Sequence[str], *, shift: int = 0) -> Pull:
    """The pull of the loss on S/‖μ‖², S and ‖μ‖², through the weights; `direct`: on S through the tokens themselves.

    Following the loss, its own change is −‖g‖² and that of a number with the gradient h is −⟨g, h⟩, so that per unit of
    loss that is lost the number changes by −⟨g, h⟩/‖g‖². `texts`: first halves, then second halves.
    """
    torch = require("torch", "torch")
    with _trainable(attention_of(encoder)[0]) as weights, torch.enable_grad():
        tokens, mask = tokens_with_gradients(encoder, texts)
        spread, square = spread_and_square(tokens, mask)
        loss = contrastive_loss(tokens, mask, shift=shift)

        def gradient(number: Any, places: Any) -> Any:
            parts = torch.autograd.grad(number, places, retain_graph=True, allow_unused=True)
            parts = [torch.zeros_like(at) if part is None else part for part, at in zip(parts, places, strict=True)]
            return torch.cat([part.flatten().double() for part in parts])

        along = gradient(loss, weights)
        numbers = (spread.log() - square.log(), spread.log(), square.log())
        ratio, away, long = (-float(gradient(number.mean(), weights) @ along / (along @ along)) for number in numbers)
        straight, own = gradient(loss, [tokens]), gradient(spread.log().mean(), [tokens])
        return Pull(ratio, away, long, direct=-float(own @ straight / (straight @ straight)))


def halves(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """The first and the second half of the words of every text that has two."""
    split = [words for text in texts if len(words := text.split()) >= _WORDS]
    return [" ".join(words[: len(words) // 2]) for words in split], [" ".join(w[len(w) // 2 :]) for w in split]


def pull_on_spread(material: Material) -> Outcome:
    """Does the contrastive loss ask for concentration? Halves of one text belong together; beside it, halves of others.

    Values are changes of the logarithm per unit of loss that is lost: below 0, concentrating lowers the loss.
    """
    first, second = halves(texts_of(material).texts)
    starts = range(0, min(len(first), _BATCH * _BATCHES) - _BATCH + 1, _BATCH)
    if not starts:
        raise InputError(f"this measurement needs {_BATCH} texts of {_WORDS} words or more. Name more texts.")
    rows: list[Row] = []
    for name, shift in (("halves of one text", 0), ("halves of two texts", 1)):
        batches = [
            pull(material.model(), [*first[at : at + _BATCH], *second[at : at + _BATCH]], shift=shift) for at in starts
        ]
        columns = {part: np.array([getattr(each, part) for each in batches]) for part in vars(batches[0])}
        estimates = {part: mean_estimate(own, each="batches of texts") for part, own in columns.items()}
        rows.append({"pairs": name, **estimates, "batches": len(batches)})
    return Outcome(rows)


# -- the temperature --------------------------------------------------------------------------------------------------


class _Learned(Constant):
    """A constant temperature whose number is a tensor, so that the loss has a gradient to it."""

    def __post_init__(self) -> None:
        """The tensor is what it is; the loss keeps it above 0 through its logarithm."""


def learn_temperature(
    encoder: TokenEncoder, queries: Sequence[str], documents: Sequence[str], *, steps: int = _STEPS, seed: int = 0
) -> list[tuple[float, float]]:
    """τ and the loss at every step of Adam on log τ, from τ = 1; nothing else of the model is changed.

    queries, documents: texts that belong together, in the same order. The model is not changed.
    """
    torch = require("torch", "torch")
    random = np.random.default_rng(seed)
    logarithm = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.Adam([logarithm], lr=_RATE)
    course = []
    with resting(attention_of(encoder)[0]), torch.enable_grad():
        for _ in range(steps):
            chosen = random.permutation(len(queries))[:_BATCH]
            batch = [*(queries[k] for k in chosen), *(documents[k] for k in chosen)]
            optimizer.zero_grad()
            with tempscale(encoder, _Learned(logarithm.exp())):
                loss = contrastive_loss(*tokens_with_gradients(encoder, batch))
            (logarithm.grad,) = torch.autograd.grad(loss, [logarithm])
            course.append((float(logarithm.detach().exp()), float(loss.detach())))
            optimizer.step()
    return [*course, (float(logarithm.detach().exp()), float("nan"))]


def learned_temperature(material: Material) -> Outcome:
    """τ learned by gradient on one half of the queries, and what it changes on the other half."""
    task = material.data
    if not isinstance(task, RetrievalTask):
        raise InputError("this measurement needs queries and documents. Name a data set of that form.")
    model = material.model()
    learn, prove = (cast(RetrievalTask, half) for half in halve(task, seed=material.seed))
    _, first = np.unique(learn.relevant[:, 0], return_index=True)
    pairs = learn.relevant[first]
    course = learn_temperature(
        model,
        [learn.queries[int(k)] for k in pairs[:, 0]],
        [learn.documents[int(k)] for k in pairs[:, 1]],
        seed=material.seed,
    )
    learned = course[-1][0]
    scores = {tau: prove.score(*_sides(model, prove, tau)) for tau in (1.0, learned)}
    change = compare_scores(scores[1.0], scores[learned])
    rows: list[Row] = [{"step": step, "tau": tau, "loss": loss} for step, (tau, loss) in enumerate(course)]
    summary = {"learned": learned, "before": scores[1.0].score}
    return Outcome([*rows, {**summary, "change": Estimate(change.mean, change.interval), "queries": prove.units}])


def _sides(encoder: TokenEncoder, task: RetrievalTask, tau: float) -> list[Any]:
    own = Repair(temperature=tau).apply(encoder)
    return [np.asarray(own.encode(side.texts, role=side.role)) for side in task.sides]


KINDS: dict[str, Kind] = {"contrastive pull": pull_on_spread, "learned temperature": learned_temperature}
