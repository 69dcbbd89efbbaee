"""Arguments of another type, not a number, or out of range, in Python: each is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest

import poolscope as ps
from poolscope.errors import PoolscopeError
from poolscope.numbers.neighbours import find_neighbours

RANDOM = np.random.default_rng(0)
MATRICES = [RANDOM.normal(size=(5, 4)) for _ in range(12)]
CLOUDS = ps.TokenClouds.from_arrays(MATRICES)
VECTORS = RANDOM.normal(size=(20, 3))
NAN = float("nan")

CALLS = {
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
