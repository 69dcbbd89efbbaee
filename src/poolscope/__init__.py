"""poolscope: see what pooling hides."""

__version__ = "0.1.0"
