"""Signs that parameters change together, found from arguments of the likelihood and a log density."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stansub.errors import RunError
from stansub.tuning.surrogates.signs import Mirror, find_mirrors
from stansub.tuning.surrogates.surrogate import TunedSurrogate

Density = Callable[[np.ndarray], float]


def standard(theta: np.ndarray) -> float:
    return -0.5 * float(theta @ theta)


def found(sizes: dict[str, Any], phi: Callable[..., Any], density: Density = standard) -> list[tuple[str, ...]]:
    """Names for parameters of such shapes, with `phi` as a function of them."""
    places, first = {}, 0
    for name, shape in sizes.items():
        size = int(np.prod(shape))
        places[name] = np.arange(first, first + size).reshape(shape)
        first += size

    def arguments(theta: np.ndarray) -> np.ndarray:
        return np.concatenate([np.ravel(one) for one in phi(**{name: theta[at] for name, at in places.items()})])

    model = SimpleNamespace(log_density=lambda theta: density(theta) + float(np.sin(arguments(theta)).sum()))
    surrogate: Any = SimpleNamespace(phi=arguments, model=model)
    draws = np.abs(np.random.default_rng(1).standard_normal((30, first)))
    mirrors = find_mirrors(places, surrogate, draws)
    for one in mirrors:
        np.testing.assert_allclose(arguments(one(draws[3])), arguments(draws[3]))
        assert (one(draws[3]) != draws[3]).sum() == len(one.places)
    return [one.names for one in mirrors]


EFFECTS = {"a": (), "z": 20, "tau": ()}


def test_a_scale_and_its_effects() -> None:
    assert found(EFFECTS, lambda a, z, tau: (a, a + tau * z)) == [("tau", "z")]


def test_a_scale_of_two_effects() -> None:
    sizes = {"z": 20, "w": (9, 2), "tau": ()}
    assert found(sizes, lambda z, w, tau: (tau * z, tau * w)) == [("tau", "w", "z")]


def test_two_scales_of_the_same_effects() -> None:
    assert found({"s": (), "t": (), "z": 20}, lambda s, t, z: (s * z, t * z)) == [("s", "t", "z")]


def test_each_scale_of_a_vector_and_its_effects() -> None:
    sizes = {"tau": 3, "z": 20, "w": 20}
    assert found(sizes, lambda tau, z, w: (tau[0] * z, tau[1] * w, tau[2])) == [("tau[1]", "z"), ("tau[2]", "w")]


def test_correlated_effects() -> None:
    def phi(z: np.ndarray, sd: np.ndarray, r: float) -> tuple[np.ndarray, ...]:
        return sd[0] * z[0], sd[1] * (np.tanh(r) * z[0] + z[1] / np.cosh(r))

    assert found({"z": (2, 20), "sd": 2, "r": ()}, phi) == [("sd", "z")]


def test_loadings_and_factors() -> None:
    assert found({"f": 30, "b": 9, "c": 9}, lambda f, b, c: (c, np.outer(b, f) + c[:, None])) == [("b", "f")]


def test_signs_of_two_of_three_factors_change() -> None:
    assert found({"s": (), "t": (), "z": 20}, lambda s, t, z: (s * t * z,)) == [("s", "t")]


@pytest.mark.parametrize(
    ("phi", "density"),
    [
        (lambda a, z, tau: (a + tau * z,), lambda theta: standard(theta - 0.1)),  # priors that are not symmetric
        (lambda a, z, tau: (a + np.exp(tau) * z,), standard),
        (lambda a, z, tau: (a + abs(tau) * z,), standard),  # the sign of a single parameter
        (lambda a, z, tau: (a + tau * z, z[0]), standard),
        (lambda a, z, tau: (a, z), standard),  # nothing is multiplied
    ],
)
def test_no_signs(phi: Callable[..., Any], density: Density) -> None:
    assert found(EFFECTS, phi, density) == []


def test_a_density_undefined_for_other_signs() -> None:
    def density(theta: np.ndarray) -> float:
        if theta[-1] < 0:
            raise RunError("tau is negative")
        return standard(theta)

    assert found(EFFECTS, lambda a, z, tau: (a + tau * z,), density) == []


def test_every_second_chain_starts_with_other_signs() -> None:
    draws = np.arange(1.0, 31.0).reshape(10, 3)
    mirror = Mirror(("t", "z"), np.array([0, 2]))
    tuned = TunedSurrogate(None, draws, 0.1, 0.0, 1)  # type: ignore[arg-type]
    plain, mirrored = tuned.starts(3), TunedSurrogate(None, draws, 0.1, 0.0, 1, (mirror,)).starts(3)  # type: ignore[arg-type]
    for number, (own, other) in enumerate(zip(plain, mirrored, strict=True)):
        np.testing.assert_array_equal(other, own * ([-1, 1, -1] if number == 1 else 1))
