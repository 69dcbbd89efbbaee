"""Synthetic vectors with a known effect of length, and with none; encoders of which everything is known."""

from __future__ import annotations

import numpy as np
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from poolscope.evaluation import Difference, Trial
from poolscope.numbers.intervals import Estimate, Interval
from tiny_models import tiny_model

# A cure that has won on trial: what a `repair` of long texts takes beside the rise itself.
GAIN = Estimate(0.05, Interval(0.02, 0.08, 0.99, "", "", "texts"))
WON = Trial("a cure", "a cure helps.", difference=Difference(GAIN, "nDCG@10", "", 90, 90))


def lengths_of(random, count, *, most=512):
    return np.clip(np.exp(random.normal(4.2, 1.1, count)), 4, most).astype(int)


def without_effect(seed, count=300, dimension=32, topics=0):
    """Directions that have nothing to do with the lengths; with topics they come in clusters."""
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((count, dimension)) + 0.3
    if topics:
        vectors += 2 * random.standard_normal((topics, dimension))[random.integers(topics, size=count)]
    return vectors, lengths_of(random, count)


def with_effect(seed, count=300, slope=0.03, dimension=64):
    """Unit vectors e = √c·u + √(1 − c)·noise ⊥ u, c = slope·log₂ n, so that e·e' has the mean √(c c').

    In a bin in which c varies little, the mean cosine is about slope · log₂ n: a slope of that size per doubling.
    """
    random = np.random.default_rng(seed)
    lengths = lengths_of(random, count)
    shared = slope * np.log2(lengths)
    noise = random.standard_normal((count, dimension))
    noise[:, 0] = 0
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    vectors = np.sqrt(1 - shared)[:, None] * noise
    vectors[:, 0] = np.sqrt(shared)
    return vectors, lengths


def turning_with_length(seed, count=1000, dimension=64):
    """Vectors that turn as the length grows, so that texts of one length are alike, whatever that length is."""
    random = np.random.default_rng(seed)
    lengths = lengths_of(random, count)
    vectors = random.standard_normal((count, dimension)) / np.sqrt(dimension)
    vectors[:, 0] += 0.5
    angles = 0.5 * np.log2(lengths)
    vectors[:, 1:3] += 0.6 * np.column_stack([np.cos(angles), np.sin(angles)])
    return vectors, lengths


WORDS = [f"w{k}" for k in range(40)]


def word_tokenizer(*, ends=True):
    """One token a word w0 … w39, dog, cat, the; with `ends` [CLS] before and [SEP] after, as in BERT."""
    names = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *WORDS, "dog", "cat", "the"]
    backend = Tokenizer(models.WordLevel({name: k for k, name in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if ends:
        backend.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        model_max_length=64,
        model_input_names=["input_ids", "attention_mask"],
    )


def word_model(architecture="Bert", **settings):
    """A tiny model with 128 positions and its tokenizer, which declares a limit of 64 tokens."""
    sizes = {"vocab_size": 47, "pad_token_id": 0, "max_position_embeddings": 128, **settings}
    return tiny_model(architecture, **sizes), word_tokenizer()


def word_texts(count=120, seed=0, most=160):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, size=n)) for n in random.integers(3, most, size=count)]


def context_free_model(*, positions=1.0):
    """No layers and no special tokens: a token's vector depends on the word and, times `positions`, on its place."""
    model, _ = word_model(num_hidden_layers=0)
    model.embeddings.position_embeddings.weight.data *= positions
    return model, word_tokenizer(ends=False)


def search(seed=0, queries=60, documents=300, dimension=16, bias=0.0):
    """Queries near their documents; `bias` moves short documents towards the mean of all queries."""
    random = np.random.default_rng(seed)
    lengths = random.integers(10, 400, size=documents)
    held = random.standard_normal((documents, dimension))
    centre = np.ones(dimension)
    queried = held[:queries] + 0.8 * random.standard_normal((queries, dimension)) + centre
    held[lengths < 100] += bias * centre
    return queried, held, [(k, k) for k in range(queries)], lengths


def labelled(noise, seed=0, count=300):
    random = np.random.default_rng(seed)
    lengths = random.integers(5, 200, size=count)
    numbers = random.integers(3, size=count)
    sizes = np.where(lengths < 100, 0.3, noise)
    vectors = np.eye(8)[numbers] + sizes[:, None] * random.standard_normal((count, 8))
    return vectors, lengths, [f"label {number}" for number in numbers]
