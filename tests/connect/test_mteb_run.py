"""A benchmark of mteb over a list of models: scores, going on after a stop, what fails."""

from __future__ import annotations

import json
import warnings

import pytest

from command_line import invoke
from poolscope.connect import mteb_run
from poolscope.errors import InputError
from tiny_models import TEXTS, declare, save_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other people's imports
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

pytestmark = pytest.mark.filterwarnings("ignore")  # mteb and datasets warn about themselves

FIRST = [*TEXTS, "the blue cat ran", "a slow red tree"]
SECOND = [*reversed(TEXTS), "the blue dog ran", "the fast blue dog sat"]
GOLD = [5.0, 1.0, 2.0, 0.5, 3.0, 4.0, 1.5]
RUN: list[str] = []


def task(name, gold, *, broken=False):
    class Local(AbsTaskSTS):
        metadata = TaskMetadata(
            dataset={"path": "memory/nothing", "revision": "1"},
            name=name,
            description="texts in memory",
            type="STS",
            category="t2t",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
        )

        def load_data(self, num_proc=None, **kwargs):
            RUN.append(name)
            if broken:
                raise OSError("no such data")
            table = datasets.Dataset.from_dict({"sentence1": FIRST, "sentence2": SECOND, "score": gold})
            self.dataset, self.data_loaded = datasets.DatasetDict(test=table), True

    return Local()


@pytest.fixture
def tasks():
    RUN.clear()
    return [task("LocalA", GOLD), task("LocalB", GOLD[::-1])]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {f"mine/m{k}": str(declare(save_model(folder / f"m{k}", "Bert", seed=k))) for k in (1, 2)}


def by_hand(folder, gold):
    from scipy.stats import spearmanr

    from poolscope.repairs.repair_file import Repair

    model = Repair().apply(folder)
    return 100 * spearmanr((model.encode(FIRST) * model.encode(SECOND)).sum(axis=1), gold).statistic


def test_scores_are_those_of_the_vectors(models, tasks, tmp_path):
    result = mteb_run.run_benchmark(models, tasks, tmp_path)
    found = {(row["model"], row["task"]): row["score"] for row in result.scores}
    for name, folder in models.items():
        assert found[name, "LocalA"] == pytest.approx(by_hand(folder, GOLD), abs=1e-4)
        assert found[name, "LocalB"] == pytest.approx(by_hand(folder, GOLD[::-1]), abs=1e-4)
    (first, _) = result.means()
    assert first["mean_of_tasks"] == pytest.approx((found["mine/m1", "LocalA"] + found["mine/m1", "LocalB"]) / 2)


@pytest.mark.parametrize("after", range(4))
def test_a_stopped_run_goes_on_with_the_next_task(after, models, tasks, tmp_path):
    class Stop(BaseException):
        pass

    said = []

    def say(line):
        said.append(line)
        if len(said) > after:
            raise Stop

    with pytest.raises(Stop):
        mteb_run.run_benchmark(models, tasks, tmp_path, say=say)
    assert len(list(tmp_path.rglob("Local?.json"))) == after
    lines: list[str] = []
    result = mteb_run.run_benchmark(models, tasks, tmp_path, say=lines.append)
    assert [line.endswith("kept") for line in lines] == [number < after for number in range(4)]
    assert len(result.scores) == 4


def test_the_folder_is_what_the_papers_read(models, tasks, tmp_path):
    from poolscope.lab.correlate.model_records import read_scores

    result = mteb_run.run_benchmark(models, tasks, tmp_path)
    records = {record.name: record.numbers for record in read_scores(str(tmp_path)).records}
    assert set(records) == set(models)
    for row in result.scores:
        assert 100 * records[row["model"]][row["task"]] == pytest.approx(
            row["score"], abs=0.01
        )  # files have rounded scores


def test_what_fails_leaves_the_others(models, tmp_path):
    tasks = [task("LocalBad", GOLD, broken=True), task("LocalA", GOLD)]
    result = mteb_run.run_benchmark({"no/such": str(tmp_path / "none"), **models}, tasks, tmp_path / "out")
    assert {row["task"] for row in result.scores} == {"LocalA"}
    assert len(result.failed) == 3
    assert "no such data" in result.failed[1]


def test_the_command(models, tasks, tmp_path, monkeypatch):
    monkeypatch.setattr(mteb_run, "benchmark_tasks", lambda name, chosen: tasks)
    given = [f"{name}={folder}" for name, folder in models.items()]
    ran = invoke("lab", "mteb", *given, "-o", str(tmp_path / "out"), "--json", str(tmp_path / "x.json"))
    assert ran.exit_code == 0, ran.output
    assert len(json.loads((tmp_path / "x.json").read_text())["scores"]) == 4


def test_the_benchmark_of_the_paper_and_unknown_names():
    tasks = mteb_run.benchmark_tasks(None)
    assert len(tasks) == 41
    (one,) = mteb_run.benchmark_tasks(None, ["STS12"])
    assert one.metadata.name == "STS12"
    with pytest.raises(InputError, match="--task STS99"):
        mteb_run.benchmark_tasks(None, ["STS99"])
    with pytest.raises(InputError, match="--benchmark nothing"):
        mteb_run.benchmark_tasks("nothing")
