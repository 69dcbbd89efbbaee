"""Evidence: what the numbers of poolscope have to do with the quality of models."""

from poolscope.lab.correlate.run import correlate
from poolscope.lab.correlate.study import CorrelationStudy

__all__ = ["CorrelationStudy", "correlate"]
