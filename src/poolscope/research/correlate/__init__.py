"""Evidence: what the numbers of poolscope have to do with the quality of models."""

from poolscope.research.correlate.run import correlate
from poolscope.research.correlate.study import CorrelationStudy

__all__ = ["CorrelationStudy", "correlate"]
