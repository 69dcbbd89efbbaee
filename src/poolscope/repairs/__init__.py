"""Repairs: attention temperature for any transformer, and what is done to vectors after the model.

`tempscale` and `bake` are at the root (`poolscope.tempscale`). The names here stand in `__init__.pyi`; each is imported
when it is first used.
"""

from poolscope.surface import public_names

__all__, __getattr__ = public_names(__name__, __file__)
