"""Static token tables: one vector a vocabulary entry, whatever the context.

model2vec, wordllama and StaticEmbedding bring a tokenizer; text files of word vectors (GloVe, word2vec, fastText) have
`word v1 v2 …` on each line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import (
    EncoderOptions,
    ModelCard,
    Progress,
    check_layers,
    check_texts,
    resolve_prompt,
    texts_first,
)
from poolscope.encoders.batching import token_clouds
from poolscope.encoders.capabilities import EncoderSpec
from poolscope.encoders.folders import (
    Declaration,
    digest_model,
    file_digest,
    flag,
    read_declaration,
    read_settings,
    warn_of_cut,
    whole_setting,
)
from poolscope.encoders.opening import opening
from poolscope.encoders.reports import unknown_notes
from poolscope.encoders.tokens import (
    Tokens,
    Vocabulary,
    check_vocabulary,
    offsets_of,
    tokenize_plain,
    tokenize_prompted,
)
from poolscope.errors import InputError, ModelError, explained, require
from poolscope.words import logger

_LOG = logger(__name__)
_MODEL2VEC_LENGTH = 512  # what model2vec cuts at when its folder says nothing
WORDLLAMA, WORDLLAMA_TOKENIZER = "wordllama/l2_supercat_256", "tokenizers/l2_supercat_tokenizer_config.json"
_PIECES = re.compile(r"\w+|[^\w\s]")


class StaticEncoder:
    """Looks each token up in a table. Layer 0 and the last layer are the same: there is only the table.

    `tokenize` gives the tokens of texts that the table has; the prompt is not put before them.
    """

    def __init__(
        self,
        card: ModelCard,
        options: EncoderOptions,
        *,
        table: NDArray[Any],
        tokenize: Callable[[Sequence[str], int | None], Tokens],
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
        self.tokenize = tokenize
        self.vocabulary = vocabulary

    def with_options(self, options: EncoderOptions, *, role: str | None = None) -> StaticEncoder:
        """The same table with other options; a role only chooses the prompt, and the options say which."""
        other = StaticEncoder(self.card, options, table=self._table, tokenize=self.tokenize, vocabulary=self.vocabulary)
        other.spec = None if self.spec is None else replace(self.spec, options=options)
        return other

    def encode(
        self, texts: Sequence[str], *, layers: Sequence[int] | None = None, progress: Progress | None = None
    ) -> dict[int, TokenClouds]:
        """Clouds of the texts; tokens that the table lacks are left out, counted and logged."""
        texts = check_texts(texts)
        wanted = check_layers(layers, self.card.layers, name=self.card.name)
        tokens = tokenize_prompted(self.tokenize, self.prompt, texts, self.max_length)
        self._check(tokens, texts)
        lacking = np.zeros(0, np.int64) if tokens.unknown is None else tokens.unknown
        unknown = {"tokens": int(lacking.sum()), "texts": int((lacking > 0).sum())}
        about = {"model": self.card.to_dict(), "options": self.options.content()}
        with explained(
            f"{self.card.name}: its table of {len(self._table):,} rows lacks a token of its tokenizer",
            "Check that the tokenizer and the weights belong together.",
        ):
            matrix = self._table[tokens.ids]
        clouds = {
            layer: token_clouds(texts, tokens, matrix, {**about, "layer": layer, "unknown": unknown})
            for layer in wanted
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


def is_static_folder(folder: Path, *, name: str) -> bool:
    """Does the folder hold a static table: of model2vec, or a StaticEmbedding module?"""
    config = read_settings(folder / "config.json")
    return config.get("model_type") == "model2vec" or read_declaration(folder, name=name).first == "StaticEmbedding"


def load_static_folder(folder: Path, *, name: str, revision: str | None, options: EncoderOptions) -> StaticEncoder:
    """A model2vec folder, by the rules of model2vec, or a folder with a StaticEmbedding module, by its rules."""
    config = read_settings(folder / "config.json")
    declared = read_declaration(folder, name=name, role=options.role)
    warn_of_cut(declared.truncate_dim, name=name)
    place = folder / declared.subfolder
    weights = place / "model.safetensors"
    with opening("static", folder, name=name, options=options) as first:
        require("tokenizers", "static")
        first.facts()
        tokenizer, table = _read_table(weights, place / "tokenizer.json", name=name)
        revision = digest_model(folder, [weights]) if revision is None else revision
    if config.get("model_type") != "model2vec":
        return _static_embedding(table, tokenizer, name=name, revision=revision, declared=declared, options=options)
    after = ("Normalize",) if flag(config, "normalize", False) else ()
    longest = whole_setting({"max_length": _MODEL2VEC_LENGTH, **config}, "max_length")
    declared = replace(declared, after=after, max_length=longest)
    card = _card(table, name=name, revision=revision, declared=declared)
    vocabulary = Vocabulary.of_tokenizers(tokenizer)
    return StaticEncoder(card, options, table=table, tokenize=_model2vec_tokenize(tokenizer), vocabulary=vocabulary)


def rehearse_static(folder: Path, *, name: str, options: EncoderOptions, detailed: bool = False) -> dict[str, Any]:
    """Open a static folder, and tokenise a text; return what was learned."""
    encoder = load_static_folder(folder, name=name, revision="", options=options)
    sample = encoder.tokenize(["a text of some words"], encoder.max_length)
    facts = {
        "model": type(encoder).__name__,
        "parameters": encoder.card.parameters,
        "dimension": encoder.card.dimension,
        "rows": len(encoder._table),
        "entries": encoder.vocabulary.size,
        "max_length": encoder.max_length,
    }
    return facts | ({"sample": encoder.vocabulary.text(sample.ids)[:500]} if detailed else {})


def load_wordllama(folder: Path, *, options: EncoderOptions) -> StaticEncoder:
    """The 256-dimensional table in the wordllama package, which averages all tokens of a text, none special."""
    weights = folder / "weights/l2_supercat_256.safetensors"
    vocabulary = folder / WORDLLAMA_TOKENIZER
    tokenizer, table = _read_table(weights, vocabulary, name=WORDLLAMA)
    revision = hashlib.sha256(f"{file_digest(weights)} {file_digest(vocabulary)}".encode()).hexdigest()
    declared = Declaration()
    return _static_embedding(table, tokenizer, name=WORDLLAMA, revision=revision, declared=declared, options=options)


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
    tokenize = partial(tokenize_plain, tokenizer, special=False)
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


def _read_table(weights: Path, vocabulary: Path, *, name: str) -> tuple[Any, NDArray[Any]]:
    """(tokenizer, table with one float32 row a vocabulary entry)."""
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
    return tokenizer, table


def _model2vec_tokenize(tokenizer: Any) -> Callable[[Sequence[str], int | None], Tokens]:
    """As model2vec does: cut the text at `max_length` times the median length of a vocabulary entry in
    characters, then at `max_length` tokens, and leave unknown tokens out.
    """
    characters = int(median(len(entry) for entry in tokenizer.get_vocab()))
    model = json.loads(tokenizer.to_str())["model"]
    unknown_id = model["unk_id"] if "unk_id" in model else tokenizer.token_to_id(model.get("unk_token") or "")

    def tokenize(texts: Sequence[str], max_length: int | None) -> Tokens:
        most = None if max_length is None else max_length * characters
        tokens = tokenize_plain(tokenizer, [text[:most] for text in texts], max_length, special=False)
        cut = tokens.cut.copy()
        if most is not None and (long := [k for k, text in enumerate(texts) if len(text) > most]):
            whole = tokenize_plain(tokenizer, [texts[k] for k in long], None, special=False)
            cut[long] = whole.lengths - tokens.lengths[long]
        known = tokens.ids != (-1 if unknown_id is None else unknown_id)
        owner = np.repeat(np.arange(len(texts)), tokens.lengths)
        unknown = np.bincount(owner[~known], minlength=len(texts))
        return Tokens(tokens.ids[known], offsets_of(tokens.lengths - unknown), cut, unknown=unknown)

    return tokenize


# -- text files of word vectors --------------------------------------------------------------------------------------


def load_word_vectors(path: Path, *, name: str, revision: str | None, options: EncoderOptions) -> StaticEncoder:
    """A text file of word vectors, with or without the first line `words dimensions`."""
    words, table = _read(path)
    vocabulary = {word: k for k, word in reversed(list(enumerate(words)))}  # of repeated words the first counts
    if repeated := len(words) - len(vocabulary):
        _LOG.warning("%s repeats %d words; the first vector of each counts.", name, repeated)
    card = _card(table, name=name, revision=revision or file_digest(path), declared=Declaration())
    tokenize = partial(look_up, vocabulary)
    return StaticEncoder(card, options, table=table, tokenize=tokenize, vocabulary=Vocabulary.of_words(words))


def look_up(vocabulary: dict[str, int], texts: Sequence[str], max_length: int | None) -> Tokens:
    """The words of each text that the vocabulary has: as written, else in lower case, else piece by piece.

    A word is what stands between blanks; its pieces are runs of letters and digits, and single other signs.

    >>> tokens = look_up({"the": 0, "u.s.": 1, ",": 2, "u": 3, ".": 4, "s": 5}, ["The U.S., xyzzy"], None)
    >>> tokens.ids.tolist(), tokens.unknown.tolist()
    ([0, 3, 4, 5, 4, 2], [1])
    """
    ids: list[list[int]] = []
    unknown, cut = [], []
    for text in texts:
        rows = [vocabulary.get(token, -1) for word in text.split() for token in _tokens_of(word, vocabulary)]
        known = [k for k in rows if k >= 0]
        ids.append(known[:max_length])
        unknown.append(len(rows) - len(known))
        cut.append(len(known) - len(ids[-1]))
    return replace(Tokens.join(ids, cut), unknown=np.asarray(unknown, dtype=np.int64))


def _tokens_of(word: str, vocabulary: dict[str, int]) -> list[str]:
    for form in (word, word.lower()):
        if form in vocabulary:
            return [form]
    return [piece if piece in vocabulary else piece.lower() for piece in _PIECES.findall(word)]


def _read(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    """(words, table). Lines with another number of fields, as GloVe 840B has some, are left out and counted."""
    dimension, header, trailing = _layout(path)
    names = ["word", *(f"v{k}" for k in range(dimension)), *(["end"] if trailing else [])]
    skipped: list[int] = []
    try:
        try:
            read = _read_csv(path, names, skip_rows=int(header))
        except pa.ArrowInvalid:
            # Once more, leaving odd lines out, and on one thread: a worker that is still calling back into Python when
            # the process ends takes it down.
            read = _read_csv(path, names, skip_rows=int(header), odd_line=lambda row: skipped.append(row.number or 0))
    except pa.ArrowInvalid as error:
        raise ModelError(
            f"{path}: not a table of word vectors ({error}). Each line must be a word and numbers."
        ) from error
    if skipped:
        _LOG.warning("%s: %d lines have another number of fields than %d; left out.", path, len(skipped), dimension + 1)
    table = np.column_stack([read.column(f"v{k}").to_numpy() for k in range(dimension)])
    if not len(table) or not np.isfinite(table).all():
        raise ModelError(f"{path}: the table is empty or holds numbers that are not finite. Check the file.")
    return read.column("word").to_pylist(), np.ascontiguousarray(table, dtype=np.float32)


def _read_csv(
    path: Path, names: Sequence[str], *, skip_rows: int, odd_line: Callable[[Any], None] | None = None
) -> Any:
    """The columns; lines with another number of fields are an error, or handed to `odd_line` and left out."""

    def skip(row: Any) -> str:
        if odd_line is not None:
            odd_line(row)
        return "skip"

    types = {name: pa.string() if name in ("word", "end") else pa.float32() for name in names}
    return csv.read_csv(
        path,
        read_options=csv.ReadOptions(
            column_names=list(names), skip_rows=skip_rows, block_size=1 << 24, use_threads=odd_line is None
        ),
        parse_options=csv.ParseOptions(
            delimiter=" ", quote_char=False, invalid_row_handler=None if odd_line is None else skip
        ),
        convert_options=csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False),
    )


def _layout(path: Path) -> tuple[int, bool, bool]:
    """(dimension, whether the first line is a header, whether lines end with a blank)."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        first, second = stream.readline().rstrip("\n"), stream.readline().rstrip("\n")
    counts = first.split()
    header = len(counts) == 2 and all(map(str.isdecimal, counts)) and len(second.split()) == int(counts[1]) + 1
    line = second if header else first
    numbers = line.rstrip(" ").split(" ")[1:]
    if not numbers or not all(map(_is_number, numbers)):
        raise ModelError(
            f"{path}: the first line is {line[:60]!r}; needed: a word and its numbers, with blanks between "
            f"them.{texts_first(path)}"
        )
    return len(numbers), header, line.endswith(" ")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
