"""Many models on the same texts, and what they say of the papers' claims and of the thresholds."""
