"""Exact Bures–Wasserstein distances of token clouds from thin factors: one pair, given pairs, all pairs."""

from poolscope.bures.pair import bures_wasserstein, nuclear_norm
from poolscope.bures.pairs import all_pairs, given_pairs

__all__ = ["all_pairs", "bures_wasserstein", "given_pairs", "nuclear_norm"]
