"""Attention temperature: rules, a way in and out of a model, and weights that have it baked in."""
