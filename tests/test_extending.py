"""The worked examples of docs/howto/extending.md: each is right against a known truth, no longer than the page says."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pytest
from drawn import statistic, unconstrained
from numpy.typing import NDArray

import stansub
from stansub import FunctionFactors, InputError, Metropolis, Sequence
from stansub.acceptance import names, rules
from stansub.acceptance.stopping import Guarantee
from stansub.codec import ANEW
from stansub.nuts.base import Missing
from stansub.output import inference_data
from stansub.stan.parts import divide
from stansub.stan.passes import fixpoint
from stansub.stan.syntax import parse
from stansub.stan.toolchain import stanc

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "extending"
sys.path[:0] = [str(EXAMPLES), str(ROOT / "tests" / "stan")]

from adaptive import InTurns  # noqa: E402
from brownian_bridge import BrownianBridge  # noqa: E402
from evaluate import log_density  # noqa: E402
from gibbs import Gibbs, GibbsKernel  # noqa: E402
from independence import IndependentT  # noqa: E402
from jumps import Jumps  # noqa: E402
from offsets import with_offsets  # noqa: E402
from static_hmc import StaticHmc  # noqa: E402

Array = NDArray[np.float64]
Places = NDArray[np.int32]

MAX_Z = 4.5
RUN: dict[str, Any] = {"chains": 4, "iter_warmup": 500, "seed": 3, "show_progress": False}
EXACT: dict[str, Any] = {"test": "exact", "control_variates": 0}

Y = np.random.default_rng(1).normal(1.0, 2.0, 2000)


def log_lik(theta: Array, which: Places) -> Array:
    return -0.5 * ((Y[which] - theta[0]) / 2) ** 2


def slopes(theta: Array, which: Places) -> Array:
    return ((Y[which] - theta[0]) / 4)[:, np.newaxis]


def mean_of_normals(**options: Any) -> FunctionFactors:
    """A flat prior: the posterior is normal about the mean of the data with sd 2 / sqrt(2000)."""
    return FunctionFactors(["mu"], len(Y), log_lik, **options)


TRUTH = (float(Y.mean()), 2 / np.sqrt(len(Y)))


def largest_z(idata: Any, **truth: tuple[float, float]) -> float:
    """Errors of means and sds in Monte Carlo standard errors."""
    posterior, errors = inference_data.group(idata, "posterior"), []
    for name, (mean, sd) in truth.items():
        draws = posterior[name].values
        errors.append((draws.mean() - mean) / az.mcse(draws, method="mean"))
        errors.append((draws.std() - sd) / az.mcse(draws, method="sd"))
    return float(np.abs(errors).max())


class TestPage:
    @pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
    def test_lines_are_counted(self, path: Path) -> None:
        """Of each example there is a row with its number of lines, which for a test and a proposal is below 70."""
        page = (ROOT / "docs" / "howto" / "extending.md").read_text()
        row = re.search(rf"^\|.*\]\(\.\./\.\./examples/extending/{path.name}\) \| (\d+) \|", page, re.MULTILINE)
        assert row is not None
        assert int(row[1]) == len(path.read_text().splitlines())
        if path.stem in ("brownian_bridge", "independence"):
            assert int(row[1]) < 70

    def test_examples_that_are_named_exist(self) -> None:
        page = (ROOT / "docs" / "howto" / "extending.md").read_text()
        named = re.findall(r"\(\.\./\.\./examples/extending/(\w+\.py)\)", page)
        assert sorted(named) == sorted(path.name for path in EXAMPLES.glob("*.py"))

    def test_the_script_runs(self) -> None:
        page = (ROOT / "docs" / "howto" / "extending.md").read_text()
        script = re.findall(r"```python\n(import numpy.*?)```", page, flags=re.DOTALL)[0]
        made: dict[str, Any] = {}
        # Shorter than on the page.
        exec(script.replace("seed=1)", "seed=1, iter_warmup=200, iter_sampling=200, show_progress=False)"), made)
        assert inference_data.attrs(made["idata"])["test"] == "brownian-bridge"
        assert (inference_data.group(made["idata"], "posterior")["mu"].values.std() > 0).all()


class TestSequentialTest:
    def test_draws(self) -> None:
        idata = stansub.sample(mean_of_normals(), test=BrownianBridge(), iter_sampling=1000, audit=0.1, **RUN)
        assert largest_z(idata, mu=TRUTH) < MAX_Z
        assert statistic(idata, "undecided").mean() < 0.9

    @pytest.mark.parametrize(("epsilon", "kept"), [(0.05, True), (0.05, False)])
    def test_error_of_a_decision(self, epsilon: float, kept: bool) -> None:
        """Partial sums of a shuffled population whose mean is the threshold, where errors are most frequent."""
        table, rng = BrownianBridge(epsilon=epsilon).table(1000), np.random.default_rng(2)
        scale = table.scale if kept else table.scale / 2  # half the boundary: the negative control
        wrong = 0
        for _ in range(2000):
            units = rng.normal(size=1000)
            units -= units.mean() - 1e-9
            for n, width in zip(table.n[:-1], scale[:-1], strict=True):
                if abs(units[:n].mean()) > width * units[:n].std(ddof=1):
                    wrong += units[:n].mean() < 0
                    break
        limit = epsilon * 2000 + 4 * np.sqrt(epsilon * 2000)
        assert (wrong < limit) == kept

    def test_registered_by_one_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        home = "brownian_bridge:BrownianBridge"
        monkeypatch.setitem(names.RULE_HOMES, "brownian-bridge", home)
        monkeypatch.setitem(rules.RULES, "brownian-bridge", rules._rule(home))
        options: Any = {"iter_sampling": 200, **RUN}
        idata = stansub.sample(mean_of_normals(), test="brownian-bridge", epsilon=0.01, **options)
        facts = inference_data.attrs(idata)
        assert (facts["test"], facts["epsilon"], facts["guarantee"]) == ("brownian-bridge", 0.01, Guarantee.ASYMPTOTIC)
        with pytest.raises(InputError, match="`epsilon` must be between 0 and 1"):
            BrownianBridge(epsilon=2.0)


class TestProposal:
    T = IndependentT(np.array([TRUTH[0] + 0.02]), np.array([[0.06]]))

    def test_draws(self) -> None:
        idata = stansub.sample(mean_of_normals(), proposal=self.T, iter_sampling=1000, **EXACT, **RUN)
        assert largest_z(idata, mu=TRUTH) < MAX_Z

    def test_without_the_ratio_they_are_wrong(self) -> None:
        def symmetric(rng: np.random.Generator, position: Array) -> tuple[Array, float]:
            return self.T(rng, position)[0], 0.0

        idata = stansub.sample(mean_of_normals(), proposal=symmetric, iter_sampling=1000, **EXACT, **RUN)
        assert largest_z(idata, mu=TRUTH) > 2 * MAX_Z


@dataclass
class Forgetful(InTurns):
    """Says that its turn need not be kept."""

    turn: int = field(default=0, metadata=ANEW)


class TestAdaptiveProposal:
    """Two normal means whose posterior sds differ by a factor of thirty."""

    SDS = np.array([1.0, 30.0]) / np.sqrt(500)

    def target(self) -> FunctionFactors:
        def log_lik(theta: Array, which: Places) -> Array:
            return np.full(len(which), -0.5 * float(((theta - 1) / self.SDS) @ ((theta - 1) / self.SDS)) / 100)

        return FunctionFactors(["a", "b"], 100, log_lik)

    def drawn(self, proposal: Any = None, **options: Any) -> Any:
        proposal = proposal or InTurns(np.ones(2))
        return stansub.sample(self.target(), proposal=proposal, **{"iter_sampling": 2000, **EXACT, **RUN, **options})

    def test_draws(self) -> None:
        idata = self.drawn()
        assert largest_z(idata, a=(1.0, self.SDS[0]), b=(1.0, self.SDS[1])) < MAX_Z
        moved = np.diff(unconstrained(idata), axis=1) != 0
        first = 499 % 2  # of warmup's 500 steps the last moved the second; the first draw moves the first
        assert not moved[:, 1 - first :: 2, 0].any()
        assert not moved[:, first::2, 1].any()
        rates = [moved[:, place::2].any(axis=2).mean() for place in (first, 1 - first)]
        assert np.abs(np.array(rates) - 0.44).max() < 0.12

    def test_without_learning_the_scales_are_off(self) -> None:
        """The control: the same proposal, given where it cannot learn."""

        def fixed(rng: np.random.Generator, position: Array) -> tuple[Array, float]:
            return plain(rng, position)

        plain = InTurns(np.ones(2))
        rate = statistic(self.drawn(fixed, chains=1), "accepted")[0]
        assert min(rate[::2].mean(), rate[1::2].mean()) < 0.2

    def test_each_chain_has_its_own_state(self) -> None:
        """Chains whose turns take place at the same time, and a chain by itself, have the same draws."""
        given = InTurns(np.ones(2))
        together = self.drawn(given, iter_sampling=200, chains=3, parallel_chains=3)
        assert (given.turn, given.scales.tolist()) == (0, [1.0, 1.0]), "what was given stays as it is"
        one_by_one = self.drawn(iter_sampling=200, chains=3, parallel_chains=1)
        np.testing.assert_array_equal(*(unconstrained(one) for one in (together, one_by_one)))

    def test_resumed_draw_for_draw(self, tmp_path: Path) -> None:
        options: Any = {"chains": 2, "iter_warmup": 101}
        whole = self.drawn(iter_sampling=151, **options)
        self.drawn(iter_sampling=76, checkpoint=tmp_path / "run", **options)
        more = self.drawn(iter_sampling=151, resume=tmp_path / "run", **options)
        np.testing.assert_array_equal(*(unconstrained(one) for one in (whole, more)))

    def test_a_state_that_is_lost_is_seen(self, tmp_path: Path) -> None:
        """The control: a proposal that leaves its turn out of the checkpoint goes on with other draws."""
        options: Any = {"chains": 1, "iter_warmup": 100}
        given = Forgetful(np.ones(2))
        whole = self.drawn(given, iter_sampling=151, **options)
        self.drawn(given, iter_sampling=75, checkpoint=tmp_path / "run", **options)
        more = self.drawn(given, iter_sampling=151, resume=tmp_path / "run", **options)
        assert (unconstrained(whole) != unconstrained(more)).any()

    def test_its_answers_are_looked_at(self) -> None:
        class Malformed(InTurns):
            def __call__(self, rng: np.random.Generator, position: Array) -> Any:
                return position

        with pytest.raises(InputError, match="the proposal must return"):
            self.drawn(Malformed(np.ones(2)))

    def test_the_page_s_walk_learns(self) -> None:
        page = (ROOT / "docs" / "howto" / "extending.md").read_text()
        code = re.findall(r"```python\n(from dataclasses.*?)```", page, flags=re.DOTALL)[0]
        made: dict[str, Any] = {"__name__": "walks"}
        exec(compile(code, "the page", "exec", dont_inherit=True), made)
        idata = stansub.sample(mean_of_normals(), proposal=made["Walk"](), iter_sampling=1000, **EXACT, **RUN)
        assert largest_z(idata, mu=TRUTH) < MAX_Z
        assert 0.2 < statistic(idata, "accepted").mean() < 0.4


def center(rng: np.random.Generator, position: Array) -> Array:
    """m given mu, of m ~ normal(0, 1), mu ~ normal(m, 1)."""
    return np.array([rng.normal(position[1] / 2, np.sqrt(0.5))])


def wrong_center(rng: np.random.Generator, position: Array) -> Array:
    return np.array([rng.normal(position[1], np.sqrt(0.5))])


class TestKernel:
    """m ~ normal(0, 1), mu ~ normal(m, 1), z ~ normal(mu, 1): normal, with the precision matrix below."""

    Z = np.random.default_rng(3).normal(1.5, 1.0, 4)
    PRECISION = np.array([[2.0, -1.0], [-1.0, 1.0 + len(Z)]])

    def target(self) -> FunctionFactors:
        def prior(theta: Array) -> float:
            return float(-0.5 * theta[0] ** 2 - 0.5 * (theta[1] - theta[0]) ** 2)

        return FunctionFactors(
            ["m", "mu"], len(self.Z), lambda theta, which: -0.5 * (self.Z[which] - theta[1]) ** 2, log_density=prior
        )

    def truth(self) -> dict[str, tuple[float, float]]:
        covariance = np.linalg.inv(self.PRECISION)
        mean, sd = covariance @ [0.0, self.Z.sum()], np.sqrt(np.diag(covariance))
        return {"m": (mean[0], sd[0]), "mu": (mean[1], sd[1])}

    def drawn(self, draw: Any, **options: Any) -> Any:
        kernel = Sequence(center=Gibbs(draw, ["m"]), rest=Metropolis())
        return stansub.sample(self.target(), kernel=kernel, **{"iter_sampling": 1200, **EXACT, **RUN, **options})

    def test_draws(self) -> None:
        idata = self.drawn(center)
        assert largest_z(idata, **self.truth()) < MAX_Z
        assert statistic(idata, "center.accepted").all()
        assert not statistic(idata, "center.n_obs_used").any()
        assert (statistic(idata, "n_obs_used") == len(self.Z)).all()

    def test_another_conditional_is_seen(self) -> None:
        assert largest_z(self.drawn(wrong_center), **self.truth()) > 2 * MAX_Z

    def test_alone_it_draws_from_the_conditional(self) -> None:
        idata = stansub.sample(
            self.target(), kernel=Gibbs(center, ["m"]), iter_sampling=2000, inits={"m": 0.0, "mu": 1.0}, **EXACT, **RUN
        )
        draws = inference_data.group(idata, "posterior")
        assert (draws["mu"].values == 1.0).all()
        assert abs(draws["m"].values.mean() - 0.5) < MAX_Z * np.sqrt(0.5 / 8000)

    def test_what_a_part_remembers_is_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A kernel with a state of its own goes on with it where a run is resumed."""

        def step(kernel: Any, rng: Any, state: Any, params: Any, *, audit: bool = False) -> Any:
            kernel.n = getattr(kernel, "n", 0) + 1
            _, info = plain(kernel, rng, state, params)
            position = state.position.copy()
            position[kernel.index] = kernel.n
            return type(state)(position), info

        plain = GibbsKernel.step
        monkeypatch.setattr(GibbsKernel, "step", step)
        monkeypatch.setattr(GibbsKernel, "save", lambda kernel: kernel.n)
        monkeypatch.setattr(GibbsKernel, "restore", lambda kernel, state, saved: setattr(kernel, "n", saved))
        kernel = Sequence(center=Gibbs(center, ["m"]), other=Gibbs(center, ["mu"]))
        options: Any = {"chains": 2, "iter_warmup": 100, "seed": 3, "show_progress": False, "kernel": kernel, **EXACT}
        stansub.sample(self.target(), iter_sampling=50, checkpoint=tmp_path / "run", **options)
        more = stansub.sample(self.target(), iter_sampling=80, resume=tmp_path / "run", **options)
        for name in ("m", "mu"):
            counted = inference_data.group(more, "posterior")[name].values
            np.testing.assert_array_equal(counted, np.broadcast_to(np.arange(101, 181), (2, 80)))


class TestEngine:
    def test_draws(self) -> None:
        y, model = Y[:50], ROOT / "stan_models" / "normal_mean.stan"
        data = {"N": len(y), "y": y, "sigma": 2.0}
        made = stansub.reference(
            model, data, engine=StaticHmc(), chains=4, iter_warmup=300, iter_sampling=1000, seed=4, show_progress=False
        )
        precision = 1 / 100 + len(y) / 4
        truth = (y.sum() / 4 / precision, precision**-0.5)
        assert largest_z(made, mu=truth) < MAX_Z
        assert largest_z(made, mu=(truth[0], 1.5 * truth[1])) > 2 * MAX_Z
        facts = inference_data.attrs(made)
        assert (facts["engine"], facts["method"], facts["engine_reason"]) == ("StaticHmc", "HMC", "given")
        assert facts["n_gradients"] == [8000] * 4

    def test_one_that_cannot_run_says_why(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(StaticHmc, "unavailable", lambda engine: Missing("no compiler", "install one"))
        with pytest.raises(InputError, match="no compiler; install one"):
            stansub.reference(ROOT / "stan_models" / "normal_mean.stan", {"N": 1, "y": [0.0], "sigma": 1.0},
                              engine=StaticHmc(), show_progress=False)  # fmt: skip


class TestStatistic:
    def test_distances_are_those_of_the_draws(self, tmp_path: Path) -> None:
        options: Any = {"kernel": Jumps(), "iter_sampling": 500, **EXACT, **RUN}
        idata = stansub.sample(mean_of_normals(), **options)
        theta = unconstrained(idata)
        jumps = statistic(idata, "squared_jump")
        np.testing.assert_allclose(jumps[:, 1:], np.diff(theta, axis=1)[:, :, 0] ** 2)
        assert ((jumps > 0) == statistic(idata, "accepted")).all()
        stats = inference_data.group(idata, "chain_stats")
        np.testing.assert_allclose(stats["squared_jumps"].values, jumps.sum(axis=1))
        assert largest_z(stansub.sample(mean_of_normals(), **options | {"iter_sampling": 1000}), mu=TRUTH) < MAX_Z

    def test_its_sentence_stands_in_the_file(self, tmp_path: Path) -> None:
        idata = stansub.sample(mean_of_normals(), kernel=Jumps(), iter_sampling=100, **EXACT, **RUN)
        stansub.write_draws(idata, tmp_path / "draws.nc")
        stored = inference_data.group(stansub.read_draws(tmp_path / "draws.nc"), "sample_stats")
        assert stored["squared_jump"].attrs["description"].startswith("Squared distance of the step")
        assert all(one.attrs["description"] for one in stored.data_vars.values())


COUNTS = """data { int N; int J; vector<lower=0>[N] exposure; vector[J] w; vector[N] x; vector[N] y; }
parameters { real a; real b; }
model { y ~ normal(log(exposure) + a + b * (x - mean(x)) + log(exposure) * sum(exp(w)), exp(a)); }"""


class TestPass:
    """A pass is given to `PASSES`, and composes with those that are there."""

    @pytest.fixture
    def rewritten(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr(fixpoint, "PASSES", (*fixpoint.PASSES, with_offsets))
        fixpoint.rewriting.cache_clear()
        yield lambda code: fixpoint.rewriting(parse(stanc.canonical_code(code, "counts")))
        fixpoint.rewriting.cache_clear()

    def test_it_composes_with_others(self, rewritten: Any) -> None:
        found = rewritten(COUNTS)
        assert found.passes == ("summaries of data in transformed data", with_offsets.name)
        assert "vector[N] stansub_offset_1 = log(exposure);" in found.program.code
        assert "vector[J] stansub_offset_2 = exp(w);" in found.program.code
        assert "log(" not in found.program.text(found.program.model.span), "both offsets are the same variable"
        parts = divide(found.program)
        assert parts is not None
        assert {"stansub_offset_1", "stansub_summary_1"} <= {one.name for one in parts.computed}

    def test_the_log_density_stays(self, rewritten: Any) -> None:
        rng = np.random.default_rng(1)
        data = {"N": 7, "J": 2, "exposure": rng.gamma(2, size=7), "w": rng.normal(size=2)}
        data |= {"x": rng.normal(size=7), "y": rng.normal(size=7)}
        program, found = parse(COUNTS), rewritten(COUNTS).program
        for a, b in rng.normal(size=(5, 2)):
            values = {"a": a, "b": b}
            assert log_density(found, data, values) == pytest.approx(log_density(program, data, values), rel=1e-12)

    def test_programs_without_offsets_are_left_alone(self) -> None:
        assert with_offsets(parse(COUNTS.replace("log(exposure)", "exposure").replace("exp(w)", "w"))) is None


class TestFunctions:
    """`stansub.sample` takes posteriors made of functions."""

    def test_with_gradients_everything_about_the_mode_is_there(self) -> None:
        idata = stansub.sample(mean_of_normals(log_lik_gradient=slopes), test="pocock", iter_sampling=1000, **RUN)
        assert largest_z(idata, mu=TRUTH) < MAX_Z
        facts = inference_data.attrs(idata)
        assert facts["settings"]["control_variates"] > 0
        assert facts["mode_check"]["n_modes"] == 1
        assert (facts["model"], facts["form"], facts["model_code"]) == ("functions", "functions", "")
        assert facts["programs"] == {}

    def test_without_gradients_no_mode_is_looked_for(self) -> None:
        idata = stansub.sample(mean_of_normals(name="means"), iter_sampling=200, **RUN)
        facts = inference_data.attrs(idata)
        assert "no `log_lik_gradient`" in facts["choices"]["control variates"]
        assert "no `log_lik_gradient`" in facts["mode_check"]["reason"]
        assert (facts["model"], facts["block_size"]) == ("means", 20)
        own = stansub.sample(mean_of_normals(block_size=5), iter_sampling=20, **RUN)
        assert inference_data.attrs(own)["block_size"] == 5
        with pytest.raises(stansub.RunError, match="no `log_lik_gradient`"):
            stansub.sample(mean_of_normals(), control_variates=1, **RUN)
        with pytest.raises(InputError, match="the given posterior fixes"):
            stansub.sample(mean_of_normals(), {"y": Y}, **RUN)

    def test_inits_by_name(self) -> None:
        options: Any = {**EXACT, **RUN, "iter_sampling": 1, "proposal": stay, "iter_warmup": 0}
        factors = FunctionFactors(["b.1", "b.2", "a"], 3, lambda theta, which: np.zeros(len(which)))
        idata = stansub.sample(factors, inits={"b": [1.0, 2.0], "a": 3.0}, **options)
        theta = unconstrained(idata)
        np.testing.assert_array_equal(theta, np.broadcast_to([1.0, 2.0, 3.0], (4, 1, 3)))
        with pytest.raises(InputError, match=r"parameter 'b'.*must be"):
            stansub.sample(factors, inits={"b": [1.0, 2.0, 3.0]}, **options)

    def test_resumed_and_not_mistaken_for_another(self, tmp_path: Path) -> None:
        options: Any = RUN | {"chains": 2, "checkpoint_every": float("inf")}
        whole = stansub.sample(mean_of_normals(), iter_sampling=300, **options)
        stansub.sample(mean_of_normals(), iter_sampling=100, checkpoint=tmp_path / "run", **options)
        more = stansub.sample(mean_of_normals(), iter_sampling=300, resume=tmp_path / "run", **options)
        np.testing.assert_array_equal(unconstrained(whole), unconstrained(more))
        other = FunctionFactors(["mu"], len(Y), lambda theta, which: 2 * log_lik(theta, which))
        with pytest.raises(InputError, match="belongs to a posterior of Python functions"):
            stansub.read_checkpoint(tmp_path / "run")
        with pytest.raises(InputError, match="belongs to other data"):
            stansub.sample(other, iter_sampling=300, resume=tmp_path / "run", **options)

    @pytest.mark.slow
    def test_in_other_processes_as_far_as_functions_travel(self) -> None:
        options: Any = RUN | {"chains": 2, "iter_warmup": 50, "iter_sampling": 50}
        unnamed = FunctionFactors(["mu"], len(Y), lambda theta, which: log_lik(theta, which))
        with pytest.raises(InputError, match=r"cannot be sent to other processes .*choose `executor='threads'`"):
            stansub.sample(unnamed, executor="processes", **options)
        here, there = (stansub.sample(mean_of_normals(), executor=name, **options) for name in ("threads", "processes"))
        np.testing.assert_array_equal(unconstrained(here), unconstrained(there))


def stay(rng: np.random.Generator, position: Array) -> tuple[Array, float]:
    return position, 0.0
