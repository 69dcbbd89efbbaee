"""Published experiments from data to tables and figures, as far as models and texts can be reached.

| module               | what it knows                                                                     |
|----------------------|-----------------------------------------------------------------------------------|
| `experiment.py`      | models and texts, what could not be reached, the folder: whole or not at all      |
| `socm_paper.py`      | SOCM of 12 models on three sets of pairs, exact and as published                  |
| `length_collapse.py` | symptoms by length, σₐ by length and τ, the temperature grid                      |
| `norm_variance.py`   | norm and variance of token embeddings by layer                                    |
"""
