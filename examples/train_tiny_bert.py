"""Pre-train a tiny BERT, fine-tune it with mean pooling, and watch SOCM, concentration and retrieval on the way.

    python examples/train_tiny_bert.py                        # minutes on one core
    python examples/train_tiny_bert.py --regularizer 1.0      # a second fine-tuning with SOCM in the loss
    python examples/train_tiny_bert.py --recipe simcse        # unsupervised SimCSE with mean pooling, small
    python examples/train_tiny_bert.py --recipe gauss         # a Gaussian a text, as in GaussCSE, small
    python examples/train_tiny_bert.py --regularizer -0.2 0.2 1 --pooling mean learned cls max --seeds 5
    python examples/train_tiny_bert.py --quick                # seconds, to see that everything works

Data: the docstrings on this machine. Pre-training is masked-language modelling on docstrings; fine-tuning is
contrastive on (summary, body) pairs, or on a text with itself under two draws of dropout (SimCSE: the same loss, with a
temperature of 0.05). `gauss` predicts a mean and a variance a dimension, so that a body lies within its summary. A
negative weight raises SOCM. The pooling `learned` trains a weight a token and is written as a repair, too. The pairs
that measure quality are in neither. Writes training.csv, training.json and training.html to --output, the backbone to
its folder `backbone`, its child to `contrastive`.
With --seeds every seed trains from the start, and study.csv sets quality beside SOCM with intervals over seeds.
A small replication: one tiny model, one domain.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset
from scipy import stats
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.evaluation import BaseEvaluator, SequentialEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from poolscope import encode, read_pairs, read_texts, save_figure
from poolscope.connect.integrations.evaluator import SOCMEvaluator
from poolscope.connect.integrations.regularizer import SOCMRegularizer
from poolscope.connect.integrations.trained_pooling import (
    GaussianHead,
    GaussianLoss,
    TrainedPooling,
    gaussian_similarity,
)
from poolscope.errors import require
from poolscope.files import atomic_file, write_json
from poolscope.numbers.intervals import share_estimate
from poolscope.numbers.moments import text_moments
from poolscope.numbers.ranking import rank_documents, rank_scores
from poolscope.show.charts import COLOURS, style

PANELS = {"socm": "SOCM", "concentration_ratio": "S(X)/‖μ(X)‖²", "ndcg": "nDCG@10"}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How large and how long."""

    hidden: int = 128
    layers: int = 4
    vocabulary: int = 4000
    length: int = 64
    batch: int = 32
    masked_steps: int = 600
    contrastive_steps: int = 200
    measurements: int = 4  # in each stage
    judged: int = 300  # held-out pairs that measure retrieval
    socm_texts: int = 100
    texts: int = 20_000  # at most so many for pre-training


QUICK = Plan(
    32, 2, 400, 32, 8, masked_steps=4, contrastive_steps=4, measurements=2, judged=20, socm_texts=10, texts=300
)


class RetrievalEvaluator(BaseEvaluator):
    """nDCG@10 of queries for their own document among all documents, by the cosine of the vectors.

    Of Gaussians by their similarity; then also how often the document lies within its query rather than the other way
    round, and how the predicted variances go with the spread of the tokens (Spearman).
    """

    def __init__(self, queries: list[str], documents: list[str]) -> None:
        super().__init__()
        self.queries, self.documents = queries, documents
        self.primary_metric = "ndcg"

    def __call__(self, model: Any, output_path: Any = None, epoch: float = -1, steps: int = -1) -> dict[str, float]:
        queries, documents = (_vectors(model, texts) for texts in (self.queries, self.documents))
        own = np.array([(k, k) for k in range(len(self.queries))])
        more = {}
        if _is_gaussian(model):
            within, reverse = (
                gaussian_similarity(*map(torch.from_numpy, sides)).numpy()
                for sides in ((documents, queries), (queries, documents))
            )
            values = rank_scores(within.T.copy(), own).ndcg(10)
            spreads = np.exp(documents[:, documents.shape[1] // 2 :]).sum(axis=1)
            traces = text_moments(encode(model, self.documents)).traces
            more["inclusion"] = float((within.diagonal() > reverse.diagonal()).mean())
            more["variance_and_trace"] = float(stats.spearmanr(spreads, traces).statistic)
        else:
            values = rank_documents(queries, documents, own).ndcg(10)
        interval = share_estimate(values).interval
        bounds = {} if interval is None else {"ndcg_low": interval.low, "ndcg_high": interval.high}
        return {"ndcg": float(values.mean()), **bounds, **more}


def _is_gaussian(model: Any) -> bool:
    return isinstance(model, SentenceTransformer) and isinstance(model[-1], GaussianHead)


def _vectors(model: Any, texts: list[str]) -> Any:
    """One vector a text: as the model pools, or by the mean where it does not pool."""
    if isinstance(model, SentenceTransformer):
        return model.encode(texts, show_progress_bar=False)
    return text_moments(encode(model, texts)).unit_means


@dataclass(frozen=True)
class Data:
    """Texts for pre-training, (summary, body) pairs for fine-tuning, and what is held out of both."""

    texts: list[str]
    pairs: list[tuple[str, ...]]
    judged: list[tuple[str, str]]


def load_data(plan: Plan, seed: int) -> Data:
    """Docstrings and their pairs; those that measure quality are drawn first and left out of the rest."""
    pairs, corpus = read_pairs("builtin:docstrings"), read_texts("builtin:docstrings")
    order = np.random.default_rng(seed).permutation(len(pairs))
    held, rest = order[: plan.judged], order[plan.judged :]
    hidden = {pairs.documents.ids[int(k)] for k in pairs.index[held, 1]}
    rows = [(pairs.queries[int(q)], pairs.documents[int(d)]) for q, d in pairs.index]
    texts = [text for id_, text in zip(corpus.ids, corpus, strict=True) if id_ not in hidden]
    return Data(texts[: plan.texts], [rows[k] for k in rest], [rows[k] for k in held])


def train_tokenizer(texts: list[str], plan: Plan) -> transformers.PreTrainedTokenizerFast:
    """A vocabulary of pieces of words, with the special tokens of BERT.

    Byte-pair encoding, since its trainer gives the same vocabulary every time; that of WordPiece does not.
    """
    backend = Tokenizer(models.BPE(unk_token="[UNK]"))
    backend.normalizer = normalizers.Sequence(
        [normalizers.BertNormalizer(lowercase=True), normalizers.Replace(Regex(r"\s+"), " ")]
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    backend.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=plan.vocabulary, special_tokens=SPECIAL, show_progress=False)
    backend.train_from_iterator(texts, trainer)
    ids = [(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ids)
    names = {f"{name.strip('[]').lower()}_token": name for name in SPECIAL}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=plan.length, **names)


def new_model(tokenizer: Any, plan: Plan, seed: int) -> transformers.BertForMaskedLM:
    """BERT as it is, only small, with random weights."""
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=plan.hidden,
        num_hidden_layers=plan.layers,
        num_attention_heads=max(1, plan.hidden // 32),
        intermediate_size=4 * plan.hidden,
        max_position_embeddings=plan.length,
        pad_token_id=tokenizer.pad_token_id,
    )
    return transformers.BertForMaskedLM(config)


def pretrain(model: Any, tokenizer: Any, texts: list[str], plan: Plan, seed: int) -> Iterator[tuple[int, float]]:
    """Masked-language modelling; gives the step and its mean loss whenever it is time to measure."""
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, plan.masked_steps // 10, plan.masked_steps)
    random, losses = np.random.default_rng(seed), []
    for step in range(1, plan.masked_steps + 1):
        model.train()
        chosen = [texts[k] for k in random.integers(len(texts), size=plan.batch)]
        batch = collate([{"input_ids": ids} for ids in tokenizer(chosen, truncation=True)["input_ids"]])
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % (plan.masked_steps // plan.measurements) == 0:
            yield step, float(np.mean(losses))
            losses.clear()


@dataclass(frozen=True)
class Way:
    """One way to fine-tune: what is paired, how tokens are pooled, and the weight of SOCM in the loss."""

    recipe: str = "pairs"
    pooling: str = "mean"
    weight: float = 0.0

    @property
    def name(self) -> str:
        """What the stage is called; a weight of 1 goes without its number."""
        parts = ["contrastive", *([self.recipe] if self.recipe != "pairs" else [])]
        parts += [self.pooling] if self.pooling != "mean" else []
        sign = "−" if self.weight < 0 else "+"
        size = "" if abs(self.weight) == 1 else f"{abs(self.weight):g} × "
        return " · ".join(parts) + (f" {sign} {size}SOCM" if self.weight else "")

    @property
    def folder(self) -> str:
        """Where the model is written."""
        if self == Way():
            return "contrastive"
        return "-".join([self.recipe, self.pooling, *([f"{self.weight:g}"] if self.weight else [])])

    def module(self, size: int) -> Any:
        """What stands behind the tokens."""
        if self.recipe == "gauss":
            return GaussianHead(size)
        return TrainedPooling(size) if self.pooling == "learned" else Pooling(size, self.pooling)


def finetune(folder: Path, data: Data, plan: Plan, *, evaluator: Any, way: Way, seed: int) -> list[Row]:
    """Contrastive training of the stored backbone; the trainer measures on the way."""
    torch.manual_seed(seed)
    backbone = Transformer(str(folder), max_seq_length=plan.length, model_kwargs={"add_pooling_layer": False})
    model = SentenceTransformer(modules=[backbone, way.module(plan.hidden)], device="cpu")
    loss: torch.nn.Module = (GaussianLoss if way.recipe == "gauss" else MultipleNegativesRankingLoss)(model)
    if way.weight:
        loss = SOCMRegularizer(model, loss, weight=way.weight, pairs=64)
    sides: list[Any] = list(zip(*data.pairs, strict=True))
    if way.recipe == "simcse":  # dropout alone tells the two sides of a text apart
        sides = [tuple(data.texts)] * 2
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder.parent / "runs"),
        max_steps=plan.contrastive_steps,
        per_device_train_batch_size=plan.batch,
        learning_rate=5e-4,
        warmup_steps=plan.contrastive_steps // 10,
        eval_strategy="steps",
        eval_steps=plan.contrastive_steps // plan.measurements,
        logging_steps=plan.contrastive_steps // plan.measurements,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        seed=seed,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(dict(zip(("anchor", "positive", "negative"), map(list, sides), strict=False))),
        loss=loss,
        evaluator=evaluator,
    )
    trainer.train()
    place = folder.parent / way.folder
    if isinstance(model[-1], TrainedPooling):  # an ordinary folder, and the pooling as a repair of it
        repair = model[-1].repair()
        model = SentenceTransformer(modules=[backbone, Pooling(plan.hidden, "mean")], device="cpu")
        place.mkdir(parents=True, exist_ok=True)
        repair.save(place / "repair.safetensors")
    model.save_pretrained(str(place))
    history = [entry for entry in trainer.state.log_history if "eval_socm" in entry]
    return [
        {"step": entry["step"], **{key.removeprefix("eval_"): entry[key] for key in entry if key.startswith("eval_")}}
        for entry in history
    ]


def read_entailments(path: Path) -> list[tuple[str, ...]]:
    """(Entailed text, premise, contradiction) from a table of SimCSE: nli_for_simcse.csv of its data sets."""
    with path.open(encoding="utf-8", newline="") as stream:
        return [(row["sent1"], row["sent0"], row["hard_neg"]) for row in csv.DictReader(stream)]


def run(plan: Plan, *, output: Path, ways: Sequence[Way], seed: int, nli: Path | None = None) -> list[Row]:
    """All stages; one row a measurement."""
    data = load_data(plan, seed)
    if nli is not None:
        data = replace(data, pairs=read_entailments(nli))
    tokenizer = train_tokenizer(data.texts, plan)
    model = new_model(tokenizer, plan, seed)
    queries, documents = (list(side) for side in zip(*data.judged, strict=True))
    measure = SequentialEvaluator(
        [
            SOCMEvaluator(documents[: plan.socm_texts], max_length=plan.length),
            RetrievalEvaluator(queries, documents),
        ]
    )
    rows: list[Row] = []

    def note(stage: str, step: int, numbers: Row) -> None:
        kept = {key: value for key, value in numbers.items() if key in COLUMNS}
        rows.append({"stage": stage, "step": step, **kept})
        print(f"{stage:28} {step:5}  SOCM {numbers['socm']:.4f}  S/|mu|^2 {numbers['concentration_ratio']:.3f}  "
              f"nDCG@10 {numbers['ndcg']:.4f}", flush=True)  # fmt: skip

    note("masked", 0, measure((model.bert, tokenizer)))
    for step, loss in pretrain(model, tokenizer, data.texts, plan, seed):
        note("masked", step, {**measure((model.bert, tokenizer)), "loss": loss})
    folder = output / "backbone"
    model.bert.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for way in ways:
        for row in finetune(folder, data, plan, evaluator=measure, way=way, seed=seed):
            note(way.name, row["step"], row)
    return rows


def ways_of(recipes: Sequence[str], poolings: Sequence[str], weights: Sequence[float]) -> list[Way]:
    """Every recipe with every pooling; SOCM takes part where tokens are pooled by the mean, and no Gaussian is made."""
    return [
        Way(recipe, pooling, weight)
        for recipe in recipes
        for pooling in (poolings if recipe != "gauss" else ["mean"])
        for weight in dict.fromkeys([0.0, *(weights if pooling == "mean" and recipe != "gauss" else [])])
    ]


def study(runs: Sequence[list[Row]]) -> list[Row]:
    """The last measurement of every way, over seeds: SOCM, quality, and its change against the first way, paired.

    Intervals are those of Student's t over seeds. A last row has Spearman's ρ of SOCM and quality over all models.
    """
    names = list(dict.fromkeys(row["stage"] for row in runs[0]))
    last = {name: [next(row for row in reversed(rows) if row["stage"] == name) for rows in runs] for name in names}
    first = np.array([row["ndcg"] for row in last[names[1]]])
    found: list[Row] = []
    for name in names:
        socm, ndcg = (np.array([row[key] for row in last[name]]) for key in ("socm", "ndcg"))
        row: Row = {"stage": name, "seeds": len(runs)}
        for key, values in (("socm", socm), ("ndcg", ndcg), ("change", ndcg - first)):
            row[key] = float(values.mean())
            if len(values) > 1:
                half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
                row |= {f"{key}_low": row[key] - half, f"{key}_high": row[key] + half}
        found.append(row)
    every = [row for name in names[1:] for row in last[name]]
    if len(every) > 3:
        rho = stats.spearmanr([row["socm"] for row in every], [row["ndcg"] for row in every]).statistic
        found.append({"stage": "all fine-tuned models", "seeds": len(runs), "rho": float(rho), "models": len(every)})
    return found


COLUMNS = (
    *("socm", "socm_low", "socm_high", "d_mu", "d_sigma", "concentration_ratio", "within_text_cosine"),
    *("ndcg", "ndcg_low", "ndcg_high", "loss", "inclusion", "variance_and_trace"),
)


def training_figure(rows: list[Row]) -> Any:
    """Curves over the steps of each stage, from rows with `stage`, `step` and the numbers of the evaluators.

    Bars are the 95 % intervals (`…_low`, `…_high`) where a row has them. Stages that continue the first one start
    where it ends.
    """
    subplots = require("plotly.subplots", "report")
    figure = subplots.make_subplots(1, len(PANELS), subplot_titles=list(PANELS.values()), horizontal_spacing=0.07)
    stages = list(dict.fromkeys(row["stage"] for row in rows))
    first = [row for row in rows if row["stage"] == stages[0]]
    for column, name in enumerate(PANELS, start=1):
        for number, stage in enumerate(stages):
            later = [row for row in rows if row["stage"] == stage]
            start = first[-1]["step"] if number else 0
            points = [(row["step"] + start, row) for row in later]
            if number:  # the curve begins at what the first stage left
                points = [(start, first[-1]), *points]
            figure.add_trace(_curve(points, name, stage, COLOURS[number % len(COLOURS)], legend=column == 1), 1, column)
        figure.update_xaxes(title_text="steps of training", row=1, col=column)
        figure.update_yaxes(rangemode="tozero", row=1, col=column)
    return style(figure, title="A model in training · bars: 95 % intervals", width=1180, height=440)


def _curve(points: list[tuple[int, Row]], name: str, stage: str, colour: str, *, legend: bool) -> Any:
    go = require("plotly.graph_objects", "report")
    values = [row[name] for _, row in points]
    return go.Scatter(
        x=[step for step, _ in points],
        y=values,
        mode="lines+markers",
        name=stage,
        legendgroup=stage,
        showlegend=legend,
        line={"color": colour, "width": 2.5},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [row.get(f"{name}_high", row[name]) - row[name] for _, row in points],
            "arrayminus": [row[name] - row.get(f"{name}_low", row[name]) for _, row in points],
            "color": colour,
            "thickness": 1.2,
        },
    )


def write_table(path: Path, rows: Sequence[Row], columns: Sequence[str] = ()) -> None:
    """Rows as CSV, with the columns in the order in which they come up where none are named."""
    with atomic_file(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
        names = list(columns or dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        text.detach()


def main(arguments: list[str] | None = None) -> list[Row]:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("tiny-bert"))
    parser.add_argument(
        "--regularizer", type=float, nargs="+", default=[], metavar="WEIGHT", help="train with SOCM × WEIGHT too"
    )
    parser.add_argument(
        "--recipe", nargs="+", choices=("pairs", "simcse", "gauss"), default=["pairs"], help="what is paired"
    )
    parser.add_argument("--pooling", nargs="+", choices=("mean", "learned", "cls", "max"), default=["mean"])
    parser.add_argument("--nli", type=Path, metavar="CSV", help="fine-tune on these entailments and contradictions")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="train N times, with seeds from --seed on")
    parser.add_argument("--quick", action="store_true", help="a few steps of a smaller model")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the matrices are too small to share: threads that wait for each other cost more
    plan = QUICK if given.quick else Plan()
    ways = ways_of(given.recipe, given.pooling, given.regularizer)
    runs = []
    for seed in range(given.seed, given.seed + given.seeds):
        output = given.output if given.seeds == 1 else given.output / f"seed-{seed}"
        runs.append(run(plan, output=output, ways=ways, seed=seed, nli=given.nli))
    rows = runs[0]
    if given.seeds > 1:
        write_table(given.output / "study.csv", study(runs))
    write_table(given.output / "training.csv", rows, ["stage", "step", *COLUMNS])
    settings = {
        "nli": None if given.nli is None else given.nli.name,
        "plan": vars(plan),
        "ways": [vars(way) for way in ways],
        "seed": given.seed,
        "seeds": given.seeds,
    }
    write_json(given.output / "training.json", {"settings": settings, "rows": rows})
    save_figure(training_figure(rows), given.output / "training.html")
    print(f"written: {given.output}/training.csv, training.json, training.html")
    return rows


if __name__ == "__main__":
    main()
