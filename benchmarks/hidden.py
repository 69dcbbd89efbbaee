"""Which number of question 8 goes with what re-ranking by the clouds gains on held-out queries?

    python benchmarks/hidden.py [--texts 240] [--models builtin:minilm builtin:wordllama …]

One line a model and a corpus: d_Σ, bounded d_Σ and hidden share of the pairs that a search would confuse, and the
difference of nDCG@10 that re-ranking the first hits makes on split-half queries. Then Spearman's ρ of each number with
that difference: over all cells, and of the means of the models, which are as many draws as there are models. Models
that `make models` has fetched take part by default.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy import stats

from poolscope.auditing.questions.averaging import confusion
from poolscope.auditing.subject import Subject
from poolscope.auditing.thresholds import Thresholds
from poolscope.auditing.trials import cloud_trial
from poolscope.encoders import as_encoder
from poolscope.encoders.gguf import models_folder
from poolscope.texts import read_texts

NUMBERS = ("d_Σ", "bounded d_Σ", "hidden share")
_FETCHED = ("gte-small", "m3e-small")
_LEAST_WORDS = 24
_ROOT = Path(__file__).parent.parent


def corpora(count: int, seed: int) -> dict[str, list[str]]:
    """Docstrings of three sources, and paragraphs of this documentation; of each as many as are asked for."""
    built_in = read_texts("builtin:docstrings")
    texts: dict[str, list[str]] = {"scipy": [], "numpy": [], "standard library": []}
    for name, text in zip(built_in.ids, built_in.texts, strict=True):
        source = name.split(".")[0].split(":")[0]
        texts[source if source in texts else "standard library"].append(text)
    pages = [part for path in sorted(_ROOT.glob("docs/*.md")) for part in path.read_text("utf-8").split("\n\n")]
    texts["documentation"] = [part for part in pages if not part.startswith(("|", "```", "!", "#"))]
    random = np.random.default_rng(seed)
    long = {name: [text for text in part if len(text.split()) >= _LEAST_WORDS] for name, part in texts.items()}
    return {name: [part[k] for k in random.permutation(len(part))[:count]] for name, part in long.items()}


def cell(model: str, texts: list[str], *, seed: int) -> tuple[list[float], float, str]:
    """The numbers of one model on one corpus, the gain, and both in words."""
    fetched = Path(model).name in _FETCHED  # their weights are checked by digest, so that pickled ones may be opened
    encoder = as_encoder(model, max_length=128, allow_pickle=fetched)
    clouds = encoder.encode(texts)[-1]
    trial_texts = len(texts) // 2
    subject = Subject(
        clouds=clouds, encoder=encoder, thresholds=Thresholds(), source="", trial_texts=trial_texts, seed=seed
    )
    alike, trial = confusion(subject), cloud_trial(subject)
    if alike is None or alike.result.pairs is None:
        raise SystemExit(f"{model}: no pairs that a search would confuse; give more texts.")
    hidden = alike.share.known
    numbers = [float(alike.result.pairs.covariance_distance.mean()), float(alike.bounded.mean()), hidden]
    shown = " | ".join(f"{number:.3f}" for number in numbers)
    change = trial.change
    return numbers, change.mean, f"{shown} | {change.mean:+.3f} {change.interval} | {change.count}"


def main() -> None:
    """Print the table and the correlations."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--texts", type=int, default=240)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--models", nargs="*", default=None)
    options = arguments.parse_args()
    fetched = [str(models_folder() / name) for name in _FETCHED if (models_folder() / name).exists()]
    models = options.models or ["builtin:minilm", "builtin:wordllama", *fetched]
    print(f"| model | corpus | {' | '.join(NUMBERS)} | re-ranking, nDCG@10 | queries |\n|---|---|---|---|---|---|---|")
    numbers, gains, owners = [], [], []
    for name, texts in corpora(options.texts, options.seed).items():
        for model in models:
            row, gain, words = cell(model, texts, seed=options.seed)
            print(f"| {Path(model).name.removeprefix('builtin:')} | {name} | {words} |", flush=True)
            numbers.append(row)
            gains.append(gain)
            owners.append(model)
    table, changes, names = np.array(numbers), np.array(gains), np.array(owners)
    means = np.array([[*table[names == model].mean(axis=0), changes[names == model].mean()] for model in models])
    print(f"\n| number | ρ over {len(table)} cells | ρ over {len(models)} models |\n|---|---|---|")
    for place, number in enumerate(NUMBERS):
        over_cells = stats.spearmanr(table[:, place], changes).statistic
        over_models = stats.spearmanr(means[:, place], means[:, -1]).statistic
        print(f"| {number} | {over_cells:+.2f} | {over_models:+.2f} |")


if __name__ == "__main__":
    main()
