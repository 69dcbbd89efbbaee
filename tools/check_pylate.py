"""Compare poolscope with PyLate, which asks for versions of its own and so for an environment of its own.

    make test-pylate

`make FOLDER` runs where PyLate is: it saves models of PyLate, keeps the tokens and scores that PyLate gives, and checks
what poolscope makes of the loaded models. `check FOLDER` runs where poolscope is, and checks the saved folders.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from poolscope.encoders import as_encoder
from poolscope.encoders.capabilities import options_of, with_options
from poolscope.encoders.named import minilm_folder
from poolscope.numbers.maxsim import maxsim

TEXTS = [
    "Paris is the capital of France.",
    "Berlin; the capital, of Germany!",
    "A (long) text: " + "word, " * 300,
    "?!",
]
QUERIES = ["What is the capital of France?", "germany", "a query that is rather long " * 10]
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "attended": {"attend_to_expansion_tokens": True},
    "unexpanded": {"do_query_expansion": False},
    "bare": {"query_prefix": "", "document_prefix": "", "skiplist_words": ["the"]},
}


def compare(name: str, model: Any, expected: dict[str, Any]) -> None:
    """Print the largest differences; stop where tokens differ by 1e-6 or scores by 1e-5."""
    encoder = as_encoder(model)
    documents = encoder.encode(TEXTS)[-1]
    queries = with_options(encoder, options_of(encoder), role="query").encode(QUERIES)[-1]
    pairs = [(documents[k], expected[f"d{k}"]) for k in range(len(TEXTS))]
    pairs += [(queries[k], expected[f"q{k}"]) for k in range(len(QUERIES))]
    tokens = max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)
    scores = float(np.abs(maxsim(queries, documents) * queries.lengths[:, None] - expected["scores"]).max())
    print(f"{name}: tokens differ by {tokens:.1e}, scores by {scores:.1e}")
    if tokens > 1e-6 or scores > 1e-5:
        sys.exit(f"{name}: poolscope and PyLate differ")


def make(folder: Path) -> None:
    """Save models of PyLate and what it makes of the texts."""
    import torch
    from pylate import models, scores

    for name, settings in VARIANTS.items():
        torch.manual_seed(0)
        lengths = {"embedding_size": 32, "query_length": 20, "document_length": 64}
        model = models.ColBERT(str(minilm_folder()), device="cpu", **lengths, **settings).eval()
        model.save(str(folder / name))
        documents, queries = model.encode(TEXTS, is_query=False), model.encode(QUERIES, is_query=True)
        table = [
            [float(scores.colbert_scores(torch.tensor(query)[None], torch.tensor(text)[None])) for text in documents]
            for query in queries
        ]
        expected = {f"d{k}": rows for k, rows in enumerate(documents)} | {f"q{k}": r for k, r in enumerate(queries)}
        np.savez(folder / f"{name}.npz", scores=np.array(table), **expected)
        compare(f"{name}, loaded", model, {**expected, "scores": np.array(table)})


def main() -> None:
    """Make, or check."""
    task, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    if task == "make":
        make(folder)
        return
    for name in VARIANTS:
        assert json.loads((folder / name / "config_sentence_transformers.json").read_text())["query_length"] == 20
        compare(f"{name}, folder", folder / name, dict(np.load(folder / f"{name}.npz")))


if __name__ == "__main__":
    main()
