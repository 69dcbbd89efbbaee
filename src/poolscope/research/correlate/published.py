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


@dataclass(frozen=True)
class PublishedCorrelation:
    """A Spearman correlation with the MTEB(eng, v2) average over the 12 models, as the paper reports it."""

    metric: str
    spearman: float
    p: float


SOCM_CORRELATIONS = (
    PublishedCorrelation("socm", -0.678, 0.015),
    PublishedCorrelation("concentration_ratio", -0.622, 0.031),
)


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


@dataclass(frozen=True)
class PublishedTemperature:
    """The average over 40 data sets at τ = 1 and at the temperature that was best for the model."""

    model: str
    before: float
    after: float
    tau: float


TEMPERATURES = (
    PublishedTemperature("ANCE", 43.45, 43.53, 0.9),
    PublishedTemperature("GTR", 47.15, 47.46, 0.8),
    PublishedTemperature("GIST", 52.26, 52.39, 0.9),
    PublishedTemperature("BGE", 52.73, 53.00, 0.8),
    PublishedTemperature("E5-4k", 51.32, 51.87, 0.8),
)
