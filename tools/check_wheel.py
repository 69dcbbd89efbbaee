"""Does an installed wheel work here: its kernel is there and loads, and SOCM of known clouds is what it must be.

Run by the workflow that builds the wheels, in an environment with nothing but the wheel and what it needs.
"""

from __future__ import annotations

import ctypes
from importlib.metadata import files

import numpy as np

from poolscope import TokenClouds, socm

# Two tokens each, with the same mean (1, 0, 0) and deviations along two axes at right angles: both covariances have
# trace 1 and share no direction, so BW² = 1 + 1 − 0, d_Σ = 1/2, d_μ = 0 and SOCM = 1/2.
ALONG_SECOND = np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0]])
ALONG_THIRD = np.array([[1.0, 0.0, 1.0], [1.0, 0.0, -1.0]])


def main() -> None:
    """Raise if something is wrong."""
    kernels = [file for file in files("poolscope") or [] if file.name.startswith("_kernel.")]
    if len(kernels) != 1:
        raise SystemExit(f"the installed package has {len(kernels)} compiled kernels; one is needed. See the build.")
    ctypes.CDLL(str(kernels[0].locate()))
    value = socm(TokenClouds.from_arrays([ALONG_SECOND, ALONG_THIRD])).pairs.socm[0]
    if abs(value - 0.5) > 1e-6:
        raise SystemExit(f"SOCM of two known clouds is {value!r}; it must be 0.5.")
    print(f"{kernels[0].name} loads, and SOCM of two known clouds is {value:.6f}")


if __name__ == "__main__":
    main()
