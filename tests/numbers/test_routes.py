"""What is promised of distances on every machine: core types of the BLAS, copies of the kernel, threads, blocks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product

import numpy as np
import pytest

from cloud_data import assert_within_bounds, by_pair_with_error, dense_distances, dense_singular, random_clouds
from poolscope.clouds import TokenClouds
from poolscope.numbers.bures import all_pairs, native

LENGTHS = [1, 2, 3, 5, 8, 9, 13, 21, 30, 7, 7, 40, 12, 25, 17, 2] * 2
DIMENSION = 20  # some texts have more tokens than dimensions
SUMMARY = """
import hashlib, json, sys
import numpy as np
from poolscope import TokenClouds, socm
from poolscope.numbers.bures import all_pairs, distances, native, pairs
tokens, lengths = np.load(sys.argv[1]), json.loads(sys.argv[2])
clouds = TokenClouds.from_arrays(np.split(tokens, np.cumsum(lengths)[:-1]))
def values(eps=0.0):
    pieces = list(all_pairs(clouds, eps=eps))
    columns = ("i", "j", "mean_distance", "bures", "trace_sum", "overlap", "error")
    return {name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in columns}
digests = []
for cores in (1, 2):
    pairs.available_cores = lambda: cores
    digest, exact, published = hashlib.sha256(), values(), values(eps=1e-9)
    usual, distances._FULL = distances._FULL, 0.0
    grouped, distances._FULL = values(), usual
    for column in (*exact.values(), *published.values(), *grouped.values()):
        digest.update(column.tobytes())
    for result in (socm(clouds), socm(clouds, pairs=50), socm(clouds, neighbours=3)):
        digest.update(json.dumps([*result.to_dict()["interval"].values(), result.mean]).encode())
        digest.update(result.pairs.socm.tobytes())
    digests.append(digest.hexdigest())
columns = {name: column.tolist() for name, column in exact.items()} | {"grouped": grouped["bures"].tolist()}
order = np.lexsort((published["j"], published["i"]))
columns["published"] = published["bures"][order].tolist()
print(json.dumps({"route": native.route(), "digests": digests, "columns": columns}))
"""


@pytest.fixture(scope="module")
def clouds() -> TokenClouds:
    return random_clouds(11, LENGTHS, DIMENSION, dtype="float32")


@pytest.fixture(scope="module")
def summaries(clouds, tmp_path_factory) -> dict[tuple[str, str, int], dict]:
    """The same distances from a process a core type, copy of the kernel and number of BLAS threads."""
    path = tmp_path_factory.mktemp("routes") / "tokens.npy"
    np.save(path, np.concatenate(list(clouds)))
    wanted = [(core, kernel, 1) for core, kernel in product(core_types(), runnable_routes())]
    wanted.append((wanted[0][0], wanted[0][1], 2))
    results = {}
    for core, kernel, threads in wanted:
        environment = {"OPENBLAS_CORETYPE": core, "POOLSCOPE_KERNEL": kernel, "OMP_NUM_THREADS": str(threads)}
        run = subprocess.run(
            [sys.executable, "-c", SUMMARY, str(path), json.dumps(LENGTHS)],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        results[core, kernel, threads] = json.loads(run.stdout)
    return results


def core_types() -> list[str]:
    """Families of float32 products that OpenBLAS has and this CPU can run; other libraries ignore the names."""
    wide = native.kernel() is not None and native.runnable_copies()[-1] == "v4"
    return ["Haswell", "Nehalem", *(["SkylakeX"] if wide else ["Sandybridge"])]


def runnable_routes() -> list[str]:
    return [*native.runnable_copies(), "numpy"]


def test_every_route_was_really_taken(summaries):
    for (_, kernel, _), summary in summaries.items():
        assert kernel in summary["route"]


def test_threads_do_not_change_a_byte(summaries):
    for summary in summaries.values():
        assert len(set(summary["digests"])) == 1
    one, two = (next(s for key, s in summaries.items() if key[2] == threads) for threads in (1, 2))
    assert one["digests"] == two["digests"]


def test_every_route_is_within_a_millionth_of_float64(clouds, summaries):
    reference, published = {}, {}
    for key, summary in summaries.items():
        columns = summary["columns"]
        order = np.lexsort((columns["j"], columns["i"]))
        rows = list(zip(*(np.array(columns[name])[order] for name in ("i", "j", "bures", "grouped")), strict=True))
        if not reference:
            for i, j, *_ in rows:
                reference[i, j] = dense_singular(clouds[int(i)].astype(float), clouds[int(j)].astype(float))
                published[i, j] = dense_distances(clouds[int(i)], clouds[int(j)], eps=1e-9)[1]
        assert len(rows) == len(LENGTHS) * (len(LENGTHS) - 1) // 2
        for (i, j, *both), with_eps in zip(rows, columns["published"], strict=True):
            assert np.array(both) / 4 == pytest.approx(reference[i, j], abs=1e-6), key
            assert with_eps / 4 == pytest.approx(published[i, j], abs=1e-6), key


def test_routes_differ_by_no_more_than_the_bound_of_their_error(summaries):
    first, *others = (summary["columns"] for summary in summaries.values())
    for columns in others:
        assert (columns["i"], columns["j"]) == (first["i"], first["j"])
        for name in ("mean_distance", "trace_sum"):
            assert columns[name] == pytest.approx(first[name], abs=1e-12)
        moved = np.abs(np.subtract(columns["bures"], first["bures"]))
        assert (moved <= np.array(first["error"])).all()


def test_blocks_and_tiles_move_distances_by_no_more_than_their_bound(route, clouds):
    reference = by_pair_with_error(all_pairs(clouds))
    for tile_bytes in (6_000, 2**20):
        small = by_pair_with_error(all_pairs(clouds, tile_bytes=tile_bytes, block=(17, 40)))
        assert_within_bounds(small, reference)


@pytest.mark.parametrize(("choice", "message"), [("v5", "default, v3, v4 and numpy"), ("V3", "received 'V3'")])
def test_a_kernel_that_does_not_exist_is_refused(choice, message):
    run = subprocess.run(
        [sys.executable, "-c", "from poolscope.numbers.bures import native; native.route()"],
        env=os.environ | {"POOLSCOPE_KERNEL": choice},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert message in run.stderr


def test_the_slow_route_is_said_once(monkeypatch, caplog):
    missing = native.Route(None, "numpy (no compiled kernel: no reason)")
    monkeypatch.setattr(native, "_route", lambda: missing)
    native.warn_of_slow_route.cache_clear()
    with pytest.warns(UserWarning, match=r"numpy \(no compiled"):
        list(all_pairs(random_clouds(0, [2, 3], 4)))
    list(all_pairs(random_clouds(0, [2, 3], 4)))  # a second warning would be an error
    monkeypatch.setattr(native, "_route", lambda: missing._replace(chosen=True))
    native.warn_of_slow_route.cache_clear()
    assert not caplog.messages
    for _ in range(2):
        list(all_pairs(random_clouds(0, [2, 3], 4)))
    (message,) = caplog.messages
    assert "numpy" in message


@pytest.mark.skipif(not native.runnable_copies(), reason="there is no kernel here")
def test_a_library_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(native, "LANES", native.LANES + 1)
    library, problem = native._library.__wrapped__()
    assert library is None
    assert "or version" in problem
