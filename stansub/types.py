"""Arrays as they are named throughout."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
# Numbers of observations; of tall data in 32 bits.
Places: TypeAlias = NDArray[np.int32] | NDArray[np.int64]
