"""poolscope: see what pooling hides.

>>> import poolscope
>>> clouds = poolscope.TokenClouds.from_arrays([[[1, 1], [1, -1]], [[1, 2], [1, -2]]])
>>> poolscope.socm(clouds)
SocmResult(all pairs: 1 pairs, mean 0.2500)

The public names stand in `__init__.pyi`, where type checkers look for them; each is imported when it is first used.
"""

from poolscope.surface import public_names

__version__ = "0.1.0"
__all__, __getattr__ = public_names(__name__, __file__)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
