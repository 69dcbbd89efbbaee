"""The cures, by what they need: the vectors, the tokens at hand, or the model."""
