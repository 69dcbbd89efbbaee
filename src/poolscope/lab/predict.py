"""Do properties of the clouds predict the cost of pooling? Cells of model × corpus have both.

A point is a model at one of its layers; the layers of one model are one family, and so are models whose names agree up
to a comma ("tiny-BERT, before training" and "tiny-BERT, after training"). In each cell the texts give quantities
(SOCM, trace, …) without any query, and the queries give the cost: nDCG of the mean and MaxSim, weight 1:1 fixed
beforehand, minus nDCG of the mean. Cells share models and corpora, so p shuffles whole corpora (or whole points) at
once, and a prediction counts only where the family, or the corpus, had no part in fitting it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import permutations
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import stats

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.encoders.capabilities import vocabulary_of
from poolscope.errors import InputError
from poolscope.evaluation import RetrievalTask, compare_scores
from poolscope.evaluation.run import for_role
from poolscope.files import atomic_file, text_of, write_json
from poolscope.lab.correlate.study import holm
from poolscope.lab.length.shift import shift_of
from poolscope.lab.mixed import mixed_slope
from poolscope.metrics.socm.floor import permutation_floor
from poolscope.metrics.socm.measure import socm
from poolscope.numbers import Array
from poolscope.numbers.intervals import Estimate
from poolscope.numbers.maxsim import blend, maxsim, ordinary_tokens
from poolscope.numbers.moments import text_moments, within_text_cosine
from poolscope.numbers.ranking import rank_scores, unit_rows
from poolscope.results import Result, cells, origin, write_csv
from poolscope.show.charts import COLOURS, GREY, dots, panel

# What the texts alone tell, and last what takes queries: a search that is perfect has nothing to win.
QUANTITIES = {
    "socm": "SOCM",
    "d_sigma": "covariance distance d_Σ",
    "excess": "d_Σ above its permutation floor",
    "concentration": "concentration ratio (trace at unit mean)",
    "spread": "trace of the covariance",
    "within_cosine": "cosine within a text",
    "length": "tokens a text",
    "shift": "shift between quarters of a text",
    "mean_ndcg": "nDCG@10 of the mean (needs queries)",
}
_PAIRS, _FLOOR_PAIRS, _DEALS = 2_000, 24, 39
_ALL_ORDERS, _ORDERS = 5_040, 9_999  # of 7 units all orders, of more so many at random
_PARTS = 4
_SHUFFLES = 999  # of a quantity, for the p of its skill
_LEVEL = 0.05
_SYMBOLS = ("circle", "diamond", "square", "cross")  # the next where the colours begin again


@dataclass(frozen=True)
class PredictCell:
    """One point on one corpus: the cost with its interval, and the quantities."""

    family: str
    point: str
    corpus: str
    queries: int
    texts: int
    cost: float
    low: float
    high: float
    quantities: Mapping[str, float]


@dataclass(frozen=True)
class Predictor:
    """What one quantity says of the cost.

    `over_corpora`: Spearman's ρ over corpora, mean over points; `over_points`: over points, mean over corpora; each
    with its permutation p. `new_family`, `new_corpus`: 1 − SSE/SSE of the mean cost, of lines fitted without the family
    or the corpus: at 0 or below nothing is predicted. `skill_p`: how often a quantity whose points and corpora are
    shuffled has a lower of the two skills as high, by Holm over all quantities. `slope`: the change of the
    cost for one standard deviation of the ranks of the quantity, in a mixed model with effects of points and of
    corpora. None where there are too few.
    """

    name: str
    over_corpora: float | None
    corpora_p: float | None
    over_points: float | None
    points_p: float | None
    new_family: float | None
    new_corpus: float | None
    skill_p: float | None
    slope: Estimate | None = None

    @property
    def predicts(self) -> bool:
        """Does it predict for families and for corpora that it was not fitted on, beyond chance?"""
        above = all(skill is not None and skill > 0 for skill in (self.new_family, self.new_corpus))
        return above and self.skill_p is not None and self.skill_p <= _LEVEL


@dataclass(frozen=True, repr=False, kw_only=True)
class CostPrediction(Result):
    """Predictors of the pooling cost, and the `cells` of the study."""

    families: tuple[str, ...]
    points: tuple[str, ...]
    corpora: tuple[str, ...]
    predictors: tuple[Predictor, ...] = field(repr=False)
    cells: tuple[PredictCell, ...] = field(repr=False)
    provenance: Mapping[str, Any] = origin()

    def headline(self) -> dict[str, Any]:
        """How many cells, points, families and corpora."""
        return {
            "cells": len(self.cells),
            "points": len(self.points),
            "families": len(self.families),
            "corpora": len(self.corpora),
        }

    def in_words(self) -> tuple[str, ...]:
        """Sentences on the cost and on its predictors."""
        costs = np.array([cell.cost for cell in self.cells])
        above = sum(cell.low > 0 for cell in self.cells)
        names = [QUANTITIES[each.name] for each in self.predictors if each.predicts]
        sentence = (
            f"Out of sample, these predict it: {'; '.join(names)}." if names else "Nothing predicts it out of sample."
        )
        return (
            f"Keeping the tokens changes nDCG@10 by {np.median(costs):+.3f} in the median of {len(costs)} cells.",
            f"In {above} of them the whole interval is above 0.",
            sentence,
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a quantity."""
        return [
            cells({**vars(each), "slope": each.slope or Estimate(None), "predicts": each.predicts}, ends=True)
            for each in self.predictors
        ]

    def cell_rows(self) -> list[dict[str, Any]]:
        """One row a cell: its cost, and every quantity."""
        return [
            {name: value for name, value in asdict(cell).items() if name != "quantities"} | dict(cell.quantities)
            for cell in self.cells
        ]

    def save_cells(self, path: Path) -> None:
        """Write the cells as CSV, numbers to four digits."""
        rows = [
            {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in row.items()}
            for row in self.cell_rows()
        ]
        with atomic_file(path) as stream:
            write_csv(pa.Table.from_pylist(rows), stream)

    def figure(self) -> Any:
        """Cost against SOCM, one colour and symbol a family."""
        traces = []
        for place, family in enumerate(self.families):
            turn, colour = divmod(place, len(COLOURS))
            own = [cell for cell in self.cells if cell.family == family]
            trace = dots(
                [cell.quantities["socm"] for cell in own],
                [cell.cost for cell in own],
                family,
                COLOURS[colour],
                "%{text}: SOCM %{x:.2f}, cost %{y:+.3f}<extra></extra>",
                text=[f"{cell.point} on {cell.corpus}" for cell in own],
            )
            trace.marker.update(size=8, opacity=0.75, symbol=_SYMBOLS[turn % len(_SYMBOLS)])
            traces.append(trace)
        title = f"Does SOCM predict what pooling costs? {len(self.cells)} cells"
        figure = panel(*traces, title=title, across="SOCM", along="cost in nDCG@10", x={"type": "log"})
        figure.add_hline(0.0, line={"color": GREY, "dash": "dash", "width": 1})
        return figure


# -- cells --------------------------------------------------------------------------------------------------------


def measure_cells(
    name: str,
    model: Any,
    corpus: str,
    task: RetrievalTask,
    *,
    layers: Sequence[int] | None = None,
    seed: int = 0,
    **options: Any,
) -> list[PredictCell]:
    """The cells of a model on a corpus: one for the layer that it pools, and one for each further layer."""
    encoder = as_encoder(model, **options)
    depth = encoder.card.layers
    below = [layer for layer in layers or () if depth is not None and 0 <= layer < depth]
    wanted = [*below, -1]
    sides = [
        for_role(encoder, side.role).encode(list(side.texts), layers=wanted if below else None) for side in task.sides
    ]
    vocabulary = vocabulary_of(encoder)
    special = frozenset[int]() if vocabulary is None else vocabulary.special_ids
    cells = []
    for layer in wanted:
        queries, texts = (side[layer] for side in sides)
        cells.append(_cell(family_of(name), _point(name, layer), corpus, task, queries, texts, special, seed))
    return cells


def _cell(
    family: str,
    point: str,
    corpus: str,
    task: RetrievalTask,
    queries: TokenClouds,
    texts: TokenClouds,
    special: frozenset[int],
    seed: int,
) -> PredictCell:
    moments = text_moments(texts)
    cosines = unit_rows(text_moments(queries).unit_means, "queries") @ unit_rows(moments.unit_means, "texts").T
    tokens = maxsim(queries, texts, query_tokens=ordinary_tokens(queries, special))
    before, after = (
        task.evaluation(rank_scores(table, task.relevant, k=task.k)) for table in (cosines, blend(cosines, tokens, 1.0))
    )
    change = compare_scores(before, after)
    if change.interval is None:
        raise InputError(f"{corpus}: {len(queries)} queries are too few for an interval. Ask with 50 or more.")
    quantities = _quantities(texts, seed) | {
        "concentration": float(np.median(moments.traces)),
        "spread": float(np.median(moments.traces * moments.norms**2)),
        "mean_ndcg": before.value,
    }
    ends = change.interval.low, change.interval.high
    return PredictCell(family, point, corpus, len(queries), len(texts), change.mean, *ends, quantities)


def _quantities(texts: TokenClouds, seed: int) -> dict[str, float]:
    """What two thousand pairs and every text tell, without queries."""
    count = len(texts)
    measured = socm(texts, pairs=min(_PAIRS, count * (count - 1) // 2), seed=seed, top=1)
    pairs = measured.pairs
    assert pairs is not None  # so few pairs are kept
    drawn = np.random.default_rng(seed).permutation(len(pairs.i))[:_FLOOR_PAIRS]
    floor = permutation_floor(texts, np.stack([pairs.i[drawn], pairs.j[drawn]], axis=1), deals=_DEALS, seed=seed)
    long = [np.asarray(cloud, dtype=np.float64) for cloud in texts if len(cloud) >= 2 * _PARTS]
    return {
        "socm": measured.mean,
        "d_sigma": measured.covariance_distance,
        "excess": float((floor.d_sigma - floor.dealt.floor).mean()),
        "within_cosine": float(np.median([within_text_cosine(cloud) for cloud in texts])),
        "length": float(np.median(texts.lengths)),
        "shift": float(np.median([_shift(cloud) for cloud in long])) if long else 0.0,
    }


def _shift(cloud: Array) -> float:
    """1 − mean cosine of the means of the quarters of a text."""
    return shift_of(unit_rows(np.stack([part.mean(axis=0) for part in np.array_split(cloud, _PARTS)]), "parts"))[1]


# -- prediction ---------------------------------------------------------------------------------------------------


def predict_cost(cells: Sequence[PredictCell], *, seed: int = 0) -> CostPrediction:
    """Relate each quantity to the cost over these cells; every point must be measured on every corpus."""
    points, corpora = (tuple(dict.fromkeys(getattr(cell, name) for cell in cells)) for name in ("point", "corpus"))
    table = {(cell.point, cell.corpus): cell for cell in cells}
    if len(table) != len(cells) or len(cells) != len(points) * len(corpora) or len(cells) < 4:
        raise InputError(
            f"received {len(cells)} cells of {len(points)} points and {len(corpora)} corpora; needed: each point once "
            f"on each corpus, four cells or more. Measure those that are missing."
        )
    grid = [[table[point, corpus] for corpus in corpora] for point in points]
    cost = np.array([[cell.cost for cell in row] for row in grid])
    family = np.array([row[0].family for row in grid])
    groups = np.repeat(family[:, None], len(corpora), axis=1), np.tile(np.arange(len(corpora)), (len(points), 1))
    found, p_values = [], []
    for name in QUANTITIES:
        values = np.array([[cell.quantities[name] for cell in row] for row in grid])
        ranks = stats.rankdata(values).reshape(values.shape)  # quantities span orders of magnitude
        over_corpora, corpora_p = _within(values, cost, seed)
        over_points, points_p = _within(values.T, cost.T, seed)
        new_family, new_corpus = (_skill(ranks, cost, group) for group in groups)
        slope = mixed_slope((ranks - ranks.mean()) / (ranks.std() or 1.0), cost)
        found.append(
            Predictor(name, over_corpora, corpora_p, over_points, points_p, new_family, new_corpus, None, slope)
        )
        p_values.append(_skill_p(ranks, cost, groups, seed))
    tested = [p for p in p_values if p is not None]
    corrected = iter(holm(tested))
    skill_p = [None if p is None else next(corrected) for p in p_values]
    predictors = [replace(row, skill_p=p) for row, p in zip(found, skill_p, strict=True)]
    return CostPrediction(
        families=tuple(dict.fromkeys(family.tolist())),
        points=points,
        corpora=corpora,
        predictors=tuple(predictors),
        cells=tuple(cells),
    )


def _within(values: Array, cost: Array, seed: int) -> tuple[float | None, float | None]:
    """Mean over rows of Spearman's ρ along a row, and its p when the columns are shuffled, alike in all rows.

    Rows in which a side is constant have no ρ and are left out; fewer than 4 columns tell nothing.
    """
    varying = (np.ptp(values, axis=1) > 0) & (np.ptp(cost, axis=1) > 0)
    columns = values.shape[1]
    if columns < 4 or not varying.any():
        return None, None
    x, y = (_standard_ranks(side[varying]) for side in (values, cost))
    table = x.T @ y / len(x)  # of column a of the quantity with column b of the cost
    everything = factorial(columns) <= _ALL_ORDERS
    random = np.random.default_rng(seed)
    orders = (
        np.array(list(permutations(range(columns))))
        if everything
        else np.stack([np.arange(columns), *(random.permutation(columns) for _ in range(_ORDERS))])
    )
    found = table[np.arange(columns), orders].sum(axis=1)
    own = float(np.trace(table))
    return own, float((np.abs(found) >= abs(own) - 1e-12).mean())


def _standard_ranks(rows: Array) -> Array:
    """Ranks of each row, centred and of length 1: their product is Spearman's ρ."""
    ranks = stats.rankdata(rows, axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    return np.asarray(ranks / np.linalg.norm(ranks, axis=1, keepdims=True))


def _skill(ranks: Array, cost: Array, group: Any) -> float | None:
    """1 − Σ(cost − line)²/Σ(cost − mean)², line and mean of the other groups; None for fewer than 3 groups."""
    names = np.unique(group)
    if len(names) < 3:
        return None
    errors = np.zeros(2)
    for name in names:
        own = group == name
        x, y = ranks[~own], cost[~own]
        variance = x.var()
        slope = ((x - x.mean()) * (y - y.mean())).mean() / variance if variance > 0 else 0.0
        line = y.mean() + slope * (ranks[own] - x.mean())
        errors += [((cost[own] - line) ** 2).sum(), ((cost[own] - y.mean()) ** 2).sum()]
    return float(1 - errors[0] / errors[1]) if errors[1] > 0 else None


def _skill_p(ranks: Array, cost: Array, groups: Sequence[Any], seed: int) -> float | None:
    """How often the lower of the two skills is as high when points and corpora of the quantity are shuffled."""

    def lower(table: Array) -> float | None:
        skills = [_skill(table, cost, group) for group in groups]
        known = [skill for skill in skills if skill is not None]
        return min(known) if len(known) == len(skills) else None

    own = lower(ranks)
    if own is None:
        return None
    random = np.random.default_rng(seed)
    reached = 1
    for _ in range(_SHUFFLES):
        shuffled = lower(ranks[random.permutation(len(ranks))][:, random.permutation(ranks.shape[1])])
        reached += shuffled is not None and shuffled >= own - 1e-12
    return reached / (_SHUFFLES + 1)


# -- a folder of cells, to be resumed ----------------------------------------------------------------------------------


def measure_all(
    models: Mapping[str, str],
    tasks: Mapping[str, Callable[[], RetrievalTask]],
    folder: Path,
    *,
    layers: Sequence[int] | None = None,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> list[PredictCell]:
    """All cells, kept in the folder one file a model and corpus; those that are there are not measured again."""
    folder.mkdir(parents=True, exist_ok=True)
    cells: list[PredictCell] = []
    for corpus, task in tasks.items():
        for name, model in models.items():
            file = folder / f"{_file_name(name)}--{_file_name(corpus)}.json"
            if not file.exists():
                say(f"{name} on {corpus}")
                found = measure_cells(name, model, corpus, task(), layers=layers, seed=seed, **options)
                write_json(file, {"cells": [asdict(cell) for cell in found]})
            wanted = {name, *(_point(name, layer) for layer in layers or ())}
            stored = [PredictCell(**row) for row in json.loads(text_of(file))["cells"]]
            cells += [cell for cell in stored if cell.point in wanted]
    return cells


def family_of(name: str) -> str:
    """The name of a model before the comma; its layers and variants share it.

    >>> family_of("tiny-BERT, after training")
    'tiny-BERT'
    """
    return name.partition(",")[0]


def _point(name: str, layer: int) -> str:
    return name if layer == -1 else f"{name}, layer {layer}"


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)
