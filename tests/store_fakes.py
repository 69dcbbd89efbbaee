"""An encoder that is arithmetic, a small corpus, and what the tests of stores do with them."""

from __future__ import annotations

import json
import os
import signal
import stat
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from poolscope.clouds import TokenClouds
from poolscope.digests import KEY
from poolscope.encoders.base import ModelCard, Progress
from poolscope.folder import Folder
from poolscope.stores.store import Store
from poolscope.stores.writer import encode_to_store
from poolscope.texts import ReadReport, Texts

CARD = ModelCard("fake/model", "fake", 4, revision="r1", layers=2, max_length=128, prompts={"query": "q: "})
LAYERS = (0, -1)
SHARD_TEXTS = 3


class FakeEncoder:
    """Vectors from checksums of the texts, and a trace of the batch in each, as real models leave one."""

    def __init__(self, card: ModelCard = CARD, *, before: Callable[[int], None] | None = None) -> None:
        self.card = card
        self.calls = 0
        self._before = before or (lambda call: None)

    def encode(
        self, texts: Sequence[str], *, layers: Sequence[int] | None = None, progress: Progress | None = None
    ) -> dict[int, TokenClouds]:
        self._before(self.calls)
        self.calls += 1
        trace = len(texts) + zlib.crc32("".join(texts).encode()) / 2**32
        keys = (-1,) if layers is None else layers
        clouds = {
            layer: TokenClouds.from_arrays(
                [self._cloud(text, layer + trace) for text in texts], texts=list(texts), provenance={"layer": layer}
            )
            for layer in keys
        }
        if progress is not None:
            progress(len(texts), int(clouds[keys[0]].lengths.sum()))
        return clouds

    def _cloud(self, text: str, shift: float) -> np.ndarray:
        seeds = [zlib.crc32(word.encode()) for word in text.split()]
        return np.stack([np.random.default_rng(seed).normal(size=self.card.dimension) + shift for seed in seeds])


def corpus(count: int = 10, *, labels: bool = False) -> Texts:
    return Texts(
        ids=tuple(f"id-{k}" for k in range(count)),
        texts=tuple(f"text {k} has {'many ' * (k % 4)}words" for k in range(count)),
        labels=tuple(["even", "odd"][k % 2] for k in range(count)) if labels else None,
        source="my texts.txt",
        report=ReadReport(read=count + 1, kept=count, empty=1),
    )


def fill(folder: Path, *, encoder: FakeEncoder | None = None, texts: Texts | None = None, **choices: object) -> Store:
    settings: dict[str, object] = {"layers": LAYERS, "shard_texts": SHARD_TEXTS, **choices}
    return encode_to_store(encoder or FakeEncoder(), corpus() if texts is None else texts, folder, **settings)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def edit_json(path: Path, **changes: object) -> None:
    """Change a JSON file as a version of poolscope wrote it that knew no digests."""
    content = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    del content[KEY]
    path.write_text(json.dumps(content), encoding="utf-8")


def never(call: int) -> None:
    raise AssertionError(f"the encoder was called ({call})")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def doomed_writer(folder: str, event: str, count: int) -> None:
    """Fill a store and die by SIGKILL at the `count`-th event. Runs in a process of its own."""
    seen = 0

    def strikes() -> bool:
        nonlocal seen
        seen += 1
        return seen > count

    def before(call: int) -> None:
        if event == "encoding" and strikes():
            die()

    flush, flush_folder = os.fsync, Folder.flush

    def dying_flush(descriptor: int) -> None:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        if is_file and event == "half a file written" and strikes():
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            die()
        flush(descriptor)
        if is_file and event == "file not yet renamed" and strikes():
            die()

    def dying_flush_of_folder(opened: Folder, *, all_below: bool = False) -> None:
        if event == "file renamed" and strikes():
            die()
        flush_folder(opened, all_below=all_below)

    os.fsync, Folder.flush = dying_flush, dying_flush_of_folder  # type: ignore[method-assign]
    fill(Path(folder), encoder=FakeEncoder(before=before), texts=corpus(labels=True))
