"""Models of the papers: their names there, their ids on the hub, and their backbones."""

from __future__ import annotations

from dataclasses import dataclass

HUB = "https://huggingface.co"


@dataclass(frozen=True)
class Checkpoint:
    """A model of a paper. `parent`: the model that it was tuned from, by name. `advice`: what loading it asks for.

    `spread`: texts of up to 512 tokens have the position ids 0, f, 2f, … (see `positions`). `pairs`: texts or pairs of
    its first contrastive training, in millions, as its own paper or card prints them; 0 where it had none.
    """

    name: str
    hub: str
    family: str = ""
    parent: str | None = None
    advice: str = ""
    spread: int = 1
    pairs: float | None = None

    @property
    def address(self) -> str:
        """Where it can be fetched from."""
        return f"{HUB}/{self.hub}"

    @property
    def file(self) -> str:
        """What a local copy is called: the last part of the hub name."""
        return self.hub.rpartition("/")[2]


_PICKLED = "The hub has its weights as a pickle only: pass --allow-pickle, or convert them to safetensors first."
# Pairs: arXiv 2104.08821 (10⁶ sentences), 2212.03533 (270M after the filter), 2308.03281 (about 800M), 2402.01613
# (235M), and the cards of sentence-transformers (1,170,060,424).
SOCM_MODELS = (
    Checkpoint("BERT", "google-bert/bert-base-uncased", "BERT", pairs=0),
    Checkpoint("Unsup-SimCSE-mean", "h-tomo/unsup-simcse-bert-base-uncased-mean", "BERT", "BERT", pairs=1),
    Checkpoint("E5 base", "intfloat/e5-base-v2", "BERT", "BERT", pairs=270),
    Checkpoint("GTE base", "thenlper/gte-base", "BERT", "BERT", pairs=800),
    Checkpoint("MiniLM", "microsoft/MiniLM-L12-H384-uncased", "MiniLM", advice=_PICKLED, pairs=0),
    Checkpoint("all-MiniLM-L12-v2", "sentence-transformers/all-MiniLM-L12-v2", "MiniLM", "MiniLM", pairs=1170),
    Checkpoint("E5 small", "intfloat/e5-small-v2", "MiniLM", "MiniLM", pairs=270),
    Checkpoint("GTE small", "thenlper/gte-small", "MiniLM", "MiniLM", pairs=800),
    Checkpoint("MPNet", "microsoft/mpnet-base", "MPNet", advice=_PICKLED, pairs=0),
    Checkpoint("all-mpnet-base-v2", "sentence-transformers/all-mpnet-base-v2", "MPNet", "MPNet", pairs=1170),
    Checkpoint("nomic-bert-2048", "nomic-ai/nomic-bert-2048", "Nomic", pairs=0),
    Checkpoint("nomic-embed-text-v1.5", "nomic-ai/nomic-embed-text-v1.5", "Nomic", "nomic-bert-2048", pairs=235),
)
LENGTH_MODELS = (
    Checkpoint("ANCE", "sentence-transformers/msmarco-roberta-base-ance-firstp", "RoBERTa", "RoBERTa"),
    Checkpoint("GTR", "sentence-transformers/gtr-t5-base", "T5"),
    Checkpoint("GIST", "avsolatorio/GIST-small-Embedding-v0", "BERT"),
    Checkpoint("BGE", "BAAI/bge-base-en-v1.5", "BERT", "BERT"),
    Checkpoint(
        "E5",
        "dwzhu/e5-base-4k",
        "BERT",
        "BERT",
        spread=8,
    ),
)
LENGTH_BACKBONES = (
    Checkpoint("BERT", "google-bert/bert-base-uncased", "BERT"),
    Checkpoint("RoBERTa", "FacebookAI/roberta-base", "RoBERTa"),
)
LLM_MODELS = (
    Checkpoint("bge-multilingual-gemma2", "BAAI/bge-multilingual-gemma2", "Gemma 2"),
    Checkpoint("NV-Embed-v2", "nvidia/NV-Embed-v2", "Mistral"),
    Checkpoint("e5-mistral-7b-instruct", "intfloat/e5-mistral-7b-instruct", "Mistral"),
)
MULTILINGUAL_MODELS = (
    Checkpoint("mBERT", "google-bert/bert-base-multilingual-cased", "post-norm"),
    Checkpoint("XLM-R", "FacebookAI/xlm-roberta-base", "post-norm"),
)
RMS_MODELS = (Checkpoint("SmolLM2", "HuggingFaceTB/SmolLM2-135M", "pre-norm"),)
NORM_MODELS = (
    Checkpoint("BERT", "google-bert/bert-base-uncased", "post-norm"),
    Checkpoint("RoBERTa", "FacebookAI/roberta-base", "post-norm"),
    Checkpoint("GPT-2", "openai-community/gpt2", "pre-norm"),
)
