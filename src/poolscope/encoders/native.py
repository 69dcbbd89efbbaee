"""Products with weights and attention of texts end to end by compiled code, where this installation and CPU have it.

`kernel.c` says how. Both run on the thread that calls them, so they are for batches that have a core of their own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from poolscope.numbers.bures.native import copy_name

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
