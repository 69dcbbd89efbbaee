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
    parts = [np.array([*head, scratch]), np.array([0.0 if ridge is None else ridge.eps]), whole]
    parts += [left, right, poles, weights, *scales, energies, norms, squares]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
