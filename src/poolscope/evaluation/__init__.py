"""Is it better after the repair? Tasks with and without labels, their scores per query, and paired differences.

| module          | what it knows                                                                    |
|-----------------|----------------------------------------------------------------------------------|
| `scores.py`     | `Evaluation` and `Difference`: a score with its interval, two of them compared   |
| `statistics.py` | mean, Spearman's ρ and v-measure, and how their intervals are made               |
| `tasks.py`      | retrieval and similarity, from vectors to an `Evaluation`; two halves of a task  |
| `labelled_tasks.py` | classification and clustering                                                |
| `probes.py`     | logistic regression and k-means, on scipy alone                                  |
| `label_free.py` | split-half self-retrieval, and summary → body of the built-in corpus             |
| `reading.py`    | tasks from local files                                                           |
| `run.py`        | `evaluate(model, task)`                                                          |
"""

from __future__ import annotations

from poolscope.evaluation.label_free import Halves, split_half, split_half_task, summary_body_task
from poolscope.evaluation.labelled_tasks import ClassificationTask, ClusteringTask
from poolscope.evaluation.reading import read_task
from poolscope.evaluation.run import evaluate
from poolscope.evaluation.scores import Difference, Evaluation, compare_scores
from poolscope.evaluation.tasks import RetrievalTask, Side, SimilarityTask, Task

__all__ = [
    "ClassificationTask",
    "ClusteringTask",
    "Difference",
    "Evaluation",
    "Halves",
    "RetrievalTask",
    "Side",
    "SimilarityTask",
    "Task",
    "compare_scores",
    "evaluate",
    "read_task",
    "split_half",
    "split_half_task",
    "summary_body_task",
]
