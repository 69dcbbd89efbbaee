"""Tokenizers and tiny models of three families, for the tests of chunks: what they cut differs in every respect."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from poolscope.chunks import Chunks
from tiny_models import tiny_model

PROSE = """The lighthouse stood at the end of the pier. Nobody had lit it for years, and the gulls had made it theirs.

On the first day of winter a woman came along the pier with a lamp in her hand. She did not hurry; the planks were
wet. "Is it yours?" asked the boy who sold nets. She said that it was, e.g. by marriage.

They climbed the stairs. At the top the wind was so loud that they could only point: there, the harbour; there, the sea.
"""
FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"  # one picture, five code points, 18 bytes
NAMES = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "pad_token": "<pad>"}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def byte_level(limit: int) -> tuple[Any, Any]:
    """As RoBERTa: bytes joined to pieces, so that blanks and line ends are tokens and an emoji is several."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        [PROSE],
        trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False),
    )
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    # RoBERTa keeps the first rows of its positions for padding.
    model = tiny_model("Roberta", vocab_size=backend.get_vocab_size(), max_position_embeddings=limit + 2)
    return model, _fast(backend)


def sentence_piece(limit: int) -> tuple[Any, Any]:
    """As T5: the likeliest pieces of words, no limit in the weights, one special token at the end."""
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.train_from_iterator(
        [PROSE], trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    )
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    model = tiny_model("T5", vocab_size=backend.get_vocab_size())
    return model, _fast(backend, model_max_length=limit)


def _fast(backend: Tokenizer, **settings: Any) -> Any:
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        model_input_names=["input_ids", "attention_mask"],
        **NAMES,
        **settings,
    )


def visible(text: str) -> str:
    return "".join(character for character in text if not character.isspace())


def assert_whole(chunks: Chunks, texts: dict[str, str]) -> None:
    """Without overlap: every character that is not blank stands in exactly one chunk, in order."""
    for name, text in texts.items():
        own = [chunk for chunk in chunks if chunk.document_id == name]
        assert all(chunk.text == text[chunk.start : chunk.end] for chunk in own)
        assert all(before.end <= after.start for before, after in pairwise(own))
        assert visible("".join(chunk.text for chunk in own)) == visible(text)
        ids = [name] if len(own) == 1 else [f"{name}#{k}" for k in range(1, len(own) + 1)]
        assert [chunk.id for chunk in own] == ids
        assert all(chunk.text == chunk.text.strip() for chunk in own) or [chunk.text for chunk in own] == [text]
