"""What does pooling cost? The same tokens, scored as they are, beside their means, on the same queries.

Nothing is trained and nothing is encoded again: every way reads the clouds that the model gave. A blend adds a way to
the mean, z(cosine) + w·z(score); its weight for a query is chosen on the queries of the other folds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from poolscope.encoders import as_encoder
from poolscope.encoders.base import Progress
from poolscope.encoders.capabilities import vocabulary_of
from poolscope.errors import InputError, whole_number
from poolscope.evaluation import Difference, Evaluation, RetrievalTask, compare_scores
from poolscope.evaluation.run import for_role
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Estimate, signed
from poolscope.numbers.maxsim import STORAGES, candidate_recall, first_candidates
from poolscope.numbers.ranking import rank_scores
from poolscope.repairs.adaptive import TOKEN_POOLINGS
from poolscope.repairs.token_scores import TokenWays, mean_way
from poolscope.results import Result, cells, origin, provenance
from poolscope.show.charts import COLOURS, GREY, curve, dots, error_bars, panel

WEIGHTS = (0.25, 0.5, 1.0, 2.0)
EQUAL = "mean + MaxSim, 1:1"  # the blend whose weight was fixed before any query was seen
VECTORS = (2, 4, 8, 16, 32)
CANDIDATES = 50
_FOLDS = 5


@dataclass(frozen=True)
class CostWay:
    """One way to score a query and a text: its quality, and its price beside one mean a text.

    `ndcg` is nDCG@k; `gain` its paired difference from the mean (None for the mean itself). `mrr`, `recall` and `found`
    are means over queries, at k. `rescued` queries are found here and missed by the mean, `broken` the other way round;
    a query whose relevant texts tie with others counts in part. `bytes_a_text` are float32 unless the name says
    otherwise; `products_a_query` are products of two vectors. `weight` is that of a blend, the mean over
    queries, and `adds` names the way that it adds to the mean; None for a way by itself.
    """

    name: str
    ndcg: Estimate
    gain: Difference | None
    mrr: float
    recall: float
    found: float
    rescued: float
    broken: float
    bytes_a_text: float
    products_a_query: float
    weight: float | None = None
    adds: str | None = None


@dataclass(frozen=True, repr=False, kw_only=True)
class PoolingCost(Result):
    """Search by the mean and by ways that keep more of the tokens, over the same queries; `ways` has one row each.

    `cost` is what the mean loses: nDCG of the mean blended with MaxSim minus that of the mean, weight by cross-fitting;
    of a late-interaction model (`keeps_tokens`) nDCG of MaxSim, its own score, minus that of the mean of its tokens.
    `special_tokens` says whether special tokens of queries were left out of MaxSim. `candidate_recall` is the share of
    the top k by MaxSim that is among the first `candidates` by the mean. `left_out`: ways that were not tried, and why.
    """

    model: str
    task: str
    queries: int
    texts: int
    k: int
    special_tokens: str
    vectors: tuple[int, ...] = field(repr=False)
    candidates: int
    candidate_recall: float
    left_out: Mapping[str, str] = field(repr=False)
    keeps_tokens: bool = False
    ways: tuple[CostWay, ...] = field(repr=False)
    provenance: Mapping[str, Any] = origin()

    def __getitem__(self, name: str) -> CostWay:
        """One way by its name."""
        for way in self.ways:
            if way.name == name:
                return way
        raise InputError(f"way: received {name!r}; measured were {', '.join(way.name for way in self.ways)}.")

    @property
    def way(self) -> CostWay:
        """The way that is set against the mean: both together, or MaxSim alone where that is the model's own score."""
        return self["MaxSim" if self.keeps_tokens else "mean + MaxSim"]

    @property
    def cost(self) -> Difference:
        """The gain of keeping the tokens over the mean."""
        gain = self.way.gain
        assert gain is not None  # only the mean has none
        return gain

    @property
    def _poolings(self) -> tuple[str, ...]:
        """The ways in which tokens were pooled."""
        names = {way.name for way in self.ways}
        return tuple(by for by in (*TOKEN_POOLINGS, "attended") if f"MaxSim, {self.vectors[0]} {by}" in names)

    def headline(self) -> dict[str, Any]:
        """Queries, texts, nDCG of the mean, pooling cost."""
        return {
            "queries": self.queries,
            "texts": self.texts,
            "mean": self.ways[0].ndcg,
            "pooling_cost": self.cost.change,
        }

    @property
    def missed(self) -> float:
        """Queries that the mean misses."""
        return self.queries - self.ways[0].found

    def in_words(self) -> tuple[str, ...]:
        """Say what keeping the tokens changes, how sure that is, and how many missed queries it rescues."""
        way, change = self.way, self.cost
        smallest = change.smallest_gain()
        tokens = "by the tokens, as the model scores" if self.keeps_tokens else "with the tokens added"
        reach = f"With {self.queries:,} queries, only a gain of {smallest:.3f} or more would show."
        if change.proves_gain:
            verb = "would cost" if self.keeps_tokens else "costs"
            opening, second = f"Averaging {verb} this search {{size}} {{metric}} {{interval}}.", ""
        elif change.proves_loss:
            opening, second = f"Averaging costs this search nothing: {tokens}, {{metric}} falls by {{size}}.", ""
        else:
            done = "Scoring by the tokens, not by their mean," if self.keeps_tokens else "Adding the tokens to the mean"
            opening = f"{done} changes {{metric}} by {{gain}}. That may be chance."
            second = reach if np.isfinite(smallest) else ""
        values = {"size": f"{abs(change.mean):.3f}", "metric": change.metric, "interval": _interval(change)}
        other = "the tokens" if self.keeps_tokens else "mean and tokens together"
        mean = f"The mean scores {self.ways[0].ndcg.value:.3f}, {other} {way.ndcg.value:.3f}."
        found = (
            f"Of {self.missed:,.0f} queries that the mean misses, the tokens find {way.rescued:.0f}. "
            f"Of {self.ways[0].found:,.0f} that the mean finds, the tokens lose {way.broken:.0f}."
        )
        first = opening.format(**values, gain=gain_text(change))
        return tuple(sentence for sentence in (first, second, mean, found) if sentence)

    def legend(self, *, details: bool = False) -> tuple[str, ...]:
        """What the columns and the names of the table on a screen mean."""
        reach = f"{self.candidate_recall:.0%} of the top {self.k} by MaxSim is among them"
        notes = [
            f"found: queries with a relevant text in the top {self.k}; + found here alone, − found by the mean alone.",
            "kB: of one text, in float32 unless named. IDF weights: rare query tokens count more. 1:1: fixed weight.",
            f"Candidates, Gaussian W₂ and transports re-order the first {self.candidates} by the mean; {reach}.",
        ]
        if details:
            notes.append("products: of two vectors, for one query. weight: of what is added, chosen by other queries.")
        return (*notes, *(f"Skipped {name}: {why}." for name, why in self.left_out.items()))

    def rows(self) -> list[dict[str, Any]]:
        """One row a way."""
        return [
            cells({"way": way.name, "ndcg": way.ndcg})
            | cells({} if way.gain is None else {"gain": way.gain.change})
            | cells(
                {
                    name: getattr(way, name)
                    for name in ("mrr", "recall", "found", "rescued", "broken", "bytes_a_text", "products_a_query")
                }
            )
            | cells({"weight": way.weight})
            for way in self.ways
        ]

    def figure(self) -> Any:
        """Gain against bytes a text: what is added to the mean, and MaxSim over ever more clusters as a curve."""
        pooled = {by: [self[f"mean + MaxSim, {count} {by}"] for count in self.vectors] for by in self._poolings}
        steps = [*pooled.pop("clusters"), self["mean + MaxSim"]]
        drawn = [*steps, *(way for ways in pooled.values() for way in ways)]
        others = [way for way in self.ways if way.weight is not None and way not in drawn]
        hover = "%{text}<br>%{x:,.0f} bytes a text, %{y:+.3f}<extra></extra>"
        gains = [Estimate(0.0), *(way.gain.change for way in steps if way.gain is not None)]
        clusters = curve(
            [way.bytes_a_text for way in (self.ways[0], *steps)],
            [gain.value for gain in gains],
            "MaxSim over so many clusters a text, with paired intervals",
            COLOURS[1],
            mode="lines+markers+text",
            text=["mean", *map(str, self.vectors), "all tokens"],
            textposition=["bottom right"] * len(steps) + ["bottom left"],
            error_y=error_bars(gains, COLOURS[1]),
            hovertemplate=hover,
        )
        beside = [
            curve(*_places(ways), name, colour, dash="dot", hovertemplate=hover, text=[way.name for way in ways])
            for (name, ways), colour in zip(
                ((f"MaxSim over so many {_GROUPS[by]}", ways) for by, ways in pooled.items()), COLOURS[2:], strict=False
            )
        ]
        points = dots(*_places(others), "other ways", COLOURS[0], hover, text=[way.name for way in others])
        points.marker.update(size=9, opacity=0.8)
        figure = panel(
            clusters,
            *beside,
            points,
            title=f"What is gained by adding tokens to the mean: {self.queries:,} queries, {self.texts:,} texts",
            across="bytes a text",
            along=f"gain in {self.cost.metric}",
            height=520,
            x={"type": "log", "tickvals": [10**k for k in range(3, 9)], "ticktext": _POWERS},
            y={"tickformat": "+.2f"},
        )
        figure.add_hline(0.0, line={"color": GREY, "dash": "dash", "width": 1})
        largest = max(way.bytes_a_text for way in self.ways)
        for way in others:
            if way.name.endswith(STORAGES):
                figure.add_annotation(
                    text=way.name.rpartition(" ")[2],
                    x=np.log10(way.bytes_a_text),
                    y=0.0 if way.gain is None else way.gain.mean,
                    yshift=-14,
                    showarrow=False,
                    font={"size": 12},
                )
        for way, shift in _apart([way for way in others if way.bytes_a_text == largest]):
            figure.add_annotation(
                text=way.adds or way.name,
                x=np.log10(largest),
                y=0.0 if way.gain is None else way.gain.mean,
                ax=40,
                ay=shift,
                xanchor="left",
                showarrow=True,
                arrowhead=0,
                arrowwidth=0.7,
                arrowcolor=GREY,
                font={"size": 12},
            )
        return figure


_POWERS = ["1 kB", "10 kB", "100 kB", "1 MB", "10 MB", "100 MB"]
_GROUPS = {"spans": "spans of neighbours", "merged": "groups, the nearest merged", "attended": "most attended"}
_LINE = 18  # pixels between names


def _places(ways: Sequence[CostWay]) -> tuple[list[float], list[float]]:
    return [way.bytes_a_text for way in ways], [0.0 if way.gain is None else way.gain.mean for way in ways]


def _apart(ways: Sequence[CostWay]) -> list[tuple[CostWay, float]]:
    """Points one above the other, the best first, each with how far below it its name stands, so that none overlap."""
    order = sorted(ways, key=lambda way: -(0.0 if way.gain is None else way.gain.mean))
    middle = (len(order) - 1) / 2
    return [(way, (place - middle) * _LINE) for place, way in enumerate(order)]


def pooling_cost(
    model: Any,
    task: RetrievalTask,
    *,
    vectors: Sequence[int] = VECTORS,
    candidates: int = CANDIDATES,
    stop_words: Sequence[str] | None = None,
    salience: Sequence[ArrayLike] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    scored: Callable[[int], None] | None = None,
    **options: Any,
) -> PoolingCost:
    """Search by one mean a text, and by ways that keep more of the same tokens.

    Parameters
    ----------
    model
        A model as `as_encoder` takes it; its tokens are averaged. Of a late-interaction model, which averages nothing,
        MaxSim is over all its tokens, as it scores itself.
    task : RetrievalTask
        Queries with their relevant documents.
    vectors : sequence of int
        Numbers of clusters a text, each tried.
    candidates : int
        How many texts, the first by the mean, MaxSim of candidates, exact transport and Gaussian W₂ score; the rest
        follow by the mean.
    stop_words : sequence of str, optional
        Words that MaxSim over rare words leaves out; by default the tokens of more than 30 % of the texts.
    salience : sequence of arrays, optional
        How much each token of each document matters; with it, groups of tokens around the most salient are tried
        ("attended"). `poolscope.lab.capture.received.attention_received` gives the attention that tokens receive.
    seed : int
        Of the folds by which the weights of blends are chosen; queries of one document are in one fold.
    progress : callable, optional
        Called with texts and tokens while encoding.
    scored : callable, optional
        Called with 1 after each way that was scored.
    **options
        Those of `as_encoder`.

    Returns
    -------
    PoolingCost
        Mean, MaxSim (also with special tokens, weighted by IDF, over rare words, of tokens in float16 and int8, of the
        candidates alone, over k clusters, spans, merged or attended groups a text), Chamfer,
        BERTScore's F, relaxed and exact transport, word rotator's distance, MoverScore, Gaussian W₂, adaptive spans and
        clusters, second-order pooling; and each of them blended with the mean.

    Examples
    --------
    >>> letters = lambda texts: [[[float(c == letter) + 0.1 for letter in "abcd"] for c in text] for text in texts]
    >>> task = RetrievalTask(["a", "d"] * 5, ["abbbbb", "cccccd"], [(k, k % 2) for k in range(10)])
    >>> found = pooling_cost(letters, task)
    >>> [way.name for way in found.ways][:3], found["MaxSim"].ndcg.value
    (['mean', 'MaxSim', 'mean + MaxSim'], 1.0)

    """
    vectors = tuple(whole_number(count, "vectors", least=2, most=1000) for count in vectors)
    candidates = whole_number(candidates, "candidates")
    seed = whole_number(seed, "seed", least=0)
    if not isinstance(task, RetrievalTask):
        raise InputError(f"task: received a {type(task).__name__}; needed: a RetrievalTask, since texts are searched.")
    encoder = as_encoder(model, **options)
    queries, texts = (
        for_role(encoder, side.role).encode(list(side.texts), progress=progress)[-1] for side in task.sides
    )
    own = encoder.card.keeps_tokens
    ways = TokenWays(queries, texts, vocabulary_of(encoder), candidates, vectors, stop_words, own, salience)
    folds = task.folds(_FOLDS, seed=seed)

    def evaluated(scores: Array) -> Evaluation:
        return task.evaluation(rank_scores(scores, task.relevant, k=task.k))

    def per_query(scores: Array) -> Array:
        return evaluated(scores).scores

    mean = mean_way(queries, texts)
    before, reach = evaluated(mean.scores), float("nan")
    rows = [_row("mean", before, before, mean.bytes, mean.products)]
    for name, way in ways(mean):
        price = way.bytes + mean.bytes * way.adds_mean, way.products + mean.products * way.adds_mean
        tables = {weight: way.blended(mean.scores, weight) for weight in WEIGHTS}
        rows.append(_row(name, before, evaluated(way.table(mean.scores)), way.bytes, way.products))
        blended, weight = cross_fitted(tables, per_query, folds)
        rows.append(_row(f"mean + {name}", before, evaluated(blended), *price, weight, adds=name))
        if name == "MaxSim":
            rows.append(_row(EQUAL, before, evaluated(tables[1.0]), *price, 1.0, adds="MaxSim, 1:1"))
            near = first_candidates(mean.scores, candidates)
            reach = float(candidate_recall(near, way.scores, k=task.k).mean())
        if scored is not None:
            scored(1)
    settings = {"vectors": vectors, "candidates": candidates, "stop_words": stop_words, "seed": seed, "task": task.name}
    settings["attended"] = salience is not None
    return PoolingCost(
        model=encoder.card.name,
        task=task.name,
        queries=len(queries),
        texts=len(texts),
        k=task.k,
        special_tokens="kept" if own else "none known" if ways.ordinary is None else "left out",
        vectors=vectors,
        candidates=min(candidates, len(texts)),
        candidate_recall=reach,
        left_out=ways.left_out(),
        keeps_tokens=own,
        ways=tuple(rows),
        provenance=provenance(queries, texts, settings=settings),
    )


def gain_text(change: Difference) -> str:
    """A change with its interval, in three decimals and with a true minus.

    >>> gain_text(compare_scores([0.5] * 40, [0.25, 0.5] * 20))
    '−0.125 [−0.165, −0.085]'
    """
    return f"{signed(change.mean)} {_interval(change, signs=True)}".rstrip()


def _interval(change: Difference, *, signs: bool = False) -> str:
    if change.interval is None:
        return ""
    ends = (change.interval.low, change.interval.high)
    return "[{}, {}]".format(*(signed(end) if signs else f"{end:z.3f}".replace("-", "−") for end in ends))


def cross_fitted(tables: Mapping[float, Array], measure: Callable[[Array], Array], folds: Index) -> tuple[Array, float]:
    """Scores (queries × texts) in which each query has the weight that is best for the queries of other folds.

    tables: the scores by weight. measure: from scores to the quality of every query. Also gives the mean weight over
    queries. Of weights that are equally good the first is taken.
    """
    weights = list(tables)
    quality = np.stack([measure(table) for table in tables.values()])
    blended, chosen = np.empty_like(tables[weights[0]]), np.empty(len(folds))
    for fold in np.unique(folds):
        own = folds == fold
        others = ~own if (~own).any() else own
        best = weights[int(quality[:, others].mean(axis=1).argmax())]
        blended[own], chosen[own] = tables[best][own], best
    return blended, float(chosen.mean())


def _row(
    name: str,
    before: Evaluation,
    after: Evaluation,
    size: float,
    products: float,
    weight: float | None = None,
    *,
    adds: str | None = None,
) -> CostWay:
    found = [_measure(side, "found") for side in (before, after)]
    change = found[1] - found[0]
    return CostWay(
        name=name,
        ndcg=after.score,
        gain=None if before is after else compare_scores(before, after),
        mrr=float(_measure(after, "MRR").mean()),
        recall=float(_measure(after, "recall").mean()),
        found=float(found[1].sum()),
        rescued=float(change[change > 0].sum()),
        broken=float(np.abs(change[change < 0]).sum()),
        bytes_a_text=float(size),
        products_a_query=float(products),
        weight=weight,
        adds=adds,
    )


def _measure(evaluation: Evaluation, name: str) -> Array:
    """A further measure by the word before its @."""
    return next(scores for key, scores in evaluation.others.items() if key.partition("@")[0] == name)
