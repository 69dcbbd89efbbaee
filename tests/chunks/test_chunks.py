"""Chunks: where texts are cut, that nothing is lost, and that no encoder cuts anything off what comes out."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chunk_data import FAMILY, PROSE, assert_whole, byte_level, sentence_piece, visible
from length_data import word_model
from poolscope import chunk_texts, read_texts
from poolscope.chunks import Chunks, check_chunk_file
from poolscope.chunks.chunking import text_groups
from poolscope.chunks.splitting import TokenRuler
from poolscope.encoders import EncoderOptions, as_encoder, truncation_report
from poolscope.encoders.batching import BatchedEncoder
from poolscope.errors import InputError, ModelError
from poolscope.texts.records import shows_nothing
from tiny_models import declare, export_onnx, model2vec_folder, save_model, tiny_model, tiny_tokenizer


def words(count):
    return " ".join(f"w{k % 40}" for k in range(count))


@pytest.fixture(scope="module")
def bert():
    """One token a word; 64 tokens, of which two are special."""
    return as_encoder(word_model())


@pytest.fixture(scope="module")
def roberta():
    return as_encoder(byte_level(62))


# -- from texts to chunks -----------------------------------------------------------------------------------------


def test_a_text_that_fits_stays_as_it_is(bert):
    texts = ["  w1 w2\n", words(62)]
    chunks = chunk_texts(bert, texts)
    assert [(c.id, c.text, c.document_id, c.start, c.end, c.tokens) for c in chunks] == [
        ("0", texts[0], "0", 0, 8, 4),
        ("1", texts[1], "1", 0, len(texts[1]), 64),
    ]
    assert (chunks.split, chunks.documents, sum(chunks.cuts.values())) == (0, 2, 0)


def test_one_token_too_many_gives_two_equal_halves(bert):
    chunks = chunk_texts(bert, [words(63)])
    assert sorted(chunks.tokens) == [33, 34]
    assert [chunk.id for chunk in chunks] == ["0#1", "0#2"]
    assert_whole(chunks, {"0": words(63)})


def test_the_best_place_is_taken(bert):
    text = f"{words(20)}\n{words(15)}.\n\n{words(8)}. W {words(36)}"
    first, second = chunk_texts(bert, [text], tokens=60)
    assert first.text == text[: first.end] == text.partition("\n\n")[0]
    assert second.start == first.end + 2
    assert chunk_texts(bert, [text], tokens=60).cuts == {
        "blank line": 1,
        "line": 0,
        "sentence": 0,
        "blank": 0,
        "word": 0,
    }


def test_blanks_around_a_text_that_is_too_long_are_not_read(roberta):
    blank = " " * 500
    chunks = chunk_texts(roberta, [f"{blank}ab", f"ab{blank}", f"ab{blank}cd ef gh"])
    texts = [(chunk.id, chunk.text) for chunk in chunks]
    assert texts == [("0", "ab"), ("1", "ab"), ("2#1", "ab"), ("2#2", "cd ef gh")]
    assert (chunks[0].start, chunks[1].start) == (500, 0)


@pytest.mark.parametrize("overlap", [0, 7])
@pytest.mark.parametrize("tokens", [None, 24])
@pytest.mark.parametrize(
    "make",
    [
        lambda: byte_level(62),
        lambda: sentence_piece(40),
        lambda: word_model(),
        lambda: word_model("GPT2", n_positions=40),
    ],
    ids=["roberta", "t5", "bert", "gpt2"],
)
def test_no_encoder_cuts_a_chunk(make, tokens, overlap):
    encoder = as_encoder(make(), prompt="query: ")
    texts = [PROSE * 3, words(200), "w1", PROSE.replace("\n", "\r\n"), f"\u200f{FAMILY * 9}\u200e " * 8]
    chunks = chunk_texts(encoder, texts, tokens=tokens, overlap=overlap)
    clouds = encoder.encode(chunks.as_texts())[-1]
    assert truncation_report(clouds).cut_texts == 0
    assert truncation_report(encoder.encode(texts)[-1]).cut_texts > 0
    assert clouds.lengths.tolist() == chunks.tokens.tolist()  # the prompt is part of the cloud here
    assert chunks.limit == (tokens or encoder.max_length) >= chunks.tokens.max()
    if not overlap:
        assert_whole(chunks, {str(k): text for k, text in enumerate(texts)})


@pytest.fixture(scope="module")
def minilm():
    return as_encoder("builtin:minilm")


@pytest.mark.model
@pytest.mark.parametrize("options", [{}, {"prompt": "Represent this sentence for searching: "}, {"max_length": 50}])
def test_the_real_model_cuts_no_chunk(options, minilm):
    encoder = BatchedEncoder(
        minilm.card,
        EncoderOptions(**options),
        backend=minilm.backend,
        tokenize=minilm.tokenize,
        vocabulary=minilm.vocabulary,
    )
    corpus = read_texts("builtin:docstrings")
    short = next(k for k, text in enumerate(corpus) if len(text) < 100)
    texts = corpus.take([short, *[k for k, text in enumerate(corpus) if 1500 < len(text) < 1700][:4]])
    chunks = chunk_texts(encoder, texts)
    clouds = encoder.encode(chunks.as_texts())[-1]
    assert truncation_report(clouds).cut_texts == 0
    assert clouds.lengths.tolist() == chunks.tokens.tolist()
    assert chunks.limit == options.get("max_length", 256)
    assert chunks.split >= 4
    assert_whole(chunks, dict(zip(texts.ids, texts, strict=True)))
    assert {chunk.label for chunk in chunks} == set(texts.labels)


def test_a_prompt_that_is_left_out_of_the_cloud_still_counts(tmp_path):
    folder = declare(save_model(tmp_path), pooling={"pooling_mode": "mean", "include_prompt": False})
    encoder = as_encoder(folder, prompt="query : the ")
    chunks = chunk_texts(encoder, ["cat dog " * 40])
    clouds = encoder.encode(chunks.as_texts())[-1]
    assert (chunks.added, chunks.limit) == (5, 24)
    assert truncation_report(clouds).cut_texts == 0
    assert chunks.tokens.max() > clouds.lengths.max()


def test_an_onnx_model_cuts_no_chunk(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    tiny_tokenizer().save_pretrained(tmp_path)
    tiny_model().config.save_pretrained(tmp_path)
    encoder = as_encoder(export_onnx(tiny_model(), tmp_path / "model.onnx"))
    chunks = chunk_texts(encoder, ["the cat sat " * 30])
    assert (chunks.limit, chunks.added) == (24, 2)
    assert truncation_report(encoder.encode(chunks.as_texts())[-1]).cut_texts == 0


@pytest.mark.parametrize("text", ["the cat sat " * 30, "xenotransplantations " * 20])
def test_a_table_that_also_cuts_characters_cuts_no_chunk(text, tmp_path):
    """model2vec cuts texts of few tokens, too, if they have many characters."""
    encoder = as_encoder(model2vec_folder(tmp_path / "table", max_length=8))
    chunks = chunk_texts(encoder, [f"the {text}"])
    assert_whole(chunks, {"0": f"the {text}"})
    assert encoder.tokenize([chunk.text for chunk in chunks], 8).cut.sum() == 0
    assert encoder.tokenize([text], 8).cut.sum() > 0


def test_word_vectors_have_no_limit_of_their_own(tmp_path):
    table = tmp_path / "vectors.txt"
    table.write_text("the 1 0\ncat 0 1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"tokens: received none.*vectors\.txt"):
        chunk_texts(table, ["the cat " * 9])
    chunks = chunk_texts(table, ["the cat " * 9], tokens=6)
    assert (chunks.tokens.sum(), chunks.added, chunks.split) == (18, 0, 1)
    assert chunks.tokens.min() >= 3
    assert chunks.tokens.max() <= 6
    assert_whole(chunks, {"0": "the cat " * 9})


def test_chunks_that_a_table_cannot_encode_are_counted(tmp_path):
    folder = model2vec_folder(tmp_path / "table", max_length=8)
    chunks = chunk_texts(folder, ["the cat " * 4 + "zork " * 30])
    (note,) = chunks.notes()
    assert note.startswith(f"{(chunks.tokens == 0).sum()} chunks ")
    assert chunk_texts(folder, ["the cat " * 20]).notes() == []


def test_a_word_is_cut_inside_only_if_it_alone_is_too_long(roberta):
    short, long = "q" * 40, "q" * 400
    chunks = chunk_texts(roberta, [f"{short} " * 5, f"The lamp {long} the sea"])
    assert chunks.cuts["word"] == len([c for c in chunks if c.document_id == "1"]) - 1 > 0
    assert {chunk.text for chunk in chunks if chunk.document_id == "0"} == {short}


def test_overlap_repeats_the_end_of_the_chunk_before(bert):
    text = words(300)
    chunks = list(chunk_texts(bert, [text], overlap=10))
    for before, after in pairwise(chunks):
        repeated = text[after.start : before.end].split()
        assert 5 <= len(repeated) <= 10
        assert text[after.start - 1] == " "
    assert max(chunk.tokens for chunk in chunks) <= 64
    assert set(text.split()) == set(" ".join(chunk.text for chunk in chunks).split())


def test_overlap_is_given_up_where_a_chunk_is_full(roberta):
    """A word that fills a chunk leaves no room for the end of the chunk before it."""
    text = f"{'the sea ' * 20}{'q' * 59}"
    chunks = chunk_texts(roberta, [text], overlap=12)
    assert chunks[len(chunks) - 1].text == "q" * 59
    assert chunks.cuts["word"] == 0


PARTS = [*"ab.?\n ", "\r\n", "\n\n", "lamp", "。", "你好", "\u200f", "\u0301", FAMILY, "\U0001f44d", "\xa0", "\x00"]
TEXTS = st.lists(st.sampled_from([*PARTS, "q" * 70, " " * 70]), min_size=1, max_size=60).map("".join)


@given(text=TEXTS.filter(lambda text: not shows_nothing(text)), tokens=st.integers(12, 62), overlap=st.integers(0, 5))
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_is_lost_and_everything_fits(roberta, text, tokens, overlap):
    chunks = chunk_texts(roberta, [text], tokens=tokens, overlap=overlap)
    found = roberta.tokenize([chunk.text for chunk in chunks], None).lengths
    assert found.tolist() == chunks.tokens.tolist()
    assert found.max() <= tokens
    if overlap:
        covered = np.zeros(len(text), bool)
        for chunk in chunks:
            covered[chunk.start : chunk.end] = True
        assert not visible("".join(c for c, inside in zip(text, covered, strict=True) if not inside))
    else:
        assert_whole(chunks, {"0": text})


def test_a_long_line_is_tokenised_a_few_times_only(roberta, monkeypatch):
    """The work grows with the text, not with the number of chunks: characters handed to the tokenizer are counted."""
    seen = []
    tokenize = roberta.tokenize

    def counting(texts, limit):
        seen.append(sum(map(len, texts)))
        return tokenize(texts, limit)

    monkeypatch.setattr(roberta, "tokenize", counting)
    line = re.sub(r"\s+", " ", PROSE) * 100
    for text in (line, line.replace(" ", "")):
        seen.clear()
        chunks = chunk_texts(roberta, [text])
        assert len(chunks) > 100
        assert sum(seen) < 6 * len(text)
        assert len(seen) < 12


def test_texts_are_worked_on_in_groups(bert):
    corpus = read_texts([words(k) for k in (10, 100, 3, 200, 70)])
    groups = list(text_groups(corpus, 300))
    assert len(groups) > 2
    assert [text for group in groups for text in group] == list(corpus)
    assert all(len(group) == 1 or sum(map(len, group)) <= 300 for group in groups)
    done = []
    chunk_texts(bert, corpus, progress=done.append)
    assert sum(done) == 5


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson", ".parquet"])
def test_the_file_is_read_as_texts(ending, bert, tmp_path):
    rows = [
        {"name": f"n\u2028{k}", "body": f"{words(50 * k + 1)}\x85\u2028.\r\n{words(9)}", "topic": k % 2}
        for k in range(4)
    ]
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    texts = read_texts(source, column="body", id_column="name", label_column="topic")
    chunks = chunk_texts(bert, texts)
    path = tmp_path / f"chunks{ending}"
    chunks.save(path)
    assert list(read_texts(path)) == [chunk.text for chunk in chunks]  # as it is, without naming a column
    again = read_texts(path, id_column="id", label_column="label")
    assert again.ids == tuple(chunk.id for chunk in chunks) == chunks.as_texts().ids
    assert again.labels == chunks.as_texts().labels == tuple(chunk.label for chunk in chunks)
    assert {chunk.label for chunk in chunks} == {"0", "1"}
    assert read_texts(path, column="document_id").texts == tuple(chunk.document_id for chunk in chunks)


def test_a_row(bert, tmp_path):
    chunk_texts(bert, [words(3)]).save(tmp_path / "a.jsonl")
    row = json.loads((tmp_path / "a.jsonl").read_text(encoding="utf-8"))
    assert row == {"id": "0", "text": words(3), "document_id": "0", "start": 0, "end": 8, "tokens": 5}


def test_chunks_are_loaded_again(bert, tmp_path):
    chunks = chunk_texts(bert, [words(3), words(63)], overlap=3)
    chunks.save(tmp_path / "chunks.json")
    assert Chunks.load(tmp_path / "chunks.json") == chunks
    assert chunks.to_table().column("text").to_pylist() == [chunk.text for chunk in chunks]


def test_numbers_for_json(bert):
    found = chunk_texts(bert, [words(3), words(63)], overlap=3).to_dict()
    assert json.loads(json.dumps(found)) == found
    assert (found["texts"], found["split"], found["chunks"], found["limit"]) == (2, 1, 3, 64)
    assert found["tokens"]["shortest"] == 5
    assert "Bert" in found["model"]["name"]


@pytest.mark.parametrize("name", ["chunks.txt", "chunks", "chunks.csv"])
def test_other_files_are_refused(name, tmp_path):
    with pytest.raises(InputError, match=r"allowed: \.jsonl, \.ndjson, \.parquet"):
        check_chunk_file(tmp_path / name)


def test_the_source_is_not_replaced(tmp_path):
    source = tmp_path / "a.jsonl"
    source.write_text("{}", encoding="utf-8")
    (tmp_path / "link.jsonl").symlink_to(source)
    with pytest.raises(InputError, match=r"link\.jsonl: the chunks"):
        check_chunk_file(tmp_path / "link.jsonl", source=str(source))
    check_chunk_file(tmp_path / "b.jsonl", source=str(source))
    check_chunk_file(source, source="hub:org/name")


# -- what cannot be asked ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokens": 65}, r"received 65, .* 64 tokens .* 64"),
        ({"tokens": 2}, "received 2; .* Use 3"),
        ({"tokens": True}, "tokens: received True"),
        ({"tokens": 12.0}, r"tokens: received 12\.0"),
        ({"overlap": 32}, "from 0 to 31"),
        ({"overlap": -1}, "from 0 to 31"),
    ],
)
def test_settings_that_cannot_be_used(settings, message, bert):
    with pytest.raises(InputError, match=message):
        chunk_texts(bert, [words(3)], **settings)


def test_a_character_that_does_not_fit_is_named(roberta):
    with pytest.raises(InputError, match=r"received 4, .*'你' .* 5\b"):
        chunk_texts(roberta, ["a 你"], tokens=4)


def test_a_model_without_tokenizer_is_refused():
    with pytest.raises(ModelError, match=r"'function', .* tokenizer"):
        chunk_texts(lambda texts: [[[1.0]] for _ in texts], ["a"])


def test_ids_stay_unique(bert):
    table = {"text": [words(63), "w1"], "id": ["a", "a#1"]}
    with pytest.raises(InputError, match="'a#1'"):
        chunk_texts(bert, read_texts(table, column="text", id_column="id"))


def test_equal_strings_are_weighed_once(bert):
    ruler = TokenRuler(bert)
    assert ruler.weigh([" w1", " w2 w3", " w1"]).tolist() == [1, 2, 1]
    assert (ruler.limit, ruler.added, ruler.room) == (64, 2, 62)
