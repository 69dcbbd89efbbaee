"""Exact Bures–Wasserstein distances of token clouds from thin factors: one pair, given pairs, all pairs."""

from poolscope.numbers.bures.distances import bures_wasserstein, nuclear_norm
from poolscope.numbers.bures.pairs import all_pairs, given_pairs

__all__ = ["all_pairs", "bures_wasserstein", "given_pairs", "nuclear_norm"]
