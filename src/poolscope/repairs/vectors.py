"""Repairs of pooled vectors, with fit and transform as in scikit-learn (which is not needed).

All of them work on vectors of length 1 and give vectors of length 1: `x ↦ m(x/‖x‖)`, scaled to length 1 again, with an
affine map m. Fit on a sample, apply the same object to queries and to documents.

On disk a repair, like a pooling, is one safetensors file: the fitted arrays as tensors, everything else as JSON in its
metadata. Reading it runs no code.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope import __version__
from poolscope.digests import check_seal, digest_of_arrays, sealed
from poolscope.encoders.capabilities import has, unembedding_of
from poolscope.encoders.decoders import is_causal
from poolscope.errors import InputError, MissingExtraError, StoreError, did_you_mean, reading, require
from poolscope.files import atomic_file, refuse_special
from poolscope.numbers import Array
from poolscope.numbers.pooling import Arrays, Fitted, is_whole
from poolscope.numbers.ranking import unit_rows
from poolscope.results import plain
from poolscope.words import warn

FORMAT = 1
_KEY = "poolscope"


def rebuild(content: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], kinds: Mapping[str, type[Any]]) -> Any:
    """The object that `to_dict` and `arrays` describe, one of `kinds`."""
    name = str(content.get("name"))
    if name not in kinds:
        raise StoreError(
            f"received {name!r}; this version knows {', '.join(kinds)}. The file is of another version or damaged."
        )
    try:
        part = kinds[name](**content["parameters"])
    except (KeyError, TypeError) as error:
        raise StoreError(f"received parameters that {name!r} does not have ({error}). The file is damaged.") from error
    for key, value in arrays.items():
        # Whoever wrote the file chose the names: none may take the place of a method or of a parameter.
        fitted = key.isidentifier() and key.endswith("_") and not key.startswith("_")
        if not fitted or hasattr(part, key) or value.dtype.kind not in "fiu":
            raise StoreError(
                f"received the array {key!r} of {value.dtype} for {name!r}; allowed: fitted numbers, whose names "
                f"end in an underscore. The file is damaged, or of another version."
            )
        setattr(part, key, value)
    return part


def write_arrays(path: str | os.PathLike[str], content: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write one safetensors file, atomically: arrays as tensors, `content` as JSON in its metadata."""
    safetensors = require("safetensors.numpy", "repairs")
    tensors = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
    described = {"format": FORMAT, "version": __version__, **plain(content)}
    text = json.dumps(sealed(described, beside=digest_of_arrays(tensors)), allow_nan=False)
    data = safetensors.save(tensors, metadata={_KEY: text})
    with atomic_file(path) as stream:
        stream.write(data)


def read_arrays(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], Arrays]:
    """The content and the arrays of a file of that kind; an error says what it is instead."""
    content, arrays = open_arrays(path)
    if content.get("kind") != kind or content.get("format") != FORMAT:
        received = content.get("kind") or "no poolscope file"
        raise StoreError(
            f"{Path(path).name}: received {received} of format {content.get('format')}; expected {kind} of format "
            f"{FORMAT}. Load it with what wrote it."
        )
    return check_seal(content, path, "Write it again.", beside=digest_of_arrays(arrays)), arrays


def open_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """The content and the arrays of a safetensors file of any kind, as they stand there."""
    safetensors = require("safetensors", "repairs")
    refuse_special(Path(path), StoreError)
    try:
        with (
            reading(path, "Write it again.", is_not="a readable safetensors file"),
            safetensors.safe_open(os.fspath(path), framework="numpy") as file,
        ):
            content = json.loads((file.metadata() or {}).get(_KEY, "{}"))
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
    except FileNotFoundError:
        raise StoreError(f"{path}: there is no such file. Write one with save, or `poolscope tune -o`.") from None
    return content if isinstance(content, dict) else {}, arrays


# -- the repairs ------------------------------------------------------------------------------------------------------

Vectors = NDArray[np.float32]
_KIND = "vector repair"
# A unit vector of which the map leaves less than this has no direction left but rounding.
_NOTHING_LEFT = 1e-6
_TABLES = ("default", "pandas", "polars")


class WhiteningWarning(UserWarning):
    """Whitening is likely to make the vectors worse."""


class VectorRepair(Fitted):
    """An affine map of unit vectors, fitted on a sample; see the module."""

    mean_: Array
    feature_names_in_: NDArray[np.object_]  # where `fit` saw a table whose columns have names

    @property
    def n_features_in_(self) -> int:
        """The dimension of the vectors of `fit`, as scikit-learn calls it."""
        return len(self.mean_)

    def prepared(self, encoder: Any) -> Self | None:
        """The repair with its parameters from the model; None if it does not fit such a model."""
        return self

    def fit(self, vectors: ArrayLike, y: Any = None) -> Self:
        """Learn from a sample (texts × d); `y` is ignored."""
        unit = unit_rows(vectors, "vectors").astype(np.float64)
        if len(unit) < 2:
            raise InputError(f"vectors: received 1 sample; {type(self).__name__} needs 2 or more to learn from.")
        self.mean_ = unit.mean(axis=0)
        self._learn(unit)
        vars(self).pop("feature_names_in_", None)
        if (names := _column_names(vectors)) is not None:
            self.feature_names_in_ = names
        return self

    def transform(self, vectors: ArrayLike) -> Any:
        """The repaired vectors at length 1 (float32); an error names a row of which nothing is left.

        A numpy array, or the table that `set_output` asks for.
        """
        self.require_fit("mean_")
        unit = unit_rows(vectors, "vectors").astype(np.float64)
        if unit.shape[1] != len(self.mean_):
            raise InputError(
                f"vectors: received dimension {unit.shape[1]}; {self!r} was fitted on dimension {len(self.mean_)}. Use "
                f"vectors of the same model and pooling, or fit again."
            )
        names, fitted = _column_names(vectors), vars(self).get("feature_names_in_")
        if names is not None and fitted is not None and (wrong := np.flatnonzero(names != fitted)).size:
            raise InputError(
                f"vectors: column {wrong[0] + 1} is {names[wrong[0]]!r}; {self!r} was fitted with "
                f"{fitted[wrong[0]]!r} there. Use the same columns in the same order."
            )
        mapped = self._map(unit)
        lengths = np.linalg.norm(mapped, axis=1)
        if len(gone := np.flatnonzero(lengths < _NOTHING_LEFT)):
            raise InputError(
                f"vectors: row {gone[0] + 1} ({len(gone)} in all) is what {self!r} removes, and nothing is left of it. "
                f"Leave such rows out, or fit on texts that differ more."
            )
        repaired: Vectors = np.asarray(mapped / lengths[:, None], dtype=np.float32)
        return self._as_table(repaired, vectors)

    def set_output(self, *, transform: str | None = None) -> Self:
        """What `transform` returns, as in scikit-learn: "default" (numpy), "pandas" or "polars"; None: as before."""
        if transform not in (None, *_TABLES):
            raise InputError(
                f"transform: received {transform!r}; allowed: {', '.join(_TABLES)}.{did_you_mean(transform, _TABLES)}"
            )
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}  # the name that scikit-learn's clone copies
        return self

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the columns of what `transform` gives: meanremoval0, meanremoval1, …

        Every column that comes out mixes all that went in, so `input_features` are only held against the fit.
        """
        self.require_fit("mean_")
        fitted = vars(self).get("feature_names_in_")
        if input_features is not None and len(input_features) != self.n_features_in_:
            raise InputError(
                f"input_features: received {len(input_features)} names; input_features should have length equal to "
                f"{self.n_features_in_}, the dimension of the vectors of fit."
            )
        if input_features is not None and fitted is not None and list(input_features) != list(fitted):
            raise InputError("input_features is not equal to feature_names_in_. Pass the columns of fit, in its order.")
        width = self._map(np.zeros((1, len(self.mean_)))).shape[1]
        return np.array([f"{type(self).__name__.lower()}{k}" for k in range(width)], dtype=object)

    def _as_table(self, rows: Vectors, like: ArrayLike) -> Any:
        kind = vars(self).get("_sklearn_output_config", {}).get("transform") or _everywhere()
        if kind == "default":
            return rows
        try:
            library = importlib.import_module(kind)
        except ModuleNotFoundError:
            raise MissingExtraError(f"set_output asks for {kind}, which is not installed: pip install {kind}") from None
        names = list(self.get_feature_names_out())
        if kind == "pandas":
            return library.DataFrame(rows, columns=names, index=getattr(like, "index", None))
        return library.DataFrame(rows, schema=names)

    def fit_transform(self, vectors: ArrayLike, y: Any = None) -> Any:
        """`fit`, then `transform` of the same vectors."""
        return self.fit(vectors).transform(vectors)

    def affine(self) -> tuple[Array, Array]:
        """The map as a matrix (d × d′) and an offset (d′): `m(x) = x @ matrix + offset` for x of length 1.

        This is what a linear layer with bias holds, so that other software can apply the repair without this one.
        """
        self.require_fit("mean_")
        offset = self._map(np.zeros((1, len(self.mean_))))[0]
        return self._map(np.eye(len(self.mean_))) - offset, offset

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted repair as one safetensors file."""
        self.require_fit("mean_")
        write_arrays(path, {"kind": _KIND, **self.to_dict()}, self.arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a repair of this class."""
        repair = load_repair(path)
        if not isinstance(repair, cls):
            raise InputError(f"{path}: received a {type(repair).__name__}; expected {cls.__name__}. Use load_repair.")
        return repair

    @abstractmethod
    def _learn(self, unit: Array) -> None:
        """Set what is fitted beside `mean_`."""

    @abstractmethod
    def _map(self, unit: Array) -> Array:
        """The affine map m, one row a vector."""

    def __sklearn_tags__(self) -> Any:
        """Asked for by scikit-learn alone, so it is there to be imported."""
        utils = __import__("sklearn.utils", fromlist=["Tags"])
        return utils.Tags(
            estimator_type="transformer",
            target_tags=utils.TargetTags(required=False),
            transformer_tags=utils.TransformerTags(preserves_dtype=["float32"]),
        )


def _column_names(vectors: Any) -> NDArray[np.object_] | None:
    """The names of the columns of a table of pandas or polars; None where they have none."""
    columns = getattr(vectors, "columns", None)
    names = [] if columns is None else list(columns)
    return np.array(names, dtype=object) if names and all(isinstance(each, str) for each in names) else None


def _everywhere() -> str:
    """What `sklearn.set_config(transform_output=…)` asks of all, where scikit-learn is in use."""
    sklearn = sys.modules.get("sklearn")
    return str(sklearn.get_config()["transform_output"]) if sklearn else "default"


class MeanRemoval(VectorRepair):
    """Take away what all vectors share: the mean μ of the unit vectors.

    mode "project" (R2 of arXiv 2511.11041, the default): x − (x·μ̂)μ̂ with μ̂ = μ/‖μ‖. mode "subtract" (R1): x − μ. The
    larger `mean_norm`, the more there is to gain.

    >>> repair = MeanRemoval().fit([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    >>> repair.transform([[1.0, 0.0, 1.0]]).round(4)
    array([[ 0.7071, -0.7071,  0.    ]], dtype=float32)
    """

    name: ClassVar[str] = "mean removal"
    shown: ClassVar[str] = "{name}, {mode}"
    modes: ClassVar[tuple[str, ...]] = ("project", "subtract")

    def __init__(self, mode: str = "project") -> None:
        self.mode = mode

    @property
    def mean_norm(self) -> float:
        """‖μ‖, in [0, 1]: 1 if all vectors are one."""
        self.require_fit("mean_")
        return float(np.linalg.norm(self.mean_))

    def _learn(self, unit: Array) -> None:
        if self.mode not in self.modes:
            raise InputError(f"mode: received {self.mode!r}; allowed: {', '.join(self.modes)}.")
        if self.mean_norm < _NOTHING_LEFT:
            raise InputError(
                f"vectors: the mean of the {len(unit)} unit vectors is the zero vector, so there is no common "
                f"direction to remove. These vectors need no mean removal."
            )

    def _map(self, unit: Array) -> Array:
        if self.mode == "subtract":
            return np.asarray(unit - self.mean_)
        direction = self.mean_ / self.mean_norm
        return np.asarray(unit - np.outer(unit @ direction, direction))


class AllButTheTop(VectorRepair):
    """Subtract the mean, then remove the k directions of the largest variance (Mu & Viswanath, 2018)."""

    name: ClassVar[str] = "all but the top"
    shown: ClassVar[str] = "{name} {k}"
    directions_: Array

    def __init__(self, k: int = 1) -> None:
        self.k = k

    def _learn(self, unit: Array) -> None:
        most = min(unit.shape) - 1
        if not is_whole(self.k) or not 1 <= self.k <= most:
            raise InputError(
                f"k: received {self.k!r} for {len(unit)} vectors of dimension {unit.shape[1]}; allowed: 1 to {most}."
            )
        _, _, directions = np.linalg.svd(unit - self.mean_, full_matrices=False)
        self.directions_ = directions[: self.k]

    def _map(self, unit: Array) -> Array:
        centred = unit - self.mean_
        return np.asarray(centred - (centred @ self.directions_.T) @ self.directions_)


class Standardisation(VectorRepair):
    """Every dimension to mean 0 and variance 1 over the sample; a dimension without variance is only centred."""

    name: ClassVar[str] = "standardisation"
    scale_: Array

    def _learn(self, unit: Array) -> None:
        deviation = unit.std(axis=0)
        self.scale_ = np.where(deviation > _NOTHING_LEFT, deviation, 1.0)

    def _map(self, unit: Array) -> Array:
        return np.asarray((unit - self.mean_) / self.scale_)


class Whitening(VectorRepair):
    """Centre, rotate to principal axes and scale each of the first `components` to variance 1 (Su et al., 2021).

    By default all directions in which the sample varies at all; beyond float32 there is nothing but rounding.
    Known to hurt trained embedding models: about 10 points of 50 over 40 data sets (Zhou et al., 2025), every model in
    arXiv 2511.11041. So it warns when fitted, unless `accept_risk` says that this is known. Needs more vectors than
    components.
    """

    name: ClassVar[str] = "whitening"
    directions_: Array

    def __init__(self, components: int | None = None, accept_risk: bool = False) -> None:
        self.components = components
        self.accept_risk = accept_risk

    @property
    def label(self) -> str:
        """With the number of components, if given."""
        return self.name if self.components is None else f"{self.name} {self.components}"

    def _learn(self, unit: Array) -> None:
        texts, dimension = unit.shape
        wanted = dimension if self.components is None else self.components
        if self.components is None and texts <= dimension:
            raise InputError(
                f"whitening needs more vectors than dimensions; here are {texts} vectors of {dimension} dimensions. "
                f"Fit on more texts, or ask for fewer components."
            )
        if not is_whole(wanted) or not 1 <= wanted <= min(texts - 1, dimension):
            raise InputError(
                f"components: received {wanted!r} for {texts} vectors of dimension {dimension}; allowed: 1 to "
                f"{min(texts - 1, dimension)}. Fit on more vectors than dimensions, or ask for fewer components."
            )
        _, values, directions = np.linalg.svd((unit - self.mean_) / np.sqrt(texts), full_matrices=False)
        rank = int((values > _NOTHING_LEFT * values[0]).sum())
        if self.components is not None and wanted > rank:
            raise InputError(
                f"components: received {wanted}, but the vectors vary in {rank} directions only. Ask for at most that, "
                f"or fit on more different texts."
            )
        if not self.accept_risk:
            warn(
                "Whitening made every trained embedding model worse in published tests; mean removal is the safer "
                "repair. Compare both on held-out texts (poolscope.repairs.tune), or pass accept_risk=True.",
                WhiteningWarning,
            )
        count = min(wanted, rank)
        self.directions_ = directions[:count] / values[:count, None]

    def _map(self, unit: Array) -> Array:
        return np.asarray((unit - self.mean_) @ self.directions_.T)


class EmbedFilter(VectorRepair):
    """Keep the bulk of the spectrum of a decoder's output words (arXiv 2606.07502).

    With W_U (vocabulary × d) = U S Vᵀ, frequent and uninformative words live at the edges of the spectrum. Kept are the
    right singular vectors whose place, by falling singular value, lies from `low` to `high` of d; a vector becomes its
    coordinates along them. Made for decoders that were not trained to embed; `prepared` takes W_U from the model.

    >>> table = np.diag([4.0, 3.0, 2.0, 1.0])
    >>> EmbedFilter(0.25, 0.75).with_table(table).fit(np.eye(4)).transform([[9.0, 3.0, 4.0, 9.0]]).round(2)
    array([[0.6, 0.8]], dtype=float32)
    """

    name: ClassVar[str] = "embed filter"
    shown: ClassVar[str] = "{name}, {low:.0%} to {high:.0%}"
    basis_: Array

    def __init__(self, low: float = 0.05, high: float = 0.95) -> None:
        self.low = low
        self.high = high

    def with_table(self, table: ArrayLike) -> Self:
        """The repair for a model with this table of output words (vocabulary × d)."""
        words = np.asarray(table, dtype=np.float64)
        first, last = (round(share * words.shape[1]) for share in (self.low, self.high))
        if not 0 <= first < last <= words.shape[1]:
            raise InputError(
                f"low, high: received {self.low!r} and {self.high!r}; allowed: 0 ≤ low < high ≤ 1, with at least one "
                f"of the {words.shape[1]} directions between them."
            )
        _, directions = np.linalg.eigh(words.T @ words)
        largest = directions[:, ::-1] * np.where(directions[:, ::-1].sum(axis=0) < 0, -1.0, 1.0)  # one sign everywhere
        other = type(self)(self.low, self.high)
        other.basis_ = largest[:, first:last].copy()
        return other

    def prepared(self, encoder: Any) -> Self | None:
        """For this model; None where it is no decoder, or its output words are not there."""
        if not (has(encoder, "unembedding") and has(encoder, "attention") and is_causal(encoder)):
            return None
        return self.with_table(unembedding_of(encoder))

    def _learn(self, unit: Array) -> None:
        if not hasattr(self, "basis_") or len(self.basis_) != unit.shape[1]:
            raise InputError(
                f"{self!r}: received vectors of dimension {unit.shape[1]} and no table of output words of that width; "
                f"needed: that of the decoder. Call with_table(unembedding), or prepared(encoder), first."
            )

    def _map(self, unit: Array) -> Array:
        return np.asarray(unit @ self.basis_)


VECTOR_REPAIRS: dict[str, type[VectorRepair]] = {
    kind.name: kind for kind in (MeanRemoval, AllButTheTop, Standardisation, Whitening, EmbedFilter)
}


def load_repair(path: str | os.PathLike[str]) -> VectorRepair:
    """The vector repair that `save` wrote, whatever its class."""
    content, arrays = read_arrays(path, _KIND)
    repair: VectorRepair = rebuild(content, arrays, VECTOR_REPAIRS)
    return repair
