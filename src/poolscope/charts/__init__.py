"""What all figures share: their look, bars of intervals, and files. A figure itself stands beside its metric."""
