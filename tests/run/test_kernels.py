"""Kernels of kernels on a Stan program, against its posterior by quadrature."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import statistic, unconstrained
from numpy.typing import NDArray

import stansub
from stansub import CompiledModel, InputError, Metropolis, Mixture, OnParameters, Sequence
from stansub.output.record import record_of
from stansub.output.statistics import table
from stansub.target.footprints import Footprints

Array = NDArray[np.float64]

PROGRAMS = Path(__file__).parent / "programs"
MAX_Z = 4.5
RUN: dict[str, Any] = {"chains": 4, "iter_warmup": 1000, "iter_sampling": 2000, "seed": 8, "block_size": 4}
# Of a joint posterior with a product of log densities no part of which may be left out.
NAMES = ["mu", "tau", "effect[1]", "effect[2]", "effect[3]"]


@pytest.fixture(scope="module")
def program() -> CompiledModel:
    return stansub.compile_model(PROGRAMS / "centred_effects.stan")


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    group = np.repeat([1, 2, 3], [30, 20, 10])
    return {"J": 3, "N": 60, "group": group, "y": rng.normal(np.array([-0.6, 0.3, 0.9])[group - 1], 1)}


@pytest.fixture(scope="module")
def truth(data: dict[str, Any]) -> Array:
    """Means and sds of mu, tau and the effects, shape (2, 5): normal given tau, which is summed over a grid."""
    y, group = np.asarray(data["y"]), np.asarray(data["group"])
    n = np.bincount(group)[1:]
    sums = np.bincount(group, weights=y)[1:]
    weights, means, squares = [], [], []
    for tau in (grid := np.linspace(0.005, 5, 2000)):
        precision = np.diag([1 / 4 + 3 / tau**2, *(n + 1 / tau**2)])
        precision[0, 1:] = precision[1:, 0] = -1 / tau**2
        covariance = np.linalg.inv(precision)
        mean = covariance @ np.array([0.0, *sums])
        log_weight = mean @ precision @ mean / 2 + np.linalg.slogdet(covariance)[1] / 2 - 3 * np.log(tau) - tau**2 / 2
        weights.append(log_weight)
        means.append(mean)
        squares.append(np.diag(covariance) + mean**2)
    weight = np.exp(np.array(weights) - max(weights))
    weight /= weight.sum()
    mean, square = weight @ np.array(means), weight @ np.array(squares)
    sd = np.sqrt(square - mean**2)
    tau = weight @ grid, np.sqrt(weight @ grid**2 - (weight @ grid) ** 2)
    return np.array([[mean[0], tau[0], *mean[1:]], [sd[0], tau[1], *sd[1:]]])


def largest_z(idata: Any, truth: Array) -> float:
    """Of all errors of means and sds, in Monte Carlo standard errors."""
    seen = table(idata).loc[NAMES]
    errors = [(seen["mean"] - truth[0]) / seen["mcse_mean"], (seen["sd"] - truth[1]) / seen["mcse_sd"]]
    return float(np.abs(errors).max())


def test_in_sequence_with_a_scale_that_touches_no_data(
    program: CompiledModel, data: dict[str, Any], truth: Array
) -> None:
    kernel = Sequence(
        scale=OnParameters(Metropolis("random-walk"), ["tau"]),
        effects=OnParameters(Metropolis(), ["mu", "effect"]),
    )
    idata = stansub.sample(program, data, kernel=kernel, test="exact", control_variates=0, **RUN)
    assert largest_z(idata, truth) < MAX_Z
    assert (statistic(idata, "scale.n_obs_used") == 0).all()
    assert statistic(idata, "effects.n_obs_used").min() > 0
    for name in ("scale", "effects"):
        assert 0.1 < statistic(idata, f"{name}.accepted").mean() < 0.6


def test_two_of_five_parameters_beside_a_kernel_on_all(
    program: CompiledModel, data: dict[str, Any], truth: Array
) -> None:
    kernel = Mixture(all=Metropolis(), two=OnParameters(Metropolis("random-walk"), ["mu", "tau"]))
    idata = stansub.sample(program, data, kernel=kernel, test="exact", control_variates=0, **RUN)
    assert largest_z(idata, truth) < MAX_Z
    component = statistic(idata, "component")
    assert 0.45 < component.mean() < 0.55
    moved = np.diff(unconstrained(idata), axis=1) != 0
    by_two = component[:, 1:] == 1
    assert moved[by_two][:, :2].any()
    assert not moved[by_two][:, 2:].any(), "the other three stand still"


@pytest.mark.slow
def test_one_group_is_decided_from_its_own_observations(
    program: CompiledModel, data: dict[str, Any], truth: Array
) -> None:
    kernel = Sequence(third=OnParameters(Metropolis("random-walk"), ["effect.3"]), all=Metropolis())
    idata = stansub.sample(program, data, kernel=kernel, test="exact", control_variates=0, **RUN | {"block_size": 1})
    assert (statistic(idata, "third.n_obs_used") == 10).all()
    assert largest_z(idata, truth) < MAX_Z


def test_factors_that_are_left_out_are_seen(
    program: CompiledModel, data: dict[str, Any], truth: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a kernel that is wrong about what its parameters touch."""
    monkeypatch.setattr(Footprints, "touched_by", lambda footprints, places: np.arange(5, dtype=np.int32))
    scale, rest = OnParameters(Metropolis("random-walk"), ["tau"]), OnParameters(Metropolis(), ["mu", "effect"])
    kernel = Sequence(scale=scale, rest=rest)
    idata = stansub.sample(program, data, kernel=kernel, test="exact", control_variates=0, **RUN)
    assert largest_z(idata, truth) > 2 * MAX_Z


def test_what_makes_no_kernel_is_refused(program: CompiledModel, data: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="not a parameter of the model; it has mu, tau, effect"):
        stansub.sample(program, data, kernel=OnParameters(Metropolis(), ["sigma"]), **RUN)
    with pytest.raises(InputError, match="weights must be a positive number"):
        Mixture({"one": 1.0, "two": -1.0}, one=Metropolis(), two=Metropolis())
    with pytest.raises(InputError, match="at least one kernel"):
        Sequence()
    with pytest.raises(InputError, match="give either `kernel` or `proposal`"):
        stansub.sample(program, data, kernel=Metropolis(), proposal="random-walk", **RUN)


@pytest.mark.slow
def test_a_run_with_kernels_of_its_own_is_resumed(program: CompiledModel, data: dict[str, Any], tmp_path: Path) -> None:
    kernel = Mixture(all=Metropolis(), two=OnParameters(Metropolis("random-walk"), ["mu", "tau"]))
    options: Any = {"kernel": kernel, "chains": 2, "iter_warmup": 300, "seed": 2}
    whole = stansub.sample(program, data, iter_sampling=500, **options)
    stansub.sample(program, data, iter_sampling=200, checkpoint=tmp_path / "run", **options)
    more = stansub.sample(program, data, iter_sampling=500, resume=tmp_path / "run", **options)
    np.testing.assert_array_equal(unconstrained(whole), unconstrained(more))


def test_what_is_no_kernel_is_refused_at_once(program: CompiledModel, data: dict[str, Any]) -> None:
    walk = Metropolis("random-walk")
    for given in ("random-walk", Metropolis, {"all": walk}, lambda rng, position: (position, 0.0)):
        with pytest.raises(InputError, match="kernel must be a kernel, such as"):
            stansub.sample(program, data, kernel=given, **RUN)
    for part in (3, "random-walk", Metropolis):
        with pytest.raises(InputError, match="scale must be a kernel"):
            Sequence(scale=part)  # type: ignore[arg-type]
    for name in ("", "a.b", "a/b"):
        with pytest.raises(InputError, match="cannot be the name of a kernel"):
            Mixture(**{name: walk})  # type: ignore[arg-type]
    for inner in ("random-walk", Sequence(one=walk), OnParameters(walk, ["mu"])):
        with pytest.raises(InputError, match="OnParameters needs a Metropolis"):
            OnParameters(inner, ["mu"])  # type: ignore[arg-type]
    for names in (0, [0], None):
        with pytest.raises(InputError, match="OnParameters needs names of parameters"):
            OnParameters(walk, names)  # type: ignore[arg-type]
    weights: Any
    for weights in ([1, 2], {"one": "x", "two": 1}):
        with pytest.raises(InputError, match="weights must be a positive number"):
            Mixture(weights, one=walk, two=walk)
    with pytest.raises(InputError, match="the proposal sgld updates all parameters"):
        stansub.sample(program, data, kernel=OnParameters(Metropolis("sgld"), ["mu"]), **RUN)


def test_a_kernel_on_some_parameters_learns_their_covariance_alone(
    program: CompiledModel, data: dict[str, Any]
) -> None:
    short: Any = {"chains": 2, "iter_warmup": 400, "iter_sampling": 400, "seed": 1, "control_variates": 0}
    alone = OnParameters(Metropolis(), ["mu", "tau"])
    for kernel in (alone, Sequence(two=alone)):
        idata = stansub.sample(program, data, kernel=kernel, **short)
        moved = np.diff(unconstrained(idata), axis=1) != 0
        assert moved[..., :2].any()
        assert not moved[..., 2:].any()
        assert 0.1 < statistic(idata, "accepted").mean() < 0.6


def test_gradients_of_mini_batches_in_a_sequence_are_resumed(
    program: CompiledModel, data: dict[str, Any], tmp_path: Path
) -> None:
    kernel = Sequence(all=Metropolis("sgld"), scale=OnParameters(Metropolis("random-walk"), ["tau"]))
    options: Any = {"kernel": kernel, "chains": 2, "iter_warmup": 200, "seed": 2}
    whole = stansub.sample(program, data, iter_sampling=300, **options)
    stansub.sample(program, data, iter_sampling=100, checkpoint=tmp_path / "run", **options)
    more = stansub.sample(program, data, iter_sampling=300, resume=tmp_path / "run", **options)
    np.testing.assert_array_equal(unconstrained(whole), unconstrained(more))


def test_what_is_said_of_decisions_counts_each_of_a_step(program: CompiledModel, data: dict[str, Any]) -> None:
    scale, rest = OnParameters(Metropolis("random-walk"), ["tau"]), OnParameters(Metropolis(), ["mu", "effect"])
    short: Any = {"chains": 2, "iter_warmup": 300, "iter_sampling": 400, "seed": 1, "audit": 1.0, "test": "exact"}
    for kernel, parts, each in (
        (Sequence(scale=scale, rest=rest), ("scale", "rest"), 2),
        (Mixture(both=Sequence(scale=scale, rest=rest), all=Metropolis()), ("both.scale", "both.rest", "all"), None),
    ):
        idata = stansub.sample(program, data, kernel=kernel, control_variates=0, **short)
        record, n = record_of(idata), statistic(idata, "n_decisions")
        assert (n == (each or 2 - statistic(idata, "component"))).all()
        assert record.acceptance_rate == sum(statistic(idata, f"{one}.accepted").sum() for one in parts) / n.sum()
        assert record.share_of_data == statistic(idata, "n_obs_used").sum() / (n.sum() * 60)
        assert record.audit is not None
        assert record.audit.n_audited == n.sum()


def test_without_gradients_a_kernel_on_some_parameters_decides_from_all_factors() -> None:
    y = np.random.default_rng(0).normal(1, 1, 200)
    factors = stansub.FunctionFactors(["mu", "nu"], 200, lambda theta, i: -((y[i] - theta[0] - theta[1]) ** 2) / 2)
    kernel = OnParameters(Metropolis("random-walk"), ["mu"])
    idata = stansub.sample(factors, kernel=kernel, chains=1, iter_warmup=100, iter_sampling=100, seed=1, test="exact")
    assert (statistic(idata, "n_obs_used") == 200).all()
    moved = np.diff(unconstrained(idata), axis=1) != 0
    assert moved[..., 0].any()
    assert not moved[..., 1].any()


def test_exact_decisions_of_one_kernel_beside_rough_ones_of_another(
    program: CompiledModel, data: dict[str, Any]
) -> None:
    walk = OnParameters(Metropolis("random-walk", exact=True), ["mu", "tau"])
    kernel = Sequence(exact=walk, rough=OnParameters(Metropolis(), ["effect"]))
    test = stansub.Austerity(epsilon=0.3, looks=stansub.Fixed(size=2))
    short = RUN | {"iter_warmup": 300, "iter_sampling": 600}
    idata = stansub.sample(program, data, kernel=kernel, test=test, control_variates=0, audit=1.0, **short)
    assert not statistic(idata, "exact.audit_wrong").any()
    assert statistic(idata, "rough.audit_wrong").any()


def test_observations_that_a_function_names(program: CompiledModel, data: dict[str, Any], truth: Array) -> None:
    """Those of the third group, by the user's numbers, whatever order the data have been brought into."""
    third = np.flatnonzero(np.asarray(data["group"]) == 3)
    one = OnParameters(Metropolis("random-walk"), ["effect.3"], observations=lambda position: third)
    kernel = Sequence(third=one, all=Metropolis())
    idata = stansub.sample(program, data, kernel=kernel, test="exact", control_variates=0, **RUN | {"block_size": 1})
    assert (statistic(idata, "third.n_obs_used") == third.size).all()
    assert largest_z(idata, truth) < MAX_Z


@pytest.mark.parametrize(
    ("observations", "size", "message"),
    [(np.array([0]), 5, "`block_size=1` is needed"), (np.array([0, 10**6]), 1, "numbered from 0 to")],
)
def test_observations_that_cannot_be_taken(
    program: CompiledModel, data: dict[str, Any], observations: NDArray[Any], size: int, message: str
) -> None:
    kernel = OnParameters(Metropolis("random-walk"), ["effect.3"], observations=lambda position: observations)
    with pytest.raises(stansub.StansubError, match=message):
        stansub.sample(program, data, kernel=kernel, control_variates=0, **RUN | {"block_size": size})
