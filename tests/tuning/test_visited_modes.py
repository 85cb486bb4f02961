"""Modes of which draws are: their shares, which are copies of each other, and what leaves one copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import permutations

import numpy as np
import orjson
import pytest
from toy_targets import Array, Target

from stansub.mode_findings import LabelsSwitch, Restriction, SeveralModes, VisitedModes
from stansub.tuning.visited_modes import Centre, copies, visited_by_chains, visited_modes

SD = 0.1


class Bounded(Target):
    """Normal modes; the first ``p`` parameters lie between 0 and 1."""

    def __init__(self, names: Sequence[str], modes: Sequence[Sequence[float]], weights: Sequence[float], p: int = 0):
        at, log_weights, n = np.array(modes), np.log(weights), len(modes[0])

        def shared(theta: Array) -> tuple[float, Array]:
            values = log_weights - 0.5 * np.square((theta - at) / SD).sum(axis=1)
            share = np.exp(values - values.max())
            slope = share @ ((at - theta) / SD**2) / share.sum()
            return float(values.max() + np.log(share.sum())), slope

        self._p = p
        super().__init__(names, 4, lambda theta: (np.zeros(4), np.zeros((4, n))), shared)

    def param_constrain(self, theta: Array, **_: object) -> Array:
        found = np.array(theta)
        found[: self._p] = 1 / (1 + np.exp(-found[: self._p]))
        return found


def of_draws(target: Target, modes: Sequence[Sequence[float]], n_draws: Sequence[int] = (400, 400)) -> VisitedModes:
    rng = np.random.default_rng(1)
    chain = np.concatenate([at + SD * rng.standard_normal((n, len(at))) for at, n in zip(modes, n_draws, strict=True)])
    centres = [Centre(np.array(at), np.full(len(at), SD)) for at in modes]
    found = visited_modes(target, centres, [chain, chain + 0.01])
    assert found is not None
    return found


def test_elements_change_places_and_a_weight_is_mirrored() -> None:
    """A mixture of two components, with effects that stay."""
    names = ["p", "mu.1", "mu.2", "sigma.1", "sigma.2", "u.1", "u.2", "u.3"]
    one, other = [0.7, -1.0, 2.0, -0.3, 0.4, 0.5, -0.6, 0.1], [-0.7, 2.0, -1.0, 0.4, -0.3, 0.5, -0.6, 0.1]
    found = of_draws(Bounded(names, [one, other], [1, 1], p=1), [one, other], (500, 300))
    assert found.copy_of == [0, 0]
    assert (found.n_jumping, found.n_chains) == (2, 2)
    assert found.shares == pytest.approx([0.625, 0.375])
    assert (found.permuted, found.becomes) == (["mu", "sigma"], {"p": "1 - p"})
    assert found.restrictions == [Restriction("ordered", ("mu",))]
    (finding,) = found.findings()
    assert isinstance(finding, LabelsSwitch)
    text, remedy = finding.describe()
    assert "same if the elements of mu and sigma change places, and p becomes 1 - p." in text
    assert "2 copies of a mode (62 % and 38 % of the draws)" in text
    assert remedy == "Keep one copy: declare mu as `ordered`."


class Simplex(Target):
    """A simplex of three elements, log ratios to the last one on the unconstrained space, and three means."""

    def __init__(self, theta: Sequence[float], mu: Sequence[float]) -> None:
        orders = [list(order) for order in permutations(range(3))]
        self.theta, self.mu = (np.array([np.array(one)[order] for order in orders]) for one in (theta, mu))
        super().__init__(["theta.1", "theta.2", "mu.1", "mu.2", "mu.3"], 4, lambda _: (np.zeros(4), np.zeros((4, 5))))

    def at(self, k: int) -> Array:
        return np.concatenate([np.log(self.theta[k, :2] / self.theta[k, 2]), self.mu[k]])

    def log_density(self, theta: Array) -> float:
        own = self.param_constrain(theta)
        away = np.square((own[:3] - self.theta) / 0.02).sum(axis=1) + np.square((own[3:] - self.mu) / SD).sum(axis=1)
        return float(np.logaddexp.reduce(-0.5 * away) + np.log(own[:3]).sum())

    def log_densities(self, points: Sequence[Array]) -> list[tuple[float, str]]:
        return [(self.log_density(theta), "") for theta in points]

    def param_names(self, **_: object) -> list[str]:
        return ["theta.1", "theta.2", "theta.3", "mu.1", "mu.2", "mu.3"]

    def param_constrain(self, theta: Array, **_: object) -> Array:
        ratios = np.exp([*theta[:2], 0.0])
        return np.concatenate([ratios / ratios.sum(), theta[2:]])

    def param_unconstrain_json(self, values: bytes) -> Array:
        given = {name: np.array(value) for name, value in orjson.loads(values).items()}
        return np.concatenate([np.log(given["theta"][:2] / given["theta"][2]), given["mu"]])


def test_a_simplex_is_permuted_as_it_is() -> None:
    """Its coordinates on the unconstrained space are no permutation of each other."""
    target, rng = Simplex([0.2, 0.3, 0.5], [-1.0, 2.0, 0.4]), np.random.default_rng(1)
    centres = [Centre(target.at(k), np.full(5, SD)) for k in (0, 1, 3)]
    draws = np.concatenate([one.position + 0.05 * rng.standard_normal((200, 5)) for one in centres])
    found = visited_modes(target, centres, [draws])
    assert found is not None
    assert (found.copy_of, found.permuted, found.becomes) == ([0, 0, 0], ["mu", "theta"], {})
    assert found.restrictions == [Restriction("ordered", ("mu",))]


def test_whole_parameters_change_places_and_others_their_signs() -> None:
    """Latent classes: two vectors of probabilities, and the log odds of the classes."""
    names = ["a", "high.1", "high.2", "low.1", "low.2", "u.1", "u.2"]
    one, other = [0.1, 1.5, 2.0, -1.0, -2.5, 0.5, -0.2], [-0.1, -1.0, -2.5, 1.5, 2.0, -0.5, 0.2]
    found = of_draws(Bounded(names, [one, other], [1, 1]), [one, other])
    assert found.becomes == {"a": "-a", "high": "low", "low": "high", "u": "-u"}
    assert found.restrictions == [Restriction("larger", ("low[2]", "high[2]"))]
    (finding,) = found.findings()
    assert "same if high and low change places, and a and u change their signs." in finding.describe().text
    assert finding.describe().remedy == "Keep one copy: declare the parameters so that low[2] > high[2]."


def test_some_elements_change_places_and_their_signs() -> None:
    """Two hidden units of a network: they change places, and one of them its signs."""
    names = ["alpha.1", "alpha.2", "beta.1", "beta.2", "u"]
    alpha, beta = np.array([0.5, 1.5]), np.array([2.0, -1.0])
    every = [
        [*(signs * alpha[list(order)]), *(signs * beta[list(order)]), 0.3]
        for order in permutations(range(2))
        for signs in ([1, 1], [1, -1], [-1, 1], [-1, -1])
    ]
    modes = [every[0], every[5], every[2]]
    found = of_draws(Bounded(names, every, [1] * 8), modes, (200, 200, 200))
    assert (found.copy_of, found.permuted) == ([0, 0, 0], ["alpha", "beta"])
    assert found.becomes == {
        "alpha[2]": "-alpha[1]",
        "beta[2]": "-beta[1]",
        "alpha[1]": "-alpha[1]",
        "beta[1]": "-beta[1]",
    }
    (finding,) = found.findings()
    assert finding.describe().remedy.count("declare the parameters so that") == 1


def test_a_parameter_becomes_the_mirror_image_of_another() -> None:
    """Misclassified outcomes."""
    names = ["sens", "spec", "alpha", "beta", "u.1", "u.2"]
    one, other = [1.0, 1.6, 0.02, 1.5, 0.3, -0.4], [-1.6, -1.0, -0.02, -1.5, -0.3, 0.4]
    found = of_draws(Bounded(names, [one, other], [1, 1], p=2), [one, other])
    assert found.becomes == {"sens": "1 - spec", "spec": "1 - sens", "alpha": "-alpha", "beta": "-beta", "u": "-u"}
    assert found.restrictions == [Restriction("bound", ("beta",), 0.0)]
    (finding,) = found.findings()
    text, remedy = finding.describe()
    assert "sens becomes 1 - spec, spec becomes 1 - sens, and alpha, beta and u change their signs" in text
    assert remedy == "Keep one copy: bound beta, such as by `<lower=0>`."


def test_any_order_of_three_components() -> None:
    names = ["mu.1", "mu.2", "mu.3"]
    every = list(map(list, permutations([-2.0, 0.0, 3.0])))
    modes = every[:3]
    found = of_draws(Bounded(names, every, [1] * 6), modes, (200, 200, 200))
    assert (found.copy_of, found.permuted, found.becomes) == ([0, 0, 0], ["mu"], {})
    assert found.restrictions == [Restriction("ordered", ("mu",))]


@pytest.mark.parametrize(
    "other",
    [[2.0, -1.0, 0.9], [2.0, -1.3, 0.5], [0.5, -1.0, 2.0], [-1.0, 1.0, 0.5]],
    ids=["another differs", "not a permutation", "of two parameters", "one element"],
)
def test_modes_that_are_no_copies_get_their_shares_alone(other: list[float]) -> None:
    """Negative control: two modes of the same height and share, which no exchange maps to each other."""
    names, one = ["mu.1", "mu.2", "tau"], [-1.0, 2.0, 0.5]
    found = of_draws(Bounded(names, [one, other], [1, 1]), [one, other])
    assert found.copy_of == [0, 1]
    (finding,) = found.findings()
    assert isinstance(finding, SeveralModes)
    text, remedy = finding.describe()
    assert text.startswith("The posterior has 2 modes (50 % and 50 % of the draws). At these modes, mu[")
    assert "order" not in remedy


def test_mirrored_modes_of_other_weight_are_no_copies() -> None:
    """Priors that differ: an order would choose one of two different modes."""
    names, one, other = ["mu.1", "mu.2"], [-1.0, 2.0], [2.0, -1.0]
    found = of_draws(Bounded(names, [one, other], [1, 2]), [one, other], (200, 400))
    assert found.copy_of == [0, 1]
    assert found.shares == pytest.approx([2 / 3, 1 / 3])
    assert found.values == {"mu[1]": [2.0, -1.0], "mu[2]": [-1.0, 2.0]}


def test_copies_beside_another_mode() -> None:
    names, modes = ["b", "c"], [[2.0, 1.0], [-2.0, 1.0], [0.0, -3.0]]
    found = of_draws(Bounded(names, modes, [1, 1, 1]), modes, (300, 300, 100))
    switch, several = found.findings()
    assert isinstance(switch, LabelsSwitch)
    assert isinstance(several, SeveralModes)
    assert switch.describe().text.startswith("Signs switch: the posterior is the same if b changes its sign.")
    assert switch.describe().remedy == "Keep one copy: bound b, such as by `<lower=0>`."
    assert several.shares == pytest.approx((6 / 7, 1 / 7))


def test_one_mode_is_nothing_to_tell() -> None:
    target = Bounded(["b"], [[2.0], [-2.0]], [1, 1])
    draws = [2 + SD * np.random.default_rng(k).standard_normal((100, 1)) for k in range(2)]
    assert visited_modes(target, [Centre(np.array([at]), np.array([SD])) for at in (2.0, -2.0)], draws) is None


def staying(*places: Sequence[float]) -> list[Array]:
    return [at + SD * np.random.default_rng(k).standard_normal((100, len(at))) for k, at in enumerate(places)]


def test_chains_that_stay_show_copies() -> None:
    """Chains that have not converged: effects drift, and the third chain stands still."""
    names = ["k.1", "k.2", "z.1", "z.2", "z.3"]
    modes = [[1.0, -1.0, 0.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0, 0.0]]
    draws = staying([1.0, -1.0, 0.9, -0.4, 0.1], [-1.0, 1.0, 0.2, 0.3, -0.8])
    found = visited_by_chains(Bounded(names, modes, [1, 1]), [*draws, np.full((100, 5), 5.0)])
    assert found is not None
    (finding,) = found.findings()
    text, remedy = finding.describe()
    assert text == (
        "Labels switch: the posterior is the same if the elements of k change places. Means and sds of these "
        "parameters are meaningless."
    )
    assert remedy == "Keep one copy: declare k as `ordered`."


def test_chains_that_stay_at_other_places_show_nothing() -> None:
    target = Bounded(["b", "c"], [[2.0, 0.0], [-1.0, 0.0]], [1, 1])
    assert visited_by_chains(target, staying([2.0, 0.0], [-1.0, 0.0])) is None
    assert visited_by_chains(target, staying([2.0, 0.0], [2.0, 0.0])) is None
    assert visited_by_chains(target, [np.full((100, 2), 5.0), np.full((100, 2), 4.0)]) is None


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_chains_that_run_away_show_nothing() -> None:
    target = Bounded(["b", "c"], [[2.0, 0.0], [-1.0, 0.0]], [1, 1])
    draws = [*staying([2.0, 0.0], [-1e200, 0.0]), np.array([[1e200, 0.0], [1.0, 0.0]])]
    assert visited_by_chains(target, draws) is None


def test_records_are_read_back() -> None:
    found = VisitedModes([0.6, 0.4], [0, 0], 2, 4, {}, ["mu"], {}, [Restriction("ordered", ("mu",))])
    assert VisitedModes.of_record(asdict(found)) == found


def test_copies_from_draws_about_each_mode() -> None:
    """Two of three modes are copies."""
    names = ["p", "mu.1", "mu.2", "u"]
    modes = [[0.7, -1.0, 2.0, 0.5], [0.7, -1.0, 2.0, -0.9], [-0.7, 2.0, -1.0, 0.5]]
    rng = np.random.default_rng(1)
    draws = [np.array(at) + SD * rng.standard_normal((60, 4)) for at in modes]
    found = copies(Bounded(names, [*modes, [-0.7, 2.0, -1.0, -0.9]], [1, 0.3, 1, 0.3], p=1), draws)
    assert found.copy_of == [0, 1, 0]
    assert (found.permuted, found.becomes) == (["mu"], {"p": "1 - p"})
