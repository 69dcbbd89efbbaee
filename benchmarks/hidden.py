"""Which number of question 8 goes with what re-ranking by the clouds gains on held-out queries?

    python benchmarks/hidden.py [--texts 240] [--models builtin:minilm builtin:wordllama …] [--state FILE --seconds 400]

One line a model and a corpus: d_Σ, bounded d_Σ and hidden share of the pairs that a search would confuse, and the
difference of nDCG@10 that re-ranking the first hits makes on held-out queries. The queries are first halves of texts
that ask for the second ones; of `builtin:manuals`, its headings.

Then three views of each number. Query by query: in every cell Spearman's ρ between the number of the pair that a query
must tell apart (the relevant text and the first other one) and what the query gains, and the mean of ρ over cells with
the interval of Student's t. Over cells, and over the means of models, which are as many draws as there are models:
ρ between the mean number and the gain.

With `--state` finished cells are kept in a file, and the next call makes the others. Models that `make models` has
fetched take part by default.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from poolscope.auditing.question import Thresholds
from poolscope.auditing.searches import CLOUD_WEIGHT, K, SearchTask, cloud_trial
from poolscope.auditing.subject import Subject
from poolscope.encoders import as_encoder
from poolscope.encoders.gguf import models_folder
from poolscope.files import atomic_path
from poolscope.metrics.socm.confusable import confusion_of
from poolscope.metrics.socm.measure import socm
from poolscope.repairs.search import rerank
from poolscope.texts import read_queries, read_texts

NUMBERS = ("d_Σ", "bounded d_Σ", "hidden share")
MANUALS = "builtin:manuals"
_FETCHED = ("gte-small", "smollm2-135m-instruct")
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


def subject_of(model: str, name: str, texts: list[str], *, seed: int) -> Subject:
    """One model on one corpus; the headings of the manuals ask for their passages."""
    fetched = (
        models_folder() in Path(model).parents
    )  # their weights are checked by digest, so that pickled ones may be opened
    encoder = as_encoder(model, max_length=128, allow_pickle=fetched)
    settings: dict[str, Any] = {"encoder": encoder, "thresholds": Thresholds(), "source": name, "seed": seed}
    if name != MANUALS:
        return Subject(clouds=encoder.encode(texts)[-1], trial_texts=len(texts) // 2, **settings)
    asked = read_queries(MANUALS)
    passages = read_texts(MANUALS, limit=len(texts), seed=seed, keep=asked.named)
    clouds = encoder.encode(passages)[-1].described(ids=passages.ids)
    return Subject(clouds=clouds, queries=asked.among(passages.ids, drawn=True), **settings)


def by_query(search: SearchTask, *, seed: int) -> list[float]:
    """ρ of each number of the pair that a query must tell apart with what the query gains by re-ranking."""
    (asking, held), clouds, task = search.vectors, search.clouds, search.task
    ranking = task.rank(asking, held, k=K)
    ways = (ranking, *rerank([ranking], *clouds, weight=CLOUD_WEIGHT))
    scores = [task.evaluation(way).scores for way in ways]
    relevant = [set(task.relevant[task.relevant[:, 0] == query, 1].tolist()) for query in range(task.units)]
    order = np.lexsort((ranking.rank, ranking.query))
    best = ranking.document[order[np.unique(ranking.query[order], return_index=True)[1]]]
    rivals = [next(k for k in row if k not in own) for row, own in zip(ranking.top.tolist(), relevant, strict=True)]
    pairs = np.stack([best, rivals], axis=1)
    cosine = np.einsum("nd,nd->n", held[pairs[:, 0]], held[pairs[:, 1]])
    measured = confusion_of(clouds[1], socm(clouds[1], pairs=pairs), cosine, scores=None, seed=seed)
    numbers = (measured.columns.covariance_distance, measured.bounded, measured.hidden)
    return [float(stats.spearmanr(number, scores[1] - scores[0]).statistic) for number in numbers]


def cell(model: str, name: str, texts: list[str], *, seed: int) -> dict[str, Any]:
    """The numbers of one model on one corpus, the gain, and ρ query by query."""
    subject = subject_of(model, name, texts, seed=seed)
    alike, trial = subject.confusable, cloud_trial(subject)
    if alike is None or isinstance(subject.search, str):
        raise SystemExit(f"{model}, {name}: no pairs that a search would confuse, or no trial; give more texts.")
    numbers = (alike.columns.covariance_distance, alike.bounded, alike.hidden)
    return {
        "model": Path(model).stem.removeprefix("builtin:"),
        "corpus": name.removeprefix("builtin:"),
        "numbers": [float(number.mean()) for number in numbers],
        "gain": trial.change.mean,
        "interval": str(trial.change.interval),
        "queries": trial.change.count,
        "by_query": by_query(subject.search, seed=seed),
    }


def summary(cells: list[dict[str, Any]]) -> list[str]:
    """One row a number: ρ query by query, over cells, and over models."""
    table, gains = np.array([row["numbers"] for row in cells]), np.array([row["gain"] for row in cells])
    models = sorted({row["model"] for row in cells})
    owner = np.array([row["model"] for row in cells])
    means = np.array([[*table[owner == model].mean(axis=0), gains[owner == model].mean()] for model in models])
    rows = [f"| number | ρ by query, mean of {len(cells)} cells | ρ over cells | ρ over {len(models)} models |"]
    rows.append("|---|---|---|---|")
    for place, number in enumerate(NUMBERS):
        each = np.array([row["by_query"][place] for row in cells])
        each = each[np.isfinite(each)]  # a cell where no query changes has no ρ
        reach = stats.t.ppf(0.975, len(each) - 1) * each.std(ddof=1) / np.sqrt(len(each))
        within = f"{each.mean():+.2f} [{each.mean() - reach:+.2f}, {each.mean() + reach:+.2f}]"
        over = [stats.spearmanr(part[:, 0], part[:, 1]) for part in (
            np.stack([table[:, place], gains], axis=1), means[:, [place, -1]]
        )]  # fmt: skip
        rows.append(f"| {number} | {within} | {over[0].statistic:+.2f} | {over[1].statistic:+.2f} |")
    return rows


def main() -> None:
    """Print the table and the correlations."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--texts", type=int, default=240)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--models", nargs="*", default=None)
    arguments.add_argument("--state", type=Path, default=None)
    arguments.add_argument("--seconds", type=float, default=float("inf"))
    options = arguments.parse_args()
    folders = [models_folder() / name for name in _FETCHED if (models_folder() / name).exists()]
    fetched = [str(next(folder.glob("*.gguf"), folder)) for folder in folders]
    models = options.models or ["builtin:wordllama", "builtin:minilm", *fetched]
    until = time.monotonic() + options.seconds
    done: dict[str, Any] = {}
    if options.state is not None and options.state.exists():
        done = json.loads(options.state.read_text("utf-8"))
    texts = {**corpora(options.texts, options.seed), MANUALS: [""] * options.texts}
    for model in models:
        for name in texts:
            key = f"{model}/{name}/{options.texts}/{options.seed}"
            if key in done or time.monotonic() > until:
                continue
            done[key] = cell(model, name, texts[name], seed=options.seed)
            if options.state is not None:
                with atomic_path(options.state) as temporary:
                    Path(temporary).write_text(json.dumps(done), "utf-8")
    cells = list(done.values())
    print(f"| model | corpus | {' | '.join(NUMBERS)} | re-ranking, nDCG@10 | queries | ρ by query |")
    print("|---|---|---|---|---|---|---|---|")
    for row in cells:
        numbers, within = (
            " | ".join(f"{n:.3f}" for n in row["numbers"]),
            ", ".join(f"{r:+.2f}" for r in row["by_query"]),
        )
        gain = f"{row['gain']:+.3f} {row['interval']}"
        print(f"| {row['model']} | {row['corpus']} | {numbers} | {gain} | {row['queries']} | {within} |")
    print("", *summary(cells), sep="\n")


if __name__ == "__main__":
    main()
