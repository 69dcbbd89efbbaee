"""Stores: the token clouds of a corpus on disk, in shards that are whole or absent.

    FOLDER/manifest.json                   what the clouds are, and whether all of them are there
    FOLDER/labels.parquet                  id and label of each text, if the texts have labels
    FOLDER/layer-last/shard-00000.arrow    the first texts (a `TokenClouds` file), shard-00001 the next, …
    FOLDER/moments-last/shard-00000.arrow  one vector a text, where a store keeps moments or vectors and not all tokens

One folder a layer: `layer-last` is the layer that the model pools, `layer-0` the embedding output. A store is
read here and written by `poolscope.stores.writer`; nothing in it depends on when or in how many runs it was made.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.clouds.vectors import Vectors, open_vectors
from poolscope.digests import check_seal, sealed
from poolscope.encoders.base import ModelCard, model_identity
from poolscope.encoders.pooling import TextPooling, modules_after, pooling_of
from poolscope.errors import InputError, PoolscopeError, StoreError, reading
from poolscope.files import as_path, is_folder, refuse_special, text_of
from poolscope.folder import Folder
from poolscope.numbers.moments import text_moments
from poolscope.numbers.streaming import marks_of
from poolscope.replacing import current_file
from poolscope.stores.remote import Remote, is_remote, located, open_remote

FORMAT = "poolscope store 1"
MANIFEST = "manifest.json"
LABELS = "labels.parquet"
SHARDS = ("layer-*/shard-*.arrow", "moments-*/shard-*.arrow")
KEEP = ("tokens", "moments", "vectors")
_MOST_SHARDS = 10**6
POOLED = -1  # the key of the layer that the model pools
_Held = TypeVar("_Held", TokenClouds, Vectors)


@dataclass(frozen=True)
class Manifest:
    """What a store holds. Plain JSON types only.

    `texts` has the digests `digest` (of ids and texts) and `labels` (null without labels) and, for people, the rest
    of `Texts.origin`: source, column, draw and notes (what was met while reading). `shard_sizes` are numbers of
    texts: decided once, so that every run cuts the texts, and with them the batches, in the same places.

    `keep` is what is stored: the tokens of all texts, or one vector a text, which is the mean of the tokens with their
    spread (moments) or what the model pools (vectors). Then `sample` says of which texts the tokens are stored too:
    how many, and the largest mark (`poolscope.numbers.streaming`) that an id among them has.
    """

    model: Mapping[str, Any]
    options: Mapping[str, Any]
    layers: Sequence[int] | None
    texts: Mapping[str, Any]
    shard_texts: int
    shard_sizes: Sequence[int]
    poolscope: str
    complete: bool = False
    format: str = FORMAT
    keep: str = "tokens"
    sample: Mapping[str, int] | None = None

    @property
    def keys(self) -> tuple[int, ...]:
        """The layers as an encoder names them."""
        return (POOLED,) if self.layers is None else tuple(self.layers)

    def identity(self) -> dict[str, Any]:
        """Every choice that changes the clouds, by a name for messages; equal identities, equal clouds."""
        return {
            **{f"model {name}": value for name, value in model_identity(self.model).items()},
            **{f"option {name}": value for name, value in self.options.items()},
            "layers": self.layers,
            "digest of the texts": self.texts["digest"],
            "digest of the labels": self.texts["labels"],
            "what is kept": self._content(),
            "texts whose tokens are kept": None if self.sample is None else self.sample["texts"],
        }

    def _content(self) -> str:
        """Name the content of a store: tokens, or vectors with the modules that they passed."""
        modules = modules_after(tuple(self.model.get("after") or ())) if self.keep == "vectors" else []
        return ", then ".join([self.keep, *modules])

    def differences(self, other: Manifest, *, shards: bool = False) -> list[str]:
        """One line for each choice in which the two differ: this one first, then `other`; `shards` count too."""
        mine, theirs = self.identity(), other.identity()
        if shards:
            mine["texts in a shard"], theirs["texts in a shard"] = self.shard_texts, other.shard_texts
        return [
            f"{name}: {mine.get(name)!r} in the store, {theirs.get(name)!r} asked for"
            for name in {**mine, **theirs}
            if mine.get(name) != theirs.get(name)
        ]

    def check(self) -> None:
        """Raise an error where a part is not of its kind: what is read here is used without another look."""
        self.identity()
        card_of(self.model)
        sizes, layers = list(self.shard_sizes), [] if self.layers is None else list(self.layers)
        if not sizes or not all(type(number) is int for number in (*sizes, *layers, self.shard_texts)):
            raise TypeError("shards and layers are counted by whole numbers")
        if min(sizes) < 1 or len(sizes) > _MOST_SHARDS:
            raise ValueError(f"{len(sizes)} shards, the smallest of {min(sizes)} texts")
        str(self.texts["source"]), bool(self.model["name"])
        if self.keep not in KEEP or (self.sample is not None and type(self.sample["below"]) is not int):
            raise ValueError(f"keeps {self.keep!r}")

    def write(self, folder: Folder) -> None:
        """Write `manifest.json`, atomically."""
        folder.write_json(MANIFEST, sealed(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read `manifest.json`, or say why it is none of ours."""
        path = current_file(folder, MANIFEST)
        remedy = "Remove the folder if it was one, and encode the texts again."
        try:
            with reading(path, remedy, is_not="the manifest of a cloud store"):
                content = json.loads(text_of(path, StoreError))
                version = content["format"]
                if version == FORMAT:
                    values = check_seal(content, path, remedy)
                    manifest = cls(**values)
                    manifest.check()
                    return manifest
        except FileNotFoundError:
            raise StoreError(
                f"{folder}: not a cloud store, it has no {MANIFEST}. Write one with "
                f"`poolscope encode MODEL TEXTS -o FOLDER`."
            ) from None
        raise StoreError(
            f"{path}: written in the format {version!r}, and this version of poolscope reads {FORMAT!r}. "
            f"Encode the texts again."
        )


@dataclass(frozen=True)
class Store:
    """A store on disk.

    Where writing gave it, `reused` is the number of texts that an earlier run had stored and `damaged` the
    number of shards that were there, could not be used, and were encoded again.
    """

    folder: Path
    manifest: Manifest
    reused: int = 0
    damaged: int = 0
    remote: Remote | None = field(default=None, repr=False, compare=False)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Store:
        """Look at a store, finished or not, in a folder or in an object store; `clouds` opens the clouds."""
        if is_remote(folder):
            remote = open_remote(located(folder))
            return cls(remote.mirror, read_remote(remote), remote=remote)
        path = Path(folder)
        return cls(path, Manifest.read(path))

    @property
    def place(self) -> str:
        """Where it lies, for people and for other processes."""
        return str(self.folder) if self.remote is None else self.remote.address

    def size(self) -> int:
        """Bytes of all its files."""
        if self.remote is not None:
            return sum(self.remote.names().values())
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def holds(self, path: Path) -> bool:
        """Whether a file of the store is there, by its name."""
        if self.remote is None:
            return path.exists()
        return path.relative_to(self.folder).as_posix() in self.remote.names()

    def at_hand(self, path: Path) -> Path:
        """A file of the store on this machine."""
        return path if self.remote is None else self.remote.fetch(path.relative_to(self.folder).as_posix())

    def __len__(self) -> int:
        return sum(self.manifest.shard_sizes)

    @property
    def card(self) -> ModelCard:
        """What the model declared about itself."""
        return card_of(self.manifest.model)

    @property
    def labels(self) -> list[Any] | None:
        """The label of each text, in the order of the clouds, or None if the texts had none."""
        if self.manifest.texts["labels"] is None:
            return None
        from pyarrow import parquet  # not at start-up: most commands never need it

        path = current_file(self.folder, LABELS)
        try:
            path = self.at_hand(path)
            with reading(path, self.remedy("Repair")):
                refuse_special(path, StoreError)
                labels: list[Any] = parquet.read_table(path).column("label").to_pylist()
                digest = labels_digest(labels)
        except FileNotFoundError as error:
            raise self._damaged(path, error) from error
        if digest != self.manifest.texts["labels"]:
            raise self._damaged(path, "the labels are not those that were written")
        return labels

    def shard_path(self, layer: int, shard: int) -> Path:
        """Where the clouds of one shard and layer are."""
        return current_file(self.folder, clouds_name(layer, shard))

    def vectors_path(self, layer: int, shard: int) -> Path:
        """The path of the vectors of one shard and layer, in a store of vectors."""
        return current_file(self.folder, vectors_name(layer, shard))

    def file_of(self, layer: int, shard: int) -> Path:
        """Where all texts of one shard and layer are: their clouds or, in a store that keeps these, their vectors."""
        return (self.shard_path if self.manifest.keep == "tokens" else self.vectors_path)(layer, shard)

    def files_of(self, shard: int, ids: Sequence[str]) -> dict[Path, Sequence[str]]:
        """The files of a shard of these texts, each with the ids that it holds."""
        files = {self.file_of(layer, shard): ids for layer in self.manifest.keys}
        drawn = [ids[k] for k in self.sampled(ids)]
        return files | ({self.shard_path(layer, shard): drawn for layer in self.manifest.keys} if drawn else {})

    def sampled(self, ids: Sequence[str]) -> list[int]:
        """Mark the texts whose tokens a store of vectors keeps too."""
        sample = self.manifest.sample
        return [] if sample is None else np.flatnonzero(marks_of(ids) <= sample["below"]).tolist()

    def has_labels(self, labels: Sequence[str] | None) -> bool:
        """Whether exactly these labels can be read."""
        try:
            return self.labels == (None if labels is None else list(labels))
        except StoreError:
            return False

    def is_whole(self, shard: int, ids: Sequence[str]) -> bool:
        """Whether all layers of a shard are there, hold exactly these texts, and agree with all their digests.

        In an object store, which guards its objects itself, that they are there.
        """
        if self.remote is not None:
            return self.is_there(shard)
        return all(_holds(path, size) for path, size in self.files_of(shard, ids).items())

    def is_damaged(self, shard: int, ids: Sequence[str]) -> bool:
        """Whether a file of a shard is there and is not what it should be."""
        files = self.files_of(shard, ids) if self.remote is None else {}
        return any(path.exists() and not _holds(path, size) for path, size in files.items())

    def is_there(self, shard: int) -> bool:
        """Whether a shard was written: its files appear whole, so that their names are enough."""
        return all(self.holds(self.file_of(layer, shard)) for layer in self.manifest.keys)

    def is_filled(self) -> bool:
        """Whether every shard was written."""
        return all(map(self.is_there, range(len(self.manifest.shard_sizes))))

    def clouds(self, layer: int | None = None, *, allow_partial: bool = False) -> TokenClouds:
        """The clouds of one layer, memory-mapped; None: the layer that the model pools, or the only one.

        `allow_partial` opens the texts that an unfinished store has so far, from the first on.
        """
        key = self._key(layer)
        if not self.manifest.complete and not allow_partial:
            raise StoreError(f"{self.place}: {self._progress()} {self.remedy('Finish')}")
        if self.manifest.keep != "tokens" and self.manifest.sample is None:
            raise StoreError(
                f"{self.folder}: keeps {self.manifest.keep} and no tokens, and token clouds were asked for. Encode "
                f"with --keep tokens, or keep those of a draw with --keep-tokens N."
            )
        parts = list(self._parts(key, allow_partial=allow_partial))
        if not parts:
            raise StoreError(f"{self.place}: {self._progress()} {self.remedy('Begin')}")
        texts = {name: value for name, value in self.manifest.texts.items() if name != "labels"}
        clouds = TokenClouds.concatenate(parts)
        if self.manifest.keep != "tokens":
            texts = {"source": texts["source"], "part_of": texts["digest"], "selected": len(clouds)}
        return clouds.described(provenance={"texts": texts})

    def shards(self, layer: int | None = None, *, pooled: bool = False) -> Iterator[TokenClouds | Vectors]:
        """The texts shard by shard, for `Metric.in_parts`: clouds, or vectors in a store of vectors.

        pooled: vectors in any case, as the model pools.
        """
        if not self.manifest.complete:
            raise StoreError(f"{self.place}: {self._progress()} {self.remedy('Finish')}")
        yield from (self.shard(k, layer, pooled=pooled) for k in range(len(self.manifest.shard_sizes)))

    def shard(self, number: int, layer: int | None = None, *, pooled: bool = False) -> TokenClouds | Vectors:
        """One of `shards`."""
        key, size = self._key(layer), self.manifest.shard_sizes[number]
        if self.manifest.keep != "tokens":
            return self._opened(open_vectors, self.vectors_path(key, number), size)
        clouds = self._opened(TokenClouds.open, self.shard_path(key, number), size)
        return condensed(clouds, "vectors") if pooled else clouds

    def vectors(self, layer: int | None = None) -> Vectors:
        """One vector a text, of a store that keeps these (`--keep moments` or `vectors`), as one matrix in memory."""
        if self.manifest.keep == "tokens":
            raise StoreError(f"{self.folder}: keeps tokens; pool its clouds, or encode with --keep vectors.")
        parts = [part for part in self.shards(layer) if isinstance(part, Vectors)]
        texts = [part.texts for part in parts]
        traces = [part.traces for part in parts if part.traces is not None]
        return Vectors(
            vectors=np.concatenate([part.vectors for part in parts]),
            texts=None if any(part is None for part in texts) else tuple(chain.from_iterable(t or () for t in texts)),
            lengths=np.concatenate([part.lengths for part in parts if part.lengths is not None]),
            ids=tuple(chain.from_iterable(part.ids for part in parts)),
            labels=None if self.labels is None else tuple(self.labels),
            source=self.folder.name,
            truncated=np.concatenate([part.truncated for part in parts if part.truncated is not None]),
            traces=np.concatenate(traces) if traces else None,
        )

    def _parts(self, key: int, *, allow_partial: bool) -> Iterator[TokenClouds]:
        for shard, size in enumerate(self.manifest.shard_sizes):
            path = self.shard_path(key, shard)
            if self.manifest.keep != "tokens" and not self.holds(path):
                continue  # none of its texts is among those that were drawn
            if allow_partial and not self.holds(path):
                return
            yield self._opened(TokenClouds.open, path, size if self.manifest.keep == "tokens" else None)

    def _opened(self, open_file: Callable[[Path], _Held], path: Path, size: int | None) -> _Held:
        """The clouds or vectors of one file, which is to hold so many texts (None: any number)."""
        try:
            opened = open_file(self.at_hand(path))
        except (PoolscopeError, pa.ArrowException, ValueError, FileNotFoundError) as error:
            raise self._damaged(path, error) from error
        if size is not None and len(opened) != size:
            raise self._damaged(path, f"{len(opened)} texts where {size} belong")
        return opened

    def _key(self, layer: int | None) -> int:
        """The stored layer that is meant: -1 and the number of the last layer are one and the same."""
        keys, total = self.manifest.keys, self.manifest.model.get("layers")
        if layer is None and len(keys) == 1:
            return keys[0]
        wanted = _counted(POOLED if layer is None else layer, total)
        for key in keys:
            if _counted(key, total) == wanted:
                return key
        wish = "no layer was chosen" if layer is None else f"layer {layer} was asked for"
        raise InputError(f"{self.folder}: {wish}, and the store holds the layers {list(keys)}. Choose one of them.")

    def notes(self) -> list[str]:
        """Plain sentences on how the run that returned this store came by it; none if it encoded all texts."""
        if self.reused == len(self):
            return ["Finished earlier with the same model, settings and texts: nothing was encoded."]
        notes = []
        if self.reused:
            notes.append(f"{self.reused:,} of {len(self):,} texts were stored by an earlier run and kept.")
        if self.damaged:
            shards = "1 shard was" if self.damaged == 1 else f"{self.damaged} shards were"
            notes.append(f"{shards} damaged and encoded again.")
        return notes

    @property
    def own_vectors(self) -> bool | None:
        """Is one vector a text, made of this store, the model's own? None where the model declares no pooling.

        A store of vectors is written only where they are. Tokens become vectors by the declared pooling, without the
        modules behind it, whose weights no store holds; moments are means whatever the pooling.
        """
        pooling = TextPooling(self.card)
        if self.manifest.keep == "vectors":
            return True if self.card.pooling else None
        return False if self.manifest.keep == "moments" and not pooling.is_mean else pooling.own

    def vector_notes(self) -> tuple[str, ...]:
        """A sentence where one vector a text, made of this store, is not the model's own."""
        if self.own_vectors is not False:
            return ()
        if self.manifest.keep == "moments":
            return ("The store keeps the means of the tokens (--keep moments), which are not the model's own vectors.",)
        return TextPooling(self.card).notes

    def _progress(self) -> str:
        return f"unfinished, {self.stored():,} of {len(self):,} texts are stored."

    def stored(self) -> int:
        """How many texts are there so far."""
        sizes = self.manifest.shard_sizes
        return sum(size for shard, size in enumerate(sizes) if self.is_there(shard))

    def remedy(self, verb: str) -> str:
        """The command that mends, finishes or begins the store."""
        return (
            f"{verb} it with the command that began it, `poolscope encode MODEL TEXTS -o {self.place}` "
            f"(model {self.manifest.model['name']}, texts {self.manifest.texts['source']})."
        )

    def _damaged(self, path: Path, reason: object) -> StoreError:
        return StoreError(f"{path}: missing or damaged ({reason}). {self.remedy('Repair')}")


# -- of a store in an object store: what is there now, in its mirror --------------------------------------------------


def read_remote(remote: Remote) -> Manifest:
    """The manifest of a store in an object store, as it is there now; a mirror of another store is emptied."""
    mirrored = remote.mirror / MANIFEST
    before = mirrored.read_bytes() if mirrored.exists() else b""
    with suppress(FileNotFoundError):
        remote.fetch(MANIFEST, anew=True)
        manifest = Manifest.read(remote.mirror)
        if before and before != mirrored.read_bytes() and _other(before, manifest):
            for path in [*remote.mirror.glob(LABELS), *(p for shards in SHARDS for p in remote.mirror.glob(shards))]:
                path.unlink(missing_ok=True)
        return manifest
    raise StoreError(
        f"{remote.address}: not a cloud store, it has no {MANIFEST}. Write one with "
        f"`poolscope encode MODEL TEXTS -o {remote.address}`."
    )


def _other(before: bytes, manifest: Manifest) -> bool:
    """Whether an earlier manifest in the mirror was of other clouds, or cut otherwise."""
    try:
        content, now = json.loads(before), json.loads(json.dumps(asdict(manifest)))
        return any(
            content[name] != now[name] for name in ("model", "options", "layers", "texts", "shard_sizes", "keep")
        )
    except (ValueError, KeyError, TypeError):
        return True


def fetched(place: str | os.PathLike[str]) -> Path:
    """A copy on this machine of everything that a store in an object store holds now."""
    remote = open_remote(located(place))
    read_remote(remote)
    for name in remote.names(anew=True):
        remote.fetch(name, anew=True)
    return remote.mirror


# -- parts of a store -------------------------------------------------------------------------------------------------


def card_of(model: Mapping[str, Any]) -> ModelCard:
    """The card that a manifest keeps of a model."""
    known = {part.name for part in fields(ModelCard)}
    values = {name: value for name, value in model.items() if name in known}
    return ModelCard(**{**values, "pooling": tuple(values["pooling"]), "after": tuple(values["after"])})


def labels_digest(labels: Sequence[str]) -> str:
    """SHA-256 of the labels; each is quoted, so that no two lists share their bytes."""
    return hashlib.sha256("\n".join(map(json.dumps, labels)).encode()).hexdigest()


def clouds_name(layer: int, shard: int) -> str:
    """The name of the clouds of one shard and layer in the folder of a store."""
    return f"layer-{_layer_name(layer)}/shard-{shard:05d}.arrow"


def vectors_name(layer: int, shard: int) -> str:
    """The name of the file of vectors of one shard and layer, in a store of vectors."""
    return f"moments-{_layer_name(layer)}/shard-{shard:05d}.arrow"


def _layer_name(layer: int) -> str:
    return str(layer) if layer >= 0 else f"last{layer + 1 or ''}"


def checked_shard(path: Path) -> TokenClouds | Vectors:
    """The clouds or the vectors of a file of a store, with all its digests compared."""
    if path.parent.name.startswith("moments-"):
        return open_vectors(path)
    clouds = TokenClouds.open(path)
    clouds.check()
    return clouds


def _holds(path: Path, ids: Sequence[str]) -> bool:
    try:
        return list(checked_shard(path).ids) == list(ids)
    except (PoolscopeError, pa.ArrowException, ValueError, FileNotFoundError):
        return False


def _counted(layer: int, total: int | None) -> int:
    """A layer counted from the front where the model says how many layers there are."""
    return layer if layer >= 0 or total is None else total + 1 + layer


def condensed(clouds: TokenClouds, keep: str, pooling: TextPooling | None = None) -> Vectors:
    """One vector a text: the mean of its tokens with their spread, or what the model pools.

    `pooling` is that of the model; without it what the clouds remember is taken, which is no module behind it.
    """
    vectors: NDArray[Any]
    traces = None
    if keep == "moments":
        moments = text_moments(clouds)
        vectors, traces = moments.unit_means * moments.norms[:, None], moments.traces
    else:
        vectors = (pooling_of(clouds) if pooling is None else pooling).pool(clouds)
    return Vectors(
        vectors,
        None if clouds.texts is None else tuple(clouds.texts),
        clouds.lengths,
        tuple(clouds.ids),
        truncated=clouds.truncated.astype(np.int64),
        traces=traces,
    )


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the folder of a store (finished or not), or the address of one in an object store."""
    try:
        Store.open(path)
    except StoreError:
        return False
    return True


def open_store(folder: str | os.PathLike[str], *, layer: int | None = None, allow_partial: bool = False) -> TokenClouds:
    """The clouds of a finished store, memory-mapped (see `Store.clouds`)."""
    return Store.open(folder).clouds(layer, allow_partial=allow_partial)


def is_clouds(source: Any) -> bool:
    """Is it the name of a store or of a cloud file, not of a model? An address in an object store is no model's."""
    if not isinstance(source, str | os.PathLike):
        return False
    return is_remote(source) or is_store(source) or Path(source).suffix == ".arrow"


def open_clouds(path: str | os.PathLike[str], *, layer: int | None = None) -> TokenClouds:
    """Clouds from a store or a cloud file, memory-mapped: nothing is read until it is used.

    Parameters
    ----------
    path
        The folder of a store (`poolscope encode -o FOLDER`), its address in an object store, or a file that
        `TokenClouds.save` wrote.
    layer
        Which layer of a store; None: the one that the model pools, or the only one there is.

    Returns
    -------
    TokenClouds
        The clouds of all texts.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "clouds.arrow"
    >>> TokenClouds.from_arrays([[[1.0, 0.0]], [[0.0, 1.0]]]).save(path)
    >>> open_clouds(path)
    TokenClouds(2 texts, 2 tokens, dimension 2, float64)

    """
    if is_remote(path) or is_folder(as_path(path)):
        return open_store(path, layer=layer)
    if layer is not None:
        raise InputError(
            f"{path}: layer {layer} was asked for, and a single cloud file holds one layer. Leave the layer out."
        )
    return TokenClouds.open(path)
