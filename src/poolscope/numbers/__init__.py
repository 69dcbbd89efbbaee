"""The mathematics: numpy in, numpy out; it meets neither files nor pixels."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]
