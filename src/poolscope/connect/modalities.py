"""Texts beside images: the gap between both in a model of the CLIP family, and SOCM across them.

Tokens and patches are compared where the model itself compares: each goes through the projection of its side into the
common space. The model's own vector of a text is its last token there, that of an image its first patch (CLS).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.connect.patches import PatchEncoder, load_with_processor
from poolscope.encoders.base import check_texts
from poolscope.errors import InputError, ModelError, require
from poolscope.metrics.socm.measure import socm
from poolscope.numbers import Array
from poolscope.numbers.intervals import Estimate, mean_estimate, share_estimate
from poolscope.numbers.maxsim import maxsim
from poolscope.numbers.ranking import rank_scores
from poolscope.results import Result, bulk, cells, origin, provenance
from poolscope.show.charts import COLOURS, curve, dots, panel

_BATCH = 16
_SHUFFLES = 200
TEXTS_ONLY, IMAGES_ONLY, MATCHED, OTHERS = "texts", "images", "text and its image", "text and other images"


@dataclass(frozen=True)
class CloudDistances:
    """SOCM and both its parts over pairs of one kind, and the mean cosine of the model's own vectors of these pairs."""

    pairs: str
    socm: Estimate
    d_mu: float
    d_sigma: float
    cosine: Estimate


@dataclass(frozen=True, repr=False, kw_only=True)
class Modalities(Result):
    """Texts and images of one model: the gap between them, and what it costs.

    `gap`: distance of the mean vector of the texts from that of the images, all of length 1; its floor is the mean
    where texts and images change places at random. `found`: share of the texts whose own image is nearest;
    `found_without_gap`: once each side's mean is taken off; `found_by_tokens`: by MaxSim of tokens and patches.
    """

    texts: int
    gap: Estimate
    found: Estimate
    found_without_gap: Estimate
    found_by_tokens: Estimate
    distances: tuple[CloudDistances, ...] = field(repr=False)
    vectors: Array | None = bulk()
    provenance: Mapping[str, Any] = origin()

    def in_words(self) -> tuple[str, ...]:
        """The gap beside chance, and how many texts find their image with it and without it."""
        chance = "" if self.gap.floor is None else f" (by chance {self.gap.floor:.2f})"
        return (
            f"The mean text and the mean image are {self.gap.value_or_raise:.2f} apart{chance}.",
            f"{self.found.percent()} of {self.texts:,} texts find their image first.",
            f"With each side's mean taken off it is {self.found_without_gap.percent()}.",
            f"By all tokens and patches it is {self.found_by_tokens.percent()}.",
        )

    def __getitem__(self, pairs: str) -> CloudDistances:
        return next(row for row in self.distances if row.pairs == pairs)

    def rows(self) -> list[dict[str, Any]]:
        """One row a kind of pairs."""
        return [cells(vars(row)) for row in self.distances]

    def figure(self) -> Any:
        """The model's own vectors on their two largest axes, each text joined to its image."""
        if self.vectors is None:
            raise InputError("the vectors were not kept, so there is nothing to draw. Measure again.")
        axes = np.linalg.svd(self.vectors - self.vectors.mean(axis=0), full_matrices=False)[2][:2]
        places = (self.vectors - self.vectors.mean(axis=0)) @ axes.T
        texts, images = places[: self.texts], places[self.texts :]
        joined = np.stack([texts, images, np.full_like(texts, np.nan)], axis=1).reshape(-1, 2)
        return panel(
            curve(joined[:, 0], joined[:, 1], "a text and its image", "#cccccc", width=0.8),
            dots(texts[:, 0], texts[:, 1], "texts", COLOURS[0], "text %{pointNumber}<extra></extra>"),
            dots(images[:, 0], images[:, 1], "images", COLOURS[1], "image %{pointNumber}<extra></extra>"),
            title="Texts and images of one model",
            across="first principal axis",
            along="second principal axis",
            height=560,
        )


class TextImageModel:
    """A model of the CLIP family: the tokens of texts and the patches of images in the common space, and its vectors.

    model: a folder, a hub name, or a pair (model, processor) of transformers.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.processor, self.name, self.revision = load_with_processor(model, "images", "AutoProcessor")
        parts = ("text_model", "vision_model", "text_projection", "visual_projection")
        if lacks := [part for part in parts if not hasattr(self.model, part)]:
            raise ModelError(
                f"{self.name}: received a {type(self.model).__name__} without {', '.join(lacks)}; needed: a model with "
                f"a projection of texts and one of images into one space, such as CLIP. Pass such a model."
            )
        self._images = PatchEncoder(self.model, self.processor, kind="images", name=self.name)

    def texts(self, texts: Sequence[str]) -> tuple[TokenClouds, Array]:
        """Clouds of tokens in the common space, and the model's own vectors of length 1."""
        torch = require("torch", "torch")
        tokenizer = getattr(self.processor, "tokenizer", self.processor)
        clouds, vectors = [], []
        for start in range(0, len(texts), _BATCH):
            batch = list(texts[start : start + _BATCH])
            inputs = tokenizer(batch, padding=True, truncation=True, return_tensors="pt").to(self.model.device)
            with torch.inference_mode():
                output = self.model.text_model(**inputs)
                tokens = self.model.text_projection(output.last_hidden_state).float().cpu().numpy()
                own = self.model.text_projection(output.pooler_output).float().cpu().numpy()
            lengths = inputs["attention_mask"].sum(dim=1).tolist()
            clouds += [row[:length] for row, length in zip(tokens, lengths, strict=True)]
            vectors.append(own)
        return TokenClouds.from_arrays(clouds), _units(np.concatenate(vectors))

    def images(self, images: Sequence[Any]) -> tuple[TokenClouds, Array]:
        """Clouds of patches in the common space, CLS first, and the model's own vectors of length 1."""
        torch = require("torch", "torch")
        tower = self.model.vision_model
        clouds = []
        for cloud in self._images.encode(images)[-1]:
            with torch.inference_mode():
                states = torch.tensor(np.asarray(cloud)).to(self.model.device, self.model.dtype)
                projected = self.model.visual_projection(tower.post_layernorm(states))
            clouds.append(projected.float().cpu().numpy())
        return TokenClouds.from_arrays(clouds), _units(np.stack([cloud[0] for cloud in clouds]))


def _units(vectors: NDArray[Any]) -> Array:
    wide = np.asarray(vectors, dtype=np.float64)
    return np.asarray(wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12))


def modalities(model: Any, texts: Any, images: Sequence[Any], *, seed: int = 0) -> Modalities:
    """How far apart are texts and images in a model that reads both, and do their clouds collapse across the gap?

    Parameters
    ----------
    model
        A model of the CLIP family: a folder, a hub name, or a pair (model, processor) of transformers.
    texts
        Texts, each with the image at its place.
    images
        As many images: PIL images, arrays (height × width × 3) or files.
    seed
        Of the shuffles behind the floor of the gap.

    Returns
    -------
    Modalities
        The gap, SOCM and its parts within and across both, and how many texts find their image.

    Examples
    --------
    >>> modalities("nowhere/at all", ["a text"], [])
    Traceback (most recent call last):
    poolscope.errors.InputError: images: received 0 for 1 texts; needed: one for each text, and three or more. Pass ...

    """
    listed = check_texts(texts)
    if len(images) != len(listed) or len(listed) < 3:
        raise InputError(
            f"images: received {len(images)} for {len(listed)} texts; needed: one for each text, and three or more. "
            f"Pass as many of both."
        )
    both = TextImageModel(model)
    (tokens, text_vectors), (patches, image_vectors) = both.texts(listed), both.images(images)
    own = np.column_stack([np.arange(len(listed))] * 2)
    i, j = np.nonzero(~np.eye(len(listed), dtype=bool))
    cosines = text_vectors @ image_vectors.T
    without = [vectors - vectors.mean(axis=0) for vectors in (text_vectors, image_vectors)]
    scores = {
        "found": cosines,
        "found_without_gap": _units(without[0]) @ _units(without[1]).T,
        "found_by_tokens": np.asarray(maxsim(tokens, patches), dtype=np.float64),
    }
    first = {name: (rank_scores(table, own).rank == 1).astype(np.float64) for name, table in scores.items()}
    inside = [(TEXTS_ONLY, tokens, text_vectors), (IMAGES_ONLY, patches, image_vectors)]
    distances = [_within(name, clouds, vectors) for name, clouds, vectors in inside]
    for name, pairs in ((MATCHED, own), (OTHERS, np.column_stack([i, j]))):
        distances.append(_distances(name, socm(tokens, patches, pairs=pairs), cosines[pairs[:, 0], pairs[:, 1]]))
    settings = {"seed": seed, "model": both.name, "revision": both.revision}
    return Modalities(
        texts=len(listed),
        gap=Estimate(_gap(text_vectors, image_vectors), floor=_chance(text_vectors, image_vectors, seed)),
        **{name: share_estimate(values, each="texts") for name, values in first.items()},
        distances=tuple(distances),
        vectors=np.concatenate([text_vectors, image_vectors]),
        provenance=provenance(settings=settings),
    )


def _within(name: str, clouds: TokenClouds, vectors: Array) -> CloudDistances:
    i, j = np.triu_indices(len(vectors), 1)
    return _distances(name, socm(clouds), (vectors[i] * vectors[j]).sum(axis=1))


def _distances(name: str, found: Any, cosines: Array) -> CloudDistances:
    cosine = mean_estimate(cosines, each="pairs")
    return CloudDistances(name, found.estimate, found.mean_distance, found.covariance_distance, cosine)


def _gap(texts: Array, images: Array) -> float:
    return float(np.linalg.norm(texts.mean(axis=0) - images.mean(axis=0)))


def _chance(texts: Array, images: Array, seed: int) -> float:
    """The mean gap where it is drawn at random which of a text and its image stands on which side."""
    random = np.random.default_rng(seed)
    swaps = random.random((_SHUFFLES, len(texts), 1)) < 0.5
    return float(np.mean([_gap(np.where(swap, images, texts), np.where(swap, texts, images)) for swap in swaps]))


def read_captioned(
    table: str, *, text_column: str = "text", image_column: str = "image"
) -> tuple[list[str], list[str]]:
    """Texts and files of images from a table; files are looked for beside it."""
    from poolscope.texts.sources import open_table

    source = open_table(table)
    source.require(text_column, "--text-column")
    source.require(image_column, "--image-column")
    rows = [(str(text), str(image)) for text, image in source.rows([text_column, image_column])]
    folder = Path(table).parent
    return [text for text, _ in rows], [os.fspath(folder / image) for _, image in rows]
