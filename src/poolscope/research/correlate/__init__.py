"""Evidence: what the numbers of poolscope have to do with the quality of models.

| module               | what it knows                                                                |
|----------------------|------------------------------------------------------------------------------|
| `published.py`       | the values that the papers report, with their source                         |
| `rank_statistics.py` | Kendall's τ, partial correlations, permutation p-values, Holm, what n can see |
| `model_records.py`   | a model with its numbers; audits and tables of models from files             |
| `mteb_results.py`    | scores from a folder of MTEB results, through mteb's own loader              |
| `matching.py`        | which model of one source is which of another                                |
| `partials.py`        | partial correlations and their controls                                      |
| `run.py`             | `correlate`: every metric against every score over models                    |
| `study.py`           | `CorrelationStudy`: the result                                               |
"""

from poolscope.research.correlate.run import correlate
from poolscope.research.correlate.study import CorrelationStudy

__all__ = ["CorrelationStudy", "correlate"]
