"""Random generators for the extension module."""

from typing import Any

import numpy as np

_KEPT: list[np.random.Generator] = []


def capsule(rng: np.random.Generator) -> Any:
    """Its capsule, which alone would not keep it from being freed."""
    _KEPT.append(rng)
    return rng.bit_generator.capsule
