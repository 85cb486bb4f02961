"""Data of the program that gives every element of its data back (`model/programs/layout.stan`)."""

from typing import Any

import numpy as np


def example(n: int, k: int = 2) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "N": n,
        "K": k,
        "y": rng.standard_normal(n),
        "z": rng.integers(0, 2**31, n),
        "x": rng.standard_normal((n, k)),
        "w": rng.standard_normal((k, n)),
        "r": rng.standard_normal((2, n, k)),
        "m": rng.integers(-(2**31), 2**31, (n, k)),
        "c": rng.standard_normal((n, 2)),
        "fixed": rng.standard_normal(k),
        "one": [1, -2],
        "s": -3,
        "Sigma": [[[2.0, v], [v, 2.0]] for v in rng.uniform(-1, 1, n)],
        "R": [[1, 0.25], [0.25, 1]],
        "L": [[2, 0], [-1.5, 1]],
        "T": [[[2, 0], [-1.5, 1], [4, 5]], [[3, 0], [7, 8], [9, 6]]],
        "C": [[1, 0], [0.6, 0.8]],
        "p": rng.dirichlet([1, 2, 3], n),
        "o": [-2, 1],
        "q": [1, 2],
        "u": [0.6, -0.8],
        "Z": rng.standard_normal((2, n, 2)),
    }
