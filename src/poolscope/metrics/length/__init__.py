"""How the vectors of texts change with their length, and what explains it."""
