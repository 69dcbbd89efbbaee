"""Taking the texts of a corpus into token moments, piece by piece, so that a run that dies can go on."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from poolscope.encoders.base import Progress, TokenEncoder, check_texts, not_a_text
from poolscope.encoders.tokens import Vocabulary
from poolscope.errors import InputError, StoreError
from poolscope.metrics.tokens.keys import TokenKeys, label_content, most_frequent
from poolscope.metrics.tokens.moments import TokenMoments, source_differences
from poolscope.metrics.tokens.state import load_state, save_state
from poolscope.numbers.streaming import Index
from poolscope.stores.writer import SHARD_TEXTS, shard_sizes, spans

_SAVE_SECONDS = 60.0  # between two savings of the state
_USUAL_DIMENSION = 1024  # taken for functions, which show theirs only when they are called
_NO_LABEL, _END = object(), object()

# A text and its label(s); `_NO_LABEL` where the groups are token types.
Item = tuple[str, Any]


def items_of(texts: Iterable[str], groups: Iterable[Any] | None) -> Iterator[Item]:
    """Each text with its label(s)."""
    pairs = ((text, _NO_LABEL) for text in texts) if groups is None else zip_longest(texts, groups, fillvalue=_END)
    for position, (text, label) in enumerate(pairs):
        if text is _END or label is _END:
            short = "texts" if text is _END else "groups"
            raise InputError(f"{short}: ended after {position} entries; texts and groups need one entry a text each.")
        if not isinstance(text, str):
            raise not_a_text(text, position)
        yield text, label


@dataclass
class TokenRun:
    """One pass: the encoder, the layers to ask it for (None: the only one it has), and where the tokens go.

    `state` is the file in which the moments are saved every minute and at the end, however it comes.
    """

    encoder: TokenEncoder
    layers: Sequence[int] | None
    moments: TokenMoments
    keys: TokenKeys
    state: str | os.PathLike[str] | None = None
    progress: Progress | None = None

    def take(self, items: Iterator[Item]) -> None:
        """Encode all texts and take in their tokens."""
        self._saved, self._saved_at = self.moments.texts, time.monotonic()
        for chunk in self._chunks(items):
            self._take_chunk(chunk)  # in a call of its own, so that its clouds are gone before the next are made
            if time.monotonic() - self._saved_at >= _SAVE_SECONDS:
                self._save()
        self._save()
        if not self.moments.texts:
            raise InputError("texts: received none; at least one text is needed.")

    def _take_chunk(self, chunk: list[Item]) -> None:
        try:
            clouds = self.encoder.encode([text for text, _ in chunk], layers=self.layers, progress=self.progress)
        except BaseException:  # Ctrl-C, a text that cannot be encoded, a device that fails: keep what is done
            self._save()
            raise
        labels = None if chunk[0][1] is _NO_LABEL else [label for _, label in chunk]
        self.keys.add(self.moments, clouds, labels)
        self.moments.digest = _extended(self.moments.digest, chunk)

    def skip_done(self, items: Iterator[Item]) -> None:
        """Pass over the texts that an earlier run took in, and make sure that they are the same."""
        done, digest, count = self.moments.texts, "", 0
        while part := list(islice(items, min(SHARD_TEXTS, done - count))):
            digest, count = _extended(digest, part), count + len(part)
        if digest != self.moments.digest:
            raise StoreError(
                f"{self.state}: the saved run took in {done:,} texts, and the first {count:,} given now are not the "
                f"same ones in the same order. Name another file, or pass the texts of that run (more may follow them)."
            )
        if self.progress is not None and count:
            self.progress(count, 0)

    def _chunks(self, items: Iterator[Item]) -> Iterator[list[Item]]:
        """Runs of texts whose vectors of all layers fit into memory, cut as the shards of a store are.

        The windows lie at the same places wherever a run was interrupted, so the rest is cut as it would have been.
        """
        card = self.encoder.card
        bytes_a_token = 4 * (card.dimension or _USUAL_DIMENSION) * len(self.layers or [-1])
        longest = getattr(self.encoder, "max_length", card.max_length)
        while window := list(islice(items, SHARD_TEXTS - self.moments.texts % SHARD_TEXTS)):
            texts = [text for text, _ in window]
            sizes = shard_sizes(texts, shard_texts=SHARD_TEXTS, token_bytes=bytes_a_token, max_length=longest)
            yield from (window[span] for span in spans(sizes))

    def _save(self) -> None:
        if self.state is not None and self.moments.texts > self._saved:
            save_state(self.moments, self.state)
            self._saved, self._saved_at = self.moments.texts, time.monotonic()


def open_moments(
    state: str | os.PathLike[str] | None, source: dict[str, Any], *, layers: Sequence[int] | None, max_types: int
) -> TokenMoments:
    """The moments of an earlier run of the same choices from its state, or new ones."""
    if state is None or not Path(state).exists():
        return TokenMoments(source, max_types)
    moments = load_state(state)
    stored = {**moments.source, "layers": sorted(moments.layers), "max_types": moments.max_types}
    asked = {**source, "layers": [-1] if layers is None else list(layers), "max_types": max_types}
    if differences := source_differences(stored, asked):
        raise StoreError(
            f"{state}: holds a run of other choices than those asked for (stored and asked):\n  "
            + "\n  ".join(differences)
            + "\nName another file, or ask for the same."
        )
    return moments


def count_first(encoder: Any, texts: Any, vocabulary: Vocabulary | None, most: int) -> Index | None:
    """The most frequent types, from tokenising alone; None where all fit, or the texts can be read only once."""
    if vocabulary is None or vocabulary.size <= most or not hasattr(encoder, "plan") or not isinstance(texts, Sequence):
        return None

    found = check_texts(texts)

    def ids() -> Iterator[Index]:
        for start in range(0, len(found), SHARD_TEXTS):
            plan = encoder.plan(found[start : start + SHARD_TEXTS])
            kept = np.ones(len(plan.tokens.ids), bool)
            for position in range(plan.skip):  # the tokens of a prompt, which are left out of the clouds
                kept[plan.tokens.offsets[:-1] + position] = False
            yield plan.tokens.ids[kept]

    return most_frequent(ids(), vocabulary.special_ids, most)


def _extended(digest: str, chunk: Sequence[Item]) -> str:
    """The digest of all texts and labels so far, after some more: the same however they are cut into chunks."""
    for text, label in chunk:
        labels = "" if label is _NO_LABEL else label_content(label)
        entry = f"{digest}\n{len(text)}\n{text}\n{labels}"
        digest = hashlib.sha256(entry.encode("utf-8", "surrogatepass")).hexdigest()
    return digest
