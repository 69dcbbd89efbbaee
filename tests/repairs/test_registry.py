"""The table of repairs, and a repair that a package from outside adds to it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from command_line import run
from planted import common_direction, topic_texts
from poolscope import extensions, tune
from poolscope.errors import InputError, StoreError
from poolscope.repairs import REPAIRS, Repair, register
from poolscope.repairs.registry import FAMILIES, candidates, unregister
from poolscope.repairs.vectors import MeanRemoval, VectorRepair
from tiny_models import WORDS, declare, save_model

OUTSIDE = '''
from poolscope.repairs import register
from poolscope.repairs.vectors import VectorRepair


@register
class Turned(VectorRepair):
    """Every dimension changes its sign: it changes no cosine, and nothing that is measured."""

    name = "turned"

    def _learn(self, unit):
        pass

    def _map(self, unit):
        return -unit
'''


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A package that is installed beside poolscope and brings a repair."""
    (tmp_path / "brings_a_repair.py").write_text(OUTSIDE, encoding="utf-8")
    about = tmp_path / "brings_a_repair-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: brings-a-repair\nVersion: 0.1\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(f"[{extensions.GROUP}]\ntoy = brings_a_repair\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    extensions.load_extensions.cache_clear()
    yield
    extensions.load_extensions.cache_clear()
    if "turned" in REPAIRS:
        unregister("turned")
    sys.modules.pop("brings_a_repair", None)


@pytest.mark.usefixtures("outside")
def test_a_repair_from_outside_is_tried_and_named_on_the_command_line(tmp_path):
    found = tune(common_direction, topic_texts(40), temperatures=[], poolings=[], reranked=0)
    (trial,) = (trial for trial in found.trials if trial.name == "turned")
    assert trial.family == "vectors"
    assert trial.change.mean == 0
    assert trial.after.scores.tolist() == found.chosen_on.scores.tolist()
    random = np.random.default_rng(0)
    (tmp_path / "texts.txt").write_text("\n".join(" ".join(random.choice(WORDS, 12)) for _ in range(24)))
    folder = declare(save_model(tmp_path, "Bert"))
    shown = run("tune", folder, tmp_path / "texts.txt", "--search", "turned")
    assert "turned" in shown
    assert "mean removal" not in shown
    with pytest.raises(InputError, match=r"--search colours .*reading, .*whitening, turned"):
        run("tune", folder, tmp_path / "texts.txt", "--search", "colours")


def test_its_files_need_the_package(outside, tmp_path):
    path, vectors = tmp_path / "r.safetensors", np.eye(4)[:, :3] + 1
    candidates("vectors")
    repair = Repair(vectors=REPAIRS["turned"].kind().fit(vectors))
    repair.save(path)
    np.testing.assert_allclose(Repair.load(path).finish(vectors), -Repair().finish(vectors), atol=1e-6)
    unregister("turned")
    with pytest.raises(StoreError, match=r"'turned'; .* mean removal"):
        Repair.load(path)


def test_the_table_holds_every_family_and_a_name_once():
    assert {row.family for row in REPAIRS.values()} == set(FAMILIES)
    assert all(name == row.name for name, row in REPAIRS.items())
    labels = [part.label for part in candidates("vectors")]
    assert labels[:2] == ["mean removal, project", "mean removal, subtract"]
    with pytest.raises(InputError, match="'mean removal'"):
        register(MeanRemoval)
    with pytest.raises(InputError, match="repair: received int"):
        register(int)


def test_a_repair_by_name_is_one_that_can_be_fitted():
    repair = Repair(vectors="mean removal", pooling="max")
    assert isinstance(repair.vectors, VectorRepair)
    with pytest.raises(InputError, match=r"MeanRemoval.* not fitted"):
        repair.save("nowhere.safetensors")
    with pytest.raises(InputError, match="vectors: received 'bleaching'"):
        Repair(vectors="bleaching")
