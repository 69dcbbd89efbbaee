"""Stores of clouds that resume and hold any number of shards, and the cache."""
