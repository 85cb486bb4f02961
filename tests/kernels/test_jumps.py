"""Moves across dimensions: detailed balance, model probabilities in closed form, and broken pairs, which are seen."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import statistic
from numpy.typing import NDArray
from scipy.special import logsumexp

import stansub
from stansub import Auxiliary, FunctionFactors, InputError, Jump, Moved, ReversibleJump, RunError, Symmetric
from stansub.kernels import jumps
from stansub.output import inference_data

Array = NDArray[np.float64]
Places = NDArray[np.int32]

MAX_Z = 4.5

# Linear regression on any of two features, with a normal prior of the coefficients in the model and unit noise.
N, PRIOR_SD, ODDS = 400, 0.5, 0.6
_RNG = np.random.default_rng(5)
X = _RNG.normal(size=(N, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
Y = X @ [0.12, 0.07] + _RNG.normal(size=N)
MODELS = list(product((False, True), repeat=2))


def log_normal(values: Array, sd: float = 1.0) -> float:
    return float(-0.5 * (values @ values) / sd**2 - len(values) * np.log(sd * np.sqrt(2 * np.pi)))


def log_lik(theta: Array, which: Places) -> Array:
    return -0.5 * (Y[which] - X[which] @ theta) ** 2


def log_prior(theta: Array) -> float:
    inside = theta[theta != 0]
    return float(log_normal(inside, PRIOR_SD) + len(inside) * np.log(ODDS))


def regression() -> FunctionFactors:
    return FunctionFactors(["beta.1", "beta.2"], N, log_lik, log_density=log_prior)


def model_probabilities() -> Array:
    """Evidence by the determinant lemma, shape (4,), as `MODELS`."""
    logs = []
    for model in MODELS:
        own = X[:, list(model)]
        precision = own.T @ own + np.eye(own.shape[1]) / PRIOR_SD**2
        mean = np.linalg.solve(precision, own.T @ Y)
        scale = -0.5 * np.linalg.slogdet(precision)[1] - own.shape[1] * np.log(PRIOR_SD)
        logs.append(0.5 * mean @ precision @ mean + scale + sum(model) * np.log(ODDS))
    return np.asarray(np.exp(logs - logsumexp(logs)))


@dataclass(frozen=True)
class Birth:
    """A coefficient enters: beta = center + width z, z standard normal; more often where the model is empty."""

    center: float = 0.05
    width: float = 0.2
    jacobian: bool = True

    def weight(self, position: Array) -> float:
        return (1.0, 0.3, 0.0)[np.count_nonzero(position)]

    def draw(self, rng: np.random.Generator, position: Array) -> Auxiliary:
        return Auxiliary(rng.standard_normal(1), int(rng.choice(np.flatnonzero(position == 0))))

    def log_density(self, position: Array, drawn: Auxiliary) -> float:
        return float(log_normal(drawn.values) - np.log(np.count_nonzero(position == 0)))

    def transform(self, position: Array, drawn: Auxiliary) -> Moved:
        position[drawn.choice] = self.center + self.width * drawn.values[0]  # type: ignore[index]
        return Moved(position, Auxiliary(np.empty(0), drawn.choice), np.log(self.width) * self.jacobian)


@dataclass(frozen=True)
class Death:
    """One leaves."""

    birth: Birth

    def weight(self, position: Array) -> float:
        return (0.0, 0.5, 1.0)[np.count_nonzero(position)]

    def draw(self, rng: np.random.Generator, position: Array) -> Auxiliary:
        return Auxiliary(np.empty(0), int(rng.choice(np.flatnonzero(position))))

    def log_density(self, position: Array, drawn: Auxiliary) -> float:
        return float(-np.log(np.count_nonzero(position)))

    def transform(self, position: Array, drawn: Auxiliary) -> Moved:
        back = (position[[drawn.choice]] - self.birth.center) / self.birth.width
        position[drawn.choice] = 0.0  # type: ignore[index]
        return Moved(position, Auxiliary(back, drawn.choice), -np.log(self.birth.width) * self.birth.jacobian)


@dataclass(frozen=True)
class Scale:
    """All coefficients are multiplied by exp(u)."""

    jacobian: bool = True
    picked: float = 0.5

    def weight(self, position: Array) -> float:
        return self.picked

    def draw(self, rng: np.random.Generator, position: Array) -> Auxiliary:
        return Auxiliary(rng.normal(0, 0.7, 1))

    def log_density(self, position: Array, drawn: Auxiliary) -> float:
        return log_normal(drawn.values, 0.7)

    def transform(self, position: Array, drawn: Auxiliary) -> Moved:
        u = drawn.values
        return Moved(position * np.exp(u), Auxiliary(-u), np.count_nonzero(position) * float(u[0]) * self.jacobian)


def walk(rng: np.random.Generator, position: Array) -> Array:
    return np.asarray(rng.normal(0, 0.08, len(position)) * (position != 0))


def moves(birth: Birth | None = None, scale: Scale | None = None) -> ReversibleJump:
    birth = birth or Birth()
    size = Jump(birth=birth, death=Death(birth))
    return ReversibleJump(Jump(update=Symmetric(step=walk)), Jump(scale=scale or Scale()), size)


WITHOUT_JACOBIAN = {
    "birth": moves(birth=Birth(jacobian=False)),
    "scale": moves(scale=Scale(jacobian=False, picked=5)),
}
OPTIONS: dict[str, Any] = {
    "inits": {"beta": [0.0, 0.0]},
    "chains": 4,
    "iter_warmup": 100,
    "iter_sampling": 3_000,
    "seed": 3,
    "show_progress": False,
    "parallel_chains": 1,
}


def drawn(kernel: ReversibleJump, **options: Any) -> Any:
    return stansub.sample(regression(), kernel=kernel, **{**OPTIONS, **options})


def positions(idata: Any) -> Array:
    values: Array = inference_data.group(idata, "posterior")["beta"].values
    return values


def largest_z(idata: Any) -> float:
    """Errors of model probabilities and of mean squares of the coefficients, in standard errors by batch means."""
    theta, probabilities = positions(idata), model_probabilities()
    squares = np.zeros(2)
    for model, weight in zip(MODELS, probabilities, strict=True):
        own = X[:, list(model)]
        covariance = np.linalg.inv(own.T @ own + np.eye(own.shape[1]) / PRIOR_SD**2)
        squares[list(model)] += weight * ((covariance @ own.T @ Y) ** 2 + np.diag(covariance))
    seen = [((theta != 0) == model).all(axis=2) for model in MODELS] + [theta[..., k] ** 2 for k in (0, 1)]
    batches = np.array(seen, dtype=float).reshape(6, 80, -1).mean(axis=2)
    errors = batches.std(axis=1, ddof=1) / np.sqrt(80)
    return float(np.abs((batches.mean(axis=1) - [*probabilities, *squares]) / errors).max())


class TestDraws:
    @pytest.mark.slow
    def test_exact_decisions(self) -> None:
        assert model_probabilities().min() > 0.02, "all models matter"
        idata = drawn(moves(), test="exact")
        assert largest_z(idata) < MAX_Z
        assert (statistic(idata, "n_obs_used") == N).all()

    def test_subsampled_decisions(self) -> None:
        idata = drawn(moves(), test="pocock", epsilon=0.005, block_size=None, iter_sampling=1000)
        assert largest_z(idata) < MAX_Z
        assert statistic(idata, "n_obs_used").mean() < 0.9 * N

    @pytest.mark.parametrize(
        ("broken", "n"),
        [
            pytest.param(WITHOUT_JACOBIAN["birth"], 1000, id="birth"),
            pytest.param(WITHOUT_JACOBIAN["scale"], 12_000, id="scale", marks=pytest.mark.slow),
        ],
    )
    def test_without_the_jacobian_they_are_wrong(self, broken: ReversibleJump, n: int) -> None:
        assert largest_z(drawn(broken, test="exact", iter_sampling=n)) > MAX_Z

    @pytest.mark.parametrize("broken", WITHOUT_JACOBIAN.values(), ids=WITHOUT_JACOBIAN.keys())
    def test_a_jacobian_that_is_left_out_is_found_by_finite_differences(self, broken: ReversibleJump) -> None:
        with pytest.raises(RunError, match="by finite differences it is"):
            broken.check(np.zeros(2), rng=np.random.default_rng(1))

    @pytest.mark.slow
    def test_without_the_probabilities_of_moves_they_are_wrong(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without_probabilities(monkeypatch)
        assert largest_z(drawn(moves(), test="exact")) > 2 * MAX_Z

    def test_the_move_is_a_statistic(self) -> None:
        idata = drawn(moves(), iter_sampling=800)
        move, before = statistic(idata, "move")[:, 1:], np.count_nonzero(positions(idata), axis=2)[:, :-1]
        text = inference_data.group(idata, "sample_stats")["move"].attrs["description"]
        assert text == "Proposed move: 0 update, 1 scale, 2 birth, 3 death."
        assert not (move[before == 2] == 2).any(), "nothing is born into a full model"
        assert not (move[before == 0] == 3).any()
        weights = {0: [1, 0.5, 1, 0], 1: [1, 0.5, 0.3, 0.5], 2: [1, 0.5, 0, 1]}
        for size, weight in weights.items():
            shares = np.bincount(move[before == size], minlength=4) / (before == size).sum()
            assert np.abs(shares - np.array(weight) / sum(weight)).max() < 4.5 * 0.5 / np.sqrt((before == size).sum())
        changed = np.diff(np.count_nonzero(positions(idata), axis=2), axis=1)
        accepted = statistic(idata, "accepted")[:, 1:]
        assert (changed == accepted * ((move == 2) * 1 - (move == 3) * 1)).all()

    def test_resumed_draw_for_draw_and_in_a_sequence(self, tmp_path: Path) -> None:
        kernel = stansub.Sequence(jumps=moves(), rest=moves())
        options: Any = {"kernel": kernel, **OPTIONS, "chains": 2}
        whole = stansub.sample(regression(), **options | {"iter_sampling": 150})
        stansub.sample(regression(), checkpoint=tmp_path / "run", **options | {"iter_sampling": 60})
        more = stansub.sample(regression(), resume=tmp_path / "run", **options | {"iter_sampling": 150})
        np.testing.assert_array_equal(positions(more), positions(whole))
        assert set(np.unique(statistic(whole, "jumps.move"))) == {0, 1, 2, 3}
        assert inference_data.attrs(whole)["mode_check"]["n_starts"] == 0


# Five states on a line, stored as numbers; up by one or two, or down, and a flip that is its own way back.
STATES = np.arange(5.0)
TARGET = np.array([0.1, 0.3, 0.05, 0.35, 0.2])


@dataclass(frozen=True)
class Up:
    def weight(self, position: Array) -> float:
        return float(4 - position[0]) / 3

    def draw(self, rng: np.random.Generator, position: Array) -> Auxiliary:
        return Auxiliary(np.empty(0), 2 if position[0] < 3 and rng.random() < 0.3 else 1)

    def log_density(self, position: Array, drawn: Auxiliary) -> float:
        if position[0] == 3:
            return 0.0 if drawn.choice == 1 else -np.inf
        return float(np.log({1: 0.7, 2: 0.3}[drawn.choice]))  # type: ignore[index]

    def transform(self, position: Array, drawn: Auxiliary) -> Moved:
        return Moved(position + drawn.choice, drawn)  # type: ignore[operator]


@dataclass(frozen=True)
class Down:
    def weight(self, position: Array) -> float:
        return 0.7 if position[0] else 0.0

    def draw(self, rng: np.random.Generator, position: Array) -> Auxiliary:
        return Auxiliary(np.empty(0), int(rng.integers(1, 1 + min(2, position[0]))))

    def log_density(self, position: Array, drawn: Auxiliary) -> float:
        return float(-np.log(min(2, position[0])))

    def transform(self, position: Array, drawn: Auxiliary) -> Moved:
        return Moved(position - drawn.choice, drawn)  # type: ignore[operator]


@dataclass(frozen=True)
class Flip:
    def weight(self, position: Array) -> float:
        return 0.2 + 0.1 * float(position[0])

    def draw(self, rng: np.random.Generator, position: Array) -> Auxiliary:
        return Auxiliary(np.empty(0))

    def log_density(self, position: Array, drawn: Auxiliary) -> float:
        return 0.0

    def transform(self, position: Array, drawn: Auxiliary) -> Moved:
        return Moved(4 - position, drawn)


LADDER = ReversibleJump(Jump(up=Up(), down=Down()), Jump(flip=Flip()))


def transitions() -> Array:
    """Probabilities of going from each state to each, shape (5, 5), by enumeration of all draws."""
    found = np.zeros((5, 5))
    choices: tuple[tuple[int | None, ...], ...] = ((1, 2), (1, 2), (None,))
    for i, state in enumerate(STATES):
        position, picked = np.array([state]), LADDER.moves.probabilities(np.array([state]))
        for number, probability in enumerate(picked):
            for choice in choices[number] if probability else ():
                drawn = Auxiliary(np.empty(0), choice)
                if choice is not None and not 0 <= state + (choice if number == 0 else -choice) <= 4:
                    continue
                tried = LADDER.moves.way(position, number, drawn)
                j = int(tried.moved.proposed[0])
                accepted = min(1.0, TARGET[j] / TARGET[i] * np.exp(tried.log_q_ratio))
                density = LADDER.moves.moves[number].log_density(position, drawn)
                found[i, j] += probability * np.exp(density) * accepted
        found[i, i] += 1 - found[i].sum()
    return found


def without_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: moves are picked as before, but the ratio does not know it."""
    plain = jumps.Moves.way

    def way(self: jumps.Moves, position: Array, number: int, drawn: Auxiliary) -> Any:
        tried = plain(self, position, number, drawn)
        back = self.probabilities(tried.moved.proposed)[self.paired[number]]
        wrong = np.log(self.probabilities(position)[number] / back) if back else 0.0
        return tried._replace(log_q_ratio=tried.log_q_ratio + wrong)

    monkeypatch.setattr(jumps.Moves, "way", way)


class TestDetailedBalance:
    def test_on_five_states(self) -> None:
        flow = TARGET[:, np.newaxis] * transitions()
        assert np.abs(flow - flow.T).max() < 1e-12
        assert (transitions() >= 0).all()
        assert np.count_nonzero(flow) > 15, "states are connected"

    def test_with_wrong_probabilities_it_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without_probabilities(monkeypatch)
        flow = TARGET[:, np.newaxis] * transitions()
        assert np.abs(flow - flow.T).max() > 1e-3

    def test_steps_have_these_probabilities(self) -> None:
        target = FunctionFactors(
            ["x"], 1, lambda theta, which: np.log(TARGET[[int(theta[0])]])[np.zeros(len(which), int)]
        )
        options = OPTIONS | {"inits": {"x": 0.0}, "chains": 1, "iter_sampling": 8000}
        idata = stansub.sample(target, kernel=LADDER, test="exact", **options)
        states = inference_data.group(idata, "posterior")["x"].values[0].astype(int)
        for i, row in enumerate(transitions()):
            after = states[1:][states[:-1] == i]
            seen = np.bincount(after, minlength=5)
            assert (seen[row == 0] == 0).all()
            expected = row * len(after)
            assert np.all(np.abs(seen - expected) <= MAX_Z * np.sqrt(expected * (1 - row)) + 1e-9)


class LastOut(Death):
    """Takes out the last, whatever was drawn: no pair of a birth anywhere."""

    def transform(self, position: Array, drawn: Auxiliary) -> Moved:
        return super().transform(position, Auxiliary(drawn.values, int(np.flatnonzero(position)[-1])))


class OneWay(Scale):
    """Forgets that the way back has the opposite sign."""

    def transform(self, position: Array, drawn: Auxiliary) -> Moved:
        return super().transform(position, drawn)._replace(back=drawn)


class HalfJacobian(Scale):
    def transform(self, position: Array, drawn: Auxiliary) -> Moved:
        moved = super().transform(position, drawn)
        return moved._replace(log_jacobian=abs(moved.log_jacobian))


class NoWay(Scale):
    def weight(self, position: Array) -> float:
        return 0.0 if position.max() > 3 else 1.0

    def transform(self, position: Array, drawn: Auxiliary) -> Moved:
        return super().transform(position + 50.0, drawn)


BROKEN = [
    (ReversibleJump(Jump(birth=Birth(), death=LastOut(Birth()))), "birth and death are not a pair|death and birth are"),
    (
        ReversibleJump(Jump(birth=Birth(), death=Death(Birth(width=0.4)))),
        "no pair: the reverse of the reverse draws|the move and its reverse take",
    ),
    (
        ReversibleJump(Jump(scale=OneWay())),
        "the move scale is not its own reverse: the move and its reverse",
    ),
    (ReversibleJump(Jump(scale=HalfJacobian())), "the second must be the negative of the first"),
    (
        ReversibleJump(Jump(birth=Birth()), Jump(update=Symmetric(step=walk))),
        "birth is never accepted: birth cannot reverse any of its first 20 proposals",
    ),
    (ReversibleJump(Jump(away=NoWay()), Jump(update=Symmetric(step=walk))), "the move away is never accepted"),
]


class TestBrokenPairs:
    @pytest.mark.parametrize(("kernel", "message"), BROKEN)
    def test_stop_a_run_and_name_the_move(self, kernel: ReversibleJump, message: str) -> None:
        with pytest.raises(RunError, match=message):
            drawn(kernel, inits={"beta": [0.3, 0.0]}, iter_sampling=500, chains=1)

    @pytest.mark.parametrize(("kernel", "message"), BROKEN[:4])
    def test_are_found_without_a_target(self, kernel: ReversibleJump, message: str) -> None:
        with pytest.raises(RunError, match=message):
            kernel.check(np.array([0.3, 0.0]), rng=np.random.default_rng(1))

    def test_right_ones_pass(self) -> None:
        moves().check(np.array([0.3, 0.0]), rng=np.random.default_rng(1))
        LADDER.check(np.array([2.0]), rng=np.random.default_rng(1), active=lambda x: np.empty(0, np.int64))

    def test_dimensions_must_match(self) -> None:
        class Extra(Birth):
            def transform(self, position: Array, drawn: Auxiliary) -> Moved:
                moved = super().transform(position, drawn)
                return moved._replace(back=Auxiliary(np.zeros(1), drawn.choice))

        class Fewer(Death):
            def transform(self, position: Array, drawn: Auxiliary) -> Moved:
                return super().transform(position, drawn)

            def draw(self, rng: np.random.Generator, position: Array) -> Auxiliary:
                return super().draw(rng, position)._replace(values=np.zeros(1))

        with pytest.raises(RunError, match="the sums must be the same"):
            ReversibleJump(Jump(birth=Extra(), death=Fewer(Birth()))).check(np.zeros(2), rng=np.random.default_rng(1))

    def test_what_makes_no_sense_is_named(self) -> None:
        def refused(move: Any, message: str) -> None:
            with pytest.raises(RunError, match=message):
                drawn(ReversibleJump(Jump(odd=move)), iter_sampling=50, chains=1)

        def changed(**methods: Any) -> Any:
            return type("Odd", (Scale,), methods)()

        refused(changed(weight=lambda move, position: -1.0), "weights of moves must be at least 0.* odd -1")
        refused(changed(log_density=lambda move, position, drawn: -np.inf), "odd: log_density of its own draws is -inf")
        refused(changed(transform=lambda move, position, drawn: Moved(np.zeros(3), drawn)), r"array of shape \(3,\)")
        refused(changed(transform=lambda move, position, drawn: Moved(position, drawn, np.nan)), "log_jacobian is nan")


class TestRefusals:
    def test_of_what_is_no_jump(self) -> None:
        with pytest.raises(InputError, match="one named move, or two paired ones"):
            Jump()
        with pytest.raises(InputError, match=r"the move update must be an object .* missing: weight, draw"):
            Jump(update=walk)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="takes jumps, such as"):
            ReversibleJump(Birth())  # type: ignore[arg-type]
        with pytest.raises(InputError, match="different names"):
            ReversibleJump(Jump(a=Scale()), Jump(a=Scale()))

    def test_nothing_is_looked_for_about_modes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With gradients there too: the posterior is not smooth between models."""

        def slopes(theta: Array, which: Places) -> Array:
            return (Y[which] - X[which] @ theta)[:, np.newaxis] * X[which]

        smooth = FunctionFactors(
            ["beta.1", "beta.2"], N, log_lik, log_density=log_prior, log_lik_gradient=slopes,
            log_density_gradient=lambda theta: -theta / PRIOR_SD**2,
        )  # fmt: skip

        def forbidden(*args: Any, **options: Any) -> Any:
            raise AssertionError("modes are looked for")

        monkeypatch.setattr("stansub.run.prepare.anchor", forbidden)
        monkeypatch.setattr("stansub.run.collect.check_modes", forbidden)
        options = OPTIONS | {"chains": 2, "iter_sampling": 50}
        for kernel in (moves(), stansub.Sequence(one=moves(), other=stansub.Metropolis())):
            facts = inference_data.attrs(stansub.sample(smooth, kernel=kernel, **options))
            name = type(kernel).__name__
            reason = f"the kernel {name} does not move on one smooth density of all parameters"
            assert facts["mode_check"]["reason"] == reason
            assert reason in facts["choices"]["control variates"]
            assert facts["settings"]["control_variates"] == 0
        with pytest.raises(InputError, match="control variates are not available: the kernel ReversibleJump does not"):
            stansub.sample(smooth, kernel=moves(), control_variates=2, **options)
        with pytest.raises(AssertionError, match="modes are looked for"):
            stansub.sample(smooth, kernel=stansub.Metropolis(), **options)
