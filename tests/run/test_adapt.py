"""Adaptation on Gaussians, without Stan."""

from typing import Any

import numpy as np
import pytest
import toys

from stansub import InputError, RandomWalk
from stansub.kernels.metropolis import MetropolisHastings
from stansub.kernels.proposals import NoAdapter
from stansub.kernels.sgld import MiniBatches
from stansub.run.chain import Chain
from stansub.run.state import Plan
from stansub.tuning.adapt import (
    LANGEVIN_ACCEPTANCE,
    CovarianceAdapter,
    ScaleAdapter,
    SgldAdapter,
    target_acceptance,
)
from stansub.tuning.proposal_names import AdapterContext, check_proposal, make_adapter

# Standard deviations 100 and 0.1 beside each other, and a correlation of 0.95.
NARROW = np.array([[1e4, 9.5, 0.0], [9.5, 1e-2, 0.0], [0.0, 0.0, 1.0]])


def chain(decider: Any, adapter: Any, **plan: Any) -> Chain:
    settings = {"iter_warmup": 4000, "iter_sampling": 4000, "thin": 1, "audit": 0.0, "save_warmup": False} | plan
    kernel = MetropolisHastings(decider)
    return Chain(
        kernel,
        kernel.current_state,
        adapter,
        Plan(**settings),
        rng=np.random.default_rng(1),
        audit_rng=np.random.default_rng(2),
        n_observations=1,
        stop=np.zeros(1, np.int32),
    )


def run(made: Chain) -> Chain:
    while made.advance():
        pass
    return made


@pytest.mark.parametrize("adapter", [ScaleAdapter, CovarianceAdapter])
@pytest.mark.parametrize(
    "covariance", [np.array([[1e-6]]), np.array([[1e6]]), np.diag([1.0, 4.0, 0.25])], ids=["small", "large", "three"]
)
def test_acceptance_comes_near_its_target(adapter: type[ScaleAdapter], covariance: Any) -> None:
    dim = len(covariance)
    totals = run(chain(toys.gaussian(covariance), adapter(dim))).sampling.totals
    assert totals["n_accepted"] / totals["n_steps"] == pytest.approx(target_acceptance(dim), abs=0.07)


def test_the_covariance_is_learned() -> None:
    made = run(chain(toys.gaussian(NARROW), CovarianceAdapter(3), iter_warmup=8000))
    factor = made.proposal.cholesky  # type: ignore[attr-defined]
    learned = factor @ factor.T
    sd = np.sqrt(np.diag(learned))
    assert learned[0, 1] / (sd[0] * sd[1]) > 0.8
    assert sd[0] / sd[1] == pytest.approx(1000, rel=0.4)
    mixed = made.draws[:, 0]
    assert np.ptp(mixed) > 300, "the wide direction is explored"

    scaled = run(chain(toys.gaussian(NARROW), ScaleAdapter(3), iter_warmup=8000))
    assert np.ptp(scaled.draws[:, 0]) < 300, "the scale alone does not do it"


class Slope:
    """Gradient of a centred Gaussian that is cut into ten equal blocks."""

    def __init__(self, covariance: Any) -> None:
        self._precision = np.linalg.inv(covariance)

    def subset_log_density_gradient(self, theta: Any, which: Any) -> tuple[float, Any]:
        return 0.0, -self._precision @ theta * len(which) / 10


def sgld(covariance: Any, cholesky: Any = None) -> SgldAdapter:
    batches = MiniBatches(Slope(covariance), np.full(10, 7, np.int32), size=5)
    return SgldAdapter(batches, len(covariance), cholesky=cholesky)


@pytest.mark.parametrize("scale", [1e-3, pytest.param(1e3, marks=pytest.mark.slow)])
def test_langevin_steps_come_near_their_own_acceptance(scale: float) -> None:
    covariance = scale**2 * np.array([[1.0, 0.9], [0.9, 4.0]])
    factor = np.linalg.cholesky(covariance)
    for adapter in (sgld(covariance), sgld(covariance, factor)):
        made = run(chain(toys.gaussian(covariance), adapter, iter_sampling=2000))
        totals = made.sampling.totals
        assert totals["n_accepted"] / totals["n_steps"] == pytest.approx(LANGEVIN_ACCEPTANCE, abs=0.07)
        assert np.std(made.draws, axis=0) == pytest.approx(scale * np.array([1, 2]), rel=0.2)
    assert np.allclose(made.proposal.cholesky / made.proposal.cholesky[0, 0], factor / factor[0, 0])  # type: ignore[attr-defined]


def test_gradients_count_as_evaluations() -> None:
    made = run(chain(toys.gaussian(np.eye(2)), sgld(np.eye(2)), iter_warmup=100, iter_sampling=200))
    walk = run(chain(toys.gaussian(np.eye(2)), ScaleAdapter(2), iter_warmup=100, iter_sampling=200))
    assert made.sampling.totals["n_obs_evaluated"] - walk.sampling.totals["n_obs_evaluated"] == 200 * 2 * 35


def test_scales_from_before_the_covariance_was_learned_do_not_count() -> None:
    adapter = CovarianceAdapter(2)
    for _ in range(30):
        adapter.update(np.zeros((25, 2)), 0.0)
    adapter.update(1000 * np.random.default_rng(1).standard_normal((200, 2)), adapter.target)
    assert adapter.shape[0, 0] > 100
    np.testing.assert_allclose(adapter.final().cholesky, 2.38 / np.sqrt(2) * adapter.shape)


@pytest.mark.filterwarnings("error")
def test_draws_that_run_to_infinity_do_not_change_the_covariance() -> None:
    adapter, random = CovarianceAdapter(2), np.random.default_rng(1)
    adapter.update(random.standard_normal((200, 2)), adapter.target)
    learned = adapter.shape.copy()
    adapter.update(1e200 * random.standard_normal((200, 2)), adapter.target)
    np.testing.assert_array_equal(adapter.shape, learned)
    assert np.linalg.norm(learned) > 0


def test_the_proposal_is_frozen_after_warmup() -> None:
    made = chain(toys.gaussian(np.eye(2)), CovarianceAdapter(2), iter_warmup=500, iter_sampling=500)
    seen = []
    while made.advance():
        seen.append((made.sampling.totals["n_steps"], made.proposal))
    in_warmup = {id(proposal) for steps, proposal in seen if steps == 0}
    after = {id(proposal) for steps, proposal in seen if steps > 0}
    assert len(in_warmup) > 5
    assert len(after) == 1


def test_a_given_proposal_is_not_adapted() -> None:
    walk = RandomWalk(0.7 * np.eye(2))
    made = run(
        chain(toys.gaussian(np.eye(2)), make_adapter(walk, AdapterContext(2)), iter_warmup=200, iter_sampling=200)
    )
    assert made.proposal is walk
    assert isinstance(make_adapter(lambda rng, position: (position, 0.0), AdapterContext(5)), NoAdapter)


def test_proposals_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="3 unconstrained"):
        make_adapter(RandomWalk(np.eye(2)), AdapterContext(3))
    with pytest.raises(
        InputError, match="choose from auto, laplace-pcn, trajectory, langevin, adaptive-metropolis, random-walk, sgld"
    ):
        check_proposal("hamiltonian")
    with pytest.raises(InputError, match="sgld updates all parameters at once"):
        make_adapter("sgld", AdapterContext(3))
    with pytest.raises(
        InputError, match="'langevin' cannot be used here; choose from adaptive-metropolis, random-walk, sgld"
    ):
        make_adapter("langevin", AdapterContext(3))
    with pytest.raises(InputError, match="function"):
        check_proposal(3)  # type: ignore[arg-type]


def test_progress_counts_the_present_phase() -> None:
    made = chain(toys.gaussian(np.eye(1)), ScaleAdapter(1), iter_warmup=100, iter_sampling=200)
    assert made.status.warmup
    assert made.status.steps == 0
    made.advance()
    assert (made.status.steps, made.status.total, made.status.warmup) == (25, 300, True)
    run(made)
    totals = made.sampling.totals
    assert (made.status.steps, made.status.warmup) == (300, False)
    assert made.status.acceptance == totals["n_accepted"] / totals["n_steps"]
    assert made.done


@pytest.mark.parametrize("thin", [1, 3, 7])
@pytest.mark.parametrize("save_warmup", [True, False])
@pytest.mark.parametrize("iter_warmup", [0, 10, 100])
def test_thinning_keeps_every_kth_step_of_each_phase(thin: int, save_warmup: bool, iter_warmup: int) -> None:
    plan = {"iter_warmup": iter_warmup, "iter_sampling": 250}
    everything = run(chain(toys.gaussian(np.eye(2)), CovarianceAdapter(2), save_warmup=True, **plan))
    some = run(chain(toys.gaussian(np.eye(2)), CovarianceAdapter(2), thin=thin, save_warmup=save_warmup, **plan))
    np.testing.assert_array_equal(some.draws, everything.draws[thin - 1 :: thin])
    assert some.sampling.n_kept == 250 // thin
    assert some.warmup.n_kept == (iter_warmup // thin if save_warmup else 0)
    np.testing.assert_array_equal(
        some.warmup.kept.read().theta,
        everything.warmup.kept.read().theta[thin - 1 :: thin] if save_warmup else np.empty((0, 2)),
    )
    times = {"seconds", "audit_time", "wait_time"}
    assert {name: value for name, value in some.sampling.totals.items() if name not in times} == {
        name: value for name, value in everything.sampling.totals.items() if name not in times
    }
