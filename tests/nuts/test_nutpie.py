"""nutpie as an engine, against exact posteriors."""

import json
import re
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pytest
from layout import example
from numpy.typing import NDArray
from rich.console import Console

from stansub.errors import InputError, RunError
from stansub.findings import Divergences, TreesCutShort
from stansub.memory import Room
from stansub.nuts import nutpie as engine
from stansub.nuts.base import Program, Settings
from stansub.nuts.reference import describe, reference, reservations
from stansub.output import inference_data
from stansub.output.checks import findings_of
from stansub.output.summary import render
from stansub.stan.data.data import read

MODELS = Path(__file__).parents[2] / "stan_models"
SIGMA, PRIOR_SD = 2.0, 10.0


def data(n: int = 50) -> dict[str, Any]:
    return {"N": n, "y": np.random.default_rng(5).normal(1, SIGMA, n), "sigma": SIGMA}


def z_score(draws: NDArray[np.float64], mean: float) -> float:
    return float((draws.mean() - mean) / az.mcse(draws, method="mean"))


@pytest.fixture(scope="module")
def normal_mean() -> Any:
    return reference(
        MODELS / "normal_mean.stan", data(), engine="nutpie", chains=3, parallel_chains=2, seed=1, iter_sampling=2000
    )


def exact(prior_sd: float) -> tuple[float, float]:
    """Mean and sd of a normal mean with known sigma and a normal prior around zero (Gelman et al. 2013, eq. 2.12)."""
    y = data()["y"]
    precision = 1 / prior_sd**2 + len(y) / SIGMA**2
    return y.sum() / SIGMA**2 / precision, precision**-0.5


def test_the_posterior_is_the_exact_one(normal_mean: Any) -> None:
    draws = inference_data.group(normal_mean, "posterior")["mu"].values
    mean, sd = exact(PRIOR_SD)
    assert draws.shape == (3, 2000)
    assert abs(z_score(draws, mean)) < 4
    # The relative error of an sd is 1 / sqrt(2 ESS).
    assert abs(draws.std() / sd - 1) < 4 / np.sqrt(2 * az.ess(draws, method="sd"))
    # Negative control: the same posterior under a prior that matters is told apart.
    assert abs(z_score(draws, exact(1.0)[0])) > 4


def test_the_reference_says_where_it_comes_from(normal_mean: Any) -> None:
    facts = inference_data.attrs(normal_mean)
    stats = inference_data.group(normal_mean, "sample_stats")
    assert facts["engine"] == "nutpie"
    assert facts["reference_for"] == facts["model_hash"] == Program.read(MODELS / "normal_mean.stan").hash
    assert facts["settings"] == {
        "chains": 3,
        "parallel_chains": 2,
        "iter_warmup": 1000,
        "iter_sampling": 2000,
        "seed": 1,
        "adapt_delta": 0.8,
        "max_treedepth": 10,
    }
    assert facts["n_gradients"] == stats["n_steps"].values.sum(axis=1).tolist()
    assert min(facts["warmup_n_gradients"]) >= 1000, "each iteration of warmup takes a step at least"
    assert (facts["n_divergences"], facts["n_max_treedepth"]) == ([0, 0, 0], [0, 0, 0])
    assert facts["n_observations"] == 50
    assert facts["r_hat_max"] < 1.01
    assert min(facts["ess_bulk_min"], facts["ess_tail_min"]) > 1000
    assert {"diverging", "n_steps", "tree_depth", "step_size", "acceptance_rate", "energy", "lp"} <= set(stats)
    assert describe(facts).startswith("Reference by nutpie ")
    assert reservations(facts) == []


def test_seconds_of_the_chains_make_up_the_time_of_all(normal_mean: Any) -> None:
    facts = inference_data.attrs(normal_mean)
    chains = np.add(facts["warmup_time"], facts["sampling_time"])
    assert facts["time_split"] == "by gradient evaluations"
    # Three chains on two cores: one core runs two of them.
    assert max(chains) < facts["wall_time"] <= chains.sum() * (1 + 1e-12)


@pytest.mark.parametrize(
    ("work", "workers", "end"), [([4, 4, 4], 2, 8), ([1, 5, 1], 2, 5), ([3], 4, 3), ([2, 2, 2, 2], 4, 2)]
)
def test_free_workers_take_the_next_chain(work: list[int], workers: int, end: int) -> None:
    assert engine._makespan(work, workers) == end


def test_the_seed_decides_the_draws() -> None:
    def draws(seed: int) -> NDArray[np.float64]:
        made = reference(MODELS / "normal_mean.stan", data(), engine="nutpie", chains=1, seed=seed, iter_sampling=50)
        values: NDArray[np.float64] = inference_data.group(made, "posterior")["mu"].values
        return values

    assert np.array_equal(draws(3), draws(3))
    assert not np.array_equal(draws(3), draws(4))


def test_the_file_holds_what_was_in_memory(normal_mean: Any, place: Path) -> None:
    inference_data.write(normal_mean, "r.nc")
    again = inference_data.read("r.nc")
    before, after = inference_data.attrs(normal_mean), inference_data.attrs(again)
    assert after["settings"] == before["settings"]
    assert after["n_gradients"] == before["n_gradients"]
    assert json.dumps(after, default=str) == json.dumps(before, default=str)


def test_the_public_way_serves_where_the_private_one_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    import nutpie

    class Model:
        def with_data(self, **values: Any) -> Any:
            return sorted(values)

    def compiled(**options: Any) -> Model:
        assert options["code"] == program.code
        return Model()

    program = Program.read(MODELS / "normal_mean.stan")
    values = read(data(), program.syntax.data.declarations)
    monkeypatch.setattr(nutpie, "compile_stan_model", compiled)
    monkeypatch.delattr("nutpie._lib.StanModel")
    assert engine._with_data(Path("none.so"), program, values, seed=1) == ["N", "sigma", "y"]


def test_data_that_the_program_rejects_are_an_input_error() -> None:
    rejected = {**data(), "sigma": -1.0}
    with pytest.raises(InputError, match=r"data: .*sigma is -1") as caught:
        reference(MODELS / "normal_mean.stan", rejected, engine="nutpie")
    assert "\n" not in str(caught.value)
    assert "0x" not in str(caught.value)


def test_data_are_read_before_anything_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiling(*args: Any, **options: Any) -> None:
        pytest.fail("compiled before the data were known to fit")

    monkeypatch.setattr("stansub.stan.toolchain.build.compile_library", compiling)
    with pytest.raises(InputError, match="'sigma' is missing"):
        reference(MODELS / "normal_mean.stan", {"N": 1, "y": [1.0]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chains": 0}, "chains=0"),
        ({"iter_warmup": 0}, "iter_warmup=0"),
        ({"iter_sampling": 1.5}, "iter_sampling=1.5"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**32}, "seed=4294967296"),
        ({"adapt_delta": 1.0}, "adapt_delta=1.0` must be between 0 and 1"),
        ({"max_treedepth": 0}, "max_treedepth=0"),
        ({"engine": "stan"}, "unknown engine 'stan'; choose from auto, cmdstan, nutpie"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        reference(MODELS / "normal_mean.stan", data(), **options)


def test_transformed_parameters_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    code = Program.read(MODELS / "normal_mean.stan").code
    tall = Program(
        "tall", code.replace("model {", "transformed parameters {\n  vector[N] eta = mu + 0 * y;\n}\nmodel {")
    )
    monkeypatch.setattr("stansub.memory.room", lambda: Room(1000, "1 KB are free here"))
    with pytest.raises(InputError, match=r"eta\) would take .* declare them in the model block"):
        reference(tall, data(), engine="nutpie")


def test_complex_values_stand_where_the_program_puts_them() -> None:
    given = example(3)
    program = Program.read(Path(__file__).parents[1] / "programs" / "layout.stan")
    settings = Settings(2, 2, 20, 5, 1, 0.8, 10)
    values = read(given, program.syntax.data.declarations)
    posterior = engine.run(program, values, settings, console=Console(), show=False).posterior
    for name in ("x", "r", "c", "one"):
        expected = np.asarray(given[name], dtype=float)
        np.testing.assert_array_equal(posterior[f"{name}_"], np.broadcast_to(expected, (2, 5, *expected.shape)))


def test_draws_are_kept_whatever_fails_after_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "by_variable", lambda arrays: [][0])
    with pytest.raises(RunError, match="list index out of range; the draws were saved in") as caught:
        reference(MODELS / "normal_mean.stan", data(), engine="nutpie", chains=2, iter_warmup=20, iter_sampling=30)
    assert np.load(str(caught.value).rpartition(" ")[2])["mu"].shape == (2, 30)


class TestSummary:
    """What is printed about a reference."""

    def test_a_good_one(self, normal_mean: Any, capsys: pytest.CaptureFixture[str]) -> None:
        render(normal_mean, Console(width=100), verbose=True)
        out = capsys.readouterr().out
        assert re.search(r"^NUTS +nutpie", out, flags=re.MULTILINE)
        assert re.search(
            r"^Converged \(R-hat [^)]+\); NUTS with 0 divergences; [\d,]+ gradient evaluations; ", out, re.M
        )
        assert "Warning" not in out
        assert "Audit" not in out
        assert "Decisions" not in out

    def test_divergences_and_short_trees_are_warned_of(self) -> None:
        def made(divergences: int, limited: int) -> Any:
            return inference_data.build(
                posterior={"x": np.random.default_rng(1).standard_normal((2, 1000))},
                sample_stats={"lp": np.zeros((2, 1000))},
                attrs={
                    "engine": "nutpie",
                    "n_gradients": [1, 2],
                    "n_divergences": [0, divergences],
                    "n_max_treedepth": [limited, 0],
                    "settings": {"adapt_delta": 0.9, "max_treedepth": 8},
                },
            )

        findings = findings_of(made(3, 2))
        assert findings == (Divergences(3, adapt_delta=0.9), TreesCutShort(2, max_treedepth=8))
        assert [finding.describe().text.partition(" iterations")[0] for finding in findings] == ["3", "2"]
        assert "`adapt_delta` above 0.9" in findings[0].describe().remedy
        assert "`max_treedepth` above 8" in findings[1].describe().remedy
        assert findings_of(made(0, 0)) == ()
