"""The papers, figure by figure: published values, our measurements beside them, and their requirements."""
