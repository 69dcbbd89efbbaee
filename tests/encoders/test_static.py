"""Static tables: model2vec, wordllama and word vectors in text files."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from pyarrow import csv
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from poolscope.encoders import as_encoder, encode
from poolscope.encoders.reports import cloud_notes
from poolscope.errors import InputError, ModelError
from poolscope.stores.cache import cached_clouds
from poolscope.texts import read_texts
from tiny_models import SPECIAL, TEXTS, WORDS, model2vec_folder

LOGGER = "poolscope.encoders"
SIZE = len(SPECIAL) + len(WORDS)


def means(clouds) -> np.ndarray:
    return np.stack([cloud.mean(axis=0) for cloud in clouds])


# -- model2vec ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"max_length": 3}, {"max_length": None}, {"normalize": True}])
def test_model2vec_means_are_its_own_vectors(settings, tmp_path):
    library = pytest.importorskip("model2vec")
    folder = model2vec_folder(tmp_path / "table", **settings)
    # unknown words, and a text so long that model2vec cuts its characters before it counts its tokens
    texts = [*TEXTS, "the unheardof cat", "the mat " * 400, "the zork cat zork"]
    own = library.StaticModel.from_pretrained(folder)
    encoder = as_encoder(folder)
    np.testing.assert_allclose(means(encoder.encode(texts)[-1]), own.encode(texts, normalize=False), atol=1e-6)
    assert encoder.card.after == (("Normalize",) if settings.get("normalize") else ())


def test_model2vec_counts_what_it_cuts_and_what_it_does_not_know(tmp_path, caplog):
    folder = model2vec_folder(tmp_path, max_length=4)
    texts = ["the cat sat on the red mat", "zork cat", "the dog " * 50]
    with caplog.at_level(logging.WARNING, LOGGER):
        clouds = encode(folder, texts)
    assert clouds.lengths.tolist() == [3, 1, 3]  # 4 tokens times 3 characters, the usual length of a word here
    assert (clouds.lengths + clouds.truncated).tolist() == [7, 1, 100]
    assert clouds.provenance["unknown"] == {"tokens": 1, "texts": 1}
    assert "1 tokens (12.5%) in 1 of 3" in caplog.text


def test_shared_and_weighted_rows(tmp_path):
    rng = np.random.default_rng(1)
    rows, mapping = rng.normal(size=(5, 4)).astype(np.float16), rng.integers(0, 5, SIZE)
    weights = rng.uniform(size=SIZE).astype(np.float32)
    folder = model2vec_folder(tmp_path / "t", arrays={"embeddings": rows, "mapping": mapping, "weights": weights})
    clouds = encode(folder, TEXTS)
    ids = clouds.token_ids(0)
    np.testing.assert_allclose(clouds[0], rows[mapping[ids]].astype(np.float32) * weights[ids][:, None], rtol=1e-6)
    library = pytest.importorskip("model2vec")
    np.testing.assert_allclose(means(clouds), library.StaticModel.from_pretrained(folder).encode(TEXTS), atol=1e-2)


def test_layers_and_options_of_a_table(tmp_path):
    folder = model2vec_folder(tmp_path)
    found = encode(folder, TEXTS, layers=[0, -1])
    np.testing.assert_array_equal(found[0][2], found[-1][2])
    assert len(encode(folder, TEXTS, device="cpu")) == len(TEXTS)
    for wrong in ({"dtype": "float16"}, {"device": "cuda"}):
        with pytest.raises(InputError, match="static table"):
            as_encoder(folder, **wrong)
    with pytest.raises(InputError, match="layers: received"):
        encode(folder, TEXTS, layers=[1])
    assert encode(folder, TEXTS, prompt="query : ").lengths.tolist() == [len(text.split()) + 2 for text in TEXTS]


def test_texts_of_unknown_words_only_are_named(tmp_path):
    with pytest.raises(InputError, match=r"2 of 3 .*\[0, 2\]; first: 'zork'"):
        encode(model2vec_folder(tmp_path), ["zork", "cat", ""])


def test_damaged_tables_are_refused(tmp_path):
    with pytest.raises(ModelError, match=r"\['other'\]"):
        as_encoder(model2vec_folder(tmp_path / "a", arrays={"other": np.zeros((2, 2), np.float32)}))
    with pytest.raises(ModelError, match=f"3 rows for {SIZE} "):
        as_encoder(model2vec_folder(tmp_path / "b", arrays={"embeddings": np.zeros((3, 2), np.float32)}))
    folder = model2vec_folder(tmp_path / "c")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"not found: .*tokenizer\.json"):
        as_encoder(folder)


# -- wordllama ----------------------------------------------------------------------------------------------------


def test_wordllama_means_are_its_own_vectors():
    library = pytest.importorskip("wordllama.inference")
    texts = ["The cat sat on the mat.", "Zürich, 東京 and 1,000 more", "x" * 3000]
    files = Path(library.__file__).parent
    table = load_file(files / "weights" / "l2_supercat_256.safetensors")["embedding.weight"]
    tokenizer = Tokenizer.from_file(str(files / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    own = library.WordLlamaInference(table, tokenizer).embed(texts)
    encoder = as_encoder("builtin:wordllama")
    np.testing.assert_allclose(means(encoder.encode(texts)[-1]), own, atol=1e-6)
    assert (encoder.card.name, encoder.card.dimension) == ("wordllama/l2_supercat_256", 256)
    assert encoder.card.parameters == table.size


# -- word vectors ---------------------------------------------------------------------------------------------------

VECTORS = {
    "the": [1, 0],
    "cat": [0, 1],
    "u.s.": [2, 2],
    "don": [3, 0],
    "'": [0, 3],
    "t": [4, 4],
    '"': [5, 5],
    "null": [6, 6],
    "Cat": [7, 7],
}


def vector_file(path, lines=None):
    rows = [f"{word} {' '.join(map(str, values))}" for word, values in VECTORS.items()] if lines is None else lines
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_words_are_looked_up_as_written_then_lower_then_in_pieces(tmp_path, caplog):
    path = vector_file(tmp_path / "glove.txt")
    with caplog.at_level(logging.WARNING, LOGGER):
        clouds = encode(path, ['The cat, U.S. "null"', "Cat DON't", "the\tcat\nthe"])
    assert clouds[0].tolist() == [[1, 0], [0, 1], [2, 2], [5, 5], [6, 6], [5, 5]]  # the comma is not in the table
    assert clouds[1].tolist() == [[7, 7], [3, 0], [0, 3], [4, 4]]
    assert clouds[2].tolist() == [[1, 0], [0, 1], [1, 0]]
    assert clouds.provenance["unknown"] == {"tokens": 1, "texts": 1}
    assert "left out" in caplog.text
    cut = encode(path, ["the cat the cat"], max_length=3)
    assert (cut.lengths.tolist(), cut.truncated.tolist()) == ([3], [1])
    assert as_encoder(path).card.kind == "static"
    assert as_encoder(path).card.parameters == as_encoder(path)._table.size


def test_header_and_trailing_blanks_of_other_writers(tmp_path, caplog):
    lines = [f"{len(VECTORS)} 2", *(f"{word} {a} {b} " for word, (a, b) in VECTORS.items())]
    path = vector_file(tmp_path / "words.vec", lines)
    with caplog.at_level(logging.WARNING, LOGGER):
        assert encode(path, ["the cat"])[0].tolist() == [[1, 0], [0, 1]]
    assert not caplog.text


def test_odd_lines_and_repeated_words_are_reported(tmp_path, caplog):
    path = vector_file(tmp_path / "glove.txt", ["the 1 0", "cat 0 1", "new york 3 3", "the 9 9"])
    with caplog.at_level(logging.WARNING, LOGGER):
        assert encode(path, ["the cat"])[0].tolist() == [[1, 0], [0, 1]]
    assert "fields than 3" in caplog.text
    assert "repeats 1 words" in caplog.text


@pytest.mark.parametrize("lines", [["just words here"], ["one"], ["cat 1 nan"], ["cat 1 2", "dog 1 x"]])
def test_files_that_are_no_tables(lines, tmp_path):
    with pytest.raises(ModelError):
        as_encoder(vector_file(tmp_path / "notes.txt", lines))


def test_the_revision_is_the_digest_of_the_file(tmp_path):
    one, other = vector_file(tmp_path / "a.txt"), vector_file(tmp_path / "b.txt", ["the 1 0", "cat 1 1"])
    assert as_encoder(one).card.revision != as_encoder(other).card.revision
    assert json.loads(json.dumps(as_encoder(one).card.to_dict())) == as_encoder(one).card.to_dict()


def test_texts_in_place_of_vectors_are_told_apart_by_their_first_line(tmp_path, monkeypatch):
    monkeypatch.setattr("pyarrow.csv.read_csv", lambda *args, **settings: pytest.fail("the file was read"))
    with pytest.raises(ModelError, match=r"'A man bites 1 dog'"):
        as_encoder(vector_file(tmp_path / "t.txt", ["A man bites 1 dog", "The dog barks"]))


def test_no_thread_but_the_own_one_calls_back_into_python(tmp_path, monkeypatch):
    calls = []

    def read(path, *, read_options, parse_options, convert_options, read=csv.read_csv):
        calls.append((read_options.use_threads, parse_options.invalid_row_handler is not None))
        return read(path, read_options=read_options, parse_options=parse_options, convert_options=convert_options)

    monkeypatch.setattr("pyarrow.csv.read_csv", read)
    as_encoder(vector_file(tmp_path / "whole.txt", ["the 1 0", "cat 0 1"]))
    assert calls == [(True, False)]
    as_encoder(vector_file(tmp_path / "odd.txt", ["the 1 0", "new york 3 3"]))
    assert calls[1:] == [(True, False), (False, True)]


def test_a_tokenizer_much_smaller_than_its_table_is_refused(tmp_path):
    arrays = {"embeddings": np.ones((2 * SIZE + 1, 4), np.float32)}
    with pytest.raises(ModelError, match=rf"{SIZE} entries, .* {2 * SIZE + 1} token"):
        as_encoder(model2vec_folder(tmp_path, arrays=arrays))


def test_unknown_words_are_told_again_when_the_clouds_come_from_the_cache(tmp_path, caplog):
    path = vector_file(tmp_path / "glove.txt", ["the 1 0", "cat 0 1"])
    texts = read_texts(["the cat zork", "the zork zork"])
    said = []
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "poolscope"):
            clouds = cached_clouds(as_encoder(path), texts, cache_dir=tmp_path / "cache")
        said.append([record.getMessage() for record in caplog.records])
    assert said[0] == said[1] == cloud_notes(clouds)[-1:]
    assert "3 tokens (50.0%) in 2 of 2" in said[0][0]
