"""A model on the CPU with less work for the same numbers: weights laid out once, and texts that need no padding.

A linear layer multiplies by the same matrix in every batch, and torch lays that matrix out anew for each product.
oneDNN can be given it ready, and where there is only AVX2 a kernel of our own is faster (`kernel.c` says how), if this
installation has it: the same numbers but for rounding.

All of a transformer but its attention treats every token alone. So the texts of a batch can be laid end to end in one
row, if positions begin again with each text and attention is computed for each text by itself. Not every model lets
that be done to it from outside: it is tried on a few tokens, and what gives other numbers is padded as usual.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from inspect import signature
from itertools import groupby
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from poolscope.numbers.bures.native import copy_name

# Laying a matrix out costs a tenth of a batch, which is what a batch wins; its copy is dropped after the last one.
_FEWEST_BATCHES = 3
_MOST_BYTES = 2**30

# A C library may give freed memory back and ask for it anew, a page at a time, for every large tensor; glibc stops that
# for sizes up to one that it has freed before, 32 MB at most. So tensors of a batch should stay below that.
_KEPT_BYTES = 2**25 - 2**16
_WIDEST_BYTES = 20 * 2**20
_MOST_ROOM = 4_096

_TRIED = (5, 3, 3, 2)  # tokens of the texts on which it is tried
_TOLERANCE = 1e-5  # relative to the largest number
_starts: WeakKeyDictionary[Any, int | None] = WeakKeyDictionary()


def packed_products(model: Any, batches: int) -> AbstractContextManager[Any]:
    """What the model runs in: its linear layers then use copies of their weights, laid out here; or nothing changes.

    It may be entered by several threads. Nothing is written to the model, and weights that change are not followed.
    """
    import torch

    weights = _packable(model) if batches >= _FEWEST_BATCHES else []
    if not weights:
        return nullcontext()
    torch.empty(_KEPT_BYTES, dtype=torch.uint8)  # and freed at once
    with torch.inference_mode():
        packed = {id(weight): _laid_out(weight.detach()) for weight in weights}
    mode: AbstractContextManager[Any] = _mode()(packed)
    return mode


def texts_alone(within: AbstractContextManager[Any], lengths: Sequence[int]) -> AbstractContextManager[Any]:
    """Open a context in which the model runs one row of texts of these lengths; `within` is from `packed_products`."""
    mode: AbstractContextManager[Any] = _mode()(getattr(within, "packed", {}), lengths)
    return mode


def room_of(model: Any) -> int:
    """How many tokens a row of texts should have; 0 if texts of this model are padded."""
    columns = [len(weight) for weight in _packable(model)] or _columns_in_bytes(model)
    if not columns or first_position(model) is None:
        return 0
    return min(_MOST_ROOM, _WIDEST_BYTES // (4 * max(columns)))


def first_position(model: Any) -> int | None:
    """The position of a first token, if texts end to end give the same as padded ones; None if not, or if the model
    is watched or changed just now. Tried once; the model must be out of training mode.
    """
    if not _plain(model):
        return None
    if model not in _starts:
        # Attention within a window is masked in long rows only, which the trial would not show.
        able = "position_ids" in signature(model.forward).parameters
        able = able and not getattr(model.config, "sliding_window", None)
        _starts[model] = _tried(model) if able else None
    return _starts[model]


def forget(model: Any) -> None:
    """Texts of the model are padded from now on."""
    _starts[model] = None


def _tried(model: Any) -> int | None:
    import torch

    places = torch.arange(max(_TRIED)).expand(len(_TRIED), -1)
    mask = places < torch.tensor(_TRIED)[:, None]
    cached = {"use_cache": False} if "use_cache" in signature(model.forward).parameters else {}
    try:
        words = model.get_input_embeddings().num_embeddings
        ids = torch.randint(words, mask.shape, generator=torch.Generator().manual_seed(0))
        ids[ids == model.config.pad_token_id] = words - 1
        with torch.inference_mode():
            padded = model(input_ids=ids, attention_mask=mask.long(), **cached).last_hidden_state[mask]
            row = {"input_ids": ids[mask][None], "attention_mask": mask[mask].long()[None], **cached}
            for start in (0, (model.config.pad_token_id or 0) + 1):  # from the second RoBERTa and its kin count
                with _mode()({}, _TRIED):
                    joined = model(**row, position_ids=places[mask][None] + start).last_hidden_state[0]
                if bool((joined - padded).abs().max() <= _TOLERANCE * padded.abs().max()):
                    return start
    except Exception:  # whatever a model raises that cannot do this
        return None
    return None


def _plain(model: Any) -> bool:
    """Does a model run plainly: torch's attention, not compiled, no hooks except transformers' own for layers?"""
    import torch

    modules = list(model.modules())
    kinds = {getattr(getattr(module, "config", None), "_attn_implementation", "sdpa") for module in modules}
    hooks = (hook for one in modules for own in (one._forward_hooks, one._forward_pre_hooks) for hook in own.values())
    watched = any(getattr(hook, "__module__", None) != "transformers.utils.output_capturing" for hook in hooks)
    watched = watched or torch.nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call]
    return kinds == {"sdpa"} and not watched and all(module._compiled_call_impl is None for module in modules)


def _packable(model: Any) -> list[Any]:
    """The matrices of the linear layers, if they are worth a copy each."""
    weights = list(_weights(model)) if _wins() else []
    return weights if sum(weight.nbytes for weight in weights) <= _MOST_BYTES else []


def _columns_in_bytes(model: Any) -> list[int]:
    """How many columns each linear layer has that was replaced by one in bytes (`int8.py`)."""
    return [layer.columns for layer in model.modules() if isinstance(getattr(layer, "columns", None), int)]


def _wins() -> bool:
    """Is oneDNN faster here? With AVX2 and AVX-512 it is; not timed, so that equal calls give equal bytes."""
    import torch

    ready: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return ready and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def _weights(model: Any) -> Iterable[Any]:
    """The matrices of the linear layers, if they are plain single-precision ones on the CPU."""
    import torch

    for module in model.modules():
        weight: Any = getattr(module, "weight", None)
        if type(module) is torch.nn.Linear and weight.dtype == torch.float32 and weight.device.type == "cpu":
            yield weight


def _laid_out(weight: Any) -> Callable[..., Any]:
    """`linear` with a copy of this weight."""
    from torch import get_num_threads, ops
    from torch.backends.cpu import get_cpu_capability
    from torch.nn.functional import linear

    if get_cpu_capability() != "AVX2" or library() is None or len(weight) % PANEL:
        blocked = ops.mkldnn._reorder_linear_weight(weight)
        return lambda rows, _, bias: ops.mkldnn._linear_pointwise(rows, blocked, bias, "none", [], "")
    laid_out = panels(weight)

    def multiply(rows: Any, weight: Any, bias: Any | None) -> Any:
        fits = rows.is_contiguous() and rows.dtype == weight.dtype and rows.shape[-1] == laid_out.shape[1]
        return product(rows, laid_out, bias) if fits and get_num_threads() == 1 else linear(rows, weight, bias)

    return multiply


@cache
def _mode() -> Any:
    """The class is made when torch is there; it answers for linear layers and, with lengths, for attention."""
    from torch import cat, get_num_threads
    from torch.nn.functional import linear, scaled_dot_product_attention
    from torch.overrides import TorchFunctionMode

    class Packed(TorchFunctionMode):
        def __init__(self, packed: dict[int, Any], lengths: Sequence[int] = ()) -> None:
            super().__init__()
            self.packed = packed
            self._lengths = lengths

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is linear and len(args) == 3 and not kwargs and id(args[1]) in self.packed:
                return self.packed[id(args[1])](*args)
            if func is scaled_dot_product_attention and self._lengths:
                return self._alone(*args, **(kwargs or {}))
            return func(*args, **(kwargs or {}))

        def _alone(self, *rows: Any, attn_mask: Any = None, **settings: Any) -> Any:
            """Attention (1 × heads × tokens × d) of each text by itself, those of one length together."""
            if (
                len(rows) != 3
                or attn_mask is not None
                or any((row.ndim, row.shape[0], row.shape[2]) != (4, 1, sum(self._lengths)) for row in rows)
            ):
                raise RuntimeError("texts end to end: this attention cannot be computed for each text by itself")
            usual = {"dropout_p": 0.0, "is_causal": False, "enable_gqa": False, "scale": settings.get("scale")}
            if {**usual, **settings} == usual and get_num_threads() == 1 and attends(*rows):
                scale = rows[0].shape[3] ** -0.5 if usual["scale"] is None else usual["scale"]
                return attention(*rows, lengths=self._lengths, scale=scale)
            runs = [(length, len(list(same))) for length, same in groupby(self._lengths)]
            sizes = [length * count for length, count in runs]
            parts = []
            for (length, count), *part in zip(runs, *(row[0].split(sizes, dim=1) for row in rows), strict=True):
                texts = (one.unflatten(1, (count, length)).transpose(0, 1) for one in part)
                parts.append(scaled_dot_product_attention(*texts, **settings).transpose(1, 2).flatten(0, 1))
            return cat(parts).transpose(0, 1)[None]

    return Packed


# -- compiled products and attention ----------------------------------------------------------------------------------
#
# Both run on the thread that calls them, so they are for batches that have a core of their own.

# Constants of kernel.c: columns that are computed at a time, and queries whose scores are kept.
PANEL, _QUERIES = 16, 24


class _Product(ctypes.Structure):
    """`struct product` of kernel.c, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("rows", "panels", "bias")),
        *((name, ctypes.c_int64) for name in ("count", "depth", "columns")),
        ("out", ctypes.c_void_p),
    ]


class _Attention(ctypes.Structure):
    """`struct attention` of kernel.c, field by field."""

    _fields_ = [
        ("of", ctypes.c_void_p * 3),
        ("token_step", ctypes.c_int64 * 3),
        ("head_step", ctypes.c_int64 * 3),
        ("lengths", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("texts", "heads", "width")),
        ("scale", ctypes.c_double),
        ("scratch", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
    ]


@cache
def library() -> ctypes.CDLL | None:
    """The compiled functions; None where they are missing, or POOLSCOPE_KERNEL asks for no such copy."""
    files = sorted(Path(__file__).parent.glob("_kernel.*"))
    if not files or copy_name() not in ("v3", "v4"):
        return None
    try:
        compiled = ctypes.CDLL(os.fspath(files[0]))
        for name in ("ready", "product_bytes", "attention_bytes"):
            getattr(compiled, f"poolscope_{name}").restype = ctypes.c_int64
        sizes = compiled.poolscope_product_bytes(), compiled.poolscope_attention_bytes()
    except (OSError, AttributeError):  # built for another machine or version
        return None
    fits = sizes == (ctypes.sizeof(_Product), ctypes.sizeof(_Attention))
    return compiled if fits and compiled.poolscope_ready() else None


def panels(weight: Any) -> Any:
    """A matrix (columns × depth) as `product` takes it; columns is a multiple of PANEL."""
    return weight.unflatten(0, (-1, PANEL)).transpose(1, 2).contiguous()


def product(rows: Any, laid_out: Any, bias: Any | None) -> Any:
    """Rows (… × depth, contiguous) times the transposed matrix of which `laid_out` are the panels, plus the bias."""
    columns, depth = laid_out.shape[0] * PANEL, laid_out.shape[1]
    bias = rows.new_zeros(columns) if bias is None else bias
    out = rows.new_empty((*rows.shape[:-1], columns))
    call = _Product(
        rows.data_ptr(), laid_out.data_ptr(), bias.data_ptr(), rows.numel() // depth, depth, columns, out.data_ptr()
    )
    library().poolscope_product(ctypes.byref(call))  # type: ignore[union-attr]
    return out


def attends(*rows: Any) -> bool:
    """Can `attention` take these queries, keys and values?"""
    one = rows[0]
    alike = all(row.shape == one.shape and row.dtype == one.dtype and row.stride(3) == 1 for row in rows)
    plain = str(one.dtype) == "torch.float32" and one.device.type == "cpu"
    return library() is not None and alike and plain and one.shape[3] % PANEL == 0


def attention(*rows: Any, lengths: Sequence[int], scale: float) -> Any:
    """Attention of queries, keys and values (1 × heads × tokens × width) within each of the texts end to end."""
    _, heads, tokens, width = rows[0].shape
    most = -(-max(lengths) // PANEL) * PANEL
    scratch, out = rows[0].new_empty(most * (2 * width + _QUERIES)), rows[0].new_empty((tokens, heads, width))
    call = _Attention(
        (ctypes.c_void_p * 3)(*(row.data_ptr() for row in rows)),
        (ctypes.c_int64 * 3)(*(row.stride(2) for row in rows)),
        (ctypes.c_int64 * 3)(*(row.stride(1) for row in rows)),
        ctypes.addressof(places := (ctypes.c_int64 * len(lengths))(*lengths)),
        len(places),
        heads,
        width,
        scale,
        scratch.data_ptr(),
        out.data_ptr(),
    )
    library().poolscope_attention(ctypes.byref(call))  # type: ignore[union-attr]
    return out.transpose(0, 1)[None]
