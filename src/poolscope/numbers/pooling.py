"""From token clouds to one vector a text, in several ways on the same clouds.

How a model itself pools stands in `poolscope.encoders.pooling`. Which pooling helps is a question to the corpus:
`poolscope.tune` compares them. Changing the pooling of a model that was trained with another usually hurts.

`Fitted` is what poolings and vector repairs share: parameters as scikit-learn knows them, and fitted arrays.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.clouds.token_clouds import check_clouds
from poolscope.errors import InputError, did_you_mean, shorten
from poolscope.numbers import Array
from poolscope.numbers.moments import mean, unit_mean_factor

# -- what poolings and vector repairs share ---------------------------------------------------------------------------

Arrays = dict[str, NDArray[Any]]


class Fitted(ABC):
    """Parameters are the arguments of `__init__`, kept under their names; fitted arrays end in an underscore."""

    name: ClassVar[str]
    shown: ClassVar[str] = "{name}"  # the label: parameters that matter stand in it by name

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, as scikit-learn asks for them."""
        return {key: getattr(self, key) for key in _parameters(type(self))}

    def set_params(self, **values: Any) -> Self:
        """Change parameters; unknown names are refused."""
        if unknown := sorted(set(values) - set(_parameters(type(self)))):
            allowed = ", ".join(_parameters(type(self))) or "none"
            raise InputError(f"{type(self).__name__}: received the parameters {unknown}; allowed: {allowed}.")
        for key, value in values.items():
            setattr(self, key, value)
        return self

    def __repr__(self) -> str:
        parameters = ", ".join(f"{key}={value!r}" for key, value in self.get_params().items())
        return f"{type(self).__name__}({parameters})"

    @property
    def label(self) -> str:
        """A short name with the parameters that matter, for tables."""
        parameters = {} if self.shown == "{name}" else self.get_params()
        return self.shown.format(**{"name": self.name} | parameters)

    @property
    def arrays(self) -> Arrays:
        """The fitted arrays by name; empty before `fit`, or where there is nothing to fit."""
        fitted = {key: value for key, value in vars(self).items() if key.endswith("_") and not key.startswith("_")}
        return {key: value for key, value in fitted.items() if isinstance(value, np.ndarray) and value.dtype != object}

    def require_fit(self, attribute: str) -> None:
        """Refuse to work before `fit`."""
        if not hasattr(self, attribute):
            raise InputError(f"{self!r} is not fitted yet; call fit on a sample first, or load a saved one.")

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters, for JSON; the arrays are kept beside it."""
        values = self.get_params().items()
        parameters = {key: value.item() if isinstance(value, np.generic) else value for key, value in values}
        return {"name": self.name, "parameters": parameters}


def _parameters(kind: type) -> list[str]:
    return [key for key in inspect.signature(kind).parameters if key != "self"]


def is_whole(value: Any) -> bool:
    """Is it a whole number of Python or numpy?"""
    return isinstance(value, Integral) and not isinstance(value, bool)


# -- poolings ---------------------------------------------------------------------------------------------------------

Ids = NDArray[np.int32]
Clouds = TokenClouds | Mapping[int, TokenClouds]


class Pooling(Fitted):
    """One vector a text from its cloud. `layers` are the layers whose clouds it needs (−1: the pooled one)."""

    layers: ClassVar[tuple[int, ...]] = (-1,)
    needs_ids: ClassVar[bool] = False

    @property
    def learns(self) -> bool:
        """Must it be fitted before it pools?"""
        return type(self).fit is not Pooling.fit

    def with_inner(self, other: Pooling | None) -> Pooling:
        """Another pooling in place of this one (None: this one); what a model puts behind its pooling stays behind."""
        return self if other is None else other

    def fit(self, clouds: Clouds) -> Self:
        """Learn from the clouds of a sample; most poolings have nothing to learn."""
        return self

    def transform(self, clouds: Clouds) -> Array:
        """Vectors (texts × d′), not scaled."""
        tokens = pooled_layer(clouds)
        ids = [self._ids(tokens, k) for k in range(len(tokens))] if self.needs_ids else [None] * len(tokens)
        return np.stack([self.vector(cloud, row) for cloud, row in zip(tokens, ids, strict=True)])

    def rows(self, tokens: NDArray[Any], offsets: NDArray[np.int64]) -> Array:
        """The vectors (N × d′) of clouds that stand one after the other (Σ n × d), parted at `offsets` (N + 1)."""
        return np.stack([self.vector(tokens[start:stop], None) for start, stop in pairwise(offsets)])

    @abstractmethod
    def vector(self, cloud: Any, ids: Ids | None) -> Array:
        """The vector of one cloud (tokens × d) with its vocabulary ids, if they are needed."""

    def _ids(self, clouds: TokenClouds, text: int) -> Ids:
        ids = clouds.token_ids(text)
        if ids is None:
            raise InputError(
                f"{self.name}: text {text} has no token ids, and this pooling weighs tokens by them. Encode the texts "
                f"with a model of poolscope, or choose another pooling."
            )
        return ids


_SHORT = 16
"""Texts of more tokens on average are summed one by one, which is up to ten times as fast as `reduceat`."""


class MeanPooling(Pooling):
    """The mean of the tokens."""

    name: ClassVar[str] = "mean"

    def vector(self, cloud: Any, ids: Ids | None) -> Array:
        """μ(X)."""
        return mean(cloud)

    def rows(self, tokens: NDArray[Any], offsets: NDArray[np.int64]) -> Array:
        """All means at once: sums from offset to offset over the lengths."""
        lengths = np.diff(offsets)
        if lengths.mean() < _SHORT:
            sums = np.add.reduceat(tokens, offsets[:-1], dtype=np.float64)
        else:
            sums = np.empty((len(lengths), tokens.shape[1]))
            for row, (start, stop) in enumerate(pairwise(offsets.tolist())):
                tokens[start:stop].sum(axis=0, dtype=np.float64, out=sums[row])
        return np.asarray(sums / lengths[:, None])


class RootMeanPooling(MeanPooling):
    """The sum over √n instead of n ("mean_sqrt_len_tokens"): the direction of the mean, longer by √n.

    Under cosine it is the mean, whose name it keeps; only who asks for lengths sees the difference.
    """

    def vector(self, cloud: Any, ids: Ids | None) -> Array:
        """√n · μ(X)."""
        return np.asarray(mean(cloud) * np.sqrt(len(cloud)))

    def rows(self, tokens: NDArray[Any], offsets: NDArray[np.int64]) -> Array:
        """All at once."""
        return np.asarray(super().rows(tokens, offsets) * np.sqrt(np.diff(offsets))[:, None])


class FirstPooling(Pooling):
    """The first token: CLS, where the tokenizer puts one there and no prompt is left out before it."""

    name: ClassVar[str] = "cls"

    def vector(self, cloud: Any, ids: Ids | None) -> Array:
        """x₁."""
        return np.asarray(cloud[0], dtype=np.float64)


class RestPooling(Pooling):
    """The mean without the first token: in the middle of a decoder that token is a sink, in BERT it is CLS."""

    name: ClassVar[str] = "mean without first"

    def vector(self, cloud: Any, ids: Ids | None) -> Array:
        """The mean of x₂ … xₙ; of a single token itself."""
        return mean(cloud[1:] if len(cloud) > 1 else cloud)


class LastPooling(Pooling):
    """The last token, which in a causal model alone has seen the whole text."""

    name: ClassVar[str] = "last"

    def vector(self, cloud: Any, ids: Ids | None) -> Array:
        """xₙ."""
        return np.asarray(cloud[-1], dtype=np.float64)


class MaxPooling(Pooling):
    """The largest value of every dimension."""

    name: ClassVar[str] = "max"

    def vector(self, cloud: Any, ids: Ids | None) -> Array:
        """maxᵢ xᵢ, dimension by dimension."""
        return np.asarray(np.asarray(cloud, dtype=np.float64).max(axis=0))


class PositionPooling(Pooling):
    """A mean in which token i of n weighs i: later tokens count more ("weightedmean" in sentence-transformers)."""

    name: ClassVar[str] = "position"

    def vector(self, cloud: Any, ids: Ids | None) -> Array:
        """Σ i·xᵢ / Σ i."""
        return mean(cloud, np.arange(1, len(cloud) + 1))


class SifPooling(Pooling):
    """Smooth inverse frequency (Arora et al., 2017): a token of frequency p weighs a/(a + p).

    p is the token's share of all tokens of the corpus it is fitted on; an unseen token weighs 1. The paper then removes
    the first common direction: put `MeanRemoval` or `AllButTheTop` behind it.
    """

    name: ClassVar[str] = "sif"
    needs_ids: ClassVar[bool] = True

    def __init__(self, a: float = 1e-3) -> None:
        self.a = a

    def fit(self, clouds: Clouds) -> Self:
        """Count the tokens of the corpus."""
        if not 0 < self.a < np.inf:
            raise InputError(f"a: received {self.a!r}; allowed: a number above 0, such as 0.001.")
        tokens = pooled_layer(clouds)
        ids, counts = np.unique(np.concatenate([self._ids(tokens, k) for k in range(len(tokens))]), return_counts=True)
        self.ids_, self.frequencies_ = ids.astype(np.int32), counts / counts.sum()
        return self

    def weights(self, ids: Ids) -> Array:
        """a/(a + p) for each token."""
        self.require_fit("ids_")
        at = np.searchsorted(self.ids_, ids).clip(max=len(self.ids_) - 1)
        shares = np.where(self.ids_[at] == ids, self.frequencies_[at], 0.0)
        return np.asarray(self.a / (self.a + shares))

    def vector(self, cloud: Any, ids: Ids | None) -> Array:
        """Σ wᵢ xᵢ / Σ wᵢ."""
        if ids is None:
            raise InputError("sif: received a cloud without token ids; this pooling weighs tokens by them.")
        return mean(cloud, self.weights(ids))


class SpreadPooling(Pooling):
    """The mean beside the standard deviation of every dimension: (u, w·σ), of dimension 2d.

    u = μ/‖μ‖ and σ are those of the cloud scaled to unit mean. For w = 1 the squared Euclidean distance of two such
    vectors is W₂² of the two Gaussians with the covariances cut down to their diagonals. Cosine works as usual.
    """

    name: ClassVar[str] = "mean + spread"

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    @property
    def label(self) -> str:
        """With the weight, unless it is 1."""
        return self.name if self.weight == 1 else f"{self.name} × {self.weight:g}"

    def vector(self, cloud: Any, ids: Ids | None) -> Array:
        """(u, w·σ)."""
        unit, factor = unit_mean_factor(cloud)
        return np.concatenate([unit, _checked_weight(self.weight) * np.linalg.norm(factor, axis=0)])


class SecondOrderPooling(Pooling):
    """The mean beside a sketch of the covariance: (u, w·svec(C^½), w·√(tr Σ − tr C)), of size d + r(r + 1)/2 + 1.

    The cloud is scaled to unit mean, and C is its covariance in the r directions in which the clouds of the corpus
    spread most (fitted). svec lists the upper triangle, off-diagonal entries times √2, so that inner products are those
    of the matrices. The squared length is 1 + w² tr Σ. Within the sketch ‖C₁^½ − C₂^½‖² lies between BW² and 2·BW²:
    Euclidean distances follow the Gaussian W₂², and cosine works as usual.
    """

    name: ClassVar[str] = "second order"

    def __init__(self, rank: int = 16, weight: float = 1.0) -> None:
        self.rank = rank
        self.weight = weight

    @property
    def label(self) -> str:
        """With the rank, and the weight unless it is 1."""
        return f"{self.name} {self.rank}" + ("" if self.weight == 1 else f" × {self.weight:g}")

    def fit(self, clouds: Clouds) -> Self:
        """The `rank` leading directions of the mean covariance of the clouds, each scaled to unit mean."""
        tokens = pooled_layer(clouds)
        if not is_whole(self.rank) or not 1 <= self.rank <= tokens.dimension:
            raise InputError(f"rank: received {self.rank!r}; allowed: 1 to {tokens.dimension}, the dimension.")
        total = np.zeros((tokens.dimension, tokens.dimension))
        for cloud in tokens:
            factor = unit_mean_factor(cloud)[1]
            total += factor.T @ factor
        values, directions = np.linalg.eigh(total)
        self.directions_ = directions[:, ::-1][:, : self.rank].copy()
        self.kept_ = np.array(values[::-1][: self.rank].sum() / values.sum() if values.sum() > 0 else 1.0)
        return self

    def vector(self, cloud: Any, ids: Ids | None) -> Array:
        """Unit mean, root of the sketch, root of the spread outside of it."""
        self.require_fit("directions_")
        unit, factor = unit_mean_factor(cloud)
        inside = factor @ self.directions_
        values, axes = np.linalg.eigh(inside.T @ inside)
        root = (axes * np.sqrt(values.clip(min=0))) @ axes.T
        rows, columns = np.triu_indices(len(root))
        sketch = root[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2))
        rest = np.sqrt(max(0.0, float((factor**2).sum() - (inside**2).sum())))
        return np.concatenate([unit, _checked_weight(self.weight) * np.append(sketch, rest)])


class LearnedPooling(Pooling):
    """A mean in which token x weighs e^(x·w), with a direction w that a loss has taught; w = 0 is the mean.

    Taught beside a model by `poolscope.connect.integrations.trained_pooling.TrainedPooling`.
    """

    name: ClassVar[str] = "learned"

    def __init__(self, direction: Any = None) -> None:
        if direction is not None:
            self.direction_ = np.asarray(direction, dtype=np.float64)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """None: the direction is a fitted array."""
        return {}

    def fit(self, clouds: Clouds) -> Self:
        """Refused: clouds alone do not say which tokens matter."""
        raise InputError(
            "learned: received clouds and no loss; this pooling is taught with a model. Run "
            "examples/train_tiny_bert.py --pooling learned, or choose another pooling."
        )

    def weights(self, cloud: Any) -> Array:
        """Shares of the tokens, which add up to 1."""
        self.require_fit("direction_")
        scores = np.asarray(cloud, dtype=np.float64) @ self.direction_
        shares = np.exp(scores - scores.max())
        return np.asarray(shares / shares.sum())

    def vector(self, cloud: Any, ids: Ids | None) -> Array:
        """Σ wᵢ xᵢ."""
        return mean(cloud, self.weights(cloud))


class LastTwoPooling(Pooling):
    """last2avg: the mean of the mean vectors of the last two layers. Needs the clouds of both, by layer."""

    name: ClassVar[str] = "last2avg"
    layers: ClassVar[tuple[int, ...]] = (-1, -2)

    def transform(self, clouds: Clouds) -> Array:
        """Half the sum of both layers' means."""
        if not isinstance(clouds, Mapping) or not set(self.layers) <= set(clouds):
            raise InputError(
                "last2avg: received the clouds of one layer; needed: those of the last two, as "
                "encode(model, texts, layers=[-1, -2]) gives them."
            )
        above, below = (MeanPooling().transform(clouds[layer]) for layer in self.layers)
        if above.shape != below.shape:
            raise InputError(
                f"received layers of shape {above.shape} and {below.shape}; needed: the mean vectors of the same texts "
                f"in both layers."
            )
        return (above + below) / 2

    def vector(self, cloud: Any, ids: Ids | None) -> Array:
        """Refused: one cloud is one layer."""
        raise InputError("last2avg: received one cloud; needed: two layers. Use transform.")


POOLINGS: dict[str, type[Pooling]] = {
    kind.name: kind
    for kind in (
        MeanPooling,
        FirstPooling,
        LastPooling,
        MaxPooling,
        PositionPooling,
        SifPooling,
        SpreadPooling,
        SecondOrderPooling,
        LastTwoPooling,
        RestPooling,
    )
}


def make_pooling(how: str | Pooling) -> Pooling:
    """A pooling from its name; a pooling as it is."""
    if isinstance(how, Pooling):
        return how
    if not isinstance(how, str) or how not in POOLINGS:
        raise InputError(
            f"pooling: received {shorten(how)}; allowed: {', '.join(POOLINGS)}.{did_you_mean(how, POOLINGS)}"
        )
    return POOLINGS[how]()


def pool(clouds: Clouds, how: str | Pooling = "mean") -> Array:
    """One vector a text from its token cloud.

    Parameters
    ----------
    clouds
        Token clouds, or clouds by layer as `encode(…, layers=[…])` gives them; then the pooled layer, −1, is taken.
    how
        The name of a pooling (`mean`, `cls`, `last`, `max`, `position`, `sif`, `mean + spread`, `second order`,
        `last2avg`, `mean without first`) or a pooling object. One given by name is fitted on the same clouds, if it
        learns anything; an object that learns must be fitted already.

    Returns
    -------
    numpy.ndarray
        One row a text (texts × d′), not scaled.

    Examples
    --------
    >>> clouds = TokenClouds.from_arrays([[[1.0, 0.0], [3.0, 2.0]], [[0.0, 4.0]]])
    >>> pool(clouds).tolist(), pool(clouds, "last").tolist()
    ([[2.0, 1.0], [0.0, 4.0]], [[3.0, 2.0], [0.0, 4.0]])

    """
    pooling = make_pooling(how)
    return (pooling if isinstance(how, Pooling) else pooling.fit(clouds)).transform(clouds)


def pooled_layer(clouds: Clouds) -> TokenClouds:
    """The clouds of the layer that the model pools."""
    return check_clouds(clouds.get(-1) if isinstance(clouds, Mapping) else clouds, "pooling")


def _checked_weight(weight: float) -> float:
    if not 0 <= weight < np.inf:
        raise InputError(f"weight: received {weight!r}; allowed: a number from 0 (the mean alone) on.")
    return float(weight)
