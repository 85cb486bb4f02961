"""What the applications of logistic regression share: `logistic.stan`, digits, random walks that are timed, curves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import arviz as az
import matplotlib
import numpy as np
from common import EXACT_COLOUR, Array, Curve, Drawn, Settings, risk
from scipy.special import expit

import stansub

PROGRAM = Path(__file__).with_name("logistic.stan")

# Chen, Mansinghka and Ghahramani (2015), equation 7: w ~ N(0, 0.1 I).
PRIOR_VARIANCE = 0.1
# Observations a block: rows that lie together cost a fifth of what single rows cost.
BLOCK = 10
# Draws of a chain whose functions are evaluated.
_EVALUATED = 1500
# The sampler may not be asked for a number of seconds and an endless number of steps.
MANY_STEPS, THIN = 4_000_000, 20

Function = Callable[[Array], Array]


class Digits(NamedTuple):
    """The digits 7 and 9 of MNIST in principal components.

    Attributes
    ----------
    x, x_test : ndarray, shape (n, 50), (n_test, 50)
    y : ndarray of int, shape (n,)
    real : bool
        Whether these are the digits; else data of the same shape.
    """

    x: Array
    y: Any
    x_test: Array
    real: bool


def digits(settings: Settings) -> Digits:
    """The digits, or where there are none, data of the same shape from the model itself."""
    path = settings.find("mnist_7v9/mnist_7v9_pca50.npz")
    if path is not None:
        found = np.load(path)
        x, x_test = (found[name].astype(float) for name in ("X_train", "X_test"))
        return Digits(x, found["y_train"].astype(int), x_test, True)
    rng = np.random.default_rng(settings.seed)
    x = rng.standard_normal((12_214 + 2_037, 50)) * np.geomspace(2.3, 0.32, 50)  # the sds of the components
    y = rng.random(len(x)) < expit(x @ rng.normal(0, np.sqrt(PRIOR_VARIANCE), 50))
    return Digits(x[:12_214], y[:12_214].astype(int), x[12_214:], False)


def stan_data(x: Array, y: Any) -> dict[str, Any]:
    """Data of the program."""
    return {"N": len(y), "K": x.shape[1], "prior_sd": PRIOR_VARIANCE**0.5, "y": y, "x": x}


def looks_of(observations: int, block: int = BLOCK) -> stansub.Fixed:
    """A look at every so many observations (Korattikara et al. 2014, algorithm 1)."""
    return stansub.Fixed(size=observations // block)


def walk(
    posterior: stansub.Posterior,
    cholesky: Array,
    epsilon: float,
    *,
    starts: Array,
    mini_batch: int = 500,
    seconds: float | None = None,
    steps: int | None = None,
    **options: Any,
) -> Any:
    """Random walks with the papers' test, one from each start, for so many seconds or steps.

    Two chains run at once; those given by seconds are thinned by `THIN`.
    """
    how = {"test": stansub.Austerity(epsilon=epsilon, looks=looks_of(mini_batch, posterior.blocks.sizes[0]))}
    how |= {"proposal": stansub.RandomWalk(cholesky), "control_variates": 0, "iter_warmup": 0}
    if seconds is not None:
        how |= {"max_time": seconds * len(starts) / 2, "iter_sampling": MANY_STEPS, "thin": THIN}
    else:
        how |= {"iter_sampling": steps}
    inits = [{"beta": start} for start in starts]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stansub.DrawsWarning)  # of short chains, which are what is compared
        return stansub.sample(
            posterior, chains=len(starts), parallel_chains=2, inits=inits, show_progress=False, **how | options
        )


def weights(idata: Any) -> Array:
    """Draws, shape (chains, draws, K)."""
    found: Array = idata["posterior"]["beta"].to_numpy()
    return found


def isotropic(draws: Array) -> Array:
    """Factor of a random walk with the same sd in every direction, of optimal scale for these draws.

    A step s z changes a normal log density with precision P by -s^2 z'Pz / 2 on average, which in many dimensions is
    best at s^2 tr(P) = 2.38^2 (Roberts, Gelman and Gilks 1997).
    """
    dim = draws.shape[-1]
    precision = np.linalg.inv(np.cov(draws.reshape(-1, dim).T))
    return 2.38 / np.sqrt(np.trace(precision)) * np.eye(dim)


def curve(idata: Any, function: Function, truth: Array, *, start: float = 0.0) -> Curve:
    """Risk of the means of a function of the weights against seconds of a chain, averaged over values and chains."""
    draws = weights(idata)
    every = max(1, draws.shape[1] // _EVALUATED)
    values = [function(own[::every]) for own in draws]
    return risk(values, list(idata["chain_stats"]["sampling_time"].to_numpy()), truth, start=start)


def start_of(engine: Drawn) -> float:
    """Seconds before the first draw of an engine that is not compiled any more: set-up and warmup of a chain."""
    warmup = float(engine.idata["chain_stats"]["warmup_time"].mean())
    return float(engine.idata.attrs["setup_time"]) + warmup


def squared_error(idata: Any, function: Function, *, n: int = 100) -> float:
    """Squared Monte Carlo standard error of the means of a function, averaged over at most ``n`` of its values."""
    draws = weights(idata)
    n_values = function(draws[0, :1]).shape[1]
    which = np.unique(np.linspace(0, n_values - 1, n).astype(int))
    values = np.stack([function(own)[:, which] for own in draws])
    return float((az.mcse(az.convert_to_dataset({"f": values}))["f"] ** 2).mean())


def mean_of(idata: Any, function: Function) -> Array:
    """Posterior means of a function of the weights."""
    return np.mean([function(own).mean(axis=0) for own in weights(idata)], axis=0)


def agreement(one: Any, other: Any, function: Function) -> float:
    """Squared difference of two means, over what their Monte Carlo errors lead one to expect: 1 where they agree."""
    difference = float(((mean_of(one, function) - mean_of(other, function)) ** 2).mean())
    return difference / (squared_error(one, function) + squared_error(other, function))


def costs(engine: Drawn) -> dict[str, float]:
    """Of an engine, for the table of a page."""
    return {"whole": engine.whole, "ess": engine.ess, "per_second": engine.ess_per_second}


def shades(n: int, name: str = "Blues") -> list[str]:
    """Shades of a colour, from light to dark."""
    return [matplotlib.colors.to_hex(one) for one in matplotlib.colormaps[name](np.linspace(0.4, 0.95, n))]


def level_colours(labels: Sequence[str]) -> Mapping[str, str]:
    """Colours of error levels in order; the first is the exact one."""
    return dict(zip(labels, [EXACT_COLOUR, *shades(len(labels) - 1)[::-1]], strict=True))


class End(NamedTuple):
    """A risk at some time, with its standard error over chains."""

    seconds: float
    risk: float
    error: float

    def below(self, other: End) -> bool:
        """Whether it is lower by more than two standard errors."""
        return bool(other.risk - self.risk > 2 * np.hypot(self.error, other.error))


def ends(curves: Mapping[str, Curve]) -> dict[str, End]:
    """Risks at the last time that all curves have reached."""
    last = min(curve.seconds[-1] for curve in curves.values())
    found = {}
    for name, curve in curves.items():
        place = int(np.searchsorted(curve.seconds, last * (1 + 1e-9), side="right")) - 1
        found[name] = End(float(last), float(curve.risk[place]), float(curve.error[place]))
    return found
