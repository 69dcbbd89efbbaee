"""Zhou et al. (ACL 2025, arXiv 2410.24200): length collapse, what attention does to it, a temperature against it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from poolscope.lab.papers import draw, gradients, length_parts, length_symptoms, length_tasks, proof
from poolscope.lab.papers.cell import Cell, Entry, Ours, Outcome, Paper, Part, Row, printed_number
from poolscope.lab.papers.common import layer_means
from poolscope.lab.papers.data_sets import BEIR, DATA_SETS
from poolscope.lab.papers.length_symptoms import collapse_and_gain
from poolscope.lab.papers.length_tasks import (
    SETS,
    TAUS,
    best_temperatures,
    nearest_reading,
    type_means,
)
from poolscope.lab.papers.models import LENGTH_BACKBONES, LENGTH_MODELS, LLM_MODELS
from poolscope.lab.papers.published import LENGTH
from poolscope.repairs import PUBLISHED_GRID

NAMES = tuple(model.name for model in LENGTH_MODELS)
BACKBONES = tuple(model.name for model in LENGTH_BACKBONES)
LLMS = tuple(model.name for model in LLM_MODELS)
_YARN = (0.0001, 0.001, 0.01, 0.1, 1.0)
_ALL_SETS = tuple(dict.fromkeys(name for sets in (SETS[BEIR], *SETS.values()) for name in sets))
_ALSO_CALLED = {"E5": "E5-4K"}  # in Tables 6 and 7

KINDS = {
    **length_symptoms.KINDS,
    **length_tasks.KINDS,
    **length_parts.KINDS,
    **proof.KINDS,
    **gradients.KINDS,
    "layers": layer_means,
}


# -- beside what is printed -----------------------------------------------------------------------------------------


def _types_beside(rows: Sequence[Row]) -> Iterable[Ours]:
    for row in rows:
        if "type" in row:
            for name in dict.fromkeys((row["model"], _ALSO_CALLED.get(row["model"], row["model"]))):
                yield Ours.of(row, f"{name} +{row['method']}" if row["method"] else name, row["type"], "mean")


def _ranks_beside(rows: Sequence[Row]) -> Iterable[Ours]:
    for row in rows:
        if row.get("group") == "longest fifth" and "rank" in row:
            yield Ours.of(row, row["model"], f"{DATA_SETS[row['data']].printed} τ={row['tau']}", "rank")


def _similarity_place(row: Row) -> tuple[str, str]:
    return f"τ={row['tau']}", f"{DATA_SETS[row['data']].printed} {row['pairs']}"


def _nearest_similarities(rows: Sequence[Row], outcomes: Mapping[Cell, Outcome]) -> list[Row]:
    return nearest_reading(rows, lambda row: printed_number(LENGTH, "Table 3", *_similarity_place(row)))


def _similarities_beside(rows: Sequence[Row]) -> Iterable[Ours]:
    """Of the model and the reading that are nearest to what is printed, since the paper names neither."""
    best = next((row for row in rows if "nearest" in row), None)
    for row in rows:
        if best is not None and (row["model"], row.get("reading")) == (best["model"], best["nearest"]):
            yield Ours.of(row, *_similarity_place(row), "cosine")


def _draw_similarities(rows: Sequence[Row]) -> Any:
    """The model and the reading that are nearest to what is printed, a panel a data set."""
    best = next((row for row in rows if "nearest" in row), None)
    if best is None:
        return None
    return draw.bars(
        [row for row in rows if (row["model"], row.get("reading")) == (best["model"], best["nearest"])],
        x="pairs",
        y="cosine",
        by=("tau",),
        panel="data",
        title=f"Mean cosine of pairs · {best['model']}, {best['nearest']}",
        across="pairs",
        along="cosine",
    )


def _statistics_beside(rows: Sequence[Row]) -> Iterable[Ours]:
    for row in rows:
        split = "Dev" if row["data"] == "summscreenfd" else row["split"]
        yield Ours.of(row, DATA_SETS[row["data"]].printed, f"{split} avg. chars", "characters")


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
_GRID = tuple({"tau": tau} for tau in (1.0, 0.9, 0.8))
_NFCORPUS = ("nfcorpus",)


def _by_length(
    key: str, title: str, column: str, models: tuple[str, ...], settings: Any = _GRID, along: str = "mean cosine"
) -> Entry:
    part = Part("bins", models, _NFCORPUS, settings)
    where: dict[str, Any] = {"x": "mean_length", "across": "tokens", "by": ("tau",), "lines": {column: ""}}
    return Entry(
        key,
        title,
        (part,),
        draw=partial(draw.by_panel, title=title, along=along, **where),
        differs="Texts are drawn at random, not 100 a bin, and bins with fewer than 20 texts are joined.",
    )


def _frequency(key: str, models: tuple[str, ...]) -> Entry:
    title = "Growth of the high-frequency part by layer, and its bound"
    lines = {"high_frequency": "log ‖HC[X]‖/‖HC[H]‖", "high_frequency_published": "its published bound"}
    return Entry(
        key,
        title,
        (Part("layers", models, _NFCORPUS),),
        draw=partial(
            draw.by_panel, x="layer", lines=lines, title=title, across="layer", along="log of the change", level=0.0
        ),
    )


def _draw_versions(rows: Sequence[Row]) -> Any:
    """Texts on two axes; of one model the legend says how long each version is, L, and how far out, D."""
    called: dict[Any, str] = {}
    if len({row.get("model") for row in rows}) == 1:
        for row in rows:
            if row.get("length") is not None:
                called[row["version"]] = (
                    f"{row['version']}, L = {row['length']:.0f}, D = {row['distance_to_origin']:.2f}"
                )
    named = [{**row, "version": called.get(row.get("version"), row.get("version"))} for row in rows]
    return draw.points(
        named, x="x", y="y", by="version", title="Three versions of a text", across="axis 1", along="axis 2"
    )


def _draw_labels(rows: Sequence[Row]) -> Any:
    """Entropy and accuracy side by side, models along the axis, a bar a bin before and after."""
    shown = {"entropy": "entropy (bits)", "accuracy": "accuracy"}
    melted = [
        {
            "quantity": words,
            "group": f"{row['bin']} tokens, τ = {row['tau']:g}",
            "model": row["model"],
            **{f"value{end}": row.get(f"{name}{end}") for end in ("", "_low", "_high")},
        }
        for name, words in shown.items()
        for row in sorted(
            (row for row in rows if "bin" in row), key=lambda row: (float(str(row["bin"]).split("–")[0]), -row["tau"])
        )
    ]
    return draw.bars(
        melted,
        x="model",
        y="value",
        by=("group",),
        panel="quantity",
        title="Entropy and accuracy by length",
        across="model",
        along="",
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


_TUNED = ("", *(f"ours(τ={tau:g})" for tau in PUBLISHED_GRID if tau < 1))
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
        differs="A type has a mean where all its data sets were measured. A limit draws texts and training texts.",
    )


PAPER = Paper(
    LENGTH,
    "Length-induced embedding collapse, and attention temperature",
    (*LENGTH_MODELS, *LENGTH_BACKBONES, *LLM_MODELS),
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
                downwards=True,
            ),
            differs="A single local file has no training set: then five folds, and bins of under 20 texts are joined.",
        ),
        Entry(
            "figure-1b",
            "Texts whole and shortened, on two axes",
            (Part("versions", ("BGE",), _NFCORPUS),),
            draw=_draw_versions,
            differs="Shortened by rule where no language model was named (--rewriter MODEL@URL).",
        ),
        _by_length("figure-1c", "Mean pairwise cosine by length and τ", "cosine", ("BGE",)),
        _frequency("figure-2", ("ANCE", "GIST", "BGE")),
        _by_length("figure-3", "Mean pairwise cosine of averaged input embeddings", "words", ("BGE",), ({"tau": 1.0},)),
        Entry(
            "figure-5",
            "Ranks of the longest and the shortest tenth of relevant documents",
            (Part("ranks", ("BGE",), _NFCORPUS, ({"tau": 1.0},)),),
            draw=lambda rows: draw.bars(
                [row for row in rows if str(row.get("group")).endswith("tenth")],
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
                downwards=True,
            ),
        ),
        _by_length("figure-7", "σₐ of the last layer by length and τ", "sigma_a", ("BGE",), along="σₐ"),
        _frequency("figure-8", NAMES),
        _by_length("figure-9", "σₐ of the last layer by length and τ", "sigma_a", NAMES, along="σₐ"),
        Entry(
            "figure-10",
            "Entropy and accuracy on AmazonPolarity by length, before and after",
            (Part("labels", NAMES, ("amazon",), tuple({"edges": "0,100,200,300", "tau": t} for t in (1.0, 0.8))),),
            follow=collapse_and_gain,
            draw=_draw_labels,
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
                draw.by_panel,
                x="tau",
                lines={"ndcg": ""},
                by=("queries",),
                title="Queries by length",
                across="τ",
                along="nDCG@10",
            ),
        ),
        _temperatures("figure-13", "qmsum", "nDCG@10 on QMSum by τ of queries and documents"),
        Entry(
            "figure-14",
            "Accuracy on AmazonPolarity by τ and length",
            (Part("labels", NAMES, ("amazon",), tuple({"edges": "0,100,200,300", "tau": t} for t in TAUS)),),
            draw=partial(
                draw.by_panel,
                x="tau",
                lines={"accuracy": ""},
                by=("bin",),
                title="Accuracy by τ",
                across="τ",
                along="accuracy",
            ),
        ),
        _temperatures("figure-15", "summscreenfd", "nDCG@10 on SummScreenFD by τ of queries and documents"),
        _scores(1, "Scores by task type, before and after", _METHODS, _ALL_SETS),
        Entry(
            "table-2",
            "Mean rank of relevant documents among the longest fifth, by τ",
            (Part("ranks", NAMES, ("nfcorpus", "scifact"), _GRID),),
            compare=_ranks_beside,
            draw=lambda rows: draw.bars(
                [row for row in rows if row.get("group") == "longest fifth"],
                x="model",
                y="rank",
                by=("tau",),
                panel="data",
                title="Mean rank of long documents",
                across="model",
                along="rank",
            ),
        ),
        Entry(
            "table-3",
            "Mean cosine of pairs: of any, of related, of unrelated ones",
            (Part("similarities", NAMES, ("sts12", "sts13", "sts14"), _GRID),),
            compare=_similarities_beside,
            follow=_nearest_similarities,
            draw=_draw_similarities,
            differs="The paper names neither model nor thresholds. Its five models are tried in three readings; the "
            "nearest stands beside the printed numbers.",
        ),
        Entry("table-4", "Lengths of the data sets", (Part("statistics", (), _ALL_SETS),), compare=_statistics_beside),
        Entry(
            "best-temperature",
            "The best temperature of each model over all tasks",
            (Part("score", NAMES, _ALL_SETS, tuple({"method": method} for method in _TUNED)),),
            follow=best_temperatures,
            draw=partial(
                draw.lines,
                x="tau",
                panels={"over_types": "mean over task types"},
                title="Score by temperature",
                across="τ",
            ),
            differs="Chosen on the tasks that report it, as in the paper; poolscope tune proves on other queries.",
        ),
        _scores(6, "Flow and whitening", _OTHERS, _ALL_SETS),
        _scores(7, "Temperatures by length: log n, and YaRN", _RULES, _ALL_SETS),
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
            "learned-temperature",
            "A temperature learned by gradient on half of the queries, proven on the others",
            (Part("learned temperature", NAMES, _NFCORPUS),),
            draw=partial(
                draw.lines,
                x="step",
                panels={"tau": "τ", "loss": "loss"},
                title="Learning the temperature",
                across="step",
            ),
            differs="The paper leaves it open. Contrastive loss of queries and their documents, Adam on log τ.",
        ),
        Entry(
            "backbone-and-child",
            "Does contrastive training cure length collapse? Slopes of the cosine, backbone beside child",
            (Part("bins", (*BACKBONES, *length_parts.PARENTS), _NFCORPUS),),
            follow=length_parts.child_minus_backbone,
            draw=partial(
                draw.lines,
                x="mean_length",
                panels={"cosine": "mean pairwise cosine"},
                title="Backbones and children",
                across="tokens",
            ),
            differs="The paper argues it (Appendix F.1.2) and measures no backbone.",
        ),
        Entry(
            "parts-and-length",
            "What each part of a layer does to high frequencies, by length",
            (Part("parts", NAMES, _NFCORPUS), Part("cut parts", NAMES, _NFCORPUS)),
            draw=partial(
                draw.by_panel,
                x="mean_length",
                lines={"change": ""},
                by=("part",),
                title="Parts of a layer by length",
                across="tokens",
                along="log change of ‖HC‖/‖DC‖",
                level=0.0,
            ),
        ),
        Entry(
            "pairs-by-length",
            "Related, unrelated and strange pairs by length",
            (Part("pairs by length", ("BGE",), ("sts12", "sts13", "sts14", "sts22")),),
            draw=partial(
                draw.lines,
                x="mean_length",
                panels={"cosine": "mean cosine", "strangers_win": "share of strangers that beat a related pair"},
                by=("data", "pairs"),
                title="Pairs by length",
                across="words of a pair",
            ),
        ),
        Entry(
            "pull-of-long-texts",
            "Are the centres of labels and of clusters nearer to long texts?",
            (Part("pull", NAMES, ("imdb", "amazon")),),
            draw=partial(
                draw.lines,
                x="mean_length",
                panels={"cosine": "cosine with the centre"},
                by=("model", "data", "centres"),
                title="Centres and length",
                across="tokens",
            ),
        ),
        Entry(
            "causal-attention",
            "Lemma 1 where tokens see only those before them",
            (Part("low pass", LLMS, _NFCORPUS), Part("causal bound", LLMS, _NFCORPUS)),
            draw=partial(
                draw.lines,
                x="t",
                panels={"log_ratio": "log ‖HC[Aᵗz]‖/‖DC[Aᵗz]‖"},
                title="Is causal attention a low-pass filter?",
                across="applications t",
            ),
            differs="The paper leaves it open. Eigenvalues of causal attention are its diagonal. The bound is ours.",
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
                draw.by_panel,
                x="layer",
                lines={"share": ""},
                by=("band",),
                title="Beyond the constant part",
                across="layer",
                along="share of the energy",
            ),
        ),
        Entry(
            "depth-and-length",
            "Concentration by layer and by length",
            (Part("depth and length", NAMES, _NFCORPUS),),
            draw=lambda rows: draw.heat(
                [row for row in rows if row.get("quantity") == "cosine"],
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
