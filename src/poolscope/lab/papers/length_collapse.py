"""Zhou et al. (ACL 2025, arXiv 2410.24200): length collapse, what attention does to it, a temperature against it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import TokenEncoder
from poolscope.errors import InputError
from poolscope.evaluation import ClassificationTask, RetrievalTask, SimilarityTask, compare_scores, evaluate
from poolscope.lab.capture.model import capture
from poolscope.lab.papers import draw, proof
from poolscope.lab.papers.cell import Cell, Entry, Material, Ours, Outcome, Paper, Part, Row, row_estimate
from poolscope.lab.papers.common import layer_means, texts_of
from poolscope.lab.papers.models import LENGTH_MODELS, LLM_MODELS
from poolscope.lab.papers.published import LENGTH
from poolscope.lab.papers.quality import spearman
from poolscope.lab.papers.sources import DATA_SETS
from poolscope.metrics.length.bins import labels_by_length, length_bins
from poolscope.metrics.length.mechanism import length_mechanism, measure_texts
from poolscope.metrics.length.probes import repetition_probe
from poolscope.metrics.length.profile import length_profile
from poolscope.metrics.length.shift import sentences_of
from poolscope.numbers.intervals import Estimate, mean_estimate
from poolscope.numbers.ranking import rank_documents, unit_rows
from poolscope.repairs import PUBLISHED_GRID
from poolscope.repairs.repair_file import Repair
from poolscope.repairs.temperature.rules import LogLength, YarnLike
from poolscope.repairs.temperature.tempscale import tempscale
from poolscope.repairs.vectors import Whitening

NAMES = tuple(model.name for model in LENGTH_MODELS)
LLMS = tuple(model.name for model in LLM_MODELS)
Vectors = NDArray[np.float32]
_WIDTH, _LONGEST = 50, 500  # bins of the figures by length, in tokens
_TAUS = tuple(tau for tau in PUBLISHED_GRID if tau >= 0.5)
_YARN = (0.0001, 0.001, 0.01, 0.1, 1.0)
_BEST = {"ANCE": 0.9, "GTR": 0.8, "GIST": 0.9, "BGE": 0.8, "E5": 0.8}  # printed beside "+ours" in Table 1
_SHORT, _FEW = 10, 2  # tokens of the shortest version of a text; sentences of the middle one
_SENTENCE = (
    "The quick brown fox jumps over the lazy dog while the old cat sleeps under the oak tree and dreams of mice."
)


# -- kinds of measurement -----------------------------------------------------------------------------------------


def _tau(material: Material) -> float:
    return float(material.setting.get("tau", 1.0))


def symptoms_by_length(material: Material) -> Outcome:
    """By bin of lengths: mean pairwise cosine, distance from the centre, σₐ, cosine of averaged input embeddings."""
    texts = texts_of(material).texts
    with tempscale(material.model(), _tau(material)):
        measured = measure_texts(material.model(), texts)
    edges = material.setting.get("edges")
    bins = [float(edge) for edge in str(edges).split(",")] if edges else length_bins(measured.lengths).edges
    profile = length_profile(measured.vectors, measured.lengths, bins=bins)
    mechanism = length_mechanism(measured, profile)
    rows = [{**left, **right} for left, right in zip(profile.rows(), mechanism.rows(), strict=True)]
    return Outcome([*rows, {"slope": profile.slope, "words_slope": mechanism.words_slope}], notes=profile.notes)


def repeated_words(material: Material) -> Outcome:
    """The cosine of two texts that repeat one word each, by number of repetitions."""
    probe = repetition_probe(material.model())
    return Outcome([{"times": row.times, "tokens": row.tokens, "cosine": row.cosine.value} for row in probe.steps])


def labels_at(material: Material) -> Outcome:
    """Accuracy and entropy of a logistic regression by length, at a temperature."""
    task = material.data
    if not isinstance(task, ClassificationTask):
        raise InputError("this measurement needs texts with labels. Name a data set of that form.")
    with tempscale(material.model(), _tau(material)):
        measured = measure_texts(material.model(), task.texts)
    edges = [float(edge) for edge in str(material.setting["edges"]).split(",")]
    by_length = labels_by_length(measured.vectors, measured.lengths, task.labels, bins=edges, seed=material.seed)
    rows = [
        {"bin": row.label, "texts": row.texts, "accuracy": row.accuracy, "entropy": row.entropy}
        for row in by_length.bins
    ]
    return Outcome(rows, notes=by_length.notes)


def _search(material: Material) -> RetrievalTask:
    if not isinstance(material.data, RetrievalTask):
        raise InputError("this measurement needs queries and documents. Name a data set of that form.")
    return material.data


def _encoded(encoder: TokenEncoder, task: RetrievalTask, tau: float) -> tuple[Vectors, Vectors]:
    """Queries and documents as the model encodes each, at a temperature."""
    model = Repair(temperature=tau).apply(encoder)
    return tuple(np.asarray(model.encode(side.texts, role=side.role)) for side in task.sides)  # type: ignore[return-value]


def ranks_of_long(material: Material) -> Outcome:
    """The ranks of relevant documents among the longest and the shortest, at a temperature: means and histograms."""
    task = _search(material)
    queries, documents = _encoded(material.model(), task, _tau(material))
    ranking = rank_documents(queries, documents, task.relevant)
    lengths = np.array([len(text) for text in task.documents])
    own = lengths[ranking.document]
    sets = {
        "longest fifth": own >= np.quantile(lengths, 0.8),
        "longest tenth": own >= np.quantile(own, 0.9),
        "shortest tenth": own <= np.quantile(own, 0.1),
    }
    edges = np.linspace(1, len(task.documents) + 1, 11)
    rows: list[Row] = []
    for name, member in sets.items():
        ranks = ranking.rank[member]
        rows.append({"group": name, "judgements": len(ranks), "rank": mean_estimate(ranks)})
        counts = np.histogram(ranks, bins=edges)[0].tolist()
        rows += [{"group": name, "place": f"{round(edges[k])}", "count": count} for k, count in enumerate(counts)]
    return Outcome(rows)


def similarities(material: Material) -> Outcome:
    """The mean cosine of a pair of the set, of its most and least alike pairs by gold score, and of strangers."""
    task = material.data
    if not isinstance(task, SimilarityTask):
        raise InputError("this measurement needs pairs with gold scores. Name a data set of that form.")
    model = Repair(temperature=_tau(material)).apply(material.model())
    first, second = (unit_rows(np.asarray(model.encode(texts)), "vectors") for texts in (task.first, task.second))
    cosines = (first.astype(np.float64) * second).sum(axis=1)
    shifted = (first.astype(np.float64) * np.roll(second, 1, axis=0)).sum(axis=1)
    low, high = np.quantile(task.gold, [0.2, 0.8])
    return Outcome(
        [
            {"pairs": "Random", "cosine": mean_estimate(cosines)},
            {"pairs": "Related", "cosine": mean_estimate(cosines[task.gold >= high])},
            {"pairs": "Unrelated", "cosine": mean_estimate(cosines[task.gold <= low])},
            {"pairs": "Strangers", "cosine": mean_estimate(shifted)},
        ]
    )


def queries_by_length(material: Material) -> Outcome:
    """nDCG@10 of the longer and of the shorter half of the queries, at every temperature."""
    task = _search(material)
    lengths = np.array([len(query) for query in task.queries])
    long = lengths > np.median(lengths)
    rows = []
    for tau in _TAUS:
        scores = task.score(*_encoded(material.model(), task, tau)).scores
        for name, member in (("long queries", long), ("short queries", ~long)):
            if member.any():
                rows.append({"tau": tau, "queries": name, "ndcg": mean_estimate(scores[member], each="queries")})
    return Outcome(rows)


def query_and_document_grid(material: Material) -> Outcome:
    """nDCG@10 for every temperature of queries with every temperature of documents, beside that at τ = 1."""
    task = _search(material)
    sides = {tau: _encoded(material.model(), task, tau) for tau in _TAUS}
    plain = task.score(*sides[1.0]).scores
    rows = []
    for asked in _TAUS:
        for read in _TAUS:
            scores = task.score(sides[asked][0], sides[read][1]).scores
            change = compare_scores(plain, scores)
            rows.append(
                {
                    "query_tau": asked,
                    "document_tau": read,
                    "ndcg": float(scores.mean()),
                    "change": Estimate(change.mean, change.interval),
                    "relative": 100 * (float(scores.mean()) / max(float(plain.mean()), 1e-12) - 1),
                }
            )
    return Outcome(rows)


def attention_maps(material: Material) -> Outcome:
    """The attention of the last layer, mean over heads, for one sentence at a high, the usual and a low temperature."""
    rows: list[Row] = []
    for tau in (10.0, 1.0, 0.1):
        with tempscale(material.model(), tau):
            (batch,) = capture(material.model(), [_SENTENCE], layers=[-1])
            (text,) = batch.texts()
        weights = np.asarray(text.layers[0].A, dtype=np.float64).mean(axis=0)
        rows += [
            {"tau": f"τ = {tau:g}", "row": i, "column": j, "weight": float(weights[i, j])}
            for i in range(len(weights))
            for j in range(len(weights))
        ]
    return Outcome(rows)


def three_versions(material: Material) -> Outcome:
    """Every text whole, in its first sentences and in its first words: their lengths, and where they lie on two axes.

    The paper lets a language model summarise; here texts are shortened by rule, so what they say changes too.
    """
    texts = texts_of(material).texts
    versions = {
        "whole": list(texts),
        "few sentences": [" ".join(sentences_of(text)[:_FEW]) for text in texts],
        "ten words": [" ".join(text.split()[:_SHORT]) for text in texts],
    }
    measured = {name: measure_texts(material.model(), own) for name, own in versions.items()}
    units = {name: unit_rows(each.vectors, "vectors").astype(np.float64) for name, each in measured.items()}
    together = np.concatenate(list(units.values()))
    centre = together.mean(axis=0)
    axes = np.linalg.svd(together - centre, full_matrices=False)[2][:2]
    rows: list[Row] = []
    for name, vectors in units.items():
        places = (vectors - centre) @ axes.T
        distance = mean_estimate(np.linalg.norm(places, axis=1))
        rows.append({"version": name, "length": float(measured[name].lengths.mean()), "distance_to_origin": distance})
        rows += [{"version": name, "x": float(x), "y": float(y)} for x, y in places[:300]]
    return Outcome(rows)


def score_of(material: Material) -> Outcome:
    """The score of a model on one task, as it is or changed: a temperature, a rule of the length, a post-processing."""
    task, how = material.data, str(material.setting.get("method", ""))
    if not isinstance(task, RetrievalTask | SimilarityTask | ClassificationTask):
        raise InputError("this measurement needs a task. Name a data set of that form.")
    if how == "Whitening":
        model = Repair().apply(material.model())
        sides = [np.asarray(model.encode(side.texts, role=side.role)) for side in task.sides]
        repair = Whitening(accept_risk=True)
        repair.fit(np.concatenate(sides))
        score = task.score(*(repair.transform(side) for side in sides))
    else:
        score = evaluate(_changed(how).apply(material.model()), task)
    return Outcome([{"score": score.score.scaled(100), "metric": score.metric, "units": task.units}])


def _changed(how: str) -> Repair:
    """The change that the papers' row names: ours(τ=0.8), Flow, Method1, YaRN(λ=0.1); nothing for the model itself."""
    number = re.search(r"=([\d.]+)", how)
    if how.startswith("ours") and number:
        return Repair(temperature=float(number[1]))
    if how.startswith("YaRN") and number:
        return Repair(temperature=YarnLike(float(number[1])))
    return {"": Repair(), "Flow": Repair(pooling="last2avg"), "Method1": Repair(temperature=LogLength(1.0))}[how]


def alignment_and_uniformity(material: Material) -> Outcome:
    """Appendix F.1: how near texts are to what belongs to them, and how evenly all lie; for short and for long texts.

    Alignment is the mean squared distance of a query and its document, uniformity log E exp(−2‖x − y‖²) over different
    documents, of unit vectors (Wang and Isola, 2020); lower is better for both.
    """
    task = _search(material)
    queries, documents = (
        unit_rows(side, "vectors").astype(np.float64) for side in _encoded(material.model(), task, _tau(material))
    )
    asked, answered = task.relevant[:, 0], task.relevant[:, 1]
    lengths = np.array([len(text) for text in task.documents])
    long = lengths > np.median(lengths)
    rows: list[Row] = []
    for name, member in (("all", np.ones(len(lengths), dtype=bool)), ("short", ~long), ("long", long)):
        own = member[answered]
        squared = ((queries[asked[own]] - documents[answered[own]]) ** 2).sum(axis=1)
        i, j = np.triu_indices(int(member.sum()), 1)
        apart = 2 - 2 * (documents[member] @ documents[member].T)[i, j]
        if len(squared) and len(apart):
            uniformity = float(np.log(np.exp(-2 * apart).mean()))
            rows.append({"documents": name, "alignment": mean_estimate(squared), "uniformity": uniformity})
    return Outcome(rows)


def collapse_and_gain(rows: Sequence[Row], outcomes: Mapping[Cell, Outcome]) -> list[Row]:
    """Appendix E.4: does a model that loses more on long texts win more by the temperature? One row a model, and ρ."""
    accuracy = {(row["model"], row["tau"], row["bin"]): row["accuracy"] for row in rows if "accuracy" in row}
    found: list[Row] = []
    for model in dict.fromkeys(model for model, _, _ in accuracy):
        bins = [place for name, tau, place in accuracy if name == model and tau == 1.0]
        after = [tau for name, tau, _ in accuracy if name == model and tau != 1.0]
        if len(bins) > 1 and after:
            lost = accuracy[model, 1.0, bins[0]] - accuracy[model, 1.0, bins[-1]]
            won = np.mean(
                [accuracy.get((model, after[0], place), np.nan) - accuracy[model, 1.0, place] for place in bins]
            )
            found.append({"model": model, "lost_on_long": lost, "won_by_temperature": float(won)})
    if len(found) > 3:
        columns = (np.array([row[name] for row in found]) for name in ("lost_on_long", "won_by_temperature"))
        found.append({"models": len(found), "rho": spearman(*columns)})
    return found


def data_statistics(material: Material) -> Outcome:
    """How many texts a data set has here, and how long they are in characters."""
    data = material.data
    sides = data.sides if isinstance(data, RetrievalTask | SimilarityTask) else ()
    texts = [text for side in sides for text in side.texts] or list(texts_of(material).texts)
    lengths = np.array([len(text) for text in texts], dtype=np.float64)
    return Outcome([{"texts": len(texts), "characters": mean_estimate(lengths)}])


KINDS = {
    "bins": symptoms_by_length,
    "layers": layer_means,
    "repetition": repeated_words,
    "labels": labels_at,
    "ranks": ranks_of_long,
    "similarities": similarities,
    "queries": queries_by_length,
    "grid": query_and_document_grid,
    "attention": attention_maps,
    "versions": three_versions,
    "score": score_of,
    "statistics": data_statistics,
    "alignment": alignment_and_uniformity,
    **proof.KINDS,
}


# -- what follows, and what is printed beside it ----------------------------------------------------------------------

_SETS = {
    "nfcorpus": "NFCorpus",
    "scifact": "SciFact",
    "amazon": "AmazonPolarityClassification",
    "imdb": "ImdbClassification",
    "qmsum": "LEMBQMSumRetrieval",
    "summscreenfd": "LEMBSummScreenFDRetrieval",
    "sts12": "STS12",
    "sts13": "STS13",
    "sts14": "STS14",
}
_TYPES = {
    "BeirRetr.": ("nfcorpus", "scifact"),
    "LongEmbdRetr.": ("qmsum", "summscreenfd"),
    "STS": ("sts12", "sts13", "sts14"),
    "Class.": ("imdb", "amazon"),
}
_ALSO_CALLED = {"E5": "E5-4K"}  # in Tables 6 and 7
_WHOLE = "BeirRetr."  # the type whose data sets are all wired: its mean is what the paper prints


def type_means(rows: Sequence[Row], outcomes: Mapping[Cell, Outcome]) -> list[Row]:
    """The mean score of each task type over the data sets that were measured, by model and change."""
    means: list[Row] = []
    scored = {(row["model"], row.get("method", ""), row["data"]): row for row in rows if "score" in row}
    for model, method in dict.fromkeys((model, method) for model, method, _ in scored):
        for kind, sets in _TYPES.items():
            own = [scored[model, method, name] for name in sets if (model, method, name) in scored]
            if len(own) == len(sets):
                estimates = [row_estimate(row, "score") for row in own]
                reach = [each.interval for each in estimates]
                value = float(np.mean([each.known for each in estimates]))
                row: Row = {"model": model, "method": method, "type": kind, "mean": value}
                if all(reach):
                    half = float(np.sqrt(sum(((end.high - end.low) / 2) ** 2 for end in reach if end))) / len(own)
                    row |= {"mean_low": value - half, "mean_high": value + half}
                same = {name: all(each.get(name, True) for each in own) for name in ("same_model", "same_data")}
                means.append({**row, **same})
    return means


def _types_beside(rows: Sequence[Row]) -> Iterable[Ours]:
    for row in rows:
        if row.get("type") == _WHOLE:
            for name in dict.fromkeys((row["model"], _ALSO_CALLED.get(row["model"], row["model"]))):
                yield Ours.of(row, f"{name} +{row['method']}" if row["method"] else name, _WHOLE, "mean")


def _ranks_beside(rows: Sequence[Row]) -> Iterable[Ours]:
    for row in rows:
        if row.get("group") == "longest fifth" and "rank" in row:
            yield Ours.of(row, row["model"], f"{_SETS[row['data']]} τ={row['tau']}", "rank")


def _similarities_beside(rows: Sequence[Row]) -> Iterable[Ours]:
    for row in rows:
        if row["pairs"] != "Strangers" and row["model"] == "BGE":
            yield Ours.of(row, f"τ={row['tau']}", f"{_SETS[row['data']]} {row['pairs']}", "cosine")


def _statistics_beside(rows: Sequence[Row]) -> Iterable[Ours]:
    for row in rows:
        column = "Dev avg. chars" if row["data"] == "summscreenfd" else "Test avg. chars"
        yield Ours.of(row, _SETS[row["data"]], column, "characters")


def _bins_beside(value: str, rows: Sequence[Row]) -> Iterable[Ours]:
    for row in rows:
        if "bin" in row:
            edge = str(row["bin"]).replace("–", "-").replace("to", "-").replace(" ", "")
            yield Ours.of(row, f"{row['data']} {row['model']}", edge, value)


def _accuracy_beside(rows: Sequence[Row]) -> Iterable[Ours]:
    for row in rows:
        low, _, high = str(row["bin"]).replace("–", "-").partition("-")
        yield Ours.of(row, row["model"], f"[{low.strip()}, {high.strip()})", "accuracy", scale=100)


# -- entries ------------------------------------------------------------------------------------------------------

_HUNDREDS, _THOUSANDS = "0,100,200,300,400,500", "0,1000,2000,3000"
_WHERE: dict[str, Any] = {"x": "mean_length", "across": "tokens", "by": ("model", "tau")}
_GRID = tuple({"tau": tau} for tau in (1.0, 0.9, 0.8))
_NFCORPUS = ("nfcorpus",)


def _by_length(key: str, title: str, column: str, models: tuple[str, ...], settings: Any = _GRID) -> Entry:
    part = Part("bins", models, _NFCORPUS, settings)
    panels = {column: title}
    return Entry(
        key,
        title,
        (part,),
        draw=partial(draw.lines, panels=panels, title=title, **_WHERE),
        differs="Texts are drawn at random, not 100 a bin, and bins with fewer than 20 texts are joined.",
    )


def _frequency(key: str, models: tuple[str, ...]) -> Entry:
    title = "Growth of the high-frequency part by layer, and its bound"
    panels = {"high_frequency": "log ‖HC[X]‖/‖HC[H]‖", "high_frequency_published": "its published bound"}
    return Entry(
        key,
        title,
        (Part("layers", models, _NFCORPUS),),
        draw=partial(draw.lines, x="layer", panels=panels, title=title, across="layer", level=0.0),
    )


def _temperatures(key: str, data: str, title: str) -> Entry:
    return Entry(
        key,
        title,
        (Part("grid", NAMES, (data,)),),
        draw=partial(
            draw.heat,
            x="query_tau",
            y="document_tau",
            value="relative",
            panel="model",
            title=title,
            across="τ of queries",
            along="τ of documents",
            words="% of nDCG@10",
        ),
    )


_METHODS = ("", "ours(τ=0.8)", "ours(τ=0.9)")
_OTHERS = ("", "Flow", "Whitening")
_RULES = ("", "Method1", *(f"YaRN(λ={value:g})" for value in _YARN))


def _scores(number: int, title: str, methods: Sequence[str], data: tuple[str, ...]) -> Entry:
    part = Part("score", NAMES, data, tuple({"method": method} for method in methods))
    return Entry(
        f"table-{number}",
        title,
        (part,),
        follow=type_means,
        compare=_types_beside,
        draw=partial(
            draw.bars, x="type", y="mean", by=("method",), panel="model", title=title, across="task type", along="score"
        ),
        differs="BeirRetr. is the mean of the paper's two data sets; of the other types some of its sets are measured.",
    )


PAPER = Paper(
    LENGTH,
    "Length-induced embedding collapse, and attention temperature",
    (*LENGTH_MODELS, *LLM_MODELS),
    DATA_SETS,
    KINDS,
    (
        Entry(
            "figure-1a",
            "Accuracy on IMDB by length",
            (Part("labels", NAMES, ("imdb",), ({"edges": _HUNDREDS},)),),
            compare=_accuracy_beside,
            draw=partial(
                draw.heat,
                x="bin",
                y="model",
                value="accuracy",
                title="Accuracy by length",
                across="tokens",
                along="",
                words="accuracy",
            ),
            differs="Five folds of one set in place of training and test set.",
        ),
        Entry(
            "figure-1b",
            "Texts whole and shortened, on two axes",
            (Part("versions", ("BGE",), _NFCORPUS),),
            draw=partial(
                draw.points,
                x="x",
                y="y",
                by="version",
                title="Three versions of a text",
                across="axis 1",
                along="axis 2",
            ),
            differs="Shortened by rule in place of a language model; principal axes in place of t-SNE.",
        ),
        _by_length("figure-1c", "Mean pairwise cosine by length and τ", "cosine", ("BGE",)),
        _frequency("figure-2", ("ANCE", "GIST", "BGE")),
        _by_length("figure-3", "Mean pairwise cosine of averaged input embeddings", "words", ("BGE",), ({"tau": 1.0},)),
        Entry(
            "figure-5",
            "Ranks of the longest and the shortest tenth of relevant documents",
            (Part("ranks", ("BGE",), _NFCORPUS, ({"tau": 1.0},)),),
            draw=lambda rows: draw.bars(
                [row for row in rows if str(row["group"]).endswith("tenth")],
                x="place",
                y="count",
                by=("group",),
                panel="model",
                title="Ranks of relevant documents",
                across="rank from",
                along="documents",
            ),
        ),
        Entry(
            "figure-6",
            "Attention at a high, the usual and a low temperature",
            (Part("attention", ("BGE",)),),
            draw=partial(
                draw.heat,
                x="column",
                y="row",
                value="weight",
                panel="tau",
                title="Attention, last layer",
                across="token read",
                along="token",
                words="weight",
            ),
        ),
        _by_length("figure-7", "σₐ of the last layer by length and τ", "sigma_a", ("BGE",)),
        _frequency("figure-8", NAMES),
        _by_length("figure-9", "σₐ of the last layer by length and τ", "sigma_a", NAMES),
        Entry(
            "figure-10",
            "Entropy and accuracy on AmazonPolarity by length, before and after",
            (Part("labels", NAMES, ("amazon",), tuple({"edges": "0,100,200,300", "tau": t} for t in (1.0, 0.8))),),
            follow=collapse_and_gain,
            draw=partial(
                draw.bars,
                x="bin",
                y="entropy",
                by=("tau",),
                panel="model",
                title="Entropy by length",
                across="tokens",
                along="bits",
            ),
        ),
        Entry(
            "figure-11",
            "Two words repeated: cosine by number of repetitions",
            (Part("repetition", NAMES),),
            draw=partial(
                draw.lines,
                x="times",
                panels={"cosine": "cosine"},
                title="dog … dog and cat … cat",
                across="repetitions",
            ),
        ),
        Entry(
            "figure-12",
            "Long and short queries of SummScreenFD by τ",
            (Part("queries", NAMES, ("summscreenfd",)),),
            draw=partial(
                draw.lines,
                x="tau",
                panels={"ndcg": "nDCG@10"},
                by=("model", "queries"),
                title="Queries by length",
                across="τ",
            ),
        ),
        _temperatures("figure-13", "qmsum", "nDCG@10 on QMSum by τ of queries and documents"),
        Entry(
            "figure-14",
            "Accuracy on AmazonPolarity by τ and length",
            (Part("labels", NAMES, ("amazon",), tuple({"edges": "0,100,200,300", "tau": t} for t in _TAUS)),),
            draw=partial(
                draw.lines,
                x="tau",
                panels={"accuracy": "accuracy"},
                by=("model", "bin"),
                title="Accuracy by τ",
                across="τ",
            ),
        ),
        _temperatures("figure-15", "summscreenfd", "nDCG@10 on SummScreenFD by τ of queries and documents"),
        _scores(1, "Scores by task type, before and after", _METHODS, tuple(n for s in _TYPES.values() for n in s)),
        Entry(
            "table-2",
            "Mean rank of relevant documents among the longest fifth, by τ",
            (Part("ranks", NAMES, ("nfcorpus", "scifact"), _GRID),),
            compare=_ranks_beside,
            draw=partial(
                draw.bars,
                x="model",
                y="rank",
                by=("group", "tau"),
                panel="data",
                title="Mean rank of long documents",
                across="model",
                along="rank",
            ),
        ),
        Entry(
            "table-3",
            "Mean cosine of pairs: of any, of related, of unrelated ones",
            (Part("similarities", ("BGE",), ("sts12", "sts13", "sts14"), _GRID),),
            compare=_similarities_beside,
            draw=partial(
                draw.bars,
                x="pairs",
                y="cosine",
                by=("tau",),
                panel="data",
                title="Mean cosine",
                across="pairs",
                along="cosine",
            ),
            differs="The paper names neither the model nor its thresholds: BGE, and the fifths of the gold score.",
        ),
        Entry(
            "table-4", "Lengths of the data sets", (Part("statistics", (), tuple(_SETS)),), compare=_statistics_beside
        ),
        _scores(6, "Flow and whitening", _OTHERS, _TYPES[_WHOLE]),
        _scores(7, "Temperatures by length: log n, and YaRN", _RULES, _TYPES[_WHOLE]),
        *(
            Entry(
                f"table-{number}",
                title,
                (Part("bins", LLMS, ("nq", "hotpotqa", "LongAlpaca-12k"), ({"edges": _THOUSANDS},)),),
                compare=partial(_bins_beside, value),
                draw=partial(
                    draw.bars, x="bin", y=value, by=("model",), panel="data", title=title, across="tokens", along=value
                ),
            )
            for number, value, title in (
                (8, "distance", "Distance from the centre by length, language models"),
                (9, "cosine", "Mean pairwise cosine by length, language models"),
            )
        ),
        Entry(
            "appendix-f",
            "Alignment and uniformity, of short and of long documents",
            (Part("alignment", NAMES, _NFCORPUS, _GRID),),
            draw=partial(
                draw.bars,
                x="documents",
                y="uniformity",
                by=("tau",),
                panel="model",
                title="Uniformity",
                across="documents",
                along="log E exp(−2‖x − y‖²)",
            ),
        ),
        Entry(
            "lemma-1",
            "Attention applied again and again: what is left beside the mean",
            (Part("low pass", NAMES, _NFCORPUS),),
            draw=partial(
                draw.lines,
                x="t",
                panels={"log_ratio": "log ‖HC[Aᵗz]‖/‖DC[Aᵗz]‖"},
                title="Is attention a low-pass filter?",
                across="applications t",
            ),
        ),
        Entry(
            "theorem-3",
            "Every link of the bound of σₐ, and which one breaks",
            (Part("theorem 3", NAMES, _NFCORPUS),),
            draw=partial(
                draw.bars,
                x="link",
                y="holds",
                by=("model",),
                title="For how many texts and heads does each link hold?",
                across="link",
                along="share",
            ),
            differs="The paper prints the proof and no measurement of its steps.",
        ),
        Entry(
            "corollary-4",
            "The lower bound of the cosine, by length",
            (Part("corollary 4", NAMES, _NFCORPUS),),
            draw=partial(
                draw.lines,
                x="mean_length",
                panels={"cosine": "mean cosine", "bound": "its bound (Eq 25)"},
                title="Eq 25",
                across="tokens",
            ),
        ),
        Entry(
            "spectra",
            "Energy of the tokens by layer and frequency",
            (Part("spectra", NAMES, _NFCORPUS),),
            draw=partial(
                draw.lines,
                x="layer",
                panels={"share": "share of the energy"},
                by=("model", "band"),
                title="Beyond the constant part",
                across="layer",
            ),
        ),
        Entry(
            "depth-and-length",
            "Concentration by layer and by length",
            (Part("depth and length", NAMES, _NFCORPUS),),
            draw=lambda rows: draw.heat(
                [row for row in rows if row["quantity"] == "cosine"],
                x="layer",
                y="bin",
                value="value",
                panel="model",
                title="Cosine of the tokens of a text",
                across="layer",
                along="tokens",
                words="cosine",
            ),
        ),
    ),
)
