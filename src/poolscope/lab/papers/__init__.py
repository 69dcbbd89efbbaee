"""The papers, figure by figure: what they publish, what is measured beside it, and what that needs."""
