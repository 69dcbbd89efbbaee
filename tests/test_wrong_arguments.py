"""Arguments of another type, not a number, or out of range, in Python: each is refused in one line."""

from __future__ import annotations

import inspect
import pickle
from contextlib import nullcontext

import numpy as np
import pytest

import poolscope as ps
from audit_data import bag_of_words, topics
from poolscope.errors import PoolscopeError
from poolscope.evaluation.tasks import RetrievalTask
from poolscope.numbers.ranking import find_neighbours
from poolscope.texts.fine_pairs import FinePair

RANDOM = np.random.default_rng(0)
MATRICES = [RANDOM.normal(size=(5, 4)) for _ in range(12)]
CLOUDS = ps.TokenClouds.from_arrays(MATRICES)
VECTORS = RANDOM.normal(size=(20, 3))
NAN = float("nan")

MASKED = np.ma.masked_array(RANDOM.normal(size=(20, 4)), mask=np.arange(80).reshape(20, 4) == 5)

CALLS = {
    "masked clouds": lambda: ps.TokenClouds.from_arrays([*MATRICES, MASKED]),
    "masked tokens of a function": lambda: ps.encode(lambda texts: [MASKED for _ in texts], ["a"]),
    "masked vectors": lambda: ps.audit(MASKED),
    "masked index": lambda: ps.read_index(MASKED),
    "masked pair": lambda: ps.socm_pair(MASKED, MASKED),
    "masked neighbours": lambda: find_neighbours(MASKED, 3),
    **{f"clouds of {value!r}": lambda value=value: ps.TokenClouds.from_arrays(value) for value in (None, 3, "ab", {})},
    **{
        f"column {name} {values!r:.20}": lambda name=name, values=values: ps.TokenClouds.from_arrays(
            MATRICES, **{name: values}
        )
        for name, values in [
            ("texts", "abcdefghijkl"),
            ("texts", ["\ud800"] * 12),
            ("token_ids", [np.arange(2)] * 12),
            ("token_ids", [np.arange(5) + 0.5] * 12),
            ("token_ids", [np.arange(5) + 2**40] * 12),
            ("token_ids", 3),
            ("provenance", "x"),
            ("provenance", {"a": object()}),
        ]
    },
    **{
        f"offsets {offsets!r}": lambda offsets=offsets: ps.TokenClouds.from_matrix(np.ones((60, 2)), offsets)
        for offsets in ([0, 5, "x"], None, "ab", [0, NAN], [0.0, 60.0])
    },
    "concatenate": lambda: ps.TokenClouds.concatenate([1, 2]),
    **{
        f"{function.__name__} of {type(value).__name__}": lambda function=function, value=value: function(value)
        for function in (ps.confusion, ps.socm, ps.worst_pairs, ps.windows, ps.intervene)
        for value in (None, "x", MATRICES, np.array(["a", "b"] * 9))
    },
    **{
        f"confusion {name} {value!r:.20}": lambda name=name, value=value: ps.confusion(CLOUDS, **{name: value})
        for name, value in [
            *(("most", value) for value in (0, -1, 1.5, "a", True)),
            *(("seed", value) for value in (-1, 1.5, "a")),
            *(("false_hits", value) for value in ("a", NAN)),
            ("groups", [None] * 12),
        ]
    },
    **{f"neighbours k {k!r}": lambda k=k: find_neighbours(VECTORS, k) for k in (0, 1.5, "a", None, True, NAN, 2**70)},
    **{f"ratios {ratios!r}": lambda ratios=ratios: ps.windows(CLOUDS, ratios=ratios) for ratios in (None, "ab", 2)},
    "loss limit": lambda: ps.windows(CLOUDS, loss_limit="a"),
    "neighbours among": lambda: find_neighbours(VECTORS, 2, among=VECTORS[:, :2]),
    "neighbours seed": lambda: find_neighbours(VECTORS, 2, seed=-1),
    **{f"workers {n!r}": lambda n=n: ps.make_engine("processes", workers=n) for n in (0, "2", 1.5, True, NAN)},
    **{f"gpus {n!r}": lambda n=n: ps.make_engine("ray", gpus=n) for n in (-1, "x", NAN)},
    **{f"metric {name!r}": lambda name=name: ps.measure_with(None, name, "nowhere") for name in ("nonsense", None, 3)},
    "layer": lambda: ps.measure_with(None, "corpus", "nowhere", layer="a"),
    "engine": lambda: ps.measure_with(3, "corpus", "nowhere"),
    "texts to encode": lambda: ps.encode_with("local", ps.as_encoder("builtin:wordllama"), ["a", "b"], "nowhere"),
    **{f"task {value!r}": lambda value=value: ps.evaluate(len, value) for value in (None, ["a", "b"], {"text": ["a"]})},
    **{
        f"texts {value!r}": lambda value=value: ps.read_texts(value)
        for value in (np.array("a text"), np.array([["a"]]))
    },
    **{
        f"{function.__name__} {name} {value!r:.20}": lambda function=function, name=name, value=value: function(
            VECTORS, **({"lengths": range(1, 21)} if function is ps.length_profile else {}), **{name: value}
        )
        for function, name in [
            *((ps.hubs, name) for name in ("k", "most", "seed")),
            *((ps.length_profile, name) for name in ("bins", "min_texts", "shuffles", "neighbours", "seed")),
        ]
        for value in ("a", -1, NAN, 10**30 if name == "bins" else [VECTORS], np.array(1.5))
    },
    **{
        f"{function.__name__} {value!r:.20}": lambda function=function, value=value: function(value)
        for function in (ps.open_clouds, ps.read_vectors, ps.CloudWriter, ps.TokenClouds)
        for value in (None, 3, b"a", MATRICES, "a\0b")
    },
    "a name that no file has": lambda: CLOUDS.save("\ud800"),
    "a function of the texts that gives a number": lambda: ps.encode(len, ["a", "b"]),
    **{
        f"model {name!r:.20}": lambda name=name: ps.audit(name, ["a b", "c"])
        for name in ("a" * 5000, "~nobody-here/model", "a\0b", "/", "")
    },
    "budget": lambda: ps.AdaptivePooling(budget="2"),
    "pairs": lambda: ps.length_report(len, ["a"], pairs=["a"]),
    "encoder": lambda: ps.encode_with("local", None, ps.read_texts(["a", "b"]), "nowhere"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_refused_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PoolscopeError) as refused:
        CALLS[name]()
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


# -- every public function, argument by argument ----------------------------------------------------------------------


class Odd:
    """Nothing that anyone asks for; were it used all the same, a list of it would be as odd."""

    def __repr__(self):
        return "Odd()"


WORDS = topics(12)
NAMES = ps.read_texts(WORDS)
TASK = RetrievalTask(WORDS[:3], WORDS[3:8], [(0, 0), (1, 1), (2, 2)])
TWO = {"X": MATRICES[0], "Y": MATRICES[1]}
# What each function needs at least; the argument in question is replaced.
LEAST = {
    "as_encoder": {"model": bag_of_words},
    "audit": {"model": bag_of_words, "texts": WORDS},
    "bake": {"model": "nowhere", "tau": 0.8},
    "best_layer": {"model": bag_of_words, "texts": WORDS},
    "bures_wasserstein": TWO,
    "check_runtime": {"runtime": bag_of_words, "reference": bag_of_words},
    "chunk_texts": {"model": bag_of_words, "texts": WORDS},
    "compare": {},
    "compare_storage": {"model": bag_of_words, "task": TASK},
    "pooling_cost": {"model": bag_of_words, "task": TASK},
    "compare_scores": {"before": [0.1, 0.2, 0.3], "after": [0.2, 0.2, 0.4]},
    "confusion": {"clouds": CLOUDS},
    "context_answers": {"model": bag_of_words, "questions": {"context": WORDS, "question": WORDS, "answer": WORDS}},
    "context_likelihood": {"model": bag_of_words, "texts": WORDS},
    "context_writing": {"model": bag_of_words, "texts": WORDS},
    "corpus_summary": {"clouds": CLOUDS},
    "correlate": {"metrics": "nowhere.csv", "scores": "nowhere.csv"},
    "encode": {"model": bag_of_words, "texts": WORDS},
    "encode_with": {"engine": "local", "encoder": ps.as_encoder(bag_of_words), "texts": NAMES, "folder": "nowhere/a"},
    "evaluate": {"model": bag_of_words, "task": TASK},
    "intervene": {"documents": CLOUDS},
    "layers": {"model": bag_of_words, "texts": WORDS},
    "length_profile": {"vectors": VECTORS, "lengths": range(1, 21)},
    "length_report": {"model": bag_of_words, "texts": WORDS},
    "make_engine": {},
    "measure_with": {"engine": "local", "metric": "corpus", "folder": "nowhere"},
    "modalities": {"model": bag_of_words, "texts": WORDS, "images": []},
    "norm_ablation": {"model": bag_of_words, "texts": WORDS},
    "norm_layout": {"model": bag_of_words},
    "open_clouds": {"path": "nowhere"},
    "pool": {"clouds": CLOUDS},
    "pooling_report": {"encoder": ps.as_encoder(bag_of_words)},
    "project_pair": TWO,
    "save_figure": {"figure": None, "path": "nowhere.html"},
    "socm": {"clouds": CLOUDS},
    "socm_pair": TWO,
    "socm_table": {"clouds": CLOUDS, "path": "nowhere/a.parquet"},
    "split_half_task": {"texts": WORDS},
    "tempscale": {"model": bag_of_words},
    "fine_grained": {"model": bag_of_words, "pairs": [FinePair("a b", "negation", "a c", {"case": "A b"})]},
    "token_matches": {"model": bag_of_words, "query": "a b", "text": "b c"},
    "token_statistics": {"model": bag_of_words, "texts": WORDS},
    "transport": {"clouds": CLOUDS},
    "truncation_report": {"clouds": CLOUDS},
    "tune": {"model": bag_of_words, "texts": WORDS},
    "inspect_model": {"model": "builtin:wordllama"},
    "verify": {"path": "nowhere"},
    "windows": {"clouds": CLOUDS},
    "worst_pairs": {"clouds": CLOUDS},
    "fix": {"found": "nowhere"},
    "permutation_floor": {"clouds": CLOUDS},
    "match_rows": {"stored": VECTORS, "encoded": VECTORS},
    "one_space": {
        "vectors": np.repeat(VECTORS, 6, axis=0),
        "texts": [f"{word} {k}" for k in range(10) for word in WORDS],
    },
    "paper": {"name": "socm", "output": "nowhere/a", "figures": ["3"]},
    **{
        name: {"vectors": VECTORS}
        for name in ("cone", "hubs", "neighbourhood", "norms", "score_distribution", "spectrum", "vector_spread")
    },
    "calibrate": {"texts": "nowhere.csv"},
    "migrate": {"old": VECTORS, "new": VECTORS, "texts": [f"text {k}" for k in range(20)]},
    "seal": {"source": VECTORS, "texts": [f"text {k}" for k in range(20)]},
    "check": {"known": "nowhere.seal"},
    "shrink": {"model": bag_of_words, "task": TASK},
    "audit_run": {"run": {"q": {"a": 1.0}}, "queries": {"q": {"a": 1}}},
    "read_run": {"source": {"q": {"a": 1.0}}},
    "run_of": {"retriever": lambda query: ["a"], "queries": ps.read_queries({"query?": ["a"]})},
    "write_index": {"place": "nowhere.txt", "vectors": np.eye(2)},
    **{name: {"source": "nowhere.csv"} for name in ("read_index", "read_pairs", "read_queries", "read_texts")},
    "read_vectors": {"path": "nowhere.npy"},
    "AdaptivePooling": {},
    "CloudBuilder": {},
    "CloudWriter": {"path": "nowhere.arrow"},
    "Endpoint": {"url": "http://127.0.0.1:9"},
    "Repair": {},
    "SocmFormula": {},
}
ODD = {
    "an object": Odd(),
    "a list of one": [Odd()],
    "a dictionary": {"zz": Odd()},
    "NaN": NAN,
    "a ragged list": [[1], [2, "a"]],
}


def test_every_public_function_is_tried():
    made = {name for name in ps.__all__ if inspect.isfunction(getattr(ps, name))}
    assert made <= set(LEAST)
    assert pickle.loads(pickle.dumps(ps.socm)) is ps.socm


@pytest.mark.parametrize("name", LEAST)
def test_no_argument_ends_in_an_error_of_python(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, raw = getattr(ps, name), []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        for words, odd in ODD.items():
            several = parameter.kind is parameter.VAR_POSITIONAL
            arguments = LEAST[name] if several else {**LEAST[name], parameter.name: odd}
            try:
                result = function(*([odd, odd] if several else []), **arguments)
                with result if name == "tempscale" else nullcontext():
                    pass
            except PoolscopeError as error:
                raw += [f"{parameter.name}, {words}: {error}"] if "\n" in str(error) else []
            except Exception as error:
                raw.append(f"{parameter.name}, {words}: {error!r}")
    assert not raw
    assert not list(tmp_path.iterdir())
