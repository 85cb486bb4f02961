"""Global part plus blocks is the log density of the user's own program."""

from pathlib import Path

import bridgestan
import numpy as np
import pytest
from simulated import EXAMPLES, PROGRAMS, ROOT, Compiled, Data, example, simulated

from stansub.errors import InputError
from stansub.stan import proof
from stansub.stan.compilation import CompiledModel
from stansub.stan.instances import Slicer, build
from stansub.stan.posterior import Posterior
from stansub.stan.proof import draw_points, prove, relative_error
from stansub.target.blocks import Blocks
from stansub.types import FloatArray

LOGISTIC = ROOT / "stan_models" / "logistic.stan"
REDUCE_SUM = ROOT / "stan_models" / "logistic_third_derivative.stan"


def points(posterior: Posterior, n: int = 4) -> list[FloatArray]:
    """Parameters other than those that the proof looks at."""
    return draw_points(np.random.default_rng(99), posterior.full, n_points=n)


def check_identity(posterior: Posterior, model: CompiledModel, data: Data) -> None:
    own = model.original.model(model.read_data(data).json())
    evaluator = posterior.population.evaluator()
    for theta in points(posterior):
        parts = evaluator.block_log_lik(theta)
        total = evaluator.global_log_density(theta) + parts.sum()
        assert total == pytest.approx(own.log_density(theta), rel=1e-12, abs=1e-10)
        assert np.ptp(parts) > 0  # the blocks do tell the observations apart


@pytest.mark.parametrize("block_size", [1, 16, 1000])
@pytest.mark.parametrize("file", EXAMPLES)
def test_examples(file: Path, block_size: int, compiled: Compiled) -> None:
    data, model = example(file), compiled(file)
    posterior = model.with_data(data, block_size=block_size, seed=3)
    assert posterior.order is not None
    assert sorted(posterior.order) == list(range(103))
    assert posterior.blocks.sizes.sum() == 103
    assert len(posterior.blocks) == -(-103 // block_size)
    if block_size < 103:
        check_identity(posterior, model, data)


@pytest.mark.parametrize("file", EXAMPLES)
def test_original_order(file: Path, compiled: Compiled) -> None:
    model = compiled(file)
    values = model.read_data(example(file))
    full = model.original.model(values.json())
    some = draw_points(np.random.default_rng(5), full)
    blocks = Blocks(103, 16)
    population = build(Slicer(model.silent, values, ("N",)), blocks, some)
    assert prove(population, full, some).holds


@pytest.mark.parametrize(("n_undefined", "holds"), [(1, True), (2, False)])
def test_observations_may_underflow_alone_at_less_than_half_of_the_points(
    n_undefined: int, holds: bool, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ROOT / "stan_models" / "hierarchical_logistic.stan"
    posterior = compiled(file).with_data(example(file), block_size=16, seed=3)
    some, seen = points(posterior), iter(range(4))
    monkeypatch.setattr(
        proof, "relative_error", lambda *values: np.inf if next(seen) < n_undefined else relative_error(*values)
    )
    found = prove(posterior.population, posterior.full, some)
    assert (found.holds, found.points) == (holds, 4 - n_undefined)


def test_stock_bridgestan_agrees(compiled: Compiled) -> None:
    file = ROOT / "stan_models" / "hierarchical_logistic.stan"
    model, data = compiled(file), example(file)
    posterior = model.with_data(data, block_size=16)
    stock = bridgestan.StanModel(str(model.original.path), data=model.read_data(data).json().decode(), warn=False)
    evaluator = posterior.population.evaluator()
    for theta in points(posterior):
        total = evaluator.global_log_density(theta) + evaluator.block_log_lik(theta).sum()
        assert total == pytest.approx(stock.log_density(theta, propto=False, jacobian=True), rel=1e-12)


@pytest.mark.parametrize("file", [LOGISTIC, REDUCE_SUM], ids=lambda file: file.stem)
def test_blocks_hold_the_rows_that_the_order_names(file: Path, compiled: Compiled) -> None:
    data = example(file)
    posterior = compiled(file).with_data(data, block_size=16, seed=4)
    theta = points(posterior, 1)[0]
    eta = theta[0] + data["x"] @ theta[1:]
    by_hand = np.where(data["y"] == 1, -np.log1p(np.exp(-eta)), -np.log1p(np.exp(eta)))[posterior.order]
    np.testing.assert_allclose(posterior.each(theta[np.newaxis], posterior.order)[0], by_hand, rtol=1e-9)
    sums = np.add.reduceat(by_hand, posterior.blocks.starts)
    np.testing.assert_allclose(posterior.population.evaluator().block_log_lik(theta), sums, rtol=1e-10)


@pytest.mark.parametrize("file", [LOGISTIC, REDUCE_SUM], ids=lambda file: file.stem)
def test_subsets_are_parts_of_the_whole(file: Path, compiled: Compiled) -> None:
    posterior = compiled(file).with_data(example(file), block_size=8)
    evaluator, theta = posterior.population.evaluator(), points(posterior, 1)[0]
    everything = evaluator.block_log_lik(theta)
    order = np.random.default_rng(1).permutation(len(everything)).astype(np.int32)
    parts = np.array_split(order, 4)
    values = [evaluator.block_log_lik(theta, part) for part in parts]
    for part, value in zip(parts, values, strict=True):
        np.testing.assert_allclose(value, everything[part], rtol=1e-12)
    # The estimate from each part, weighted by its share, averages to the total.
    estimates = [len(order) * value.mean() for value in values]
    weights = [len(part) / len(order) for part in parts]
    assert np.dot(estimates, weights) == pytest.approx(everything.sum(), rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_fewer_observations_than_a_block(n: int, compiled: Compiled) -> None:
    model, data = compiled(REDUCE_SUM), example(REDUCE_SUM, observations=n)
    posterior = model.with_data(data, block_size=64)
    assert posterior.blocks.sizes.tolist() == [n]
    own, theta = model.original.model(model.read_data(data).json()), points(posterior, 1)[0]
    parts = posterior.population.evaluator()
    total = parts.global_log_density(theta) + parts.block_log_lik(theta).sum()
    assert total == pytest.approx(own.log_density(theta), rel=1e-12)


def test_no_observations(compiled: Compiled) -> None:
    data = example(REDUCE_SUM, observations=0)
    with pytest.raises(InputError, match=r"the data contain no observations \(N = 0"):
        compiled(REDUCE_SUM).with_data(data, block_size=8)


def test_proof_notices_one_changed_observation(compiled: Compiled) -> None:
    file = ROOT / "stan_models" / "linear.stan"
    model, data = compiled(file), example(file)
    values = model.read_data(data)
    full = model.original.model(values.json())
    some = draw_points(np.random.default_rng(5), full)
    changed = dict(data, y=data["y"].copy())
    changed["y"][50] *= 1 + 1e-5
    slicers = [Slicer(model.silent, model.read_data(these), ("N",)) for these in (data, changed)]
    same, other = (prove(build(slicer, Blocks(103, 16), some), full, some) for slicer in slicers)
    assert same.holds
    assert not same.is_empty
    assert not other.holds


def test_a_likelihood_that_is_switched_off_is_refused(compiled: Compiled) -> None:
    """Its blocks add up to the log density, for all of them are 0."""
    file = PROGRAMS / "brms_gaussian.stan"
    data = dict(simulated(file), prior_only=1)
    with pytest.raises(InputError, match=r"there is no likelihood: .* set `prior_only` to 0"):
        compiled(file).with_data(data, block_size=8)


REFUSED = {
    "dependent": ["line 15", "residual[n - 1]", "makes it an ARMA model"],
    "one_each": ["line 9", "vector[N] z", "a model with a parameter for each observation"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_sum_over_observations_is_refused(name: str, compiled: Compiled) -> None:
    file = PROGRAMS / f"{name}.stan"
    with pytest.raises(InputError, match="not a sum over observations") as refused:
        compiled(file).with_data(simulated(file), block_size=8)
    assert [text for text in REFUSED[name] if text not in str(refused.value)] == []
    with pytest.raises(InputError, match="not a sum over observations"):
        compiled(file).with_data(simulated(file), block_size=8, observations="N")


@pytest.mark.slow
def test_what_a_function_computes_from_all_the_data_is_data(compiled: Compiled) -> None:
    file = PROGRAMS / "centred_prior.stan"
    model, data = compiled(file), simulated(file)
    check_identity(model.with_data(data, block_size=8), model, data)


@pytest.mark.slow
def test_pairs_of_neighbours_are_not_the_observations(compiled: Compiled) -> None:
    file = Path(__file__).parent / "programs" / "no_sums" / "icar.stan"
    rng, n = np.random.default_rng(3), 30
    data = {"N": n, "E": n - 1, "n1": np.arange(1, n), "n2": np.arange(2, n + 1)}
    data |= {"y": rng.poisson(2.0, n), "x": rng.standard_normal(n)}
    with pytest.raises(
        InputError, match="each of the N observations has its own parameters; only the terms counted by E"
    ):
        compiled(file).with_data(data)
