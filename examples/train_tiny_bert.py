"""Pre-train a tiny BERT, fine-tune it with mean pooling, and watch SOCM, concentration and retrieval on the way.

    python examples/train_tiny_bert.py                        # minutes on one core
    python examples/train_tiny_bert.py --regularizer 1.0      # a second fine-tuning with SOCM in the loss
    python examples/train_tiny_bert.py --quick                # seconds, to see that everything works

Data: the docstrings on this machine. Pre-training is masked-language modelling on docstrings; fine-tuning is
contrastive on (summary, body) pairs. The pairs that measure quality are in neither. Writes training.csv,
training.json and training.html to --output, the backbone to its folder `backbone`, its child to `contrastive`.
A small replication: one tiny model, one domain, one seed a run.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset
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
from poolscope.errors import require
from poolscope.files import atomic_file, write_json
from poolscope.numbers.intervals import share_estimate
from poolscope.numbers.moments import text_moments
from poolscope.numbers.ranking import rank_documents
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
    """nDCG@10 of queries for their own document among all documents, by the cosine of the mean vectors."""

    def __init__(self, queries: list[str], documents: list[str]) -> None:
        super().__init__()
        self.queries, self.documents = queries, documents
        self.primary_metric = "ndcg"

    def __call__(self, model: Any, output_path: Any = None, epoch: float = -1, steps: int = -1) -> dict[str, float]:
        queries, documents = (text_moments(encode(model, texts)) for texts in (self.queries, self.documents))
        own = [(k, k) for k in range(len(self.queries))]
        values = rank_documents(queries.unit_means, documents.unit_means, own).ndcg(10)
        interval = share_estimate(values).interval
        bounds = {} if interval is None else {"ndcg_low": interval.low, "ndcg_high": interval.high}
        return {"ndcg": float(values.mean()), **bounds}


@dataclass(frozen=True)
class Data:
    """Texts for pre-training, (summary, body) pairs for fine-tuning, and what is held out of both."""

    texts: list[str]
    pairs: list[tuple[str, str]]
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


def finetune(folder: Path, data: Data, plan: Plan, *, evaluator: Any, weight: float, seed: int) -> list[Row]:
    """Contrastive training of the stored backbone with mean pooling; the trainer measures on the way."""
    torch.manual_seed(seed)
    backbone = Transformer(str(folder), max_seq_length=plan.length, model_kwargs={"add_pooling_layer": False})
    model = SentenceTransformer(modules=[backbone, Pooling(plan.hidden, "mean")], device="cpu")
    loss: torch.nn.Module = MultipleNegativesRankingLoss(model)
    if weight:
        loss = SOCMRegularizer(model, loss, weight=weight, pairs=64)
    summaries, bodies = zip(*data.pairs, strict=True)
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
        train_dataset=Dataset.from_dict({"anchor": list(summaries), "positive": list(bodies)}),
        loss=loss,
        evaluator=evaluator,
    )
    trainer.train()
    model.save_pretrained(str(folder.parent / ("regularized" if weight else "contrastive")))
    history = [entry for entry in trainer.state.log_history if "eval_socm" in entry]
    return [
        {"step": entry["step"], **{key.removeprefix("eval_"): entry[key] for key in entry if key.startswith("eval_")}}
        for entry in history
    ]


def run(plan: Plan, *, output: Path, regularizer: float, seed: int) -> list[Row]:
    """All stages; one row a measurement."""
    data = load_data(plan, seed)
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
    for name, weight in [("contrastive", 0.0), *([("contrastive + SOCM", regularizer)] if regularizer else [])]:
        for row in finetune(folder, data, plan, evaluator=measure, weight=weight, seed=seed):
            note(name, row["step"], row)
    return rows


COLUMNS = (
    *("socm", "socm_low", "socm_high", "d_mu", "d_sigma", "concentration_ratio", "within_text_cosine"),
    *("ndcg", "ndcg_low", "ndcg_high", "loss"),
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
            figure.add_trace(_curve(points, name, stage, COLOURS[number], legend=column == 1), 1, column)
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


def main(arguments: list[str] | None = None) -> list[Row]:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("tiny-bert"))
    parser.add_argument("--regularizer", type=float, default=0.0, metavar="WEIGHT", help="train with SOCM × WEIGHT too")
    parser.add_argument("--quick", action="store_true", help="a few steps of a smaller model")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the matrices are too small to share: threads that wait for each other cost more
    plan = QUICK if given.quick else Plan()
    rows = run(plan, output=given.output, regularizer=given.regularizer, seed=given.seed)
    with atomic_file(given.output / "training.csv") as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
        writer = csv.DictWriter(text, ["stage", "step", *COLUMNS], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        text.detach()
    settings = {"plan": vars(plan), "regularizer": given.regularizer, "seed": given.seed}
    write_json(given.output / "training.json", {"settings": settings, "rows": rows})
    save_figure(training_figure(rows), given.output / "training.html")
    print(f"written: {given.output}/training.csv, training.json, training.html")
    return rows


if __name__ == "__main__":
    main()
