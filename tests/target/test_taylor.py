"""Control variates: exact in total, small as they should be near the anchor, chosen by what they save."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import mpmath
import numpy as np
import pytest
from recording import Recording
from simulated import ROOT, example
from toy_targets import Array, Target, logistic, normal_prior

from stansub.errors import InputError
from stansub.progress import Progress, TimeLimitError
from stansub.stan.compilation import compile_model
from stansub.target import taylor, variates_order
from stansub.target.taylor import (
    ControlVariates,
    Expansion,
    build,
    features,
    max_memory_default,
    memory_needed,
    n_features,
)
from stansub.target.variates_order import choose_order, measure_pairs, some_blocks
from stansub.tuning.modes.mode import Mode, find_modes
from stansub.variates_selection import TooLarge

MODELS = ROOT / "stan_models"


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def logistic_target(n: int = 8000, dim: int = 3, block_size: int = 8) -> Target:
    random = rng(3)
    x = random.standard_normal((n, dim))
    y = (random.random(n) < 1 / (1 + np.exp(-x @ random.normal(0, 0.5, dim)))).astype(float)
    return logistic(x, y, prior_sd=2.5, block_size=block_size)


@pytest.fixture(scope="module")
def target() -> Target:
    return logistic_target()


@pytest.fixture(scope="module")
def mode(target: Target) -> Mode:
    return find_modes(target, rng(), starts=1).best


def factors(variates: ControlVariates, theta: Array, proposed: Array) -> Array:
    """Of the coefficients of its expansions."""
    return features(variates.first.anchor, theta, proposed, order=variates.first.order)


def remainders(target: Target, variates: ControlVariates, theta: Array, proposed: Array) -> Array:
    """Of all blocks, by the definition."""
    which = np.arange(len(target.blocks), dtype=np.int32)
    raw = target.evaluator().block_log_lik(proposed, which) - target.evaluator().block_log_lik(theta, which)
    return np.asarray(raw - variates.first.coefficients @ factors(variates, theta, proposed))


def unpack(variates: ControlVariates) -> tuple[Array, Array]:
    dim = len(variates.anchor)
    hessian = np.zeros((dim, dim))
    hessian[np.tril_indices(dim)] = variates.first.total[dim:]
    return variates.first.total[:dim], hessian + np.tril(hessian, -1).T


@pytest.mark.parametrize("file", ["logistic", "hierarchical_logistic"])
def test_rows_add_up_to_the_derivatives_of_the_whole(file: str) -> None:
    path: Path = MODELS / f"{file}.stan"
    posterior = compile_model(path).with_data(example(path, observations=2003), block_size=32)
    anchor = rng(2).uniform(-0.5, 0.5, posterior.dim)
    first, second = (build(posterior, anchor, order=order, threads=2) for order in (1, 2))
    gradient, hessian = unpack(second)
    shared = posterior.population.evaluator().global_gradient
    whole = posterior.full.log_density_gradient
    np.testing.assert_allclose(gradient, whole(anchor)[1] - shared(anchor), rtol=1e-5, atol=1e-3)
    np.testing.assert_array_equal(first.first.coefficients, second.first.coefficients[:, : posterior.dim])
    for i, step in enumerate(1e-4 * np.eye(posterior.dim)):
        above, below = (whole(point)[1] - shared(point) for point in (anchor + step, anchor - step))
        np.testing.assert_allclose(hessian[i], (above - below) / 2e-4, rtol=1e-4, atol=1e-5 * np.abs(hessian).max())
    assert second.first.coefficients.shape == (len(posterior.blocks), n_features(posterior.dim, 2))
    assert second.first.coefficients.nbytes == memory_needed(len(posterior.blocks), posterior.dim, 2)


GAMMA_TAILS = """
data { int N; vector[N] y; }
parameters { real shape; real rate; }
model { for (n in 1:N) target += gamma_lccdf(y[n] | exp(shape), exp(rate)); }
"""


def test_rows_are_right_if_autodiff_in_a_shape_is_not(tmp_path: Path) -> None:
    """Stan's derivatives of these functions in the shape are off by up to 3 % where y is from 4 to 8."""
    path = tmp_path / "gamma_tails.stan"
    path.write_text(GAMMA_TAILS)
    y = np.linspace(0.1, 12.0, 64)
    posterior = compile_model(path).with_data({"N": 64, "y": y}, block_size=4)
    anchor = np.array([np.log(2.54), 0.0])
    made = build(posterior, anchor, order=2).first.coefficients

    def log_lik(shape: mpmath.mpf, rate: mpmath.mpf, at: float) -> mpmath.mpf:
        return mpmath.log(mpmath.gammainc(mpmath.exp(shape), at * mpmath.exp(rate), regularized=True))

    orders = [(1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
    with mpmath.workdps(40):
        each = [[float(mpmath.diff(partial(log_lik, at=at), tuple(anchor), n)) for n in orders] for at in y]
    order = posterior.order if posterior.order is not None else np.arange(64)
    truth = np.add.reduceat(np.array(each)[order], posterior.blocks.starts)
    np.testing.assert_allclose(made, truth, rtol=1e-6, atol=1e-6)


def test_features_are_those_of_the_quadratic_form() -> None:
    random = rng()
    anchor, theta, proposed, gradient = random.standard_normal((4, 4))
    hessian = np.tril(random.standard_normal((4, 4)))
    full = hessian + np.tril(hessian, -1).T
    row = np.concatenate([gradient, hessian[np.tril_indices(4)]])
    d, d_new = theta - anchor, proposed - anchor
    by_hand = gradient @ (d_new - d) + (d_new @ full @ d_new - d @ full @ d) / 2
    assert row @ features(anchor, theta, proposed, order=2) == pytest.approx(by_hand, rel=1e-12)
    assert gradient @ features(anchor, theta, proposed, order=1) == pytest.approx(gradient @ (d_new - d), rel=1e-12)
    assert features(anchor, theta, proposed, order=0).shape == (0,)
    stacked = features(anchor, np.stack([theta, proposed]), np.stack([proposed, theta]), order=2)
    np.testing.assert_allclose(stacked[0], -stacked[1], rtol=1e-12)


def test_with_all_blocks_the_estimate_is_the_log_ratio(target: Target, mode: Mode) -> None:
    """Single precision rows cost no validity: their own total is what is added."""
    theta, proposed = mode.position + 5 * rng().standard_normal((2, 3)) @ mode.cholesky.T
    which = np.arange(len(target.blocks), dtype=np.int32)
    exact = (target.evaluator().block_log_lik(proposed, which) - target.evaluator().block_log_lik(theta, which)).sum()
    for order in (1, 2):
        variates = build(target, mode.position, order=order, steps=mode.steps)
        expansion = variates.first.total @ factors(variates, theta, proposed)
        estimate = len(which) * remainders(target, variates, theta, proposed).mean() + expansion
        assert estimate == pytest.approx(exact, rel=1e-9)
    # The total of the rows before they were rounded to single precision would be seen.
    first = build(target, mode.position, order=1)
    unrounded = target.evaluator().block_gradients(mode.position).sum(0)
    estimate = len(which) * remainders(target, first, theta, proposed).mean() + unrounded @ (proposed - theta)
    assert estimate != pytest.approx(exact, rel=1e-9)


def test_remainders_shrink_with_the_third_power_and_the_second(target: Target, mode: Mode) -> None:
    random = rng(5)
    theta, proposed = random.standard_normal((2, 3))
    for order, power in ((1, 2), (2, 3)):
        variates = build(target, mode.position, order=order, steps=mode.steps)
        far, near = (
            remainders(target, variates, mode.position + h * theta, mode.position + h * proposed).std()
            for h in (0.1, 0.05)
        )
        assert far / near == pytest.approx(2**power, rel=0.1)
    none = ControlVariates((Expansion(mode.position, 0, np.zeros((len(target.blocks), 0), np.float32)),))
    far, near = (
        remainders(target, none, mode.position + h * theta, mode.position + h * proposed).std() for h in (0.1, 0.05)
    )
    assert far / near == pytest.approx(2, rel=0.1)


def test_a_quadratic_leaves_only_rounding() -> None:
    file = MODELS / "normal_mean.stan"
    posterior = compile_model(file).with_data(example(file, observations=5000), block_size=10)
    mode = find_modes(posterior, rng()).best
    theta, proposed = mode.position + 3 * mode.cholesky[0, 0] * rng().standard_normal((2, 20, 1))
    population = posterior.population
    which = some_blocks(population, rng())
    scale = measure_pairs(population, mode.position, mode.steps, theta, proposed, which, Progress()).scale
    # Blocks of equal size have equal curvatures: in the first order, too, nothing tells their remainders apart.
    assert scale[0] > 1
    assert scale[1:].max() < 1e-3


def test_the_scatter_of_remainders_is_by_definition_and_grows_away_from_the_anchor(target: Target, mode: Mode) -> None:
    theta, proposed = mode.position + rng().standard_normal((2, 30, 3)) @ mode.cholesky.T

    def scale(anchor: Array, shift: float = 0.0) -> float:
        pair, which = (theta + shift, proposed + shift), some_blocks(target, rng())
        return float(measure_pairs(target, anchor, mode.steps, *pair, which, Progress()).scale[2])

    variates = build(target, mode.position, order=2, steps=mode.steps)
    by_hand = [
        len(target.blocks) * remainders(target, variates, *pair).std(ddof=1)
        for pair in zip(theta, proposed, strict=True)
    ]
    # Measured on some of the blocks.
    assert scale(mode.position) == pytest.approx(np.sqrt(np.mean(np.square(by_hand))), rel=0.25)
    assert scale(mode.position, 1.0) > 100 * scale(mode.position)
    assert scale(mode.position + 1.0, 1.0) < 10 * scale(mode.position)


def test_undefined_log_likelihoods_scatter_without_bound() -> None:
    def each(theta: Array) -> tuple[Array, Array]:
        return np.full(50, np.log(theta[0]) - theta[0]), np.full((50, 1), 1 / theta[0] - 1)

    target = Target(["rate"], 50, each)

    def scale(proposed: float) -> float:
        with np.errstate(invalid="ignore"):
            pair, which = (np.ones((1, 1)), np.full((1, 1), proposed)), some_blocks(target, rng())
            pilot = measure_pairs(target, np.ones(1), np.full(1, 1e-4), *pair, which, Progress())
        return float(pilot.scale[1])

    assert scale(-1.0) == np.inf
    assert np.isfinite(scale(1.1))


def test_the_second_order_is_chosen_where_the_log_likelihood_is_smooth(target: Target, mode: Mode) -> None:
    choice = choose_order(target, mode, rng=rng())
    assert choice.order == 2
    assert choice.pilot.scale[0] > 10 * choice.pilot.scale[1] > 100 * choice.pilot.scale[2]
    assert choice.pilot.blocks[2] < 50 < choice.pilot.blocks[1] < choice.pilot.blocks[0]
    assert (choice.reason.order, choice.reason.n_blocks, choice.reason.memory) == (2, 1000, 36_000)
    assert choice.reason.blocks == tuple(choice.pilot.blocks)
    assert "of 1,000 blocks" in choice.reason.describe()
    assert "36 KB" in choice.reason.describe()
    # Decisions so few that they do not pay for the second order, or for any.
    assert [choose_order(target, mode, rng=rng(), n_steps=n).order for n in (100, 1)] == [1, 0]


def test_shorter_steps_need_fewer_blocks(target: Target, mode: Mode) -> None:
    far, near = (choose_order(target, mode, rng=rng(), step=step).pilot for step in (None, 0.3))
    assert (near.scale < 0.5 * far.scale).all()
    assert (near.blocks <= far.blocks).all()


def test_blocks_needed_are_those_that_decisions_take(target: Target, mode: Mode) -> None:
    """By the definition: blocks until a normal mean of the measured scatter is three standard errors from its mark."""
    pilot, n_blocks, random = choose_order(target, mode, rng=rng()).pilot, len(target.blocks), rng(2)
    for scale, blocks in zip(pilot.scale[1:], pilot.blocks[1:], strict=True):
        needed = (3 * scale / random.exponential(size=200_000)) ** 2
        by_hand = np.clip(needed / (1 + needed / n_blocks), 10, n_blocks)
        assert blocks == pytest.approx(by_hand.mean(), rel=0.2)


def test_the_same_order_is_chosen_again(target: Target, mode: Mode) -> None:
    one, other = (choose_order(target, mode, rng=rng()) for _ in range(2))
    np.testing.assert_array_equal(one.pilot.blocks, other.pilot.blocks)


def test_memory_limits_the_order(target: Target, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    second, first = memory_needed(1000, 3, 2), memory_needed(1000, 3, 1)
    assert (second, first) == (36_000, 12_000)

    def limited(most: int) -> None:
        for module in (taylor, variates_order):
            monkeypatch.setattr(module, "max_memory_default", lambda: most)

    choices = []
    for limit in (second, second - 1, first - 1):
        limited(limit)
        choices.append(choose_order(target, mode, rng=rng()))
    assert [choice.order for choice in choices] == [2, 1, 0]
    assert [choice.reason.too_large for choice in choices] == [
        (),
        (TooLarge(2, second),),
        (TooLarge(1, first), TooLarge(2, second)),
    ]
    assert "order 2 would take 36 KB, more than the 36 KB allowed" in choices[1].reason.describe()
    assert "order 1 would take 12 KB" in choices[2].reason.describe()
    limited(20_000)
    with pytest.raises(InputError, match=r"need 36 KB for 1,000 blocks and 3 parameters.*`control_variates=1` \(12 KB"):
        build(target, mode.position, order=2)
    limited(10_000)
    with pytest.raises(InputError, match="choose a larger `block_size`"):
        build(target, mode.position, order=1)
    monkeypatch.undo()
    assert memory_needed(1563, 50, 2) == pytest.approx(8e6, rel=0.05)
    assert 0 < max_memory_default() <= 2 * 10**9


def test_where_expansions_do_not_help_none_is_chosen_and_it_is_said() -> None:
    """Log likelihoods that wave within the posterior: expansions are worse than nothing."""
    phase = rng().uniform(0, 2 * np.pi, 400)

    def each(theta: Array) -> tuple[Array, Array]:
        wave = 300 * theta[0] + phase
        return -0.5 * theta[0] ** 2 + np.sin(wave), (-theta[0] + 300 * np.cos(wave))[:, np.newaxis]

    target = Target(["mu"], 400, each, normal_prior(1.0))
    made_up = Mode(
        position=np.zeros(1),
        log_density=0.0,
        distance=0.0,
        hessian=np.array([[-401.0]]),
        cholesky=np.array([[401.0**-0.5]]),
    )
    choice = choose_order(target, made_up, rng=rng())
    assert choice.order == 0
    assert choice.reason.far_from_quadratic
    assert "far from quadratic" in choice.reason.describe()


def test_threads_do_not_change_the_rows(target: Target, mode: Mode) -> None:
    progress = Recording()
    one = build(target, mode.position, order=2, progress=progress)
    three = build(target, mode.position, order=2, threads=3)
    np.testing.assert_array_equal(one.first.coefficients, three.first.coefficients)
    assert progress.texts == ["Control variates of order 2: 1,000 blocks"]
    assert 2 < len(progress.counts) <= 80
    assert progress.counts[-1] == (1000, 1000)
    assert progress.counts == sorted(progress.counts)


def test_the_time_limit_ends_the_making_of_control_variates(target: Target, mode: Mode) -> None:
    progress = Recording()
    with pytest.raises(TimeLimitError, match=r"Control variates of order 2.*or take `control_variates=0` or 1"):
        build(target, mode.position, order=2, progress=progress.until(3))
    assert len(progress.counts) == 3
    progress = Recording()
    choose_order(target, mode, rng=rng(), progress=progress)
    assert progress.counts[-1] == (8, 8)
    with pytest.raises(TimeLimitError):
        choose_order(target, mode, rng=rng(), progress=progress.until(2))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_an_anchor_without_derivatives_is_refused(target: Target) -> None:
    with pytest.raises(
        InputError, match="no control variates: the gradient of the global part is not defined at the expansion point"
    ):
        build(target, np.full(3, np.nan), order=1)
