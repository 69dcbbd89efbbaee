"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

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

_SOURCES = Path(__file__).resolve().parents[1] / "src"


def pytest_configure() -> None:
    """Tests of one checkout on the code and the pages of another tell nothing of either."""
    imported = Path(poolscope.__file__).resolve().parents[1]
    if imported != _SOURCES and (imported.parent / "pyproject.toml").is_file():
        pytest.exit(f"poolscope is imported from {imported}, these tests are of {_SOURCES}. Unset PYTHONPATH.", 2)


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
