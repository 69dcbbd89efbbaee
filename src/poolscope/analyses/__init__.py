"""The analyses: each takes clouds and returns a frozen result."""
