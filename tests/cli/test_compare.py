"""The compare command through the real parser."""

from __future__ import annotations

import json
from functools import partial

import pytest

from audit_data import bag_of_words, in_a_cone, topics
from command_line import invoke
from command_line import run as run_command
from poolscope.auditing.compare import compare
from poolscope.auditing.run import audit
from poolscope.encoders import encode
from poolscope.errors import InputError
from poolscope.numbers.pooling import pool

run = partial(run_command, "compare", width=80)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    texts, folder = topics(30, words=12), tmp_path_factory.mktemp("audits")
    found = [audit(function, texts) for function in (bag_of_words, in_a_cone)]
    return [result.save(folder / str(k), page=False) for k, result in enumerate(found)]


def test_levels_and_differences_are_printed_in_words(folders):
    output = run(*folders)
    assert "in_a_cone" in output
    assert "10. What first" in output
    for row in compare(*folders).differences:
        assert row.words != row.number
        assert " ".join(row.words.split()[:2]) in output
        assert row.number not in output.split()
        assert (f"{row.difference:+.4f}" in output) or 0 < abs(row.difference) < 0.001


def test_a_number_is_one_line_of_eighty_columns_and_stands_with_its_like(folders):
    result = compare(*folders)
    lines = run(*folders).splitlines()
    assert max(map(len, lines)) <= 80
    beyond = next(k for k, line in enumerate(lines) if "differences beyond chance" in line)
    rest = next(k for k, line in enumerate(lines) if "no difference that can be told" in line)
    for row in result.differences:
        ends = "none" if row.interval is None else f"[{row.interval.low:+.4f}, {row.interval.high:+.4f}]"
        (place,) = [
            k
            for k, line in enumerate(lines)
            if line.startswith(f"  {row.words[:12]}") and ends in line and f" {row.difference:+.4f} " in line
        ]
        sure = row.interval is not None and (row.interval.low > 0 or row.interval.high < 0)
        assert (beyond < place < rest) == sure
    assert sum("paired over texts (bootstrap)" in line for line in lines) <= 2  # once above each list
    for key in ("scores", "cone", "pooling"):
        verdict = result.records[result.names[1]][key].verdict
        assert f"{verdict.level} {verdict.value:.3g}" in "\n".join(lines)


def test_different_numbers_side_by_side_are_marked(folders, tmp_path):
    """With the vectors of a runtime the third answer is a cosine, without them a share of neighbours."""
    texts = topics(30, words=12)
    vectors = pool(encode(bag_of_words, texts), "mean")
    other = audit(bag_of_words, texts, vectors=vectors).save(tmp_path / "other", page=False)
    assert "†" not in run(folders[0], folders[0])
    lines = run(folders[0], other).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if " †" in line] == ["3."]
    assert sum(line.startswith("† These audits measured") for line in lines) == 1


def test_runs_of_one_model_are_told_apart_by_their_folders(folders, tmp_path):
    again = audit(bag_of_words, topics(30, words=12), seed=1).save(tmp_path / "again", page=False)
    output = run(folders[0], again)
    assert "bag_of_words · 0" in output
    assert "bag_of_words · again" in output
    assert "setting seed 1" in output


def test_files_and_the_screen(folders, tmp_path):
    output = run(*folders, "--output", tmp_path / "c")
    assert f"written: {tmp_path / 'c'}" in output
    assert (tmp_path / "c" / "comparison.html").exists()
    run(*folders, "--output", tmp_path / "d", "--no-page")
    assert not (tmp_path / "d" / "comparison.html").exists()
    result = invoke("compare", *map(str, folders), "--json", "-")
    written = json.loads((tmp_path / "c" / "comparison.json").read_text())
    digests = {name: written.pop(name) for name in ("checksum", "files")}  # of the files, which --json does not write
    assert set(digests["files"]) == {"comparison.html"}
    assert json.loads(result.stdout) == written


def test_a_worse_audit_fails_a_build_that_asks_for_it(folders):
    told = run(*folders, "--fail-on", "worse", expect=1).splitlines()
    assert any(line.startswith("worse than bag_of_words (--fail-on worse):") for line in told)
    run(*folders)
    run(folders[0], folders[0], "--fail-on", "worse")
    with pytest.raises(InputError, match="--fail-on: received 'repair'; allowed: worse"):
        run(*folders, "--fail-on", "repair")


def test_one_audit_is_refused(folders):
    with pytest.raises(InputError, match="two or more"):
        run(folders[0])
