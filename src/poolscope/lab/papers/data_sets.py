"""The data sets of the papers, each with its place on the hub, its columns, and what the paper calls it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from poolscope.lab.papers.sources import (
    CLUSTERED,
    LABELLED,
    PAIRS,
    RERANKED,
    RETRIEVAL,
    SCORES,
    SIMILARITY,
    SUMMARISED,
    TEXTS,
    DataSet,
)

_SIMCSE = "princeton-nlp/datasets-for-simcse"
_HARD = "sentence-transformers/msmarco-co-condenser-margin-mse-sym-mnrl-mean-v1"
CLASSIFICATION, CLUSTERING, SUMMARY, STS = "Class.", "Clust.", "Summ.", "STS"
BEIR, RERANKING, LONG = "BeirRetr.", "Rerank.", "LongEmbdRetr."
TYPES = (RERANKING, SUMMARY, CLASSIFICATION, CLUSTERING, LONG, STS, BEIR)


def _task(
    name: str, repository: str, form: str, columns: tuple[str, ...], printed: str, kind: str, **more: Any
) -> DataSet:
    """A data set of the paper on length, under the organisation of the benchmark."""
    return DataSet(name, repository, form, columns, printed=printed, type=kind, words=printed, **more)


def _classification(name: str, repository: str, printed: str, **more: Any) -> DataSet:
    settings: dict[str, Any] = {"rows": 100_000, "count": 5_000, **more}
    return _task(name, f"mteb/{repository}", LABELLED, ("text", "label"), printed, CLASSIFICATION, **settings)


def _clustering(source: str, kind: str = "") -> DataSet:
    ending = f"-{kind.lower()}" if kind else ""
    name = f"{source.lower()}{ending}"
    repository, printed = f"mteb/{source.lower()}-clustering{ending}", f"{source}Clustering{kind}"
    return _task(name, repository, CLUSTERED, ("sentences", "labels"), printed, CLUSTERING)


def _reranking(name: str, repository: str, printed: str) -> DataSet:
    return _task(name, f"mteb/{repository}", RERANKED, ("query", "positive", "negative"), printed, RERANKING)


def _similarity(name: str, repository: str, printed: str, config: str | None = None) -> DataSet:
    columns, settings = ("sentence1", "sentence2", "score"), {"config": config, "count": 10_000}
    return _task(name, f"mteb/{repository}", SIMILARITY, columns, printed, STS, **settings)


def _search(name: str, printed: str) -> DataSet:
    return _task(name, f"mteb/{name}", RETRIEVAL, (), printed, BEIR)


def _long(name: str, config: str, printed: str) -> DataSet:
    return _task(name, "dwzhu/LongEmbed", RETRIEVAL, (), printed, LONG, config=config, file=config)


def _of_socm() -> Iterator[DataSet]:
    """What the paper on SOCM measures."""
    yield DataSet(
        "wiki",
        _SIMCSE,
        TEXTS,
        split="train",
        file="wiki1m_for_simcse",
        files="wiki1m_for_simcse.txt",
        words="1,000 sentences of the Wikipedia file of SimCSE",
    )
    yield DataSet(
        "marco",
        "mteb/msmarco",
        TEXTS,
        config="corpus",
        split="corpus",
        rows=200_000,
        file="msmarco",
        words="1,000 passages of MS MARCO",
    )
    yield DataSet(
        "hard",
        _HARD,
        PAIRS,
        ("query", "negative"),
        config="triplet-hard",
        split="train",
        count=50_000,
        rows=500_000,
        words="50,000 queries of MS MARCO with a hard negative",
    )
    words = "score the models with poolscope lab mteb MODEL... -o PATH, then pass that folder as scores=PATH"
    yield DataSet("scores", "", SCORES, words=words)


def _of_length() -> Iterator[DataSet]:
    """The forty data sets of the paper on length, and the long texts of its appendix."""
    yield _search("nfcorpus", "NFCorpus")
    yield _search("scifact", "SciFact")
    yield _long("narrativeqa", "narrativeqa", "LEMBNarrativeQARetrieval")
    yield _long("qmsum", "qmsum", "LEMBQMSumRetrieval")
    yield _long("summscreenfd", "summ_screen_fd", "LEMBSummScreenFDRetrieval")
    yield _long("2wikimqa", "2wikimqa", "LEMBWikimQARetrieval")
    yield _classification("imdb", "imdb", "ImdbClassification")
    yield _classification("amazon", "amazon_polarity", "AmazonPolarityClassification", rows=50_000)
    yield _classification("banking", "banking77", "Banking77Classification")
    yield _classification("emotion", "emotion", "EmotionClassification")
    yield _classification("intent", "amazon_massive_intent", "MassiveIntentClassification", config="en")
    yield _classification("scenario", "amazon_massive_scenario", "MassiveScenarioClassification", config="en")
    yield _classification("toxic", "toxic_conversations_50k", "ToxicConversationsClassification")
    yield _classification("tweets", "tweet_sentiment_extraction", "TweetSentimentExtractionClassification")
    for source in ("Arxiv", "Biorxiv", "Medrxiv"):
        for kind in ("P2P", "S2S"):
            yield _clustering(source, kind)
    for source in ("Reddit", "StackExchange"):
        for kind in ("", "P2P"):
            yield _clustering(source, kind)
    yield _clustering("TwentyNewsgroups")
    yield _reranking("askubuntu", "askubuntudupquestions-reranking", "AskUbuntuDupQuestions")
    yield _reranking("mind", "mind_small", "MindSmallReranking")
    yield _reranking("scidocs", "scidocs-reranking", "SciDocsRR")
    yield _reranking("stackoverflow", "stackoverflowdupquestions-reranking", "StackOverflowDupQuestions")
    yield _similarity("biosses", "biosses-sts", "BIOSSES")
    yield _similarity("sickr", "sickr-sts", "SICK-R")
    for year in (12, 13, 14, 15, 16):
        yield _similarity(f"sts{year}", f"sts{year}-sts", f"STS{year}")
    yield _similarity("sts17", "sts17-crosslingual-sts", "STS17", "en-en")
    yield _similarity("sts22", "sts22-crosslingual-sts", "STS22", "en")
    yield _similarity("stsb", "stsbenchmark-sts", "STSBenchmark")
    columns = ("machine_summaries", "human_summaries", "relevance")
    yield _task("summeval", "mteb/summeval", SUMMARISED, columns, "SummEval", SUMMARY)
    # LongRAG's texts to search. What it puts together for a reader (`nq`, `hotpot_qa`) has 100,000 characters and more
    # a text by its card, so that none of it would fall into the bins of Tables 8 and 9.
    rag: dict[str, Any] = {"split": "train", "rows": 10_000}
    for name, config in (("nq", "nq_corpus"), ("hotpotqa", "hotpot_qa_corpus")):
        yield DataSet(name, "TIGER-Lab/LongRAG", TEXTS, config=config, file=f"longrag-{config}", **rag)
    yield DataSet("LongAlpaca-12k", "Yukang/LongAlpaca-12k", TEXTS, ("instruction",), split="train", rows=12_000)


def _of_norms() -> Iterator[DataSet]:
    """What the paper on norms measures."""
    place: dict[str, Any] = {"split": "train", "rows": 200_000, "count": 10_000}
    labels: dict[str, Any] = {"count": 4_000}
    yield DataSet(
        "languages", "papluca/language-identification", LABELLED, ("text", "labels"), words="20 languages", **labels
    )
    yield DataSet(
        "styles", "osyvokon/pavlick-formality-scores", LABELLED, ("sentence", "domain"), words="four styles", **labels
    )
    # The repository itself is a script, which no current `datasets` runs; the hub's own copy as tables has its rows.
    tables: dict[str, Any] = {"config": "plain_text", "revision": "refs/convert/parquet"}
    yield DataSet("bookcorpus", "bookcorpus/bookcorpus", TEXTS, words="BookCorpus", **place, **tables)


DATA_SETS: Mapping[str, DataSet] = {data.name: data for own in (_of_socm(), _of_length(), _of_norms()) for data in own}
