"""The layer that would be the best to pool: all are tried on one half of the queries, the best on the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poolscope.encoders import as_encoder
from poolscope.encoders.base import Progress, TokenEncoder
from poolscope.encoders.pooling import TextPooling
from poolscope.errors import InputError, ModelError
from poolscope.evaluation.reading import split_half_task
from poolscope.evaluation.run import for_role
from poolscope.evaluation.scores import LEAST_GAIN, Difference, compare_scores
from poolscope.evaluation.tasks import Task, halve
from poolscope.numbers import Array
from poolscope.numbers.intervals import Estimate
from poolscope.numbers.pooling import MeanPooling, RestPooling
from poolscope.numbers.ranking import unit_rows
from poolscope.results import Result, cells, origin, provenance
from poolscope.show.charts import curves_figure

OWN = "own"
Key = tuple[int, str]  # a layer, and how it is pooled
_PIECE = 32  # texts whose states of all layers are in memory at a time


@dataclass(frozen=True)
class LayerScore:
    """The score of one layer, pooled in one way, on the half that chooses."""

    layer: int
    pooling: str
    score: Estimate


@dataclass(frozen=True, repr=False, kw_only=True)
class BestLayer(Result):
    """Which layer finds best, by queries that had no part in choosing it.

    `layer` and `pooling` are the best on one half of the queries; `score` is theirs on the other half, `own` that of
    the model as it pools, and `difference` the paired difference there. `sentence` says what that allows to say.
    `scores` holds every layer on the half that chose, which flatters the best.
    """

    model: str
    layer: int
    pooling: str
    score: Estimate
    own: Estimate
    difference: Difference = field(repr=False)
    sentence: str = field(repr=False)
    scores: tuple[LayerScore, ...] = field(repr=False)
    provenance: Mapping[str, Any] = origin()

    def in_words(self) -> tuple[str, ...]:
        """What may be said of the best layer."""
        return (self.sentence,)

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer and pooling."""
        return [cells(vars(row)) for row in self.scores]

    def figure(self) -> Any:
        """The scores by layer, a line a pooling, on the half of the queries that chose."""
        poolings = dict.fromkeys(row.pooling for row in self.scores)
        curves = {name: {row.layer: row.score for row in self.scores if row.pooling == name} for name in poolings}
        title = "Which layer finds best, on the half that chose"
        return curves_figure(curves, title=title, along=self.difference.metric)


def best_layer(
    model: Any, texts: Sequence[str] | Task, *, seed: int = 0, progress: Progress | None = None, **options: Any
) -> BestLayer:
    """The layer whose means find best: chosen on one half of the queries, reported on the other.

    Parameters
    ----------
    model
        A model with several layers, as `as_encoder` takes it.
    texts
        Plain texts, judged by split-half self-retrieval, or a retrieval task.
    seed : int
        Of the halves.
    progress : callable, optional
        Called with texts and tokens while encoding.
    **options
        Those of `as_encoder`.

    Returns
    -------
    BestLayer
        The layer, its score beside the model's own on held-out queries, and every layer on the half that chose.

    Examples
    --------
    >>> texts = [f"{word} is one thing and {word} is another thing, said again of {word} here" for word in
    ...          ("rain", "snow", "wind", "hail", "fog", "ice", "sun", "frost")]
    >>> result = best_layer("builtin:minilm", texts)
    >>> len(result.scores), 0 <= result.layer <= 6
    (14, True)

    """
    encoder = as_encoder(model, **options)
    depth = encoder.card.layers
    if not depth:
        raise ModelError(
            f"{encoder.card.name}: received a model of kind '{encoder.card.kind}' with one layer of tokens; needed: a "
            f"transformer with several, such as 'builtin:minilm'."
        )
    task = texts if isinstance(texts, Task) else split_half_task(texts)
    choosing, reporting = halve(task, seed=seed)
    layers = list(range(depth + 1))
    tried = _pooled(encoder, choosing, layers, progress)
    scores = {key: choosing.score(*sides) for key, sides in tried.items() if key[1] != OWN}
    best = max(scores, key=lambda key: (scores[key].value, key[0]))
    held_out = _pooled(encoder, reporting, [best[0]], progress)
    own, after = (reporting.score(*held_out[key]) for key in ((depth, OWN), best))
    difference = compare_scores(own, after)
    listed = tuple(LayerScore(*key, evaluation.score) for key, evaluation in scores.items())
    return BestLayer(
        model=encoder.card.name,
        layer=best[0],
        pooling=best[1],
        score=after.score,
        own=own.score,
        difference=difference,
        sentence=_sentence(best, difference, depth, TextPooling.of(encoder)),
        scores=listed,
        provenance={**provenance(settings={"seed": seed, "task": task.name}), "model": encoder.card.to_dict()},
    )


def _sentence(best: Key, difference: Difference, depth: int, pooling: TextPooling) -> str:
    against = f"the model as it pools ({pooling.words})"
    if pooling.own is False:
        against = "the mean of its last layer (its own vectors cannot be computed here)"
    if best == (depth, pooling.words):
        return (
            f"No layer is better on the half that chose than the one that the model pools, {best[0]}, by the "
            f"{best[1]}; so the other half was not asked."
        )
    what = f"layer {best[0]} by the {best[1]}"
    change = f"{difference.metric} {difference} against {against}, on {difference.count} held-out"
    if (shortage := difference.shortage()) is not None:
        return f"These data cannot show which layer is best: {shortage}. We chose {what}: {change} {difference.unit}."
    if difference.proves_gain:
        return f"The best to pool here is {what}: {change} {difference.unit}."
    if reach := difference.reach(LEAST_GAIN):
        sentence = f"No other layer is shown to be better. We chose {what}: {change} {difference.unit}."
        return f"{sentence} {reach}"
    outcome = "is worse" if difference.proves_loss else "is not proven better"
    return f"Keep the layer that the model pools: {what} was chosen and {outcome}, {change} {difference.unit}."


def _pooled(
    encoder: TokenEncoder, task: Task, layers: Sequence[int], progress: Progress | None
) -> dict[Key, list[Any]]:
    """Unit vectors of every side of the task by layer and pooling; the model's own stand under its last layer."""
    declared, depth = TextPooling.of(encoder), int(encoder.card.layers or 0)
    vectors: dict[Key, list[Any]] = {}
    for side in task.sides:
        rows: dict[Key, list[Array]] = {}
        ready, texts = for_role(encoder, side.role), list(side.texts)
        for start in range(0, len(texts), _PIECE):
            piece = texts[start : start + _PIECE]
            states = ready.encode(piece, layers=sorted({*layers, depth}), progress=progress)
            rows.setdefault((depth, OWN), []).extend(declared.pool(states[depth]))
            for layer in layers:
                for pooling in (MeanPooling(), RestPooling()):
                    rows.setdefault((layer, pooling.name), []).extend(pooling.transform(states[layer]))
        for key, listed in rows.items():
            vectors.setdefault(key, []).append(unit_rows(np.stack(listed), "vectors"))
    if not vectors:
        raise InputError(f"{task.name}: it has no texts; at least two queries are needed.")
    return vectors
