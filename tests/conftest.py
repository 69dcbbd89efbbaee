"""What all tests share."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import poolscope
from poolscope.numbers.bures import native

# The same examples on every machine; `make soak` looks for others (HYPOTHESIS_PROFILE=anew). No test may depend on
# speed: an example has no deadline, and may be drawn slowly.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("anew", settings.get_profile("same"), derandomize=False)
# ranx compiles for 20 seconds otherwise; said before whatever imports numba first.
os.environ["NUMBA_DISABLE_JIT"] = "1"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# What takes longest goes out first, so that no worker is left alone with it: whole files, and tests that share nothing
# with others of their file, each by itself.
_LONG = (
    "tests/test_docs.py::test_blocks_run",
    "tests/test_notebooks.py::test_it_is_kept",
    "tests/test_docs.py",
    "tests/stores/test_store_writer.py",
    "tests/clouds/test_cloud_writers.py",
    "tests/test_writers_of_folders.py",
    "tests/test_damage.py",
)

_ALONE = tuple(long for long in _LONG if "::" in long)

_SOURCES = Path(__file__).resolve().parents[1] / "src"


def pytest_configure() -> None:
    """Tests of one checkout on the code and the pages of another tell nothing of either."""
    imported = Path(poolscope.__file__).resolve().parents[1]
    if imported != _SOURCES and (imported.parent / "pyproject.toml").is_file():
        pytest.exit(f"poolscope is imported from {imported}, these tests are of {_SOURCES}. Unset PYTHONPATH.", 2)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whole files to each worker, as `--dist loadfile` has it, but for long tests that share nothing."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LongFirst(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith(_ALONE) else str(super()._split_scope(nodeid))

    config.option.loadscopereorder = False
    return LongFirst(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a worker: first what takes longest, then the files of most tests."""
    if hasattr(config, "workerinput"):
        tests = Counter(item.nodeid.split("::")[0] for item in items)
        items.sort(key=lambda item: (_place(item.nodeid), -tests[item.nodeid.split("::")[0]]))


def _place(nodeid: str) -> int:
    return next((place for place, long in enumerate(_LONG) if nodeid.startswith(long)), len(_LONG))


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory):
    """Tests neither read nor fill the user's cache of clouds, nor the notes on models that were opened."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOLSCOPE_CACHE", str(tmp_path_factory.mktemp("clouds")))
        notes = tmp_path_factory.mktemp("notes")
        patch.setattr("poolscope.encoders.opened.user_cache_folder", lambda: notes)
        yield


@pytest.fixture(params=["compiled", "numpy"])
def route(request, monkeypatch):
    """Both routes of the all-pairs kernel."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "kernel", lambda: None)
    else:
        require_kernel()
    return request.param


@pytest.fixture
def compiled() -> None:
    """For tests of the compiled kernel alone."""
    require_kernel()


def require_kernel() -> None:
    """A folder that has lost its kernel fails the tests of it: a skip would hide that everything became slow."""
    if os.environ.get("POOLSCOPE_KERNEL") == "numpy":
        pytest.skip("POOLSCOPE_KERNEL=numpy: the compiled kernel is left out on purpose")
    if native.kernel() is None:
        pytest.fail(f"{native.route()}. Build it: python -m pip install --editable . (with gcc or clang on the path)")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What a developer may lack, continuous integration must have: there a test skipped for it is a failure."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or not os.environ.get("CI"):
        return
    lacking = [str(report.longrepr) for report in terminal.stats.get("skipped", [])]
    if lacking:
        terminal.write_line("skipped, and that is not allowed here:", red=True)
        for reason in lacking:
            terminal.write_line(f"  {reason}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
