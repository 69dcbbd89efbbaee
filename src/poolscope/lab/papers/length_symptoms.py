"""Length collapse seen and explained: what every length does to vectors, labels and attention, at any temperature."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError
from poolscope.evaluation import ClassificationTask
from poolscope.lab.capture.model import capture
from poolscope.lab.length.labels import labels_by_length
from poolscope.lab.length.mechanism import MeasuredTexts, length_mechanism, measure_texts
from poolscope.lab.length.probes import repetition_probe
from poolscope.lab.length.shift import sentences_of
from poolscope.lab.papers.cell import Cell, Kind, Material, Outcome, Row
from poolscope.lab.papers.common import tau_of, texts_of, units_of
from poolscope.lab.papers.quality import spearman
from poolscope.metrics.length.bins import length_bins
from poolscope.metrics.length.profile import length_profile
from poolscope.numbers.intervals import mean_estimate, share_estimate
from poolscope.numbers.learning import logistic_regression
from poolscope.numbers.ranking import unit_rows
from poolscope.repairs.temperature.tempscale import tempscale

Array = NDArray[np.float64]
_SHORT, _FEW = 10, 2  # tokens of the shortest version of a text; sentences of the middle one
_FEWEST = 12  # vectors for t-SNE
_PROMPTS = (
    "Please use few sentences to summarize the given text. {text}",
    "Please express the given text in one sentence. No more than 10 tokens. {text}",
)
_SENTENCE = (
    "The quick brown fox jumps over the lazy dog while the old cat sleeps under the oak tree and dreams of mice."
)


def symptoms_by_length(material: Material) -> Outcome:
    """By bin of lengths: mean pairwise cosine, distance from the centre, σₐ, cosine of averaged input embeddings."""
    texts = texts_of(material).texts
    with tempscale(material.model(), tau_of(material)):
        measured = measure_texts(material.model(), texts)
    edges, units = _edges(material), units_of(material)
    if edges is not None:
        inside = _within(measured.lengths, edges)
        measured, units = measured.take(inside), units.among(inside)
    groups = units.of.tolist() if units.name == "documents" else None
    bins = length_bins(measured.lengths).edges if edges is None else edges
    profile = length_profile(measured.vectors, measured.lengths, groups=groups, bins=bins)
    mechanism = length_mechanism(measured, profile, groups)
    rows = [{**left, **right} for left, right in zip(profile.rows(), mechanism.rows(), strict=True)]
    return Outcome([*rows, {"slope": profile.slope, "words_slope": mechanism.words_slope}], notes=profile.notes)


def _edges(material: Material) -> list[float] | None:
    """Edges of the bins in the setting, if it names any."""
    edges = material.setting.get("edges")
    return [float(edge) for edge in str(edges).split(",")] if edges else None


def _within(lengths: NDArray[np.int64], edges: Sequence[float]) -> NDArray[np.bool_]:
    """Mark the texts inside a bin; the paper leaves out longer ones."""
    inside = (lengths >= edges[0]) & (lengths < edges[-1])
    if not inside.any():
        raise InputError(
            f"no text has {edges[0]:g} to {edges[-1]:g} tokens; the shortest has {lengths.min():,}. Name other texts."
        )
    return np.asarray(inside)


def repeated_words(material: Material) -> Outcome:
    """The cosine of two texts that repeat one word each, by number of repetitions."""
    probe = repetition_probe(material.model())
    return Outcome([{"times": row.times, "tokens": row.tokens, "cosine": row.cosine.value} for row in probe.steps])


def labels_at(material: Material) -> Outcome:
    """Accuracy and entropy of a logistic regression by length, at a temperature."""
    task = material.data
    if not isinstance(task, ClassificationTask):
        raise InputError("this measurement needs texts with labels. Name a data set of that form.")
    with tempscale(material.model(), tau_of(material)):
        measured = measure_texts(material.model(), task.texts)
    edges = _edges(material)
    assert edges is not None  # every entry of this kind names them
    if task.trained is not None:
        return Outcome(_of_test_set(task, measured, edges))
    inside = _within(measured.lengths, edges)
    labels = [label for label, usable in zip(task.labels, inside, strict=True) if usable]
    own = measured.take(inside)
    by_length = labels_by_length(own.vectors, own.lengths, labels, bins=edges, seed=material.seed)
    rows = [
        {"bin": row.label, "texts": row.texts, "accuracy": row.accuracy, "entropy": row.entropy}
        for row in by_length.bins
    ]
    return Outcome(rows, notes=by_length.notes)


def _of_test_set(task: ClassificationTask, measured: MeasuredTexts, edges: list[float]) -> list[Row]:
    """Rows of the test set, by a fit on the training set with as many steps as the task allows."""
    vectors = unit_rows(measured.vectors, "vectors").astype(np.float64)
    codes, lengths = task.codes, measured.lengths[task.trained :]
    fit = logistic_regression(vectors[: task.trained], codes[: task.trained], most_steps=task.steps)
    inside = _within(lengths, edges)
    lengths, wanted = lengths[inside], codes[task.trained :][inside]
    shares = fit.shares(vectors[task.trained :][inside])
    right = (shares.argmax(axis=1) == wanted).astype(np.float64)
    entropy = -(shares * np.log2(np.maximum(shares, 1e-300))).sum(axis=1)
    bins = length_bins(lengths, edges, min_texts=1)
    members = [(label, bins.of == number) for number, label in enumerate(bins.labels)]
    return [
        {
            "bin": label,
            "texts": int(member.sum()),
            "accuracy": share_estimate(right[member], each="texts"),
            "entropy": mean_estimate(entropy[member]),
        }
        for label, member in members
        if member.any()
    ]


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
    """Every text whole, in few sentences and in about ten words: their lengths, and where they lie on two axes.

    A language model summarises where the user named one, by the prompts of the paper. Otherwise texts are shortened by
    rule, so what they say changes too. The axes are those of t-SNE where scikit-learn is there, else principal ones.
    """
    texts = list(texts_of(material).texts)
    writer = material.rewriter
    if writer is None:
        few = [" ".join(sentences_of(text)[:_FEW]) for text in texts]
        ten = [" ".join(text.split()[:_SHORT]) for text in texts]
    else:
        few, ten = (writer.rewrite(texts, prompt) for prompt in _PROMPTS)
        answered = [row for row in zip(texts, few, ten, strict=True) if all(row)]
        texts, few, ten = (list(column) for column in zip(*answered, strict=True))
    versions = {"whole": texts, "few sentences": few, "ten words": ten}
    measured = {name: measure_texts(material.model(), own) for name, own in versions.items()}
    units = {name: unit_rows(each.vectors, "vectors").astype(np.float64) for name, each in measured.items()}
    together = np.concatenate(list(units.values()))
    on_axes, axes = _two_axes(together, material.seed)
    rows: list[Row] = []
    for name, places in zip(units, np.split(on_axes, len(units)), strict=True):
        distance = mean_estimate(np.linalg.norm(places, axis=1))
        rows.append({"version": name, "length": float(measured[name].lengths.mean()), "distance_to_origin": distance})
        rows += [{"version": name, "x": float(x), "y": float(y)} for x, y in places[:300]]
    how = "by rule" if writer is None else f"by {writer.model}"
    return Outcome(rows, notes=(f"Texts were shortened {how}; the axes are {axes}.",))


def _two_axes(vectors: Array, seed: int) -> tuple[Array, str]:
    """Places of the vectors on two axes around the origin, and the name of the axes."""
    centred = vectors - vectors.mean(axis=0)
    if find_spec("sklearn") is None or len(vectors) < _FEWEST:
        return centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T, "principal axes"
    manifold = importlib.import_module("sklearn.manifold")
    places = manifold.TSNE(2, init="pca", random_state=seed, perplexity=min(30, len(vectors) / 4)).fit_transform(
        vectors
    )
    return np.asarray(places, dtype=np.float64), "those of t-SNE"


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


KINDS: dict[str, Kind] = {
    "bins": symptoms_by_length,
    "repetition": repeated_words,
    "labels": labels_at,
    "attention": attention_maps,
    "versions": three_versions,
}
