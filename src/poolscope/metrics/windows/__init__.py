"""Means of adjacent windows in place of tokens: what they lose, and what the loss costs a decoder."""
