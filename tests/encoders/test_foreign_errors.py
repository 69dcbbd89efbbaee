"""Whatever a library of others raises over a model that is opened or reads its first batch is one line of ours."""

from __future__ import annotations

import json
import warnings

import pytest

from poolscope.encoders import as_encoder
from poolscope.errors import LibraryError, PoolscopeError
from tiny_models import TEXTS, declare, save_model, write

WRONG = (5, -1, "text", "", [], [5], {}, {"a": 5}, None, True, 1.5, 2**40)
FURTHER = ("max_seq_length", "do_lower_case", "model_args", "modality_config", "prompts", "default_prompt_name")


@pytest.fixture
def folder(tmp_path):
    return declare(save_model(tmp_path / "model"), pooling={"pooling_mode_mean_tokens": True})


def edit_tokenizer(folder, change):
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    change(content)
    write(folder / "tokenizer.json", content)


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (lambda tokenizer: tokenizer["model"]["vocab"].update(text=10**6), "IndexError"),
        (lambda tokenizer: tokenizer["model"]["vocab"].update(text=2**32 - 1), "OverflowError"),
        (lambda tokenizer: tokenizer["model"].update(unk_token="NOPE"), "Missing [UNK] token"),
    ],
    ids=["beyond the table", "32 bits", "no unknown token"],
)
def test_tokenizers_that_are_not_the_model_s(folder, spoil, cause):
    edit_tokenizer(folder, spoil)
    with pytest.raises(LibraryError) as caught:
        as_encoder(folder).encode(["the cat sat on text number about", *TEXTS])
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "file",
    [
        "config.json",
        "tokenizer_config.json",
        "tokenizer.json",
        "1_Pooling/config.json",
        "modules.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
    ],
)
def test_values_of_any_kind_where_others_belong(folder, file):
    """Each setting of a file in turn holds what it should not: the model is read, or refused in one line."""
    path = folder / file
    whole = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for content in spoiled(whole):
        write(path, content)
        assert "\n" not in said_of(folder), content


def said_of(folder):
    """The error of a model, "" for one that is read; any error but ours ends the test."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            as_encoder(folder).encode(TEXTS[:1])
    except PoolscopeError as error:
        return str(error)
    return ""


def spoiled(whole):
    """The content of a file with one wrong value each: two for each key, and others in place of a list."""
    if isinstance(whole, list):
        yield from ([module, *whole[1:]] for module in spoiled(whole[0]))
        yield from WRONG
        return
    for number, key in enumerate(sorted({*whole, *FURTHER})):
        for value in (WRONG[number % len(WRONG)], WRONG[(5 * number + 3) % len(WRONG)]):
            yield {**whole, key: value}
