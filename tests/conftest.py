"""What all tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory):
    """Tests neither read nor fill the user's cache of clouds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOLSCOPE_CACHE", str(tmp_path_factory.mktemp("clouds")))
        yield
