"""Is it better after the repair? Tasks with and without labels, their scores per query, and paired differences."""

from __future__ import annotations

from poolscope.evaluation.lists import RerankingTask as RerankingTask
from poolscope.evaluation.lists import SeveralSets as SeveralSets
from poolscope.evaluation.lists import SummaryTask as SummaryTask
from poolscope.evaluation.reading import Halves as Halves
from poolscope.evaluation.reading import query_task as query_task
from poolscope.evaluation.reading import read_task as read_task
from poolscope.evaluation.reading import split_half as split_half
from poolscope.evaluation.reading import split_half_task as split_half_task
from poolscope.evaluation.reading import summary_body_task as summary_body_task
from poolscope.evaluation.run import evaluate as evaluate
from poolscope.evaluation.scores import Difference as Difference
from poolscope.evaluation.scores import Evaluation as Evaluation
from poolscope.evaluation.scores import Trial as Trial
from poolscope.evaluation.scores import compare_scores as compare_scores
from poolscope.evaluation.tasks import ClassificationTask as ClassificationTask
from poolscope.evaluation.tasks import ClusteringTask as ClusteringTask
from poolscope.evaluation.tasks import RetrievalTask as RetrievalTask
from poolscope.evaluation.tasks import Side as Side
from poolscope.evaluation.tasks import SimilarityTask as SimilarityTask
from poolscope.evaluation.tasks import Task as Task
