"""Data sets and models of the papers: real column names, local copies, streams, and what to fetch of the rest."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolscope.errors import InputError
from poolscope.lab.papers import sources
from poolscope.lab.papers.data_sets import DATA_SETS
from poolscope.lab.papers.models import LENGTH_MODELS, NORM_MODELS, SOCM_MODELS, Checkpoint
from poolscope.lab.papers.sources import Places

WORDS = ["cats purr", "dogs bark", "oaks grow", "stones lie", "rivers run", "clouds pass"]
# What the hub has of each set: by split, the columns with some values, as the cards of the data sets list them.
TABLES = {
    "wiki": {"train": {"text": WORDS}},
    "marco": {"corpus": {"_id": list("abcdef"), "title": [""] * 6, "text": WORDS}},
    "hard": {"train": {"query": WORDS, "positive": WORDS, "negative": WORDS[::-1]}},
    **{
        data.name: {
            split: {"text": words, "label": [0, 1, 0, 1, 0, 1], "label_text": ["negative", "positive"] * 3}
            for split, words in (("train", [f"{text} now" for text in WORDS]), ("test", WORDS))
        }
        for data in DATA_SETS.values()
        if data.form == "labelled" and data.printed
    },
    **{
        data.name: {"test": {"sentence1": WORDS, "sentence2": WORDS[::-1], "score": [0.0, 1.0, 2.5, 3.0, 4.0, 5.0]}}
        for data in DATA_SETS.values()
        if data.form == "similarity"
    },
    **{
        data.name: {"test": {"sentences": [WORDS] * 6, "labels": [["a", "a", "b", "b", "a", "b"]] * 6}}
        for data in DATA_SETS.values()
        if data.form == "clustered"
    },
    **{
        data.name: {"test": {"query": WORDS, "positive": [["yes"]] * 6, "negative": [["no", "never"]] * 6}}
        for data in DATA_SETS.values()
        if data.form == "reranked"
    },
    "summeval": {
        "test": {
            "text": WORDS,
            "machine_summaries": [["one", "two"]] * 6,
            "human_summaries": [["three"]] * 6,
            "relevance": [[1.0, 2.0]] * 6,
        }
    },
    "nq": {"train": {"corpus_id": list(range(6)), "titles": [["T"]] * 6, "text": WORDS}},
    "hotpotqa": {"train": {"corpus_id": list(range(6)), "titles": [["T"]] * 6, "text": WORDS}},
    "LongAlpaca-12k": {"train": {"instruction": WORDS, "output": WORDS, "file": [""] * 6, "input": [""] * 6}},
    "languages": {
        split: {"labels": ["de", "en"] * 3, "text": words}
        for split, words in (("train", [f"{text} now" for text in WORDS]), ("test", WORDS))
    },
    "styles": {
        split: {"domain": ["news", "email"] * 3, "avg_score": [0.5] * 6, "sentence": words}
        for split, words in (("train", [f"{text} now" for text in WORDS]), ("test", WORDS))
    },
    "bookcorpus": {"train": {"text": WORDS}},
}
MTEB = {
    ("corpus", "corpus"): {"_id": list("abcdef"), "title": ["T", "", "", "", "", ""], "text": WORDS},
    ("queries", "queries"): {"_id": ["q1", "q2"], "text": ["who purrs?", "what grows?"]},
    ("default", "test"): {"query-id": ["q1", "q1", "q2"], "corpus-id": ["a", "b", "c"], "score": [2, 0, 1]},
}
LONG_EMBED = {
    "corpus": {"doc_id": list("abcdef"), "text": WORDS},
    "queries": {"qid": ["q1", "q2"], "text": ["who purrs?", "what grows?"]},
    "qrels": {"qid": ["q1", "q2"], "doc_id": ["a", "c"]},
}


def hub(folder, tables):
    """A data set as a repository of the hub holds it: files, and a card that names configs and splits."""
    configs: dict[str, list[str]] = {}
    folder.mkdir(parents=True)
    for (config, split), columns in tables.items():
        file = f"{config}-{split}.jsonl"
        (folder / file).write_text("\n".join(map(json.dumps, pa.table(columns).to_pylist())))
        configs.setdefault(config, []).append(f"  - split: {split}\n    path: {file}")
    lines = [f"- config_name: {config}\n  data_files:\n" + "\n".join(splits) for config, splits in configs.items()]
    (folder / "README.md").write_text("---\nconfigs:\n" + "\n".join(lines) + "\n---\n")
    return str(folder)


def units(data):
    return len(data) if hasattr(data, "__len__") else len(data.index) if hasattr(data, "index") else data.units


@pytest.mark.parametrize("name", TABLES)
def test_a_stream_of_the_hub(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    data, tables = DATA_SETS[name], TABLES[name]
    assert data.split in tables
    if data.files:
        folder = tmp_path / "repository"
        folder.mkdir()
        (folder / data.files).write_text("\n".join(tables[data.split]["text"]))
        place = str(folder)
    else:
        place = hub(tmp_path / "repository", {(data.config or "default", split): own for split, own in tables.items()})
    read = replace(data, hub=place).read(None)
    sets = len(tables)  # training and test set of those that have labels
    assert units(read) == 6 * sets
    assert units(replace(data, hub=place, rows=4).read(None)) == 4 * sets  # no more of the stream is read
    match data.form:
        case "texts":
            assert sorted(read.texts) == sorted(WORDS)
        case "similarity":
            assert dict(zip(read.first, read.gold, strict=True))["oaks grow"] == 2.5
        case "pairs":
            pairs = {(read.queries[int(q)], read.documents[int(d)]) for q, d in read.index}
            assert ("cats purr", "clouds pass") in pairs  # the negative, not the positive
        case "labelled":
            assert dict(zip(read.texts, read.labels, strict=True))["dogs bark"] in ("1", "en", "email")
            assert read.trained == 6
            assert all(text.endswith("now") for text in read.texts[:6])
        case "clustered":
            assert dict(zip(read.tasks[0].texts, read.tasks[0].labels, strict=True))["oaks grow"] == "b"
            assert len(replace(data, hub=place).read(None, limit=5).tasks[0].texts) == 5
        case "reranked":
            assert (read.queries[0], list(read.positive[0]), list(read.negative[0])) == (
                WORDS[0],
                ["yes"],
                ["no", "never"],
            )
        case "summarised":
            assert (list(read.machine[0]), list(read.human[0]), list(read.gold[0])) == (
                ["one", "two"],
                ["three"],
                [1, 2],
            )


def test_the_forty_data_sets_are_those_of_the_paper_and_of_the_benchmark():
    import mteb

    from poolscope.lab.papers.published import LENGTH, published

    own = {data.printed: data for data in DATA_SETS.values() if data.printed}
    assert set(own) == {cell.row for cell in published(LENGTH) if cell.table == "Table 4"}
    counted = {cell.column: cell.number for cell in published(LENGTH) if cell.row == "Num. Datasets"}
    for kind, number in counted.items():
        assert kind == "Avg." or sum(data.type == kind for data in own.values()) == number
    for name, data in own.items():
        if data.form != "reranked":  # which the benchmark has moved since
            metadata = mteb.get_task(name).metadata
            assert metadata.dataset["path"].lower() == data.hub.lower()
            assert data.config or data.split in metadata.eval_splits


def test_names_that_begin_alike_are_told_apart(tmp_path):
    rows = json.dumps({"sentences": WORDS, "labels": list("aabbab")})
    (tmp_path / "reddit-clustering-p2p.jsonl").write_text(rows)
    assert Places(files=tmp_path).data(DATA_SETS["reddit-p2p"]).source is not None
    assert Places(files=tmp_path).data(DATA_SETS["reddit"]).source is None
    (tmp_path / "reddit-clustering.jsonl").write_text(rows)
    assert Places(files=tmp_path).data(DATA_SETS["reddit"]).source.endswith("reddit-clustering.jsonl")


def test_training_and_test_set_in_a_folder(tmp_path):
    folder = tmp_path / "imdb"
    folder.mkdir()
    for split, columns in TABLES["imdb"].items():
        pq.write_table(pa.table(columns), folder / f"{split}.parquet")
    found = Places(files=tmp_path).data(DATA_SETS["imdb"])
    task = DATA_SETS["imdb"].read(found.source)
    assert (task.trained, len(task.texts), found.same) == (6, 12, True)


@pytest.mark.parametrize("name", ["nfcorpus", "scifact", "narrativeqa", "qmsum", "summscreenfd", "2wikimqa"])
def test_a_benchmark_of_the_hub(name, tmp_path):
    data = DATA_SETS[name]
    tables = MTEB if data.config is None else {(data.config, split): columns for split, columns in LONG_EMBED.items()}
    task = replace(data, hub=hub(tmp_path / "repository", tables)).read(None)
    assert task.queries == ("who purrs?", "what grows?") or list(task.queries) == ["who purrs?", "what grows?"]
    assert task.relevant.tolist() == [[0, 0], [1, 2]]  # a grade of 0 is no answer
    assert task.documents[0] == ("T cats purr" if data.config is None else "cats purr")


@pytest.mark.parametrize("name", TABLES)
def test_a_local_file_of_the_same_columns(name, tmp_path):
    columns = TABLES[name][DATA_SETS[name].split]
    path = tmp_path / f"{DATA_SETS[name].local}.parquet"
    pq.write_table(pa.table(columns), path)
    read = DATA_SETS[name].read(str(path), limit=5)  # of every set, where there are several
    assert units(read) == (6 if DATA_SETS[name].form == "clustered" else 5)
    found = Places(files=tmp_path).data(DATA_SETS[name])
    assert (found.source, found.same, found.missing) == (str(path), True, "")


def test_a_local_benchmark_folder(tmp_path):
    folder = tmp_path / "nfcorpus"
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": key, "title": "", "text": text} for key, text in zip("abcdef", WORDS, strict=True)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)))
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "who purrs?"}))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta\t1\n")
    found = Places(files=tmp_path).data(DATA_SETS["nfcorpus"])
    task = DATA_SETS["nfcorpus"].read(found.source)
    assert (task.name, len(task.documents), task.relevant.tolist()) == ("nfcorpus", 6, [[0, 0]])


def test_another_file_is_no_copy_of_the_published_one(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("\n".join(WORDS))
    found = Places(texts={"wiki": str(path)}).data(DATA_SETS["wiki"])
    assert (found.source, found.same) == (str(path), False)
    assert sorted(DATA_SETS["wiki"].read(str(path)).texts) == sorted(WORDS)
    assert Places(texts={"wiki": "elsewhere/wiki1m_for_simcse.txt"}).data(DATA_SETS["wiki"]).same


def test_a_table_without_the_columns_is_refused(tmp_path):
    path = tmp_path / "sts.csv"
    path.write_text("sentence1,sentence2\na,b\n")
    with pytest.raises(InputError, match="'score'"):
        DATA_SETS["sts12"].read(str(path))


def test_a_local_copy_of_a_checkpoint_counts_as_it(tmp_path):
    gte = next(model for model in SOCM_MODELS if model.name == "GTE small")
    (tmp_path / "gte-small").mkdir()
    assert Places(files=tmp_path).model(gte).source == str(tmp_path / "gte-small")
    assert Places(models={"GTE small": str(tmp_path / "gte-small")}).model(gte).same
    assert not Places(models={"GTE small": "builtin:minilm"}).model(gte).same


def test_what_is_not_here_says_what_to_fetch(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "hub_out_of_reach", lambda: "no network")
    monkeypatch.setattr(sources, "_cached", lambda name: None)
    places = Places(files=tmp_path)
    model = places.model(Checkpoint("BGE", "BAAI/bge-base-en-v1.5"))
    wanted = (
        f"fetch BAAI/bge-base-en-v1.5 from https://huggingface.co/BAAI/bge-base-en-v1.5 to {tmp_path}/bge-base-en-v1.5"
    )
    assert (model.source, model.missing) == (None, f"not reachable: {wanted}")
    data = places.data(DATA_SETS["wiki"])
    assert data.source is None
    assert "fetch wiki1m_for_simcse.txt from https://huggingface.co/datasets/princeton-nlp/" in data.missing


def test_the_hub_is_asked_once_and_not_when_told_not_to(monkeypatch):
    sources.hub_out_of_reach.cache_clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert sources.hub_out_of_reach() == "HF_HUB_OFFLINE is set"
    sources.hub_out_of_reach.cache_clear()
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "127.0.0.1:9" in sources.hub_out_of_reach()
    sources.hub_out_of_reach.cache_clear()


def test_checkpoints_are_those_that_the_papers_list():
    from poolscope.lab.papers.published import LENGTH, SOCM, find

    for model in SOCM_MODELS:
        listed = find(SOCM, "Table 4", model.name, "model_name").value
        assert model.hub.endswith(listed)
        assert model.parent in (None, *(other.name for other in SOCM_MODELS))
    for model in LENGTH_MODELS:
        assert find(LENGTH, "Table 5", model.name, "Publicly Available Link").value == model.address
    assert [model.name for model in NORM_MODELS] == ["BERT", "RoBERTa", "GPT-2"]
