"""Static token tables: one vector a vocabulary entry, whatever the context (model2vec, wordllama, StaticEmbedding)."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import EncoderOptions, ModelCard, Progress, check_layers, check_texts, resolve_prompt
from poolscope.encoders.capabilities import EncoderSpec
from poolscope.encoders.declaration import Declaration, digest_files, read_declaration, read_settings
from poolscope.encoders.reports import unknown_notes
from poolscope.encoders.tokens import Tokens, Vocabulary, check_vocabulary, tokenize_plain
from poolscope.errors import InputError, ModelError, require

_LOG = logging.getLogger(__name__)
_MODEL2VEC_LENGTH = 512  # what model2vec cuts at when its folder says nothing


@dataclass(frozen=True)
class TableTokens:
    """The tokens of texts that the table has, and how many of each text it lacks (they are left out)."""

    tokens: Tokens
    unknown: NDArray[np.int64]


class StaticEncoder:
    """Looks each token up in a table. Layer 0 and the last layer are the same: there is only the table."""

    def __init__(
        self,
        card: ModelCard,
        options: EncoderOptions,
        *,
        table: NDArray[Any],
        tokenize: Callable[[Sequence[str], int | None], TableTokens],
        vocabulary: Vocabulary,
    ) -> None:
        unfit = [name for name in ("dtype", "device") if getattr(options, name) not in (None, "cpu")]
        if unfit:
            raise InputError(
                f"received {' and '.join(unfit)} for a static table, which is looked up as it is. Leave them out."
            )
        self.card = card
        self.options = options
        self.spec: EncoderSpec | None = None  # the door knows by which name it was opened
        self.prompt = resolve_prompt(card, options)
        self.max_length = card.max_length if options.max_length is None else options.max_length
        self._table = table
        self._tokenize = tokenize
        self.vocabulary = vocabulary

    def with_options(self, options: EncoderOptions, *, role: str | None = None) -> StaticEncoder:
        """The same table with other options; a role only chooses the prompt, and the options say which."""
        other = StaticEncoder(
            self.card, options, table=self._table, tokenize=self._tokenize, vocabulary=self.vocabulary
        )
        other.spec = None if self.spec is None else replace(self.spec, options=options)
        return other

    def tokenize(self, texts: Sequence[str], max_length: int | None) -> Tokens:
        """The tokens of texts that the table has; the prompt is not put before them."""
        return self._tokenize(texts, max_length).tokens

    def encode(
        self, texts: Sequence[str], *, layers: Sequence[int] | None = None, progress: Progress | None = None
    ) -> dict[int, TokenClouds]:
        """Clouds of the texts; tokens that the table lacks are left out, counted and logged."""
        texts = check_texts(texts)
        asked = check_layers(layers, self.card.layers, name=self.card.name)
        found = self._tokenize([self.prompt + text for text in texts] if self.prompt else texts, self.max_length)
        tokens = found.tokens
        self._check(tokens, texts)
        unknown = {"tokens": int(found.unknown.sum()), "texts": int((found.unknown > 0).sum())}
        matrix = self._table[tokens.ids]
        clouds = {
            layer: TokenClouds.from_matrix(
                matrix,
                tokens.offsets,
                texts=texts,
                truncated=tokens.cut,
                token_ids=np.split(tokens.ids, tokens.offsets[1:-1]),
                provenance={
                    "model": self.card.to_dict(),
                    "options": self.options.content(),
                    "layer": layer,
                    "unknown": unknown,
                },
            )
            for layer in asked
        }
        for note in unknown_notes(next(iter(clouds.values()))):
            _LOG.warning(note)
        if progress is not None:
            progress(len(texts), len(matrix))
        return clouds

    def _check(self, tokens: Tokens, texts: Sequence[str]) -> None:
        empty = np.flatnonzero(tokens.lengths == 0)
        if len(empty):
            raise InputError(
                f"{len(empty)} of {len(texts)} texts have no token that {self.card.name} knows (positions "
                f"{empty[:10].tolist()}; first: {texts[int(empty[0])][:40]!r}); each needs one. Leave them out."
            )


def load_static_folder(folder: Path, *, name: str, revision: str | None, options: EncoderOptions) -> StaticEncoder:
    """A model2vec folder, by the rules of model2vec, or a folder with a StaticEmbedding module, by its rules."""
    config = read_settings(folder / "config.json")
    declared = read_declaration(folder, name=name)
    place = folder / declared.subfolder
    tokenizer, table, digest = _read_table(place / "model.safetensors", place / "tokenizer.json", name=name)
    revision = digest if revision is None else revision
    if config.get("model_type") != "model2vec":
        return _static_embedding(table, tokenizer, name=name, revision=revision, declared=declared, options=options)
    after = ("Normalize",) if config.get("normalize") else ()
    declared = replace(declared, after=after, max_length=config.get("max_length", _MODEL2VEC_LENGTH))
    card = _card(table, name=name, revision=revision, declared=declared)
    vocabulary = Vocabulary.of_tokenizers(tokenizer)
    return StaticEncoder(card, options, table=table, tokenize=_model2vec_tokenize(tokenizer), vocabulary=vocabulary)


def load_wordllama(folder: Path, *, options: EncoderOptions) -> StaticEncoder:
    """The 256-dimensional table in the wordllama package, which averages all tokens of a text, none special."""
    weights, vocabulary = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"
    name = "wordllama/l2_supercat_256"
    tokenizer, table, digest = _read_table(folder / weights, folder / vocabulary, name=name)
    return _static_embedding(table, tokenizer, name=name, revision=digest, declared=Declaration(), options=options)


def wrap_static_embedding(module: Any, *, name: str, declared: Declaration, options: EncoderOptions) -> StaticEncoder:
    """The StaticEmbedding module of a loaded SentenceTransformer."""
    tokenizer = type(module.tokenizer).from_str(module.tokenizer.to_str())  # a copy: settings will be changed
    table = module.embedding.weight.detach().cpu().float().numpy()
    check_vocabulary(Vocabulary.of_tokenizers(tokenizer), len(table), name=name)
    revision = hashlib.sha256(table.tobytes() + tokenizer.to_str().encode()).hexdigest()
    return _static_embedding(table, tokenizer, name=name, revision=revision, declared=declared, options=options)


def _static_embedding(
    table: NDArray[Any], tokenizer: Any, *, name: str, revision: str, declared: Declaration, options: EncoderOptions
) -> StaticEncoder:
    """All tokens count, unknown ones too; the only truncation is what the tokenizer's own file sets."""
    declared = replace(declared, max_length=(tokenizer.truncation or {}).get("max_length"))
    card = _card(table, name=name, revision=revision, declared=declared)

    def tokenize(texts: Sequence[str], max_length: int | None) -> TableTokens:
        tokens = tokenize_plain(tokenizer, texts, max_length, special=False)
        return TableTokens(tokens, np.zeros(len(texts), np.int64))

    vocabulary = Vocabulary.of_tokenizers(tokenizer)
    return StaticEncoder(card, options, table=table, tokenize=tokenize, vocabulary=vocabulary)


def _card(table: NDArray[Any], *, name: str, revision: str, declared: Declaration) -> ModelCard:
    return ModelCard(
        name=name,
        kind="static",
        dimension=table.shape[1],
        revision=revision,
        layers=0,
        max_length=declared.max_length,
        pooling=("mean",),
        after=declared.after,
        prompts=dict(declared.prompts),
        default_prompt=declared.default_prompt,
        parameters=table.size,
    )


def _read_table(weights: Path, vocabulary: Path, *, name: str) -> tuple[Any, NDArray[Any], str]:
    """(tokenizer, table with one float32 row a vocabulary entry, digest of both files)."""
    if missing := [str(path) for path in (weights, vocabulary) if not path.is_file()]:
        raise ModelError(f"{name}: a static table needs a safetensors file and its tokenizer; not found: {missing}.")
    tokenizer = require("tokenizers", "static").Tokenizer.from_file(str(vocabulary))
    safetensors = require("safetensors.numpy", "static")
    arrays = safetensors.load_file(weights)
    rows = arrays.get("embedding.weight", arrays.get("embeddings"))
    if rows is None or rows.ndim != 2:
        raise ModelError(
            f"{name}: {weights.name} holds {sorted(arrays)}; needed: a matrix 'embeddings' or 'embedding.weight'."
        )
    # Vocabulary-quantised model2vec tables share rows between entries and weight them.
    table: NDArray[Any] = rows[arrays["mapping"]] if "mapping" in arrays else rows
    table = table.astype(np.float32)
    if "weights" in arrays:
        table = table * arrays["weights"].astype(np.float32)[:, None]
    check_vocabulary(Vocabulary.of_tokenizers(tokenizer), len(table), name=name)
    if len(table) < tokenizer.get_vocab_size():
        raise ModelError(
            f"{name}: the table has {len(table)} rows for {tokenizer.get_vocab_size()} vocabulary entries; one a "
            f"entry is needed. Check that the tokenizer and the weights belong together."
        )
    return tokenizer, table, digest_files([weights, vocabulary])


def _model2vec_tokenize(tokenizer: Any) -> Callable[[Sequence[str], int | None], TableTokens]:
    """As model2vec does: cut the text at `max_length` times the median length of a vocabulary entry in
    characters, then at `max_length` tokens, and leave unknown tokens out.
    """
    characters = int(median(len(entry) for entry in tokenizer.get_vocab()))
    model = json.loads(tokenizer.to_str())["model"]
    unknown_id = model["unk_id"] if "unk_id" in model else tokenizer.token_to_id(model.get("unk_token") or "")

    def tokenize(texts: Sequence[str], max_length: int | None) -> TableTokens:
        most = None if max_length is None else max_length * characters
        tokens = tokenize_plain(tokenizer, [text[:most] for text in texts], max_length, special=False)
        cut = tokens.cut.copy()
        if most is not None and (long := [k for k, text in enumerate(texts) if len(text) > most]):
            whole = tokenize_plain(tokenizer, [texts[k] for k in long], None, special=False)
            cut[long] = whole.lengths - tokens.lengths[long]
        known = tokens.ids != (-1 if unknown_id is None else unknown_id)
        owner = np.repeat(np.arange(len(texts)), tokens.lengths)
        unknown = np.bincount(owner[~known], minlength=len(texts))
        offsets = np.concatenate([[0], np.cumsum(tokens.lengths - unknown)]).astype(np.int64)
        return TableTokens(Tokens(tokens.ids[known], offsets, cut), unknown)

    return tokenize
