"""Clusters of contextual tokens beyond token types: k-means with validity indices, and tokens joined into words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError
from poolscope.evaluation import ClassificationTask
from poolscope.lab.papers.cell import Kind, Material, Outcome, Row
from poolscope.lab.papers.common import texts_of
from poolscope.numbers.intervals import share_estimate
from poolscope.numbers.learning import cluster, mini_batch_clusters, predict_unseen

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_TOKENS = 2_000  # tokens that are clustered, drawn
_NUMBERS = (8, 32, 128)
_JOINED, _SPACED = "##", ("Ġ", "▁")  # what a piece begins with that goes on with a word, or that begins one


# -- how good a clustering is ---------------------------------------------------------------------------------------


def decomposition(tokens: Array, labels: Index) -> dict[str, float]:
    """V = V_W + V_B of tokens in clusters, as shares of Q, with the share of the mean."""
    counts = np.bincount(labels)
    means = np.zeros((len(counts), tokens.shape[1]))
    np.add.at(means, labels, tokens)
    means /= np.maximum(counts, 1)[:, None]
    square = float((tokens**2).sum(axis=1).mean())
    centre = tokens.mean(axis=0)
    between = float((counts[:, None] * (means - centre) ** 2).sum() / len(tokens))
    within = float(((tokens - means[labels]) ** 2).sum() / len(tokens))
    return {
        "mean_share": float(centre @ centre) / square,
        "within_share": within / square,
        "between_share": between / square,
    }


def validity(tokens: Array, labels: Index) -> dict[str, float]:
    """Silhouette, Davies–Bouldin and Calinski–Harabasz index of a clustering, by Euclidean distances.

    >>> apart = np.array([[0.0], [0.1], [9.0], [9.1]])
    >>> round(validity(apart, np.array([0, 0, 1, 1]))["silhouette"], 2)
    0.99
    """
    kinds, labels = np.unique(labels, return_inverse=True)
    k, n = len(kinds), len(tokens)
    counts = np.bincount(labels)
    centres = np.stack([tokens[labels == kind].mean(axis=0) for kind in range(k)])
    squares = (tokens**2).sum(axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares - 2 * tokens @ tokens.T, 0.0))
    sums = np.stack([distances[:, labels == kind].sum(axis=1) for kind in range(k)], axis=1)
    own = sums[np.arange(n), labels] / np.maximum(counts[labels] - 1, 1)
    others = sums / counts
    others[np.arange(n), labels] = np.inf
    nearest = others.min(axis=1)
    silhouette = np.where(counts[labels] > 1, (nearest - own) / np.maximum(np.maximum(nearest, own), 1e-300), 0.0)
    spread = np.array([np.linalg.norm(tokens[labels == kind] - centres[kind], axis=1).mean() for kind in range(k)])
    apart = np.linalg.norm(centres[:, None] - centres, axis=2)
    np.fill_diagonal(apart, np.inf)
    ratio = (spread[:, None] + spread) / apart
    between = (counts * ((centres - tokens.mean(axis=0)) ** 2).sum(axis=1)).sum()
    within = ((tokens - centres[labels]) ** 2).sum()
    return {
        "silhouette": float(silhouette.mean()),
        "davies_bouldin": float(ratio.max(axis=1).mean()),
        "calinski_harabasz": float(between / max(within, 1e-300) * (n - k) / max(k - 1, 1)),
    }


def adjusted_rand(first: Index, second: Index) -> float:
    """How far two partitions agree beyond chance: 1 for the same one, about 0 for strangers.

    >>> adjusted_rand(np.array([0, 0, 1, 1]), np.array([5, 5, 3, 3]))
    1.0
    """
    left, right = (np.unique(labels, return_inverse=True)[1] for labels in (first, second))
    table = np.zeros((left.max() + 1, right.max() + 1))
    np.add.at(table, (left, right), 1)

    def pairs(counts: Array) -> float:
        return float((counts * (counts - 1) / 2).sum())

    both, rows, columns = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    expected = rows * columns / pairs(np.array([float(len(left))]))
    most = (rows + columns) / 2
    return 1.0 if most == expected else float((both - expected) / (most - expected))


# -- kinds of measurement -----------------------------------------------------------------------------------------


def _states(material: Material) -> tuple[dict[int, Array], Index]:
    """Tokens of the first, the middle and the last layer, and their types; so many, drawn."""
    encoder = material.model()
    depth = encoder.card.layers
    if depth is None:
        raise InputError("this measurement needs a model with layers. Take a transformer.")
    wanted = sorted({0, depth // 2, depth})
    clouds = encoder.encode(texts_of(material).texts, layers=wanted)
    ids = [clouds[wanted[0]].token_ids(k) for k in range(len(clouds[wanted[0]]))]
    if any(own is None for own in ids):
        raise InputError("this measurement needs the ids of the tokens. Take a model with a tokenizer.")
    types = np.concatenate([np.asarray(own, dtype=np.int64) for own in ids])
    drawn = np.sort(np.random.default_rng(material.seed).permutation(len(types))[:_TOKENS])
    tokens = {
        layer: np.concatenate([np.asarray(own[k], dtype=np.float64) for k in range(len(own))])[drawn]
        for layer, own in clouds.items()
    }
    return tokens, types[drawn]


def clusterings(material: Material) -> Outcome:
    """Types, k-means with several numbers, and random labels: V_W and V_B of each, how valid, how near to types."""
    states, types = _states(material)
    random = np.random.default_rng(material.seed)
    rows: list[Row] = []
    for layer, tokens in states.items():
        ways: dict[str, Any] = {"types": types, "random": random.permutation(types)}
        for k in _NUMBERS:
            if k < len(tokens) // 2:
                ways[f"k-means {k}"] = cluster(tokens, k, starts=1, seed=material.seed)[:, 0]
        for name, labels in ways.items():
            codes = np.unique(labels, return_inverse=True)[1]
            numbers = {**decomposition(tokens, codes), **validity(tokens, codes)}
            rows.append(
                {"layer": layer, "clusters": name, "count": int(codes.max()) + 1, **numbers,
                 "rand_with_types": adjusted_rand(codes, types)}
            )  # fmt: skip
    return Outcome(rows)


def word_starts(names: list[str]) -> list[bool]:
    """Which pieces begin a word, by the marks that tokenizers use; without any mark every piece is one.

    >>> word_starts(["un", "##happy", "cat"]), word_starts(["Ġun", "happy"]), word_starts(["a", "b"])
    ([True, False, True], [True, False], [True, True])
    """
    if any(name.startswith(_JOINED) for name in names):
        return [not name.startswith(_JOINED) for name in names]
    if any(name.startswith(_SPACED) for name in names):
        return [place == 0 or name.startswith(_SPACED) for place, name in enumerate(names)]
    return [True] * len(names)


def levels(material: Material) -> Outcome:
    """Pieces, words as means of pieces, and characters (each read as a word): variation of Q, and ρ of M and V.

    The paper takes pieces, since the mean of pieces is an artefact: here is how large it is.
    """
    encoder = material.model()
    texts = texts_of(material).texts
    clouds = encoder.encode(texts)[-1]
    vocabulary = getattr(encoder, "vocabulary", None)
    if vocabulary is None or clouds.token_ids(0) is None:
        raise InputError("this measurement needs the names of the tokens. Take a model with a tokenizer.")
    groups: dict[str, dict[str, list[Array]]] = {
        name: {} for name in ("pieces", "words", "words of several pieces", "characters")
    }
    for k in range(len(clouds)):
        cloud = np.asarray(clouds[k], dtype=np.float64)
        names = list(vocabulary.names(np.asarray(clouds.token_ids(k))))
        starts = np.flatnonzero(word_starts(names))
        for name, vector in zip(names, cloud, strict=True):
            groups["pieces"].setdefault(name, []).append(vector)
        for begin, end in zip(starts, [*starts[1:], len(names)], strict=True):
            word, vector = "".join(names[begin:end]), cloud[begin:end].mean(axis=0)
            groups["words"].setdefault(word, []).append(vector)
            if end - begin > 1:
                groups["words of several pieces"].setdefault(word, []).append(vector)
    spelled = encoder.encode([" ".join(text.replace(" ", "")) for text in texts])[-1]
    for k in range(len(spelled)):
        names = list(vocabulary.names(np.asarray(spelled.token_ids(k))))
        for name, vector in zip(names, np.asarray(spelled[k], dtype=np.float64), strict=True):
            groups["characters"].setdefault(name, []).append(vector)
    return Outcome([{"level": name, **_norms(own)} for name, own in groups.items() if own])


def meaning(material: Material) -> Outcome:
    """Do clusters hold meaning? The label of a text, told from how many of its tokens lie in each cluster.

    Accuracy in five folds, for k-means clusters of the last layer, for as many frequent types, and for clusters at
    random of the same sizes, which hold the length of a text and no more.
    """
    task = material.data
    if not isinstance(task, ClassificationTask):
        raise InputError("this measurement needs texts with labels. Name a data set of that form.")
    clouds = material.model().encode(task.texts)[-1]
    if clouds.token_ids(0) is None:
        raise InputError("this measurement needs the ids of the tokens. Take a model with a tokenizer.")
    sizes = [len(clouds[k]) for k in range(len(clouds))]
    owner = np.repeat(np.arange(len(sizes)), sizes)
    tokens = np.concatenate([np.asarray(clouds[k], dtype=np.float64) for k in range(len(clouds))])
    types = np.concatenate([np.asarray(clouds.token_ids(k), dtype=np.int64) for k in range(len(clouds))])
    count = min(_MEANT, len(np.unique(types)), len(np.unique(tokens, axis=0)) // 2)
    clustered = mini_batch_clusters(tokens, count, seed=material.seed)
    _, inverse, often = np.unique(types, return_inverse=True, return_counts=True)
    rank = np.argsort(np.argsort(-often, kind="stable"))[inverse.ravel()]
    ways = {
        "k-means": clustered,
        "types": np.minimum(rank, count - 1),
        "random": np.random.default_rng(material.seed).permutation(clustered),
    }
    rows: list[Row] = []
    for name, labels in ways.items():
        shares = np.zeros((len(sizes), count))
        np.add.at(shares, (owner, labels), 1)
        shares /= np.array(sizes)[:, None]
        predicted = predict_unseen(np.sqrt(shares), task.codes, seed=material.seed).labels
        right = (predicted == task.codes).astype(np.float64)
        rows.append({"clusters": name, "count": count, "accuracy": share_estimate(right, each="texts")})
    return Outcome(rows)


def types_by_label(material: Material) -> Outcome:
    """Q = M + V of the types of each label (a language, a style) alone, in the last layer; and between the labels.

    `between_labels`: the share of the variance of all tokens that lies between the means of labels.
    """
    task = material.data
    if not isinstance(task, ClassificationTask):
        raise InputError("this measurement needs texts with labels. Name a data set of that form.")
    clouds = material.model().encode(task.texts)[-1]
    if clouds.token_ids(0) is None:
        raise InputError("this measurement needs the ids of the tokens. Take a model with a tokenizer.")
    groups: dict[str, dict[str, list[Array]]] = {}
    for k, label in enumerate(task.labels):
        ids = np.asarray(clouds.token_ids(k))
        for token, vector in zip(ids.tolist(), np.asarray(clouds[k], dtype=np.float64), strict=True):
            groups.setdefault(str(label), {}).setdefault(str(token), []).append(vector)
    rows = [{"label": label, **_norms(own)} for label, own in sorted(groups.items())]
    tokens = [np.concatenate([np.stack(own) for own in each.values()]) for each in groups.values()]
    labels = np.repeat(np.arange(len(tokens)), [len(own) for own in tokens])
    shares = decomposition(np.concatenate(tokens), labels)
    spread = 1 - shares["mean_share"]
    return Outcome([*rows, {"label": "all", "between_labels": shares["between_share"] / max(spread, 1e-300)}])


_MEANT = 64  # clusters whose meaning is asked for


def _norms(groups: dict[str, list[Array]]) -> Row:
    from poolscope.lab.papers.quality import spearman

    frequent = [np.stack(own) for own in groups.values() if len(own) >= 3]
    square = np.array([float((own**2).sum(axis=1).mean()) for own in frequent])
    mean = np.array([float((own.mean(axis=0) ** 2).sum()) for own in frequent])
    row: Row = {"types": len(groups), "frequent": len(frequent)}
    if len(frequent) > 3:
        row |= {"mean_square": float(square.mean()), "variation": float(square.std() / square.mean())}
        row |= {"mean_and_variance": spearman(mean, square - mean)}
    return row


KINDS: dict[str, Kind] = {
    "clusters": clusterings,
    "levels": levels,
    "meaning": meaning,
    "types by label": types_by_label,
}
