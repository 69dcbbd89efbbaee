"""Evidence: what the numbers of poolscope have to do with the quality of models.

| module               | what it knows                                                                  |
|----------------------|--------------------------------------------------------------------------------|
| `rank_statistics.py` | Kendall's τ, partial correlations, permutation p-values, Holm, what n can see  |
| `model_records.py`   | models with their numbers from audits, tables and MTEB results; which is which |
| `study.py`           | `CorrelationStudy`: the result, its table and its figure                       |
| `run.py`             | `correlate`: every metric against every score over models, and the partials    |
"""

from poolscope.research.correlate.run import correlate
from poolscope.research.correlate.study import CorrelationStudy

__all__ = ["CorrelationStudy", "correlate"]
