"""Norm and variance of token types, layer by layer."""
