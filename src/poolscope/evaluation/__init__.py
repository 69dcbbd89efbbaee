"""Is it better after the repair? Tasks with and without labels, their scores per query, and paired differences."""

from __future__ import annotations

from poolscope.evaluation.reading import Halves, query_task, read_task, split_half, split_half_task, summary_body_task
from poolscope.evaluation.run import evaluate
from poolscope.evaluation.scores import Difference, Evaluation, Trial, compare_scores
from poolscope.evaluation.tasks import (
    ClassificationTask,
    ClusteringTask,
    RetrievalTask,
    Side,
    SimilarityTask,
    Task,
)

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
    "Trial",
    "compare_scores",
    "evaluate",
    "query_task",
    "read_task",
    "split_half",
    "split_half_task",
    "summary_body_task",
]
