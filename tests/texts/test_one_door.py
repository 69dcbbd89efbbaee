"""Whatever holds the texts, every function that takes some reads the same ones, or refuses the holder by name."""

import io
import os
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import poolscope as ps
from poolscope.errors import InputError
from poolscope.evaluation import ClassificationTask, split_half_task
from poolscope.texts import as_texts

TEXTS = [f"the {word} of every text is {word} and nothing but {word}" for word in "abcdefghijklmnopqrstuvwx"]
COLUMNS = {"number": list(range(len(TEXTS))), "text": TEXTS}


def parquet(folder):
    path = folder / "texts.parquet"
    pq.write_table(pa.table(COLUMNS), path)
    return path


def data_set(_):
    return pytest.importorskip("datasets").Dataset.from_dict(COLUMNS)


HOLDERS = {
    "pandas": lambda _: pd.DataFrame(COLUMNS),
    "polars": lambda _: pl.DataFrame(COLUMNS),
    "arrow table": lambda _: pa.table(COLUMNS),
    "arrow array": lambda _: pa.array(TEXTS),
    "arrow chunks": lambda _: pa.chunked_array([TEXTS[:5], TEXTS[5:]]),
    "dict": lambda _: dict(COLUMNS),
    "data set": data_set,
    "series": lambda _: pd.Series(TEXTS, index=range(7, 7 + len(TEXTS))),
    "polars series": lambda _: pl.Series(TEXTS),
    "numpy": lambda _: np.array(TEXTS),
    "generator": lambda _: (text for text in TEXTS),
    "path": parquet,
    "name of a path": lambda folder: str(parquet(folder)),
    "read": lambda _: ps.read_texts(TEXTS),
}


def letters(batch):
    return [np.random.default_rng(list(text.encode())).standard_normal((len(text.split()), 4)) for text in batch]


def tuned(result):
    return len(result.chosen_on.observations) + len(result.reported_on.observations)


FUNCTIONS = {
    "encode": lambda texts: len(ps.encode(letters, texts)),
    "encoder": lambda texts: len(ps.as_encoder(letters).encode(texts)[-1]),
    "token_statistics": lambda texts: ps.token_statistics(letters, texts, groups=["all"] * len(TEXTS)).moments.texts,
    "length_report": lambda texts: len(ps.length_report(letters, texts, bins=1, probes=False).profile.assignment),
    "audit": lambda texts: ps.audit(letters, texts).corpus["texts"],
    "tune": lambda texts: tuned(ps.tune(letters, texts, temperatures=[], poolings=["max"], repairs=[], reranked=0)),
    "split_half_task": lambda texts: len(split_half_task(texts).queries),
    "task": lambda texts: len(ClassificationTask(texts, ["a", "b"] * (len(TEXTS) // 2)).texts),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_the_door_gives_the_texts(holder, tmp_path):
    assert list(as_texts(HOLDERS[holder](tmp_path))) == TEXTS


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("holder", ["pandas", "polars", "arrow table", "arrow chunks", "dict", "generator", "path"])
def test_every_function_reads_them_all(function, holder, tmp_path):
    assert FUNCTIONS[function](HOLDERS[holder](tmp_path)) == len(TEXTS)


@pytest.mark.parametrize("holder", ["pandas", "generator"])
def test_those_that_need_a_tokenizer_read_them_too(holder, tmp_path):
    assert len(ps.layers("builtin:minilm", HOLDERS[holder](tmp_path), socm_texts=0).ids) == len(TEXTS)
    assert len(ps.chunk_texts("builtin:minilm", HOLDERS[holder](tmp_path))) == len(TEXTS)


def test_what_was_read_brings_its_ids_and_its_origin():
    frame = pd.DataFrame({"text": ["one two", None, "three"]})
    clouds = ps.encode(letters, frame)
    assert list(clouds.ids) == ["0", "2"]
    assert clouds.provenance["texts"]["empty"] == 1
    assert ps.layers("builtin:minilm", frame, socm_texts=0).ids == ("0", "2")


@pytest.mark.parametrize(
    ("holder", "message"),
    [
        (lambda: io.StringIO("a\nb\n"), "StringIO.*open file"),
        (lambda: {"a", "b"}, "set.*no order"),
        (lambda: b"bytes", "bytes.*holds no texts"),
        (lambda: 7, "int.*holds no texts"),
        (lambda: "just a text", "one string, 'just a text'"),
        (lambda: {"first": "a text", "second": "another"}, "'first' is 'a text'"),
        (lambda: pd.DataFrame({"a": TEXTS, "b": TEXTS}), "which column.*'a', 'b'"),
        (lambda: pl.LazyFrame(COLUMNS), "LazyFrame"),
    ],
)
@pytest.mark.parametrize("function", ["encode", "token_statistics", "length_report", "split_half_task"])
@pytest.mark.filterwarnings("ignore:Determining the column names")
def test_what_is_none_is_refused_by_name(function, holder, message):
    with pytest.raises(InputError, match=message):
        FUNCTIONS[function](holder())


def test_the_splits_of_a_data_set_are_named():
    splits = pytest.importorskip("datasets").DatasetDict({"train": data_set(None)})
    with pytest.raises(InputError, match="splits 'train'"):
        ps.encode(letters, splits)


def test_a_table_is_no_column_of_clouds():
    with pytest.raises(InputError, match=r"text: .*DataFrame"):
        ps.TokenClouds.from_arrays([np.eye(2), np.eye(2)], texts=pd.DataFrame(COLUMNS))


# -- what a file may hide ---------------------------------------------------------------------------------------------


def said_to_others(run):
    """What a user without the rights of root is told by a function: its error."""
    receives, sends = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            run()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(sends, said.encode())
            os._exit(0)
    os.close(sends)
    os.waitpid(child, 0)
    with os.fdopen(receives, encoding="utf-8") as pipe:
        return pipe.read()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="rights are those of POSIX")
@pytest.mark.parametrize("closed", ["", "sub", "sub/b.txt", "a.arrow"])
@pytest.mark.parametrize("mode", [0o000, 0o111, 0o444])
def test_what_may_not_be_read_is_named(closed, mode):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "texts")
        (folder / "sub").mkdir(parents=True)
        (folder / "a.txt").write_text("a text", encoding="utf-8")
        (folder / "sub" / "b.txt").write_text("another", encoding="utf-8")
        ps.TokenClouds.from_arrays([np.eye(2)]).save(folder / "a.arrow")
        assert len(ps.read_texts(folder)) == 2  # all that is imported meanwhile may be closed to others
        Path(place).chmod(0o755)
        (folder / closed).chmod(mode)
        if mode == 0o444 and (folder / closed).is_file():
            return
        opens = [ps.open_clouds] if closed == "a.arrow" else [ps.read_texts]
        opens += [ps.as_encoder] if closed == "" else []
        for open_it in opens:
            said = said_to_others(lambda run=open_it: run(folder / closed if closed == "a.arrow" else folder))
            assert said.startswith(("InputError", "StoreError")), (open_it, said)
            assert "Permission denied" in said
        (folder / closed).chmod(0o755)


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl"])
def test_wide_encodings_are_named_rightly(tmp_path, codec, name):
    content = {"a.txt": "one text\nanother\n", "a.csv": "text\none\ntwo\n", "a.jsonl": '{"text": "one"}\n'}[name]
    (tmp_path / name).write_text(content, encoding=codec)
    with pytest.raises(InputError, match=rf"received {codec[:6].upper()} .*--encoding {codec}"):
        ps.read_texts(tmp_path / name)
    assert len(ps.read_texts(tmp_path / name, encoding=codec)) >= 1


def test_a_text_with_a_nul_is_still_read(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\0text with a zero in it\nanother\n")
    assert len(ps.read_texts(tmp_path / "a.txt")) == 2


def test_texts_that_show_nothing_are_empty():
    texts = ps.read_texts(["a", "\u200b\u200d", " \ufeff\n", "\u2060", "\u00ad", "b\u200b", "\u0301"])
    assert list(texts) == ["a", "b\u200b", "\u0301"]
    assert texts.report.empty == 4
