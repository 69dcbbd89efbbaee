"""Controls of the correlations over models: against regression on ranks, and with the published amounts of data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from poolscope.lab.papers import quality
from poolscope.lab.papers.models import SOCM_MODELS


def test_partial_rho_is_the_correlation_of_residuals_of_ranks():
    random = np.random.default_rng(0)
    x, y, z = random.normal(size=(3, 12))
    y = y + x + z
    design = np.column_stack([np.ones(12), stats.rankdata(z)])
    left = [r - design @ np.linalg.lstsq(design, r, rcond=None)[0] for r in map(stats.rankdata, (x, y))]
    assert quality.partial_spearman(x, y, z) == pytest.approx(np.corrcoef(*left)[0, 1])
    assert np.isnan(quality.partial_spearman(x, y, x))


def test_size_and_data_of_the_twelve_models_are_controls():
    random = np.random.default_rng(1)
    rows = [
        {
            "model": model.name,
            "dimension": 384 if "small" in model.name or "MiniLM" in model.name else 768,
            **dict(zip(quality.PREDICTORS, random.normal(size=3), strict=True)),
        }
        for model in SOCM_MODELS
    ]
    rows += [{"scored": model.hub, "aliases": "", "score": float(model.pairs)} for model in SOCM_MODELS]
    found = {row["predictor"]: row for row in quality.quality(rows, {}) if "predictor" in row}
    for trait in ("parameters", "dimension"):
        row = found[f"socm, accounting for {trait}"]
        assert row["models"] == 12
        assert row["rho_low"] <= row["rho"] <= row["rho_high"]
        assert 0 < row["p"] <= 1
    # Quality is the amount of data here: once that is accounted for, nothing is left to go with.
    assert found["socm, accounting for training pairs"]["rho"] is None


def test_a_model_without_a_known_amount_takes_the_control_away():
    rows = [{"model": f"m{k}", "dimension": 10 * (k % 2), **dict.fromkeys(quality.PREDICTORS, k**2)} for k in range(6)]
    rows += [{"scored": f"m{k}", "aliases": "", "score": float(k)} for k in range(6)]
    named = [row["predictor"] for row in quality.quality(rows, {}) if "accounting" in row.get("predictor", "")]
    assert named == [f"{name}, accounting for dimension" for name in quality.PREDICTORS]
