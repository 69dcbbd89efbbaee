"""Write inputs of the compiled kernel, with the norms that numpy finds for them, for tools/kernel_check.c.

    python tools/kernel_inputs.py FOLDER

The norms come from `poolscope.numbers.bures.plain`, which shares no code with the kernel.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from poolscope.numbers.bures import native, plain
from poolscope.numbers.bures.native import square_root_poles

# Rows of left texts and of right groups: none, one, fewer and more than a tile, more than a chunk, each side smaller.
SHAPES = {
    "small": ([0, 1, 2, 3, 5, 8], [1, 0, 4, 9]),
    "usual": ([23, 31, 32, 33], [30, 31, 40]),
    "long": ([130, 7], [66, 129]),
}


def main(folder: Path) -> None:
    """Write every shape in every variant."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, (lefts, rights)) in enumerate(SHAPES.items()):
        random = np.random.default_rng(number)
        for variant in ("plain", "corners", "ridge-left", "ridge-right"):
            (folder / f"{name}-{variant}.bin").write_bytes(block(random, lefts, rights, variant))
        for variant in ("list", "list-corners"):
            (folder / f"{name}-{variant}.bin").write_bytes(listed(random, lefts, rights, variant == "list-corners"))


def block(random: np.random.Generator, lefts: list[int], rights: list[int], variant: str) -> bytes:
    """One file: a random block with texts of these sizes, and its norms."""
    left, right = (np.concatenate([[0], np.cumsum(sizes)]) for sizes in (lefts, rights))
    # Three columns more than there are, as the rows of a block are not contiguous.
    whole = (random.normal(size=(left[-1], right[-1] * native.LANES + 3)) / 60).astype(np.float32)
    products = whole[:, :-3]
    scales = random.uniform(0.1, 2, size=len(lefts)), random.uniform(0.1, 2, size=len(rights) * native.LANES)
    side = {"ridge-left": 1, "ridge-right": 2}.get(variant, 0)
    corners, ridge, energies = None, None, np.zeros(0)
    if variant == "corners":
        # A text without rows has no corner.
        scales = corners = (
            1000 * scales[0] * (np.array(lefts) > 0),
            1000 * scales[1] * (np.repeat(rights, native.LANES) > 0),
        )
    elif side:
        energies = random.uniform(0.01, 1, size=(0, left[-1], right[-1] * native.LANES)[side])
        ridge = native.Ridge(1e-9, side == 1, energies, *scales)
    norms, squares = plain.norms(products, left, right, corners=corners, ridge=ridge)
    heights = max(lefts), max(rights)
    scratch = native.scratch_doubles(min(heights) if ridge is None else heights[side - 1], max(heights))
    poles, weights = square_root_poles()
    head = [len(whole), whole.shape[1], len(lefts), len(rights), len(poles), int(corners is not None), side]
    parts = [np.array([*head, scratch, 0]), np.array([0.0 if ridge is None else ridge.eps]), whole]
    parts += [left, right, poles, weights, *scales, energies, norms, squares]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def listed(random: np.random.Generator, lefts: list[int], rights: list[int], cornered: bool) -> bytes:
    """One file: the pairs of a random block, as a list; some higher than wide, the last group not full."""
    whole = (random.normal(size=(sum(lefts), sum(rights) + 3)) / 60).astype(np.float32)
    count, stride = len(lefts) * len(rights), whole.shape[1]
    groups = count // native.LANES + 1
    pairs, expected = np.zeros((groups * native.LANES, 3), dtype=np.int64), np.zeros((2, groups * native.LANES))
    corners = np.zeros(len(pairs))
    for k, (i, j) in enumerate(np.ndindex(len(lefts), len(rights))):
        rows, columns = (slice(sum(sizes[:at]), sum(sizes[: at + 1])) for sizes, at in ((lefts, i), (rights, j)))
        pairs[k] = rows.start * stride + columns.start, lefts[i], rights[j]
        matrix = whole[rows, columns].astype(np.float64)
        corners[k] = 1e5 * random.uniform(1, 2) if cornered and matrix.size else 0.0
        if matrix.size:
            matrix[0, 0] += corners[k]
        values = np.linalg.svd(matrix, compute_uv=False)
        expected[:, k] = values.sum(), (values**2).sum()
    side, longest = (int(fold(pairs[:, 1], pairs[:, 2]).max()) for fold in (np.minimum, np.maximum))
    poles, weights = square_root_poles()
    head = [len(whole), stride, 1, groups, len(poles), int(cornered), 0, native.scratch_doubles(side, longest)]
    parts = [np.array([*head, side * longest * native.LANES]), np.zeros(1), whole, np.zeros(2, dtype=np.int64)]
    parts += [np.zeros(groups + 1, dtype=np.int64), poles, weights, np.ones(1), corners, *expected, pairs]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
