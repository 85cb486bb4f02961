"""Risk: the estimates on errors with known bias and variance, then runs on posteriors in closed form."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from clocks import Clock, wait_until

import stansub
from stansub import InputError, RunError
from stansub.cli.risk import risk as command
from stansub.diagnostics import risk_functions, risk_runs
from stansub.diagnostics.risk import parse_epsilons, risk
from stansub.diagnostics.risk_curves import grid, split
from stansub.diagnostics.risk_result import Risk, headlines
from stansub.output import inference_data, plots
from stansub.report import risk_figure

MAX_Z = 4.0
EXAMPLES = Path(__file__).parents[2] / "stan_models"
NORMAL_MEAN = EXAMPLES / "normal_mean.stan"
QUANTITIES = Path(__file__).parents[1] / "run" / "programs" / "quantities.stan"


def z_score(values: np.ndarray, expected: float) -> float:
    """Mean of independent values less what is expected, in its standard errors."""
    return float((values.mean() - expected) / (values.std(ddof=1) / np.sqrt(len(values))))


class TestSplit:
    """Errors of runs made up as bias + noise, with an error of the truth that all runs share."""

    BIAS, SD, FLOOR, REPEATS = 0.3, 0.5, 0.04, 8

    def errors(self, seed: int, functions: int = 6) -> np.ndarray:
        rng = np.random.default_rng(seed)
        noise = self.SD * rng.standard_normal((self.REPEATS, 1, functions))
        return self.BIAS + np.sqrt(self.FLOOR) * rng.standard_normal((1, 1, functions)) + noise

    def found(self, **options: Any) -> dict[str, np.ndarray]:
        splits = [split(self.errors(seed), **options) for seed in range(2000)]
        return {name: np.array([float(getattr(one, name)[0]) for one in splits]) for name in splits[0]._fields}

    def test_bias_variance_and_risk_are_unbiased(self) -> None:
        found = self.found(floor=self.FLOOR)
        assert abs(z_score(found["bias2"], self.BIAS**2)) < MAX_Z
        assert abs(z_score(found["variance"], self.SD**2)) < MAX_Z
        assert abs(z_score(found["mse"], self.BIAS**2 + self.SD**2)) < MAX_Z

    def test_without_the_floor_the_bias_would_be_seen_too_large(self) -> None:
        """The control: the check above sees the truth's error, and the variance of the mean over repeats."""
        found = self.found()
        assert z_score(found["bias2"], self.BIAS**2) > 3 * MAX_Z
        naive = np.array([(self.errors(seed).mean(axis=0) ** 2).mean() - self.FLOOR for seed in range(2000)])
        assert z_score(naive, self.BIAS**2) > 3 * MAX_Z

    def ratios(self, shared: float) -> dict[str, float]:
        """Standard errors over what they should be."""
        found = self.found(floor=self.FLOOR, shared=shared)
        names = ("mse", "bias2", "variance")
        return {name: np.sqrt((found[f"{name}_se"] ** 2).mean()) / found[name].std() for name in names}

    def test_standard_errors_tell_the_spread(self) -> None:
        """The truth's errors of six functions are independent here, so that one in six of their correlations is 1."""
        assert all(0.9 < ratio < 1.15 for ratio in self.ratios(1 / 6).values())

    def test_they_would_be_too_small_without_the_uncertainty_of_the_truth(self) -> None:
        ratios = self.ratios(0.0)
        assert max(ratios["bias2"], ratios["mse"]) < 0.85

    def test_risk_is_squared_bias_plus_variance(self) -> None:
        rng = np.random.default_rng(1)
        found = split(rng.standard_normal((5, 7, 3)), 0.01)
        np.testing.assert_allclose(found.mse, found.bias2 + found.variance)
        assert found.mse.shape == (7,)

    def test_two_repeats_are_too_few(self) -> None:
        with pytest.raises(ValueError, match="too few"):
            split(np.zeros((2, 1, 1)))


class TestGrid:
    def test_ends_are_exact_and_ratios_equal(self) -> None:
        points = grid(0.1, 7.3, 30)
        assert points[0] == pytest.approx(0.1)
        assert points[-1] == 7.3
        np.testing.assert_allclose(np.diff(np.log(points)), np.log(points[1] / points[0]))

    def test_no_room(self) -> None:
        assert grid(5.0, 5.0, 30).tolist() == [5.0]


class TestPositions:
    def test_every_kth_position_is_kept_from_the_first_on(self) -> None:
        kept = risk_runs._Positions()
        thetas = np.arange(1.0, 3001.0)[:, None]
        for first in range(0, 3000, 37):
            kept.add(thetas[first : first + 37])
        assert risk_runs._POSITIONS <= len(kept.steps) < 2 * risk_runs._POSITIONS
        assert kept.steps[0] == 1
        assert len(set(np.diff(kept.steps))) == 1
        np.testing.assert_array_equal(kept.positions[:, 0], kept.steps)


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return {"N": 2000, "y": np.random.default_rng(5).normal(1.0, 2.0, 2000), "sigma": 2.0}


def closed_form(data: dict[str, Any]) -> tuple[float, float]:
    """Posterior mean and sd of `normal_mean`: prior N(0, 10^2), known sigma."""
    precision = 1 / 100 + data["N"] / data["sigma"] ** 2
    return float(np.sum(data["y"]) / data["sigma"] ** 2 / precision), precision**-0.5


@pytest.fixture(scope="module")
def posterior(data: dict[str, Any]) -> stansub.Posterior:
    """Blocks of one observation, on which loose tests err most."""
    return stansub.compile_model(NORMAL_MEAN).with_data(data, block_size=1)


@pytest.fixture(scope="module")
def truth(data: dict[str, Any]) -> Any:
    """Independent draws of the posterior."""
    mean, sd = closed_form(data)
    draws = np.random.default_rng(6).normal(mean, sd, (4, 20_000))
    return inference_data.build(posterior={"mu": draws}, sample_stats={}, attrs={})


@pytest.fixture(scope="module")
def found(posterior: stansub.Posterior, truth: Any) -> Risk:
    return risk(
        posterior, epsilons=[0.4, 0.05, 0], test="austerity", max_steps=2000, repeats=6, reference=truth, seed=1
    )


class TestRuns:
    def test_exact_decisions_have_no_bias_and_the_variance_of_a_random_walk(self, found: Risk) -> None:
        exact = found.final.loc[("means", 0.0)]
        assert abs(exact["bias2"]) < MAX_Z * exact["bias2_se"]
        # A random walk in one dimension makes an effective draw in about six steps.
        assert 0.0005 < exact["variance"] < 0.03
        spread = found.final.loc[("variances", 0.0)]
        assert abs(spread["bias2"]) < MAX_Z * spread["bias2_se"]

    def test_a_loose_test_is_seen(self, found: Risk) -> None:
        """The control: wrong decisions widen the posterior, which the variances show as bias."""
        loose = found.final.loc[("variances", 0.4)]
        assert loose["bias2"] > 100 * abs(found.final.loc[("variances", 0.0), "bias2"])
        line = next(line for line in headlines(found) if line.startswith("variances"))
        against = r"lowest with (epsilon 0\.05 .*; compared with )?exact decisions \(.* sd²\)[,;].* worse with epsilon "
        assert re.search(against + r"(0\.05, )?0\.4$", line)

    def test_settings_say_what_decisions_took(self, found: Risk) -> None:
        settings = found.settings
        assert settings.index.tolist() == [0.0, 0.05, 0.4]
        assert settings.loc[0.0, "share"] == 1.0
        assert settings.loc[0.0, "passes"] == pytest.approx(1.0, abs=0.01)
        assert settings["share"].is_monotonic_decreasing
        assert settings.loc[0.0, "audited"] == 0
        assert (settings.loc[[0.05, 0.4], "audited"] == 6 * 40).all()
        assert settings.loc[0.4, "error_low"] > settings.loc[0.05, "error_high"]

    def test_curves_have_every_axis_and_end_at_the_budget(self, found: Risk) -> None:
        curves = found.curves
        assert set(curves["axis"]) == {"seconds", "passes", "steps"}
        steps = curves[(curves["axis"] == "steps") & (curves["what"] == "means")]
        assert steps.groupby("epsilon")["at"].max().tolist() == [2000.0] * 3
        np.testing.assert_allclose(curves["mse"], curves["bias2"] + curves["variance"], rtol=1e-6, atol=1e-12)
        assert (curves["repeats"] == 6).all()
        for _, curve in curves.groupby(["what", "axis", "epsilon"]):
            assert curve["at"].is_monotonic_increasing

    def test_losses_are_those_of_the_curves(self, found: Risk) -> None:
        losses = found.losses.groupby(["what", "epsilon"])["loss"].mean()
        for (what, epsilon), loss in losses.items():  # type: ignore[misc]
            floor = found.facts["floor"][what]
            assert loss - floor == pytest.approx(found.final.loc[(what, epsilon), "mse"], rel=1e-6)

    def test_the_same_seed_gives_the_same_runs_however_many_at_once(
        self, posterior: stansub.Posterior, truth: Any
    ) -> None:
        options: dict[str, Any] = {"epsilons": [0, 0.1], "max_steps": 300, "repeats": 3, "reference": truth}
        one, two, other = (
            risk(posterior, **options, seed=seed, parallel_chains=at_once) for seed, at_once in ((3, 1), (3, 2), (4, 2))
        )
        assert one.losses.equals(two.losses)
        columns = [name for name in one.settings if name != "seconds"]
        assert one.settings[columns].equals(two.settings[columns])
        assert not one.losses.equals(other.losses)

    def test_a_time_budget_is_kept(
        self, posterior: stansub.Posterior, truth: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock()
        clock.tick = 0.01  # of every stretch of steps
        monkeypatch.setattr("stansub.clock.computed", clock)
        options: dict[str, Any] = {"repeats": 3, "reference": truth, "seed": 1, "parallel_chains": 1}
        found = risk(posterior, epsilons=[0, 0.2], max_time=0.145, **options)
        assert found.settings["seconds"].to_numpy() == pytest.approx(0.15)
        assert found.facts["budget_axis"] == "seconds"

    def test_starts_far_away_are_part_of_the_risk(self, posterior: stansub.Posterior, truth: Any) -> None:
        options: dict[str, Any] = {"epsilons": [0], "max_steps": 300, "repeats": 3, "reference": truth, "seed": 1}
        near, far = (risk(posterior, **options, inits=inits).curves for inits in (None, {"mu": 3.0}))
        assert far["mse"].iloc[0] > 100 * near["mse"].iloc[0]

    @pytest.mark.parametrize(
        ("inits", "expected"),
        [
            (None, None),
            (0.5, 0.5),
            ({"mu": 3.0}, {"mu": 3.0}),
            ([{"mu": one} for one in (1.0, 2.0, 3.0)], [{"mu": one} for one in (1.0, 2.0, 3.0, 1.0)]),
        ],
    )
    def test_exact_chains_start_at_the_inits(
        self, posterior: stansub.Posterior, inits: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def began(*_arguments: Any, **options: Any) -> None:
            assert options["chains"] == 4
            raise RunError(f"inits={options['inits']}")

        monkeypatch.setattr("stansub.diagnostics.risk.sample", began)
        with pytest.raises(RunError, match=f"^{re.escape(f'inits={expected}')}$"):
            risk(posterior, epsilons=[0], max_steps=100, repeats=3, reference="exact", inits=inits)

    @pytest.mark.slow
    def test_exact_chains_stand_for_the_truth(self, posterior: stansub.Posterior, data: dict[str, Any]) -> None:
        found = risk(posterior, epsilons=[0], max_steps=100, repeats=3, reference="exact", seed=1)
        assert found.facts["truth"] == "exact Metropolis-Hastings"
        assert found.facts["truth_r_hat"] < 1.02
        assert 0 < found.facts["floor"]["means"] < 0.01

    def test_nuts_stands_for_the_truth_by_default(self, data: dict[str, Any]) -> None:
        found = risk(NORMAL_MEAN, data, epsilons=[0], max_steps=100, repeats=3, seed=1)
        assert found.facts["truth"].startswith("NUTS (")
        assert found.facts["floor"]["means"] < 0.005
        # The starts, and with them the first errors, are those of the posterior.
        assert 0.01 < found.curves["mse"].iloc[0] < 10

    def test_everything_goes_into_json(self, found: Risk) -> None:
        plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert plain["model"] == "normal_mean"
        assert len(plain["curves"]) == len(found.curves)
        assert plain["settings"][0]["error"] is None, "nothing to audit is no number"


@pytest.fixture(scope="module")
def sampled() -> stansub.Posterior:
    """A program with transformed parameters and generated quantities."""
    values = {"N": 400, "y": np.random.default_rng(22).normal(1.0, 2.0, 400), "limit": 1e6}
    return stansub.compile_model(QUANTITIES).with_data(values)


class TestQuantities:
    def test_predictive_means_are_followed(self, sampled: stansub.Posterior) -> None:
        found = risk(sampled, epsilons=[0], max_steps=1000, repeats=3, reference="exact", seed=1)
        assert found.curves["what"].unique().tolist() == ["means", "variances", "log_lik", "y_rep"]
        end = found.final["mse"].xs(0.0, level="epsilon")
        begun = found.curves[found.curves["axis"] == "steps"].groupby("what")["mse"].first()
        assert (end < 0.2 * begun[end.index]).all()
        # Replicated data have noise of their own, in units of which a mean over hundreds of them is off by little.
        assert end["y_rep"] < 0.01

    def test_at_most_a_few_hundred_values_are_followed(self, sampled: stansub.Posterior) -> None:
        functions = risk_functions.Functions(sampled, ["residual", "table"])
        values = functions.of_quantities(np.zeros((2, 2)), functions.generator(np.random.SeedSequence(1)))
        assert values["residual"].shape == (2, risk_functions.MAX_VALUES)
        np.testing.assert_allclose(values["residual"][0, [0, -1]], sampled.values.values["y"][[0, -1]])
        assert values["table"].shape == (2, 6)

    def test_unknown_ones_are_refused(self, sampled: stansub.Posterior) -> None:
        with pytest.raises(InputError, match="'z' is not a transformed parameter or generated quantity"):
            risk(sampled, quantities=["z"], max_steps=100)


class TestBadInput:
    @pytest.mark.parametrize("text", ["", "0,,1", "a", "0;0.1"])
    def test_lists_that_are_none(self, text: str) -> None:
        with pytest.raises(InputError, match="numbers separated by commas"):
            parse_epsilons(text)

    def test_lists(self) -> None:
        assert parse_epsilons("0, 0.05,1e-3") == (0.0, 0.05, 0.001)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"epsilons": [0.1, 0.1]}, "once"),
            ({"epsilons": []}, "at least one"),
            ({"epsilons": 0.1}, "give a list of error levels, such as .0, 0.05., not 0.1"),
            ({"epsilons": ["a"]}, "give a list of error levels"),
            ({"epsilons": [1.5]}, "between 0 and 1"),
            ({"epsilons": [float("nan")]}, "between 0 and 1"),
            ({"test": "hoeffding"}, "pocock, austerity"),
            ({"repeats": 2}, "at least 3"),
            ({"max_time": 0}, "seconds above 0"),
            ({"max_steps": 10}, "at least 100"),
            ({"audit": 2}, "audit=2"),
            ({"reference": "missing.nc"}, "no such file"),
        ],
    )
    def test_options(self, posterior: stansub.Posterior, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            risk(posterior, **options)

    @pytest.mark.parametrize("what", ["model_hash", "data_hash", "reference_for"])
    def test_a_reference_of_something_else_is_refused(self, posterior: stansub.Posterior, what: str) -> None:
        draws = np.random.default_rng(1).normal(size=(2, 100))
        other = inference_data.build(posterior={"mu": draws}, sample_stats={}, attrs={what: "0123456789abcdef"})
        with pytest.raises(InputError, match=r"come from another model|come from other data"):
            risk(posterior, reference=other, max_steps=100)

    @pytest.mark.parametrize(
        ("draws", "message"),
        [
            ({"nu": np.zeros((2, 100))}, "lack mu"),
            ({"mu": np.zeros((2, 100, 3))}, "shape"),
            ({"mu": np.full((2, 100), np.nan)}, "not finite"),
            ({"mu": np.zeros((2, 100))}, "are constant"),
        ],
    )
    def test_a_reference_that_does_not_fit(
        self, posterior: stansub.Posterior, draws: dict[str, Any], message: str
    ) -> None:
        other = inference_data.build(posterior=draws, sample_stats={}, attrs={})
        with pytest.raises(InputError, match=message):
            risk(posterior, reference=other, max_steps=100)

    def test_chains_that_disagree_are_noted(self, posterior: stansub.Posterior, truth: Any) -> None:
        apart = inference_data.group(truth, "posterior")["mu"].values[:, :500] + np.array([[0], [0], [0.1], [0.1]])
        bad = inference_data.build(posterior={"mu": apart}, sample_stats={}, attrs={})
        found = risk(posterior, epsilons=[0], max_steps=100, repeats=3, reference=bad, seed=1)
        assert any("cannot be trusted" in note for note in found.notes)


class TestInterrupts:
    def interrupt_after(self, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C when so many runs have come to their end."""
        whole, finished = risk_runs.Run.course, []

        def course(run: risk_runs.Run) -> risk_runs.Trajectory:
            finished.append(run)
            if len(finished) == runs:
                os.kill(os.getpid(), signal.SIGINT)
                wait_until(lambda: run._stop[0])
            return whole(run)

        monkeypatch.setattr(risk_runs.Run, "course", course)

    def test_what_is_finished_is_shown(
        self, posterior: stansub.Posterior, truth: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.interrupt_after(4, monkeypatch)
        found = risk(posterior, epsilons=[0], max_steps=2000, repeats=1000, reference=truth, seed=1)
        assert 4 <= found.settings.loc[0.0, "repeats"] < 1000
        assert found.facts["stopped"] == "interrupted"
        assert any("interrupted" in note for note in found.notes)

    def test_too_little_is_an_error(
        self, posterior: stansub.Posterior, truth: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.interrupt_after(1, monkeypatch)
        with pytest.raises(RunError, match=r"^interrupted after"):
            risk(posterior, epsilons=[0, 0.1, 0.2], max_steps=3000, repeats=3, reference=truth, seed=1)

    def test_runs_that_fail_leave_the_others(
        self, posterior: stansub.Posterior, truth: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = risk_runs.Run.advance
        broken: list[risk_runs.Run] = []

        def advance(run: risk_runs.Run) -> bool:
            if not broken:
                broken.append(run)
            if run is broken[0]:
                raise RunError("a decision failed")
            return whole(run)

        monkeypatch.setattr(risk_runs.Run, "advance", advance)
        found = risk(posterior, epsilons=[0], max_steps=100, repeats=4, reference=truth, seed=1)
        assert found.settings.loc[0.0, "repeats"] == 3
        assert any("1 runs failed" in note and "a decision failed" in note for note in found.notes)


class TestPicture:
    def test_it_shows_every_group_and_setting(self, found: Risk) -> None:
        picture = risk_figure.figure(found)
        assert len(picture.axes) == 6
        lines = {line.get_color() for line in picture.axes[0].get_lines()}
        assert len(lines) == 4, "three settings and the truth's error"
        legend = [text.get_text() for text in picture.legends[0].get_texts()]
        assert len(legend) == 3
        assert any(text.startswith("epsilon 0.4: ") and "wrong" in text for text in legend)

    def test_a_format_that_is_none(self, found: Risk, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="unknown picture format"):
            plots.save(risk_figure.figure(found), tmp_path / "risk.xyz")


class TestCommand:
    @pytest.fixture
    def files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: dict[str, Any], truth: Any) -> list[str]:
        monkeypatch.chdir(tmp_path)
        Path("data.json").write_text(json.dumps({**data, "y": data["y"].tolist()}))
        inference_data.write(truth, "truth.nc")
        return [str(NORMAL_MEAN), "data.json", "--reference", "truth.nc", "--max-steps", "200", "--repeats", "3"]

    def run(self, arguments: list[str]) -> None:
        app = typer.Typer()
        app.command()(command)
        typer.main.get_command(app).main(arguments, standalone_mode=False)

    @pytest.mark.usefixtures("pictures_drawn")
    def test_it_prints_a_table_and_writes_picture_and_figures(
        self, files: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.run([*files, "--epsilon", "0,0.1", "--seed", "1"])
        out = capsys.readouterr().out
        assert "Risk of the means of the parameters" in out
        assert "no detectable difference with" in out or "better" in out or "worse" in out
        assert Path("normal_mean_risk.png").stat().st_size > 10_000
        assert json.loads(Path("normal_mean_risk.json").read_text())["seed"] == 1

    def test_files_go_to_a_folder(self, files: list[str]) -> None:
        self.run([*files, "--epsilon", "0", "--output-dir", "new/r.json"])
        assert {path.name for path in Path("new/r.json").iterdir()} == {"normal_mean_risk.png", "normal_mean_risk.json"}
        with pytest.raises(InputError, match="is a file"):
            self.run([*files, "--output-dir", "data.json"])

    def test_nothing_is_overwritten(self, files: list[str]) -> None:
        Path("normal_mean_risk.json").write_text("mine")
        with pytest.raises(InputError, match="already exists"):
            self.run(files)
        assert Path("normal_mean_risk.json").read_text() == "mine"
        self.run([*files, "--epsilon", "0", "--force"])
        assert Path("normal_mean_risk.json").read_text() != "mine"

    def test_defaults_are_those_of_the_function(self) -> None:
        import inspect

        own, theirs = (inspect.signature(one).parameters for one in (command, risk))
        assert parse_epsilons(own["epsilon"].default) == theirs["epsilons"].default
        for name in ("repeats", "audit", "max_steps", "parallel_chains", "block_size", "inits"):
            assert own[name].default == theirs[name].default
