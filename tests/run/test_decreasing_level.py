"""An error level that falls during the run, audited against itself at each time."""

from typing import Any

import numpy as np
import pytest
from drawn import statistic
from ending import stop_after

import stansub
from stansub import CompiledModel, InputError, Pocock, decision_findings
from stansub.acceptance.decreasing_level import DecreasingLevel
from stansub.output.checks import findings_of

RUN: dict[str, Any] = {
    "chains": 2,
    "iter_warmup": 500,
    "iter_sampling": 4000,
    "seed": 6,
    "proposal": "adaptive-metropolis",
    "control_variates": 0,
    "block_size": 20,
    "audit": 1.0,
    "show_progress": False,
}


@pytest.fixture(scope="module")
def falling(normal_mean: CompiledModel, mean_data: dict[str, Any]) -> Any:
    return stansub.sample(normal_mean, mean_data, epsilon=0.2, final_epsilon=0.002, **RUN)


def test_levels_fall_in_equal_ratios_and_each_holds_for_its_steps() -> None:
    levels = DecreasingLevel(0.1, 0.001, 1000)
    values = [levels.level(step) for step in range(1000)]
    assert values[0] == pytest.approx(0.1)
    assert values[-1] == pytest.approx(0.001)
    assert len(set(values)) == 25
    ratios = np.array(sorted(set(values), reverse=True))
    np.testing.assert_allclose(ratios[1:] / ratios[:-1], (0.001 / 0.1) ** (1 / 24))
    step = 0
    while step < 1000:
        end = min(levels.same_until(step), 1000)
        assert len(set(values[step:end])) == 1
        assert end == 1000 or values[end] < values[step]
        step = end
    for n_steps in (1, 3, 26):
        short = DecreasingLevel(0.1, 0.01, n_steps)
        assert all(short.same_until(one) > one for one in range(n_steps))
    with pytest.raises(InputError, match="at most the first level"):
        DecreasingLevel(0.01, 0.1, 10)


def test_decisions_draw_more_as_the_level_falls_and_keep_it(falling: Any) -> None:
    level, used, wrong = (statistic(falling, name) for name in ("error_level", "n_obs_used", "audit_wrong"))
    assert (np.diff(level, axis=1) <= 0).all()
    assert level[:, 0] == pytest.approx(0.2)
    assert level[:, -1] == pytest.approx(0.002)
    assert used[:, 3000:].mean() > 1.3 * used[:, :1000].mean()
    rates = [wrong[:, 1000 * part : 1000 * (part + 1)].mean() for part in range(4)]
    levels = [level[:, 1000 * part : 1000 * (part + 1)].mean() for part in range(4)]
    assert rates[0] > 5 * rates[3], "and errors do become rarer"
    for rate, allowed in zip(rates, levels, strict=True):
        assert rate < allowed
    assert not [one for one in findings_of(falling) if isinstance(one, decision_findings.WrongAtTheirLevel)]


def test_decisions_that_do_not_keep_their_level_are_found(
    normal_mean: CompiledModel, mean_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a level that is said to fall and does not."""
    table = Pocock.table
    monkeypatch.setattr(Pocock, "table", lambda rule, n_units, level=None: table(rule, n_units))
    idata = stansub.sample(normal_mean, mean_data, epsilon=0.2, final_epsilon=0.0002, **RUN)
    (found,) = [one for one in findings_of(idata) if isinstance(one, decision_findings.WrongAtTheirLevel)]
    assert found.parts[-1].last == pytest.approx(0.0002)
    assert found.parts[-1].n_wrong > found.parts[-1].expected
    assert "More audited decisions were wrong than their level allows" in idata.attrs["warnings"]


def test_a_run_whose_level_falls_is_resumed(
    normal_mean: CompiledModel, mean_data: dict[str, Any], falling: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: Any = RUN | {"epsilon": 0.2, "final_epsilon": 0.002}
    with monkeypatch.context() as patch:
        stop_after(patch, 4000)
        patch.setattr("stansub.run.executors.TURN", 0.0)
        with pytest.raises(KeyboardInterrupt):
            stansub.sample(normal_mean, mean_data, checkpoint=tmp_path / "run", checkpoint_every=1e-9, **options)
    resumed = stansub.sample(normal_mean, mean_data, resume=tmp_path / "run", **options)
    for name in ("error_level", "n_obs_used", "log_ratio"):
        np.testing.assert_array_equal(statistic(resumed, name), statistic(falling, name))


def test_what_has_no_level_to_fall_is_refused(normal_mean: CompiledModel, mean_data: dict[str, Any]) -> None:
    for options in ({"test": "exact"}, {"kernel": stansub.Metropolis(), "proposal": "auto"}):
        with pytest.raises(InputError, match="needs the built-in kernel and a test with an error level"):
            stansub.sample(normal_mean, mean_data, final_epsilon=0.001, **RUN | options)
