"""Where models that poolscope 0.1 saved look for their first module; it stands with the temperatures now."""

from poolscope.repairs.temperature.module import TempScaledTransformer

__all__ = ["TempScaledTransformer"]
