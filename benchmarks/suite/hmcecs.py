"""numpyro's HMC with energy-conserving subsampling (Dang, Quiroz, Kohn, Tran and Villani 2019, JMLR 20)."""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from suite.base import Run, Task, Unavailable

_WARMUP, _DRAWS = 1000, 1000
_SUBSAMPLE, _BLOCKS = 1000, 100
_FAMILIES = ("logistic", "poisson", "linear")


def run(task: Task) -> Run:
    """NUTS inside HMCECS, a second-order Taylor proxy at the mode, subsamples of a thousand, in double precision.

    Each chain has a process: numpyro's own parallel chains fail with a proxy, whose values escape JAX's trace, and its
    programs cannot be traced in threads.
    """
    for package in ("numpyro", "jax"):
        if not find_spec(package):
            raise Unavailable(f"{package} is not installed (pip install numpyro)")
    if task.workload.family not in _FAMILIES:
        raise Unavailable("no numpyro program is written for it")
    from importlib.metadata import version

    with ProcessPoolExecutor(task.chains, mp_context=get_context("spawn")) as pool:
        chains = list(pool.map(_chain, [task] * task.chains, range(task.chains)))
    share = min(_SUBSAMPLE, task.workload.n) / task.workload.n
    steps = sum(chain.steps for chain in chains)
    return Run(
        draws={name: np.stack([chain.draws[name] for chain in chains]) for name in chains[0].draws},
        load_s=max(chain.seconds[0] for chain in chains),
        setup_s=max(chain.seconds[1] for chain in chains),
        warmup_s=max(chain.seconds[2] for chain in chains),
        sampling_s=max(chain.seconds[3] for chain in chains),
        warmup_passes=sum(chain.full_passes + share * chain.warmup_steps for chain in chains),
        sampling_passes=share * steps,
        notes=[
            f"subsamples of {_SUBSAMPLE:,}, {steps / (task.chains * _DRAWS):.1f} leapfrog steps a draw",
            "JAX compiles in warmup; less of it where an earlier run has filled its cache",
        ],
        versions={package: version(package) for package in ("numpyro", "jax")},
    )


class _Chain(NamedTuple):
    """A chain's draws, its seconds of loading, setting up, warmup and sampling, and what it evaluated."""

    draws: dict[str, NDArray[Any]]
    seconds: tuple[float, float, float, float]
    full_passes: int
    warmup_steps: float
    steps: float


def _chain(task: Task, number: int) -> _Chain:
    # Read when JAX starts: one core a chain.
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    import orjson
    from numpyro.infer import HMCECS, MCMC, NUTS
    from scipy.optimize import minimize

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_compilation_cache_dir", str(task.cache / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    times = [time.perf_counter()]
    data = orjson.loads(task.data.read_bytes())
    times.append(time.perf_counter())
    x = jnp.asarray(np.asarray(data["x"]))
    y = jnp.asarray(np.asarray(data["late" if "late" in data else "y"]))
    offset = jnp.asarray(np.asarray(data.get("log_exposure", np.zeros(len(y)))))
    n, k = x.shape
    family = task.workload.family
    prior_sd = 10.0 if family == "linear" else 2.5

    def likelihood(alpha: Any, beta: Any, sigma: Any, rows: Any) -> Any:
        eta = offset[rows] + alpha + x[rows] @ beta
        if family == "logistic":
            return dist.Bernoulli(logits=eta)
        return dist.Poisson(jnp.exp(eta)) if family == "poisson" else dist.Normal(eta, sigma)

    def model() -> None:
        alpha = numpyro.sample("alpha", dist.Normal(0.0, prior_sd))
        beta = numpyro.sample("beta", dist.Normal(0.0, prior_sd).expand([k]).to_event(1))
        sigma = numpyro.sample("sigma", dist.Exponential(1.0)) if family == "linear" else None
        with numpyro.plate("N", n, subsample_size=min(_SUBSAMPLE, n)) as rows:
            numpyro.sample("y", likelihood(alpha, beta, sigma, rows), obs=y[rows])

    def parts(flat: Any) -> tuple[Any, Any, Any]:
        return flat[0], flat[1 : k + 1], jnp.exp(flat[k + 1]) if family == "linear" else None

    def negative(flat: Any) -> Any:
        alpha, beta, sigma = parts(flat)
        prior = (alpha**2 + (beta**2).sum()) / (2 * prior_sd**2) + (sigma if family == "linear" else 0.0)
        return prior - likelihood(alpha, beta, sigma, slice(None)).log_prob(y).sum()

    compiled = jax.jit(jax.value_and_grad(negative))

    def objective(flat: Any) -> tuple[float, Any]:
        value, gradient = compiled(flat)
        return float(value), np.asarray(gradient)

    times.append(time.perf_counter())
    dim = k + 1 + (family == "linear")
    found = minimize(objective, np.zeros(dim), jac=True, method="BFGS")
    alpha, beta, sigma = parts(jnp.asarray(found.x))
    mode = {"alpha": alpha, "beta": beta, **({"sigma": sigma} if family == "linear" else {})}
    kernel = HMCECS(
        NUTS(model, init_strategy=numpyro.infer.init_to_value(values=mode)),
        num_blocks=_BLOCKS,
        proxy=HMCECS.taylor_proxy(mode, degree=2),
    )
    mcmc = MCMC(kernel, num_warmup=_WARMUP, num_samples=_DRAWS, progress_bar=False)
    key, steps = jax.random.fold_in(jax.random.PRNGKey(task.seed), number), []
    for phase, options in ((mcmc.warmup, {"collect_warmup": True}), (mcmc.run, {})):
        phase(key, extra_fields=("hmc_state.num_steps",), **options)
        steps.append(float(np.sum(mcmc.get_extra_fields()["hmc_state.num_steps"])))
        times.append(time.perf_counter())
    draws = {name: np.asarray(values) for name, values in mcmc.get_samples().items()}
    load, setup, warmup, sampling = np.diff(times).tolist()
    return _Chain(draws, (load, setup, warmup, sampling), int(found.nfev), *steps)
