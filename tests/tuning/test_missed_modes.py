"""After sampling, modes that no chain visited are found; what chains have seen is not complained of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from toy_targets import Array, Target

from stansub.findings import Finding
from stansub.mode_findings import LabelsSwitch, MissedMode
from stansub.output import inference_data
from stansub.output.checks import findings_of
from stansub.tuning.modes.mode import find_modes
from stansub.tuning.modes.mode_check import ModeCheck, check_modes

SD = 0.1


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def normals(means: Sequence[float], log_weights: Sequence[float], n: int = 40) -> Target:
    """One parameter, normal modes of one width."""
    at, weights = np.array(means), np.array(log_weights)

    def shared(theta: Array) -> tuple[float, Array]:
        parts = weights - 0.5 * ((theta[0] - at) / SD) ** 2
        top = parts.max()
        share = np.exp(parts - top)
        slope = share @ ((at - theta[0]) / SD**2) / share.sum()
        return float(top + np.log(share.sum())), np.array([slope])

    return Target(["mu"], n, lambda theta: (np.zeros(n), np.zeros((n, 1))), shared)


def draws(*centres: float) -> list[Array]:
    return [centre + SD * rng(k).standard_normal((200, 1)) for k, centre in enumerate(centres)]


def check(target: Target, *centres: float) -> ModeCheck:
    return check_modes(target, draws(*centres), rng(), threads=1)  # type: ignore[arg-type]


def findings(found: ModeCheck) -> tuple[Finding, ...]:
    """What stands in the file and is read back."""
    healthy = np.random.default_rng(1).normal(size=(4, 1000))
    attrs = {"mode_check": found.record()}
    return findings_of(inference_data.build(posterior={"x": healthy}, sample_stats={}, attrs=attrs))


def test_chains_that_agree_about_a_lower_mode_are_found() -> None:
    found = check(normals([-1.0, 1.0], [0.0, 20.0]), -1.0, -1.0)
    (missed,) = found.missed
    assert missed.share == pytest.approx(1.0, abs=1e-6)
    assert missed.log_density == pytest.approx(20.0, abs=1e-6)
    assert missed.above == pytest.approx(20.0, abs=1e-6)
    there, low, high = missed.values["mu"]
    assert there == pytest.approx(1.0, abs=1e-6)
    assert low < -1.0 < high < -0.5
    (finding,) = findings(found)
    assert isinstance(finding, MissedMode)
    assert finding == missed
    text = finding.describe().text
    assert "no chain visited about 100 % of the posterior" in text
    assert "20.0 above" in text
    assert "mu is 1 (draws: -1" in text


def test_a_mode_of_like_weight_is_missed_though_it_is_no_higher() -> None:
    (missed,) = check(normals([-1.0, 1.0], [0.0, -1.0]), -1.0, -1.0).missed
    assert missed.share == pytest.approx(1 / (1 + np.e), rel=1e-3)
    assert missed.above == pytest.approx(-1.0, abs=1e-6)


@pytest.mark.parametrize("centres", [(-1.0, 1.0), (1.0, -1.0, -1.0)])
def test_chains_about_both_modes_have_missed_none(centres: tuple[float, ...]) -> None:
    found = check(normals([-1.0, 1.0], [0.0, 1.0]), *centres)
    assert (found.n_modes, found.missed, found.reason) == (2, (), "")
    assert findings(found) == ()


def test_a_mode_without_weight_is_not_missed() -> None:
    found = check(normals([-1.0, 1.0], [0.0, -20.0]), -1.0, -1.0)
    assert (found.n_modes, found.missed) == (1, ())


def test_where_there_is_no_mode_that_is_the_reason() -> None:
    flat = Target(["a"], 20, lambda theta: (np.zeros(20), np.zeros((20, 1))))
    found = check(flat, 0.0)
    assert found.missed == ()
    assert found.reason.startswith("no mode: ")


def components() -> Target:
    """Two means that may change places, at -1 and 1 (in thousands of a narrow density)."""

    def shared(theta: Array) -> tuple[float, Array]:
        values = np.array([-0.5 * np.sum((theta - at) ** 2) / SD**2 for at in ([-1.0, 1.0], [1.0, -1.0])])
        slopes = np.array([(at - theta) / SD**2 for at in (np.array([-1.0, 1.0]), np.array([1.0, -1.0]))])
        share = np.exp(values - values.max())
        return float(values.max() + np.log(share.sum())), share @ slopes / share.sum()

    return Target(["mu.1", "mu.2"], 30, lambda theta: (np.zeros(30), np.zeros((30, 2))), shared)


def test_label_switching_is_named_and_is_no_missed_mode() -> None:
    modes = find_modes(components(), rng())
    assert modes.interchangeable == ("mu",)
    np.testing.assert_allclose(modes.weights, [0.5, 0.5], rtol=1e-3)
    at = [np.array([-1.0, 1.0]) + SD * rng(k).standard_normal((200, 2)) for k in range(2)]
    found = check_modes(components(), at, rng())  # type: ignore[arg-type]
    assert found.missed == ()
    assert found.interchangeable == ("mu",)
    (finding,) = findings(found)
    assert finding == LabelsSwitch(("mu",))
    assert finding.describe().text.startswith(
        "Labels switch: the posterior is the same if the elements of mu change places. Means"
    )


def test_many_starts_find_what_one_misses() -> None:
    """The highest mode has a narrow basin: one random start in fifteen ends there."""
    target = normals([-1.9, -1.5, 1.0], [8.0, 0.0, 0.0])

    def missed(starts: int | None) -> int:
        found = [find_modes(target, rng(seed), starts=starts).best.position[0] for seed in range(8)]
        return sum(position > -1.7 for position in found)

    assert missed(1) > 4, "the negative control"
    assert missed(None) == 0
