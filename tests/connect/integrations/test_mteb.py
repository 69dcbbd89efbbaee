"""Models as mteb encoders, in tasks that lie in memory."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from poolscope.errors import InputError
from poolscope.repairs.repair_file import Repair
from poolscope.repairs.vectors import MeanRemoval
from tiny_models import TEXTS, declare, save_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other people's imports
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    from mteb.abstasks import AbsTaskClassification, AbsTaskClustering, AbsTaskRetrieval
    from mteb.abstasks.pair_classification import AbsTaskPairClassification
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    from poolscope.connect.integrations.mteb import mteb_model

pytestmark = pytest.mark.filterwarnings("ignore")  # mteb and datasets warn about themselves

FIRST = [*TEXTS, "the blue cat ran", "a slow red tree"]
SECOND = [*reversed(TEXTS), "the blue dog ran", "the fast blue dog sat"]
GOLD = [5.0, 1.0, 2.0, 0.5, 3.0, 4.0, 1.5]


def metadata(name: str, kind: str, score: str) -> TaskMetadata:
    return TaskMetadata(
        dataset={"path": "memory/nothing", "revision": "1"},
        name=name,
        description="texts in memory",
        type=kind,
        category="t2t",
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score=score,
    )


class Similarity(AbsTaskSTS):
    metadata = metadata("MemorySTS", "STS", "cosine_spearman")

    def load_data(self, num_proc=None, **kwargs):
        table = datasets.Dataset.from_dict({"sentence1": FIRST, "sentence2": SECOND, "score": GOLD})
        self.dataset, self.data_loaded = datasets.DatasetDict(test=table), True


class Retrieval(AbsTaskRetrieval):
    metadata = metadata("MemoryRetrieval", "Retrieval", "ndcg_at_10")

    def load_data(self, num_proc=None, **kwargs):
        ids = [str(k) for k in range(len(FIRST))]
        corpus = datasets.Dataset.from_dict({"id": ids, "text": FIRST, "title": [""] * len(ids)})
        queries = datasets.Dataset.from_dict({"id": ids, "text": SECOND})
        split = {"corpus": corpus, "queries": queries, "relevant_docs": {k: {k: 1} for k in ids}, "top_ranked": None}
        self.dataset, self.data_loaded = {"default": {"test": split}}, True


class Classification(AbsTaskClassification):
    metadata = metadata("MemoryClassification", "Classification", "accuracy")
    samples_per_label, n_experiments = 2, 3

    def load_data(self, num_proc=None, **kwargs):
        table = datasets.Dataset.from_dict({"text": FIRST, "label": [k % 2 for k in range(len(FIRST))]})
        self.dataset, self.data_loaded = datasets.DatasetDict(train=table, test=table), True


class Clustering(AbsTaskClustering):
    metadata = metadata("MemoryClustering", "Clustering", "v_measure")
    max_fraction_of_documents_to_embed, max_document_to_embed, n_clusters = None, None, 2

    def load_data(self, num_proc=None, **kwargs):
        texts = [*FIRST, *SECOND]
        table = datasets.Dataset.from_dict({"sentences": texts, "labels": [k % 3 for k in range(len(texts))]})
        self.dataset, self.data_loaded = datasets.DatasetDict(test=table), True


class PairClassification(AbsTaskPairClassification):
    metadata = metadata("MemoryPairs", "PairClassification", "max_ap")

    def load_data(self, num_proc=None, **kwargs):
        labels = [k % 2 for k in range(len(FIRST))]
        table = datasets.Dataset.from_dict({"sentence1": FIRST, "sentence2": SECOND, "labels": labels})
        self.dataset, self.data_loaded = datasets.DatasetDict(test=table), True


TASKS = (Similarity, Retrieval, Classification, Clustering, PairClassification)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    prompts = {"query": "query : ", "document": "passage : "}
    return declare(save_model(tmp_path_factory.mktemp("model"), "Bert"), prompts=prompts)


def main_score(model, task) -> float:
    return mteb.evaluate(model, [task], cache=None).task_results[0].scores["test"][0]["main_score"]


@pytest.mark.parametrize("repair", [Repair(), Repair(0.3), Repair(0.3, "cls")], ids=repr)
def test_similarity_is_that_of_the_repaired_vectors(repair, folder):
    from scipy.stats import spearmanr

    model = repair.apply(str(folder))
    cosines = (model.encode(FIRST) * model.encode(SECOND)).sum(axis=1)
    found = main_score(mteb_model(str(folder), repair), Similarity())
    assert found == pytest.approx(spearmanr(cosines, GOLD).statistic, abs=1e-6)


def test_retrieval_uses_the_prompts_of_the_roles(folder):
    from poolscope.evaluation import RetrievalTask, evaluate

    repair = Repair(vectors=MeanRemoval().fit(Repair().apply(str(folder)).encode([*FIRST, *SECOND])))
    own = RetrievalTask(SECOND, FIRST, np.stack([np.arange(7), np.arange(7)], axis=1))
    expected = evaluate(repair.apply(str(folder)), own).value
    assert main_score(mteb_model(str(folder), repair), Retrieval()) == pytest.approx(expected, abs=1e-5)


def test_results_of_a_repair_lie_beside_those_of_the_model(folder, tmp_path):
    plain, scaled = mteb_model(str(folder), name="mine/tiny"), mteb_model(str(folder), Repair(0.5), name="mine/tiny")
    assert plain.mteb_model_meta.name == "mine/tiny"
    assert plain.mteb_model_meta.embed_dim == 16
    assert plain.mteb_model_meta.experiment_name is None
    assert scaled.mteb_model_meta.experiment_name.startswith("repair_tau-0.5-")
    cache = mteb.ResultCache(tmp_path)
    for model in (plain, scaled):
        mteb.evaluate(model, [Similarity()], cache=cache)
    stored = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("MemorySTS.json"))
    assert len(stored) == 2
    assert sum("tau-0.5" in path for path in stored) == 1


@pytest.mark.parametrize("task", TASKS)
def test_scores_are_those_of_the_model_in_sentence_transformers(task, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    prompts = {"query": "query : ", "document": "passage : "}
    folder = declare(save_model(tmp_path / "model", "Bert"), prompts=prompts, after=["Normalize"])
    plain = library.SentenceTransformer(str(folder), device="cpu")
    # mteb asks sentence-transformers for prompts of tasks; our wrapper uses those that the model declares, by role.
    expected = main_score(plain, task()) if task is Retrieval else main_score(without_prompts(plain), task())
    found = mteb.evaluate(mteb_model(str(folder), name="mine/tiny"), [task()], cache=mteb.ResultCache(tmp_path))
    assert found.task_results[0].scores["test"][0]["main_score"] == pytest.approx(expected, abs=1e-5)
    (stored,) = tmp_path.rglob(f"{task.metadata.name}.json")
    assert mteb.TaskResult.from_disk(stored).scores["test"][0]["main_score"] == pytest.approx(expected, abs=1e-5)


def without_prompts(model):
    model.prompts = {}
    return model


def experiment(*arguments, **options) -> str | None:
    return mteb_model(*arguments, **options).mteb_model_meta.experiment_name


def test_results_of_two_fits_or_two_options_lie_apart(folder, tmp_path):
    vectors = Repair().apply(str(folder)).encode([*FIRST, *SECOND])
    fits = [Repair(vectors=MeanRemoval().fit(part)) for part in (vectors[:7], vectors[7:], vectors[:7])]
    assert len({fit.label for fit in fits}) == 1
    first, second, same = (experiment(str(folder), fit) for fit in fits)
    assert first != second
    assert first == same
    fits[0].save(tmp_path / "repair.safetensors")
    assert experiment(str(folder), str(tmp_path / "repair.safetensors")) == first
    assert len({experiment(str(folder), fits[0], **o) for o in ({}, {"max_length": 5}, {"prompt": "query : "})}) == 3
    assert experiment(str(folder)) is None
    assert experiment(str(folder), max_length=5).startswith("repair_as-it-is-")
    assert experiment(str(folder), batch_tokens=64) is None  # changes no vector


def test_functions_are_told_apart_or_refused(folder):
    def model(scale):
        return lambda texts: [np.array([[scale, len(text), 1.0]]) for text in texts]

    revisions = [mteb_model(model(scale)).mteb_model_meta.revision for scale in (1.0, 2.0, 1.0)]
    assert revisions[0] == revisions[2] != revisions[1]
    with pytest.raises(InputError, match=r"tau: .*function"):
        mteb_model(str(folder), Repair(lambda length: 0.5))


def test_a_repair_from_its_file(folder, tmp_path):
    Repair(0.5).save(tmp_path / "repair.safetensors")
    model = mteb_model(str(folder), str(tmp_path / "repair.safetensors"))
    assert model.model.repair.label == "τ 0.5"
    assert model.mteb_model_meta.name.count("/") == 1


def test_a_rule_kept_by_role_reaches_queries_and_documents(tmp_path):
    library = pytest.importorskip("sentence_transformers")
    from poolscope.repairs import ByRole, keep_rule

    plain = library.SentenceTransformer(str(declare(save_model(tmp_path / "plain"))), device="cpu")
    keep_rule(plain, ByRole(query=1.0, document=0.5))
    plain.save_pretrained(str(tmp_path / "kept"))
    model = mteb_model(str(tmp_path / "kept"))
    assert model.mteb_model_meta.embed_dim == 16
    for kind, own in (
        (mteb.types.PromptType.query, plain.encode_query),
        (mteb.types.PromptType.document, plain.encode_document),
    ):
        found = model.encode([{"text": TEXTS}], task_metadata=None, hf_split="", hf_subset="", prompt_type=kind)
        expected = own(TEXTS)
        np.testing.assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5)
