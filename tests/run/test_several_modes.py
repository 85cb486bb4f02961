"""What a run says about several modes: the whole way from sampling to the attributes of the draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toy_targets import Array, Target, normal_prior

import stansub
from stansub.mode_findings import LabelsSwitch, SeveralModes
from stansub.output import inference_data
from stansub.output.checks import findings_of

Y = np.concatenate([np.random.default_rng(1).normal(-1.5, 1, 300), np.random.default_rng(2).normal(2, 1, 600)])


def components(means: Any) -> Any:
    """Log likelihoods of a mixture with the log odds of its first component and ``means(theta)``, with gradients."""

    def each(theta: Array) -> tuple[Array, Array]:
        mu, slopes = means(theta)
        log_p = -np.logaddexp(0, np.array([-theta[0], theta[0]]))
        parts = log_p - 0.5 * np.square(Y[:, np.newaxis] - mu)
        total = np.logaddexp(parts[:, 0], parts[:, 1])
        share = np.exp(parts - total[:, np.newaxis])
        odds = share[:, 0] - np.exp(log_p[0])
        return total, np.column_stack([odds, (share * (Y[:, np.newaxis] - mu)) @ slopes])

    return each


def free(theta: Array) -> tuple[Array, Array]:
    return theta[1:], np.eye(2)


def ordered(theta: Array) -> tuple[Array, Array]:
    gap = np.exp(theta[2])
    return theta[1] + np.array([0.0, gap]), np.array([[1.0, 0.0], [1.0, gap]])


def squared(theta: Array) -> tuple[Array, Array]:
    """A normal model whose mean is a square."""
    away = Y[:300] + 3.5 - theta[0] ** 2
    return -0.5 * away**2, (2 * theta[0] * away)[:, np.newaxis]


def tilted(theta: Array) -> tuple[float, Array]:
    return float(-0.5 * (theta[0] - 0.3) ** 2), 0.3 - theta


def sampled(target: Target) -> Any:
    return stansub.sample(target, seed=1, iter_warmup=200, iter_sampling=600, show_progress=False)


@pytest.mark.filterwarnings("ignore::stansub.DrawsWarning")
def test_a_mixture_is_told_to_keep_one_order() -> None:
    idata = sampled(Target(["odds", "mu.1", "mu.2"], len(Y), components(free), normal_prior(3.0)))
    (switch,) = (one for one in findings_of(idata) if isinstance(one, LabelsSwitch))
    assert switch.permuted == ("mu",)
    assert switch.becomes == {"odds": "-odds"}
    assert switch.n_jumping == switch.n_chains == 4
    assert sum(switch.shares) == pytest.approx(1)
    assert "Keep one copy: declare mu as `ordered`." in inference_data.attrs(idata)["warnings"]
    assert not [one for one in findings_of(idata) if isinstance(one, SeveralModes)]


@pytest.mark.filterwarnings("ignore::stansub.DrawsWarning")
def test_an_ordered_mixture_is_told_nothing() -> None:
    idata = sampled(Target(["odds", "low", "gap"], len(Y), components(ordered), normal_prior(3.0)))
    assert "visited_modes" not in inference_data.attrs(idata)
    assert not [one for one in findings_of(idata) if isinstance(one, LabelsSwitch | SeveralModes)]


@pytest.mark.filterwarnings("ignore::stansub.DrawsWarning")
def test_modes_that_are_no_mirror_images_are_told_with_their_shares() -> None:
    """A prior that prefers one sign."""
    idata = sampled(Target(["b"], 300, squared, tilted))
    (several,) = (one for one in findings_of(idata) if isinstance(one, SeveralModes))
    text = several.describe().text
    assert text.startswith("The posterior has 2 modes (")
    assert set(several.values) == {"b"}
    np.testing.assert_allclose(np.abs(several.values["b"]), np.sqrt(2), atol=0.1)
    assert several.shares[0] == pytest.approx(1 / (1 + np.exp(-2 * 0.3 * np.sqrt(2))), abs=0.1)
    assert text in inference_data.attrs(idata)["warnings"]
    assert not [one for one in findings_of(idata) if isinstance(one, LabelsSwitch)]
