"""Names of array types."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
# Indices of observations; 32 bits, because data are tall.
Places: TypeAlias = NDArray[np.int32] | NDArray[np.int64]
