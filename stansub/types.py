"""Names of types."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
# Indices of observations; 32 bits, because data are tall.
Places: TypeAlias = NDArray[np.int32] | NDArray[np.int64]
# Long work calls it often; it raises an error if it is time to stop (`stansub.progress.Progress.check`).
Check: TypeAlias = Callable[[], None]
