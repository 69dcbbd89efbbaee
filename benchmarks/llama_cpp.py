"""A BERT folder as GGUF, and llama.cpp as a server of it: rows of docs/runtime.md.

    python benchmarks/llama_cpp.py convert FOLDER FILE.gguf --type Q4_0 --pooling 1
    python -m venv /tmp/llama && /tmp/llama/bin/pip install xllamacpp
    /tmp/llama/bin/python benchmarks/llama_cpp.py serve FILE.gguf --port 8096
    python benchmarks/runtimes.py "llama.cpp, Q4_0=http://127.0.0.1:8096/v1/embeddings" --reference builtin:minilm

xllamacpp carries llama.cpp and its own HTTP server, compiled, so that nothing has to be built. `convert` writes a file
as llama.cpp's converter does for BERT: words at the start of a word are marked, norms and biases stay whole.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def convert(folder: Path, file: Path, kind: str, pooling: int) -> None:
    """The weights of a BERT folder as a GGUF file whose matrices are of that type."""
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    words = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    writer = gguf.GGUFWriter(str(file), "bert")
    writer.add_name(folder.name)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType(pooling))
    writer.add_file_type(gguf.LlamaFileType[f"{'ALL_' if kind == 'F32' else 'MOSTLY_'}{kind}"])
    _add_words(writer, gguf, words)
    for name, weights in load_file(folder / "model.safetensors").items():
        if (named := _tensor(name)) is None:
            continue
        matrix = weights.ndim == 2 and named not in ("position_embd.weight", "token_types.weight")
        quantised = gguf.GGMLQuantizationType[kind if matrix else "F32"]
        data = weights.astype("float32")
        writer.add_tensor(named, gguf.quants.quantize(data, quantised), raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_words(writer: Any, gguf: Any, words: list[str]) -> None:
    special = {word for word in words if word.startswith("[") and word.endswith("]") and len(word) > 2}
    marked = [w if w in special else w[2:] if w.startswith("##") else f"\N{LOWER ONE EIGHTH BLOCK}{w}" for w in words]
    writer.add_tokenizer_model("bert")
    writer.add_token_list(marked)
    kinds = (gguf.TokenType.CONTROL, gguf.TokenType.NORMAL)
    writer.add_token_types([kinds[0] if word in special else kinds[1] for word in words])
    writer.add_token_type_count(2)
    for key, word in (("unk", "[UNK]"), ("sep", "[SEP]"), ("pad", "[PAD]"), ("mask", "[MASK]")):
        getattr(writer, f"add_{key}_token_id")(words.index(word))
    writer.add_bos_token_id(words.index("[CLS]"))
    writer.add_eos_token_id(words.index("[SEP]"))


def _tensor(name: str) -> str | None:
    """The name of a tensor in GGUF; None for the pooler, which embeddings do without."""
    stem, _, part = name.removeprefix("bert.").rpartition(".")
    if stem in NAMES:
        return f"{NAMES[stem]}.{part}"
    if not stem.startswith("encoder.layer."):
        return None
    number, _, inner = stem.removeprefix("encoder.layer.").partition(".")
    return f"blk.{number}.{NAMES[inner]}.{part}"


def serve(file: Path, port: int, pooling: str | None) -> None:
    """llama.cpp's server of a file, until it is interrupted."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.embedding = True
    params.port = port
    params.n_parallel = 1
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.cpuparams.n_threads = 1
    if pooling is not None:
        params.pooling_type = getattr(xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{pooling.upper()}")
    server = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1/embeddings", flush=True)
    while True:
        time.sleep(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    converting, serving = verbs.add_parser("convert"), verbs.add_parser("serve")
    converting.add_argument("folder", type=Path)
    converting.add_argument("file", type=Path)
    converting.add_argument("--type", default="F32", choices=["F32", "F16", "Q8_0", "Q5_0", "Q4_0"])
    converting.add_argument("--pooling", type=int, default=1, help="pooling_type of the file: 1 mean, 2 cls, 3 last")
    serving.add_argument("file", type=Path)
    serving.add_argument("--port", type=int, default=8096)
    serving.add_argument("--pooling", choices=["mean", "cls", "last"], help="in place of what the file declares")
    chosen = parser.parse_args()
    if chosen.verb == "convert":
        convert(chosen.folder, chosen.file, chosen.type, chosen.pooling)
    else:
        serve(chosen.file, chosen.port, chosen.pooling)


if __name__ == "__main__":
    main()
