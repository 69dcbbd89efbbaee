"""What the papers report, as data: to set beside one's own numbers.

The average SOCM of 12 models is from Hara et al. 2026 (arXiv 2604.27398), computed with eps = 1e-9 added to the
diagonals: `wiki` over all 499,500 pairs of 1,000 Wikipedia sentences, `marco` likewise over MS MARCO passages, `hard`
over 50,000 pairs of a query and a hard negative. The averages over 40 data sets with and without a temperature are from
the work on length collapse by Zhou et al. (ACL 2025, arXiv 2410.24200).
"""

from __future__ import annotations

from dataclasses import dataclass

SOCM_PAPER = "Hara et al. 2026, arXiv 2604.27398"
LENGTH_PAPER = "Zhou et al., ACL 2025, arXiv 2410.24200"
NORM_PAPER = "Yamagiwa and Shimodaira, arXiv 2409.11253"
EPS = 1e-9
PAIR_SETS = ("wiki", "marco", "hard")


@dataclass(frozen=True)
class PublishedModel:
    """One row of the table: the model, the family (its backbone), the backbone it was tuned from, the averages."""

    name: str
    family: str
    parent: str | None
    wiki: float
    marco: float
    hard: float

    def socm(self, pair_set: str) -> float:
        """The published average over a pair set."""
        return {"wiki": self.wiki, "marco": self.marco, "hard": self.hard}[pair_set]


_BERT, _MINILM = "google-bert/bert-base-uncased", "microsoft/MiniLM-L12-H384-uncased"
_MPNET, _NOMIC = "microsoft/mpnet-base", "nomic-ai/nomic-bert-2048"

SOCM_MODELS = (
    PublishedModel(_BERT, "BERT", None, 0.3962, 0.4913, 0.4805),
    PublishedModel("h-tomo/unsup-simcse-bert-base-uncased-mean", "BERT", _BERT, 0.1930, 0.2689, 0.2565),
    PublishedModel("intfloat/e5-base-v2", "BERT", _BERT, 0.0288, 0.0426, 0.0359),
    PublishedModel("thenlper/gte-base", "BERT", _BERT, 0.0175, 0.0248, 0.0169),
    PublishedModel(_MINILM, "MiniLM", None, 0.2416, 0.2889, 0.3397),
    PublishedModel("sentence-transformers/all-MiniLM-L12-v2", "MiniLM", _MINILM, 0.3128, 0.3475, 0.3298),
    PublishedModel("intfloat/e5-small-v2", "MiniLM", _MINILM, 0.0989, 0.0854, 0.0867),
    PublishedModel("thenlper/gte-small", "MiniLM", _MINILM, 0.0548, 0.0551, 0.0481),
    PublishedModel(_MPNET, "MPNet", None, 0.1166, 0.1058, 0.1289),
    PublishedModel("sentence-transformers/all-mpnet-base-v2", "MPNet", _MPNET, 0.1003, 0.0944, 0.0929),
    PublishedModel(_NOMIC, "Nomic", None, 0.1391, 0.1098, 0.1308),
    PublishedModel("nomic-ai/nomic-embed-text-v1.5", "Nomic", _NOMIC, 0.1216, 0.1330, 0.1038),
)
BY_NAME = {model.name: model for model in SOCM_MODELS}

SOCM_CORRELATIONS = (
    {"metric": "socm", "set": "wiki", "score": "MTEB(eng, v2)", "spearman": -0.678, "p": 0.015},
    {"metric": "concentration_ratio", "set": "wiki", "score": "MTEB(eng, v2)", "spearman": -0.622, "p": 0.031},
)
"""Spearman correlations with the MTEB average over the 12 models, as the SOCM paper reports them."""


@dataclass(frozen=True)
class ExamplePair:
    """Two texts that the paper shows, with their SOCM in two models."""

    left: str
    right: str
    socm: dict[str, float]


EXAMPLE = ExamplePair(
    'Virginia Woolf set many scenes of her novel "Night and Day" (1919) in Russell Square.',
    "Ghiz was born in Charlottetown, Prince Edward Island, to Atallah Joseph Ghiz, a Lebanese corner store owner, and "
    "Marguerite F. Ghiz (née McKarris).",
    {_BERT: 0.612, "thenlper/gte-base": 0.017},
)

TEMPERATURES = (
    {"model": "ANCE", "before": 43.45, "after": 43.53, "tau": 0.9},
    {"model": "GTR", "before": 47.15, "after": 47.46, "tau": 0.8},
    {"model": "GIST", "before": 52.26, "after": 52.39, "tau": 0.9},
    {"model": "BGE", "before": 52.73, "after": 53.00, "tau": 0.8},
    {"model": "E5-4k", "before": 51.32, "after": 51.87, "tau": 0.8},
)
"""The average over 40 data sets at τ = 1 and at the temperature that was best for the model."""
