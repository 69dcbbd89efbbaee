"""The compare command through the real parser."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from audit_data import bag_of_words, in_a_cone, topics
from poolscope.audit.compare import compare
from poolscope.audit.run import audit
from poolscope.cli import app
from poolscope.errors import InputError, PoolscopeError

RUNNER = CliRunner()


def run(*arguments: object) -> str:
    result = RUNNER.invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "200"})
    if isinstance(result.exception, PoolscopeError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    texts, folder = topics(30, words=12), tmp_path_factory.mktemp("audits")
    found = [audit(function, texts) for function in (bag_of_words, in_a_cone)]
    return [result.save(folder / str(k), page=False) for k, result in enumerate(found)]


def test_levels_and_differences_are_printed(folders):
    output = run(*folders)
    assert "in_a_cone" in output
    assert "10. What first" in output
    for row in compare(*folders).differences:
        assert row.number in output
        assert f"{row.difference:+.4f}" in output


def test_files_and_the_screen(folders, tmp_path):
    output = run(*folders, "--output", tmp_path / "c")
    assert f"written: {tmp_path / 'c'}" in output
    assert (tmp_path / "c" / "comparison.html").exists()
    run(*folders, "--output", tmp_path / "d", "--no-page")
    assert not (tmp_path / "d" / "comparison.html").exists()
    result = RUNNER.invoke(app, ["compare", *map(str, folders), "--json", "-"])
    assert json.loads(result.stdout) == json.loads((tmp_path / "c" / "comparison.json").read_text())


def test_one_audit_is_refused(folders):
    with pytest.raises(InputError, match="two or more"):
        run(folders[0])
