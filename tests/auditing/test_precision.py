"""A lower precision that was asked for is measured beside float32, and its loss is said."""

from __future__ import annotations

import pytest

from audit_data import asking, sentences
from poolscope import audit
from tiny_models import save_model as write_model


@pytest.mark.parametrize(("dtype", "notes"), [("bfloat16", 1), ("int8", 1), ("float32", 0), (None, 0)])
def test_the_loss_of_a_lower_precision_is_said(tmp_path, dtype, notes):
    folder, texts = write_model(tmp_path / "model"), sentences(30)
    found = audit(folder, texts, queries=asking(texts), encode=False, dtype=dtype)
    said = [note for note in found.notes if "float32" in note]
    assert len(said) == notes
    if said:
        cosine = float(said[0].split("cosine of ")[1].split()[0])
        assert 0.9 < cosine < 1.0
        assert "30 texts" in said[0]


def test_without_queries_the_cosine_is_said_alone(tmp_path):
    found = audit(write_model(tmp_path / "model"), ["a b", "c d"], encode=False, dtype="bfloat16")
    assert any("float32" in note and "nDCG" not in note for note in found.notes)
