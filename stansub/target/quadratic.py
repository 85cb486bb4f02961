"""Global parts that are sums of quadratics of one parameter each, such as normal priors on unbounded parameters.

If decisions use next to no data, a call of the program for its priors costs as much as everything else. The program's
text is not used: the sum is compared with the program at points throughout the box in which it is used.
"""

from __future__ import annotations

import numpy as np

from stansub._loop import GlobalQuadratic
from stansub.target.factors import Evaluator
from stansub.types import FloatArray

# Points of the box at which the sum is compared with the program, and corners among them; the same for every chain.
_POINTS, _CORNERS = 64, 16
# Tolerated differences, relative to the terms: thousands of rounding errors, far less than affects decisions.
_TOLERANCE = 1e-12


def global_quadratic(evaluator: Evaluator, centre: FloatArray, reach: FloatArray) -> GlobalQuadratic | None:
    """Return the global part as a sum of quadratics of one parameter each; None if it is not such a sum.

    The sum must hold in a box: up to ``reach``, shape (dim,), from the centre in either direction.
    """
    middle = evaluator.global_log_density(centre)
    steps = np.diag(reach)
    up, down = (np.array([evaluator.global_log_density(at) for at in centre + sign * steps]) for sign in (1, -1))
    if not np.isfinite([middle, *up, *down]).all():
        return None
    slope, curvature = (up - down) / (2 * reach), (up + down - 2 * middle) / reach**2
    quadratic = GlobalQuadratic(centre, reach, middle, slope, curvature)
    units = np.random.default_rng(0).uniform(-1, 1, (_POINTS, len(centre)))
    units[:_CORNERS] = np.sign(units[:_CORNERS])
    for change in units * reach:
        terms = np.abs(slope * change).sum() + np.abs(curvature * change**2).sum()
        allowed = _TOLERANCE * (1 + abs(middle) + terms)
        # An undefined value exceeds any bound.
        if not abs(evaluator.global_log_density(centre + change) - quadratic(centre + change)) <= allowed:
            return None
    return quadratic
