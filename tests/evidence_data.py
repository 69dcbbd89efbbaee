"""Files as `poolscope audit` and mteb write them, for tests."""

from __future__ import annotations

import json


def audit(path, name, numbers, *, corpus="same", **card):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"model": {"name": name, **card}, **_numbers(numbers), "corpus": {"digest": corpus}}),
        encoding="utf-8",
    )
    return path


def _numbers(numbers):
    """Numbers where an audit keeps them: of the search, and of each cause."""
    quality = {name: {"value": None} for name in ("found", "relevant_found", "ndcg", "recall", "mrr")}
    return quality | {"findings": [{"cause": name, "number": {"value": value}} for name, value in numbers.items()]}


def mteb_result(root, model, revision, task, score, *, version="2.1.0", splits=("test",)):
    """A file as the published results hold it."""
    folder = root / "results" / model.replace("/", "__") / revision
    folder.mkdir(parents=True, exist_ok=True)
    scores = {
        split: [{"main_score": score + k, "hf_subset": "default", "languages": ["eng-Latn"]}]
        for k, split in enumerate(splits)
    }
    content = {"dataset_revision": "0" * 40, "task_name": task, "mteb_version": version, "scores": scores}
    content |= {"evaluation_time": 2.0, "kg_co2_emissions": None}
    (folder / f"{task}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder
