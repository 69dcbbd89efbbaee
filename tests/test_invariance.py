"""No number hangs on the order of a file, the names of its texts, a blank more or less, the shards or the threads."""

from __future__ import annotations

import hashlib
import math
import re
from functools import reduce
from inspect import signature

import numpy as np
import pytest

import poolscope
from poolscope.clouds import TokenClouds
from poolscope.metrics.corpus import corpus_finish, corpus_part, corpus_summary
from poolscope.metrics.length.search import retrieval_by_length
from poolscope.metrics.length.streamed import profile_finish, profile_of_clouds, profile_part
from poolscope.metrics.neighbourhood import hubs, neighbourhood
from poolscope.metrics.one_space import one_space
from poolscope.metrics.queries import query_scores
from poolscope.metrics.scores import cone, score_distribution
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.spectrum import norms, spectrum
from poolscope.results import Result, plain
from tiny_models import WORDS as TINY_WORDS
from tiny_models import tiny_model, tiny_tokenizer

WORDS = [
    "oak",
    "stone",
    "river",
    "cloud",
    "engine",
    "letter",
    "garden",
    "window",
    "paper",
    "mountain",
    "copper",
    "thread",
    "signal",
    "harbour",
    "winter",
    "pocket",
    "mirror",
    "ladder",
    "basket",
    "candle",
    "hammer",
    "feather",
    "valley",
    "bridge",
    "orchard",
    "lantern",
]
# Where a text stands and what it is called, which may differ, and where the numbers came from.
ELSEWHERE = {
    "provenance", "digest", "names", "clouds", "model", "i", "j", "id_i", "id_j", "text_i", "text_j",
    "duplicates", "twins", "created", "seconds", "id", "ids", "text", "poolscope", "positions", "text_id",
    "rescued", "broken",
}  # fmt: skip


def vector(word: str) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(24) + 0.3


TABLE = {word: vector(word) for word in WORDS}


def encode(texts):
    """One vector a word, which hangs a little on its place and on the other words; blanks count for nothing."""
    clouds = []
    for words in map(str.split, texts):
        places = 1 + 0.1 * np.sqrt(np.arange(len(words)))
        own = np.array([TABLE[word.strip(".")] for word in words]) * places[:, None]
        clouds.append(own + 0.2 * vector(" ".join(words)))
    return clouds


def corpus(count: int = 120) -> list[str]:
    random, texts = np.random.default_rng(0), []
    for _ in range(count):
        own = random.choice(len(WORDS), 9, replace=False)
        words = [WORDS[k] for k in random.choice(own, int(np.exp(random.uniform(2.2, 4.2))))]
        texts.append(" ".join(f"{word}." if place % 6 == 5 else word for place, word in enumerate(words)))
    return texts


def numbers(content, name: str = "") -> dict[str, object]:
    """Every number and word of a result by its place in it, except for where texts stand and what they are called."""
    if isinstance(content, Result):
        content = content.to_dict()
    content = plain(content)
    if isinstance(content, dict):
        parts = [numbers(value, f"{name}.{key}") for key, value in content.items() if key not in ELSEWHERE]
    elif isinstance(content, list):
        parts = [numbers(value, f"{name}[{place}]") for place, value in enumerate(content)]
    else:
        return {name: content}
    return {key: value for part in parts for key, value in part.items()}


def moved(first, second) -> list[tuple[str, object, object]]:
    """What differs beyond rounding."""
    sides = numbers(first), numbers(second)
    found = []
    for key in sorted(sides[0].keys() | sides[1].keys()):
        one, two = (side.get(key) for side in sides)
        close = isinstance(one, float) and isinstance(two, float) and math.isclose(one, two, rel_tol=1e-5, abs_tol=1e-7)
        if one != two and not close:
            found.append((key, one, two))
    return found


def clouds_of(texts, ids) -> TokenClouds:
    return TokenClouds.from_arrays([cloud.astype(np.float32) for cloud in encode(texts)], texts=texts, ids=ids)


def means(texts) -> np.ndarray:
    return np.array([cloud.mean(axis=0) for cloud in encode(texts)], dtype=np.float32)


# Of 120 texts vectors of 192 dimensions.
WIDE = np.random.default_rng(2).standard_normal(192)


def search(texts):
    """The first words of some texts ask for these, in the order of the texts."""
    asked = [(" ".join(text.split()[:5]), place) for place, text in enumerate(texts) if text.split()[0] < "m"]
    relevant = [(number, place) for number, (_, place) in enumerate(asked)]
    return means([words for words, _ in asked]), means(texts), relevant


def by_length(texts):
    return retrieval_by_length(*search(texts), [len(text.split()) for text in texts], bins=3, min_texts=10)


def task(texts):
    return poolscope.split_half_task(texts)


def transformer() -> tuple[object, object]:
    return tiny_model(), tiny_tokenizer()


def tiny(texts) -> list[str]:
    """The same texts in the words of the tiny transformer, with their blanks; long ones lose their end."""
    return [re.sub(r"\w+\.?", lambda word: TINY_WORDS[WORDS.index(word[0].strip(".")) % 17], text) for text in texts]


def short(texts) -> list[str]:
    """The first words of each text, as a table of the tiny transformer."""
    return [" ".join(text.split()[:12]) for text in tiny(texts)]


def two_audits(texts):
    return poolscope.compare(poolscope.audit(encode, texts), poolscope.audit(half, texts))


def half(texts):
    return [cloud[:, :12] for cloud in encode(texts)]


def chunk_numbers(texts) -> dict[str, object]:
    """What was cut, over all chunks: these stand in the order of their texts."""
    chunks = poolscope.chunk_texts(transformer(), tiny(texts), tokens=12)
    return {"chunks": len(chunks), "lengths": sorted(chunk.tokens for chunk in chunks)}


def layer_numbers(texts, ids) -> dict[str, object]:
    return poolscope.layers(transformer(), short(texts), ids=ids).to_dict()


def floor_of_pairs(texts, ids):
    """The permutation floor of the same pairs of texts, wherever these stand."""
    first = np.argsort([" ".join(text.split()) for text in texts])[:6].reshape(3, 2)
    return poolscope.permutation_floor(clouds_of(texts, ids), first.tolist(), deals=99)


def misses_of_run(texts, ids):
    """A run in which some texts ask for those that are not quite the nearest to them."""
    words = [" ".join(text.split()) for text in texts]
    unit = means(texts) / np.linalg.norm(means(texts), axis=1, keepdims=True)
    scores = unit @ unit.T
    asking = [k for k, text in enumerate(words) if text < "m"]
    run = {words[k]: {ids[j]: float(scores[k, j]) for j in range(len(ids)) if j != k} for k in asking}
    return poolscope.audit_run(run, {words[k]: {ids[j]: 1 for j in np.argsort(-scores[k])[3:15:4]} for k in asking})


MEASURES = {
    "shrink": lambda texts, ids: poolscope.shrink(poolscope.as_encoder(encode), task(texts)),
    "permutation floor": floor_of_pairs,
    "misses of a run": misses_of_run,
    "vector spread": lambda texts, ids: poolscope.vector_spread(means(texts)),
    "best layer": lambda texts, ids: poolscope.best_layer(transformer(), short(texts)),
    "norm ablation": lambda texts, ids: poolscope.norm_ablation(transformer(), short(texts), min_count=2),
    "layers": layer_numbers,
    "tokens": lambda texts, ids: poolscope.token_statistics(transformer(), short(texts), min_count=2),
    "windows": lambda texts, ids: poolscope.windows(clouds_of(texts, ids), ratios=[2, 4]),
    "transport": lambda texts, ids: poolscope.transport(clouds_of(texts, ids), pairs=40),
    "intervene": lambda texts, ids: poolscope.intervene(clouds_of(texts, ids), interventions=["scale=2"]),
    "one space": lambda texts, ids: one_space(means(texts), texts),
    "storage": lambda texts, ids: poolscope.compare_storage(encode, task(texts)),
    "chunk": lambda texts, ids: chunk_numbers(texts),
    "compare": lambda texts, ids: two_audits(texts),
    "socm": lambda texts, ids: socm(clouds_of(texts, ids), top=1),
    "socm of drawn pairs": lambda texts, ids: socm(clouds_of(texts, ids), pairs=300, top=1),
    "socm of neighbours": lambda texts, ids: socm(clouds_of(texts, ids), neighbours=2, top=1),
    "confusion": lambda texts, ids: poolscope.confusion(clouds_of(texts, ids)),
    "corpus": lambda texts, ids: corpus_summary(clouds_of(texts, ids)),
    "profile": lambda texts, ids: profile_of_clouds(clouds_of(texts, ids)),
    "length": lambda texts, ids: poolscope.length_report(encode, texts),
    "hubs": lambda texts, ids: hubs(means(texts), texts=texts),
    "hubs of a draw": lambda texts, ids: hubs(means(texts), texts=texts, most=80),
    "hubs of queries": lambda texts, ids: hubs(means(texts), queries=search(texts)[0]),
    "hubs of fewer vectors than dimensions": lambda texts, ids: hubs(means(texts).repeat(8, axis=1) * WIDE),
    "neighbourhood": lambda texts, ids: neighbourhood(means(texts)),
    "neighbourhood of a draw": lambda texts, ids: neighbourhood(means(texts), most=80),
    "spectrum": lambda texts, ids: spectrum(means(texts), texts=texts),
    "norms": lambda texts, ids: norms(means(texts), texts=texts, most=80),
    "cone": lambda texts, ids: cone(means(texts)),
    "scores": lambda texts, ids: score_distribution(means(texts), texts=texts, most=80),
    "query scores": lambda texts, ids: query_scores(*search(texts), false_hits=0.05),
    "retrieval by length": lambda texts, ids: by_length(texts),
    "evaluate": lambda texts, ids: poolscope.evaluate(poolscope.as_encoder(encode), task(texts)),
    "pooling cost": lambda texts, ids: poolscope.pooling_cost(encode, task(texts)),
    "tune": lambda texts, ids: poolscope.tune(encode, texts),
    "audit": lambda texts, ids: poolscope.audit(encode, texts),
}


@pytest.mark.parametrize("name", MEASURES)
def test_order_names_and_blanks_move_no_number(name):
    texts = corpus()
    first = MEASURES[name](texts, [f"t{k}" for k in range(len(texts))])
    order = np.random.default_rng(1).permutation(len(texts))
    other = [f" {texts[k].replace(' ', '  ', 3)} \n" for k in order]
    assert moved(first, MEASURES[name](other, [f"x{9000 - k}" for k in range(len(order))])) == []


@pytest.mark.parametrize(
    ("whole", "part", "finish"),
    [
        (corpus_summary, corpus_part, corpus_finish),
        (profile_of_clouds, profile_part, profile_finish),
    ],
)
def test_shards_move_no_number(whole, part, finish):
    texts = corpus()
    clouds = clouds_of(texts, [f"t{k}" for k in range(len(texts))])
    placed = {"start"} & set(signature(part).parameters)  # a draw of texts knows where they stand
    parts = [part(clouds[start : start + 35], **dict.fromkeys(placed, start)) for start in range(0, len(texts), 35)]
    merged = reduce(lambda one, two: one.merge(two), parts[::-1])
    assert moved(whole(clouds), finish(merged)) == []


@pytest.mark.parametrize("name", MEASURES)
def test_threads_move_no_number(name):
    threads = pytest.importorskip("threadpoolctl")
    texts = corpus()
    found = []
    for count in (1, 2):
        with threads.threadpool_limits(count):
            found.append(MEASURES[name](texts, [f"t{k}" for k in range(len(texts))]))
    assert moved(*found) == []


# -- the unit of every interval ---------------------------------------------------------------------------------------


def units_of(content, place: str = "") -> dict[str, str]:
    """The unit of every interval of a result by its place in it."""
    if isinstance(content, dict):
        if {"low", "high", "level"} <= content.keys():
            return {place: content["unit"]}
        parts = [units_of(value, f"{place}.{key}") for key, value in content.items()]
    elif isinstance(content, list):
        parts = [units_of(value, f"{place}[{number}]") for number, value in enumerate(content)]
    else:
        return {}
    return {key: value for part in parts for key, value in part.items()}


BY_DOCUMENTS = {
    "cone": lambda texts, groups: cone(means(texts), groups=groups),
    "scores": lambda texts, groups: score_distribution(means(texts), texts=texts, groups=groups),
    "norms": lambda texts, groups: norms(means(texts) * np.arange(1, len(texts) + 1)[:, None], groups=groups),
    "spectrum": lambda texts, groups: spectrum(means(texts), groups=groups),
    "neighbourhood": lambda texts, groups: neighbourhood(means(texts), groups=groups),
    "query scores": lambda texts, groups: query_scores(*search(texts), false_hits=0.05, groups=groups),
    "confusion": lambda texts, groups: poolscope.confusion(clouds_of(texts, None), groups=groups, false_hits=0.05),
    "socm": lambda texts, groups: socm(clouds_of(texts, None), groups=groups),
    "retrieval by length": lambda texts, groups: retrieval_by_length(
        *search(texts), [len(text.split()) for text in texts], bins=2, min_texts=10, groups=groups
    ),
    "audit": lambda texts, groups: poolscope.audit(encode, texts, groups=groups),
    "length": lambda texts, groups: poolscope.length_report(encode, texts, groups=groups),
    "one space": lambda texts, groups: one_space(means(texts), texts, groups=groups),
    "windows": lambda texts, groups: poolscope.windows(chunks_of(texts, groups), ratios=[2, 4]),
    "transport": lambda texts, groups: poolscope.transport(chunks_of(texts, groups), pairs=80),
    "intervene": lambda texts, groups: intervened(texts, groups),
    "evaluate": lambda texts, groups: poolscope.evaluate(poolscope.as_encoder(encode), asked(texts, groups)),
}


def chunks_of(texts, groups) -> TokenClouds:
    """Clouds whose ids name the document of each text."""
    return clouds_of(texts, [f"{name}#{number}" for number, name in enumerate(groups)])


def asked(texts, groups):
    """Two queries of every fourth document."""
    relevant = [(number, place) for number, place in enumerate(k for k in range(len(texts)) if k % 4 < 2)]
    queries = [" ".join(texts[place].split()[:5]) for _, place in relevant]
    return poolscope.RetrievalTask(queries, texts, relevant, groups=groups)


def intervened(texts, groups):
    task = asked(texts, groups)
    queries = clouds_of(task.queries, [f"q{k}" for k in range(len(task.queries))])
    documents = chunks_of(texts, groups)
    return poolscope.intervene(documents, queries, task.relevant, interventions=["scale=2"])


@pytest.mark.parametrize("name", BY_DOCUMENTS)
def test_documents_are_the_unit_of_every_interval_where_they_are_known(name):
    texts = corpus(160)
    groups = [f"d{k // 2}" for k in range(len(texts))]
    if name == "transport":
        pytest.importorskip("ot")
    found = units_of(plain(BY_DOCUMENTS[name](texts, groups).to_dict()))
    assert found
    assert {place: unit for place, unit in found.items() if unit != "documents"} == {}
