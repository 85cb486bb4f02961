import inspect
import io
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import binom
from synthetic import CHAINS, DRAWS, run

from stansub.cli.draws import in_full
from stansub.cli.flags import as_flags
from stansub.decision_findings import (
    LittleSaved,
    NoAudit,
    NonfiniteProposals,
    RangeViolated,
    ShortSteps,
    TooFewAudits,
    VoidGuarantee,
    WrongDecisions,
)
from stansub.decision_selection import ExactAlong
from stansub.errors import InputError
from stansub.findings import (
    ErrorLevel,
    Finding,
    HighRHat,
    LowEss,
    NotFinite,
    OneChain,
    Severity,
    SlowQuantities,
    Stopped,
    StuckChain,
    StuckChains,
)
from stansub.mode_findings import FewClimbs, LabelsSwitch, ModesLeft, SeveralModes, VisitedModes
from stansub.output import apportioning, inference_data
from stansub.output.checks import findings_of
from stansub.output.headline import headline
from stansub.output.record import audit_of, record_of, step_bias
from stansub.output.statistics import chosen_names, scalars, table
from stansub.output.summary import render, summarise
from stansub.output.words import modes_at_start
from stansub.selection import ProductsLeft, SurrogateSettled, TransitionsLeft, TransitionsTaken
from stansub.wording import BY_NUTS, declare, declare_or_nuts


def printed(idata: Any, **options: Any) -> str:
    out = io.StringIO()
    render(idata, Console(file=out, width=80), **options)
    return out.getvalue()


def kinds(idata: Any) -> list[type[Finding]]:
    return [type(finding) for finding in findings_of(idata)]


def low_ess(idata: Any) -> LowEss:
    (finding,) = (one for one in findings_of(idata) if isinstance(one, LowEss))
    return finding


def autoregressive(rho: float, shape: tuple[int, int], seed: int = 3) -> np.ndarray[Any, Any]:
    """AR(1) chains of unit variance, whose ESS is n (1 - rho) / (1 + rho)."""
    rng = np.random.default_rng(seed)
    draws = np.empty(shape)
    draws[:, 0] = rng.standard_normal(shape[0])
    noise = np.sqrt(1 - rho**2) * rng.standard_normal(shape)
    for t in range(1, shape[1]):
        draws[:, t] = rho * draws[:, t - 1] + noise[:, t]
    return draws


class TestTable:
    def test_independent_draws(self) -> None:
        stats = table(run())
        n = CHAINS * DRAWS
        assert list(stats.index) == ["alpha", "beta[1]", "beta[2]", "beta[3]"]
        assert (stats["mean"].abs() < 4 / np.sqrt(n)).all()
        assert ((stats["sd"] - 1).abs() < 4 / np.sqrt(2 * n)).all()
        assert stats["ess_bulk"].between(0.8 * n, 1.2 * n).all()
        assert stats["ess_tail"].between(0.7 * n, 1.2 * n).all()
        assert stats["mcse_mean"].between(0.9 / np.sqrt(n), 1.1 / np.sqrt(n)).all()
        assert (stats["r_hat"] < 1.01).all()
        assert ((stats["95%"] - 1.645).abs() < 0.12).all()

    def test_ess_of_correlated_draws_is_the_known_one(self) -> None:
        stats = table(run(posterior={"x": autoregressive(0.9, (4, 20_000))}))
        assert stats["ess_bulk"]["x"] == pytest.approx(80_000 * 0.1 / 1.9, rel=0.15)

    def test_values_are_those_of_their_element(self) -> None:
        draws = np.arange(6.0).reshape(2, 3) + np.zeros((2, 8, 2, 3)[:2])[..., None, None]
        stats = table(run(posterior={"m": draws}))
        assert dict(stats["mean"]) == {f"m[{i},{j}]": 3 * (i - 1) + j - 1 for i in (1, 2) for j in (1, 2, 3)}

    def test_labelled_dimensions_give_the_names(self) -> None:
        idata = run(dims={"beta": ["predictor"]}, coords={"predictor": ["age", "size", "cost"]})
        assert list(table(idata).index)[1:] == ["beta[age]", "beta[size]", "beta[cost]"]

    def test_percentiles_and_selection(self) -> None:
        stats = table(run(), percentiles=(2.5, 97.5), var_names=["beta"], max_rows=2)
        assert list(stats.index) == ["beta[1]", "beta[2]"]
        assert {"2.5%", "97.5%"} < set(stats.columns)
        with pytest.raises(InputError, match="gamma; it has alpha, beta"):
            table(run(), var_names=["gamma"])

    def test_constant_quantities_have_no_statistics_but_harm_nothing(self) -> None:
        shape = (CHAINS, DRAWS)
        x = np.random.default_rng(1).normal(size=shape)
        rounded = 1 + np.sign(x) * np.finfo(float).eps
        idata = run(posterior={"x": x, "one": np.ones(shape), "diagonal": rounded})
        assert table(idata).loc[["one", "diagonal"], ["r_hat", "ess_bulk", "mcse_mean"]].isna().all(axis=None)
        assert (table(idata).loc[["one", "diagonal"], "sd"] == 0).all()
        assert findings_of(idata) == ()

    def test_too_few_draws_give_moments_only(self) -> None:
        stats = table(run(draws=3))
        assert stats["mean"].notna().all()
        assert stats["r_hat"].isna().all()


class TestFindings:
    def test_a_healthy_run_gives_figures_and_no_finding(self) -> None:
        idata = run()
        record = record_of(idata)
        facts = inference_data.attrs(idata)
        assert findings_of(idata) == ()
        assert record.share_of_data == pytest.approx(sum(facts["n_obs_used"]) / (4 * 1000 * 100_000))
        assert record.passes_per_step == pytest.approx(2 * record.share_of_data)
        assert record.observations_per_second == pytest.approx(sum(facts["n_obs_evaluated"]) / 6)
        assert record.steps_per_second == pytest.approx(4000 / 6)
        assert record.acceptance_rate == pytest.approx(0.25, abs=0.03)
        assert record.audit is not None
        assert (record.audit.n_wrong, record.audit.low) == (0, 0)

    def test_a_stuck_chain_is_named(self) -> None:
        rng = np.random.default_rng(5)
        alpha, accepted = rng.normal(size=(4, 1000)), rng.random((4, 1000)) < 0.3
        alpha[2], accepted[2] = 0.5, False
        stuck, r_hat = findings_of(run(posterior={"alpha": alpha}, sample_stats={"accepted": accepted}))[:2]
        assert stuck == StuckChain(3, n_accepted=0, n_steps=1000, of_nuts=False)
        assert "Chain 3 is stuck: it accepted 0 of 1,000" in stuck.describe().text
        assert isinstance(r_hat, HighRHat)

    def test_stuck_chains_are_named_together(self) -> None:
        rng = np.random.default_rng(5)
        alpha, accepted = rng.normal(size=(4, 1000)), rng.random((4, 1000)) < 0.3
        alpha[1:3], accepted[1:3] = [[0.5], [0.7]], False
        accepted[2, :3] = True
        idata = run(posterior={"alpha": alpha}, sample_stats={"accepted": accepted})
        stuck, r_hat = findings_of(idata)[:2]
        text, remedy = stuck.describe()
        assert text == "Chains 2 and 3 are stuck: they accepted 0 and 3 of 1,000 proposals."
        assert remedy.endswith("or with other `inits` if they started far from the others.")
        assert isinstance(r_hat, HighRHat)
        assert headline(table(idata), record_of(idata), inference_data.attrs(idata), (stuck,)).startswith(
            "Not converged"
        )

    def test_draws_that_never_move_are_seen_without_any_record(self) -> None:
        alpha = np.random.default_rng(5).normal(size=(4, 1000))
        alpha[1] = 0.5
        idata = inference_data.build(posterior={"alpha": alpha}, sample_stats={}, attrs={})
        (stuck,) = (one for one in findings_of(idata) if isinstance(one, StuckChain))
        assert stuck == StuckChain(2, None, None, of_nuts=False)
        assert stuck.describe().text == "Chain 2 never moved."

    def test_chains_that_disagree(self) -> None:
        rng = np.random.default_rng(5)
        draws = rng.normal(size=(4, 1000, 2))
        draws[0, :, 1] += 1
        finding = findings_of(run(posterior={"beta": draws}))[0]
        assert isinstance(finding, HighRHat)
        assert (finding.quantities.n_failing, finding.quantities.n_checked) == (1, 2)
        assert [name for name, _ in finding.quantities.worst] == ["beta[2]"]
        assert "R-hat is above 1.01 for 1 of 2 quantities, worst beta[2]" in finding.describe().text
        assert "`iter_warmup`" in finding.describe().remedy

    def test_chains_that_disagree_without_a_mode(self) -> None:
        draws = np.random.default_rng(5).normal(size=(4, 1000)) + np.arange(4)[:, np.newaxis]
        reason = "no mode: data and priors do not determine a and b; give proper priors"
        choices = {"control variates": f"none: {reason}, or sample with `control_variates=0`"}
        finding = findings_of(run(posterior={"a": draws}, attrs={"choices": choices}))[0]
        assert isinstance(finding, HighRHat)
        assert finding.describe().remedy == f"The search before sampling found {reason}."

    def test_chains_that_disagree_where_no_surrogate_was_possible_need_nuts(self) -> None:
        """Whatever the number of effects, and whether or not a mode was found."""
        draws = np.random.default_rng(5).normal(size=(4, 1000)) + np.arange(4)[:, np.newaxis]
        left = TransitionsLeft(("u",), 46, reason="the log likelihood has a kink")
        for choices in ({}, {"control variates": "none: no mode: tau runs to -infinity"}):
            attrs = {"choices": choices, "choice_values": {left.about: left.record()}}
            (finding,) = (
                one for one in findings_of(run(posterior={"a": draws}, attrs=attrs)) if isinstance(one, HighRHat)
            )
            assert finding.describe().remedy == (
                "Moves around a mode hardly suit effects with an unknown scale, and surrogate transitions are not "
                f"possible (the log likelihood has a kink). {BY_NUTS}"
            )

    def test_chains_that_hardly_move_need_nuts(self) -> None:
        draws = np.random.default_rng(5).normal(size=(4, 1000)) + np.arange(4)[:, np.newaxis]
        draws[0] = 0.5
        taken, products = TransitionsTaken(False, ("u",), 84, None, 0.0, hardly_moves=True), ProductsLeft(("z",))
        for notes, remedy in (((taken,), BY_NUTS), ((taken, products), declare_or_nuts(["z"]))):
            attrs = {"choice_values": {one.about: one.record() for one in notes}}
            found = findings_of(run(posterior={"a": draws}, attrs=attrs))
            remedies = [one.describe().remedy for one in found if isinstance(one, StuckChain | HighRHat)]
            assert remedies == [f"Discard these draws. {BY_NUTS}", remedy]

    @pytest.mark.parametrize(("n_accepted", "hardly_moves"), [(2, True), (200, False)])
    def test_transitions_that_hardly_moved_after_a_better_trial_need_nuts(
        self, n_accepted: int, hardly_moves: bool
    ) -> None:
        draws = np.random.default_rng(5).normal(size=(4, 1000)) + np.arange(4)[:, np.newaxis]
        values = TransitionsTaken(False, ("u",), 84, None, 0.05, hardly_moves=False).record()
        attrs = {"choice_values": {"proposal": values}, "n_steps": [1000] * 4, "n_accepted": [n_accepted] * 4}
        found = findings_of(run(posterior={"a": draws}, attrs=attrs))
        remedies = [one.describe().remedy for one in found if isinstance(one, StuckChains | HighRHat)]
        assert (BY_NUTS in remedies) is hardly_moves
        assert (f"Discard these draws. {BY_NUTS}" in remedies) is hardly_moves

    @pytest.mark.parametrize(
        ("normal", "products", "proposal", "declares"),
        [
            (None, ("z",), "laplace-pcn", True),
            (None, ("z",), "surrogate", True),
            (None, ("z",), "gibbs", False),
            (None, (), "laplace-pcn", False),
            (0.8, ("z",), "laplace-pcn", False),
        ],
    )
    def test_products_are_to_be_declared_if_the_program_has_some(
        self, normal: float | None, products: tuple[str, ...], proposal: str, declares: bool
    ) -> None:
        draws = np.random.default_rng(5).normal(size=(4, 1000, 30)) + np.arange(4)[:, np.newaxis, np.newaxis]
        notes = [TransitionsLeft((), 87, normal=normal), *([ProductsLeft(products)] if products else [])]
        attrs = {"choice_values": {one.about: one.record() for one in notes}, "settings": {"proposal": proposal}}
        remedy = findings_of(run(posterior={"z": draws}, attrs=attrs))[0].describe().remedy
        assert "surrogate" not in remedy
        product = f"{declare(['z'])} If that does not help, double `iter_warmup`"
        assert remedy.startswith(product if declares else "Double `iter_warmup`")

    @pytest.mark.parametrize("copies", [True, False])
    def test_chains_that_disagree_about_known_modes(self, copies: bool) -> None:
        draws = np.random.default_rng(5).normal(size=(4, 1000)) + np.arange(4)[:, np.newaxis]
        visited = VisitedModes([0.6, 0.4], [0, 0 if copies else 1], 4, 4, {}, ["mu"])
        left = TransitionsLeft(("u",), 30, reason="there is no density of data")
        attrs = {"visited_modes": asdict(visited), "choice_values": {left.about: left.record()}}
        found = findings_of(run(posterior={"z": draws}, attrs=attrs))
        assert [type(one) for one in found[:2]] == [LabelsSwitch if copies else SeveralModes, HighRHat]
        remedy = found[1].describe().remedy
        if copies:
            assert remedy == "Keep one copy of the mode, as above."
        else:
            assert remedy.startswith("Double `iter_warmup`")
            assert remedy.endswith("the posterior has several modes.")

    @pytest.mark.parametrize("several", [True, False])
    def test_nuts_is_not_advised_for_several_modes(self, several: bool) -> None:
        visited = {"visited_modes": asdict(VisitedModes([0.6, 0.4], [0, 1], 4, 4, {}))} if several else {}
        idata = run(attrs={"n_obs_used": [60_000_000] * 4, **visited})
        (finding,) = findings_of(idata)
        assert isinstance(finding, SeveralModes if several else LittleSaved)
        assert finding.severity < Severity.DOUBT
        out = io.StringIO()
        render(idata, Console(file=out, width=100))
        assert ("\nNote: The posterior has 2 modes" in out.getvalue()) is several
        assert ("\nWarning: A decision used" in out.getvalue()) is not several

    def test_nuts_is_not_advised_instead_of_itself(self) -> None:
        attrs = {"n_obs_used": [60_000_000] * 4}
        along = {"choice_values": {ExactAlong.about: ExactAlong().record()}}
        assert [type(one) for one in findings_of(run(attrs=attrs))] == [LittleSaved]
        assert not findings_of(run(attrs={**attrs, **along}))

    def test_chains_that_started_at_several_modes_say_so(self) -> None:
        draws = np.random.default_rng(5).normal(size=(4, 1000)) + 5.0 * np.arange(4)[:, np.newaxis]
        settled = SurrogateSettled(0.1, 9, "HMC", n_starts=8, n_reached=4, n_modes=2)
        draws[1] = 5.0
        idata = run(posterior={"z": draws}, attrs={"choice_values": {settled.about: settled.record()}})
        stuck, r_hat = findings_of(idata)[:2]
        assert stuck.describe().remedy.endswith("Chains started at 2 modes of the posterior, and may not leave theirs.")
        remedy = r_hat.describe().remedy
        assert remedy.startswith("Chains started at 2 modes of the posterior and stayed there.")
        assert "order the parameters" in remedy
        assert "found 2 modes, and chains started at each" in modes_at_start(settled.record())

    @pytest.mark.parametrize(
        ("n_seen", "n_modes", "expected"),
        [
            (0, 1, ""),
            (1, 1, "arrived at one mode"),
            (2, 1, "arrived at 2 modes; chains started at the one that holds most of the posterior"),
            (3, 2, "arrived at 3 modes; chains started at the 2 that hold most of the posterior"),
            (2, 2, "arrived at 2 modes; chains started at each"),
        ],
    )
    def test_modes_at_which_random_starts_arrived(self, n_seen: int, n_modes: int, expected: str) -> None:
        settled = SurrogateSettled(0.0, 16, "NUTS", n_modes=n_modes, n_seen=n_seen, behind=261.4)
        found = modes_at_start(settled.record())
        assert found.endswith(expected)
        assert bool(found) == bool(expected)
        attrs = {"choice_values": {settled.about: settled.record()}}
        shown = printed(run(attrs=attrs), verbose=True)
        assert expected in " ".join(shown.split())
        assert ("\nModes" in shown) == bool(expected)
        left = [one for one in findings_of(run(attrs=attrs)) if isinstance(one, ModesLeft)]
        assert len(left) == (n_seen > n_modes)
        for one in left:
            chosen = "one of them" if n_modes == 1 else f"{n_modes} of them"
            assert one.lead == "Note"
            assert one.describe().text == (
                f"Random starts arrived at {n_seen} modes, and chains started at {chosen}. The others hold little of "
                "the posterior: by path sampling, their log evidence is lower by 261 or more."
            )
            unknown = replace(one, behind=None)
            assert unknown.describe().text.endswith("The others hold little of the posterior.")

    def test_a_maximum_that_one_climb_reached_is_doubted(self) -> None:
        def found(n_reached: int) -> list[Finding]:
            settled = SurrogateSettled(0.2, 12, "HMC", 256, n_reached)
            attrs = {"choice_values": {settled.about: settled.record()}}
            return [one for one in findings_of(run(attrs=attrs)) if isinstance(one, FewClimbs)]

        (doubt,) = found(1)
        assert doubt.describe().text.startswith("1 of 256 climbs of the likelihood from random starts reached")
        (doubt,) = found(0)
        assert doubt.describe().text.startswith("No climb of the likelihood from random starts reached the highest")
        nowhere = modes_at_start(SurrogateSettled(0.2, 12, "HMC", 256, 0).record())
        assert nowhere.endswith("; none of them reached the highest maximum")
        assert not found(2)

    def test_low_ess_says_how_many_iterations_would_do(self) -> None:
        rho = 0.98
        low = low_ess(run(posterior={"x": autoregressive(rho, (4, 2000))}, attrs={"n_steps": [2000] * 4}))
        assert low.wanted == 400
        assert low.iterations is not None
        expected = 400 * (1 + rho) / (1 - rho) / 4
        assert expected / 2 < low.iterations < expected * 3
        assert "below 400" in low.describe().text
        assert f"`iter_sampling={low.iterations}`" in low.describe().remedy

    def test_iterations_are_counted_before_thinning(self) -> None:
        draws = autoregressive(0.8, (4, 200))
        low = low_ess(run(posterior={"x": draws}, draws=200, attrs={"n_steps": [2000] * 4}))
        assert low.iterations is not None
        assert low.iterations > 2000

    def test_ess_of_chains_apart_is_not_extrapolated(self) -> None:
        draws = np.random.default_rng(2).normal(size=(4, 1000)) + 5 * np.arange(4)[:, None]
        low = low_ess(run(posterior={"x": draws}))
        assert low.iterations is None
        assert "iter_sampling" not in low.describe().remedy

    def test_one_chain(self, caplog: pytest.LogCaptureFixture) -> None:
        assert kinds(run(chains=1)) == [OneChain]
        assert not caplog.records  # ArviZ would warn of an R-hat that cannot be

    @pytest.mark.parametrize(
        ("attrs", "kind", "text"),
        [
            ({"stopped": "interrupted"}, Stopped, "it was interrupted"),
            ({"stopped": "max_time"}, Stopped, "`max_time` was reached"),
            ({"stopped": "failed: no memory"}, Stopped, "failed: no memory"),
            ({"n_audited": [0] * 4}, NoAudit, "No decision was audited"),
            ({"n_audited": [2] * 4}, TooFewAudits, "Too few decisions were audited (8)"),
            (
                {"n_audit_wrong": [15] * 4},
                WrongDecisions,
                "more than epsilon = 0.05, the level of a single look",
            ),
            (
                {"test": "bernstein", "delta": 0.01, "n_audit_wrong": [5] * 4},
                WrongDecisions,
                "more than delta = 0.01 allows",
            ),
            (
                {"test": "exact", "epsilon": 0, "n_audit_wrong": [1, 1, 1, 1]},
                WrongDecisions,
                "an exact test makes none",
            ),
            (
                {"test": "own", "epsilon": None, "n_audit_wrong": [1] * 4},
                WrongDecisions,
                "the test own declares no error level",
            ),
            (
                {"test": "own", "epsilon": float("nan"), "n_audit_wrong": [0, 0, 1, 0]},
                WrongDecisions,
                "declares no error level",
            ),
            (
                {"test": "own", "epsilon": None, "n_audited": [2] * 4},
                TooFewAudits,
                "(8) to tell how many are wrong",
            ),
            (
                {"test": "own", "epsilon": 0.05, "n_audit_wrong": [15] * 4},
                WrongDecisions,
                "more than epsilon = 0.05 allows",
            ),
            (
                {"test": "own", "epsilon": None, "delta": 0.01, "n_audit_wrong": [9] * 4},
                WrongDecisions,
                "more than delta = 0.01 allows",
            ),
            ({"guarantee": "void: range estimated"}, VoidGuarantee, "void (range estimated)"),
            (
                {"test": "bernstein", "delta": 0.1, "n_bound_violated": [3, 0, 0, 0]},
                RangeViolated,
                "In 3 of 4,000 decisions",
            ),
            ({"n_accepted": [990] * 4}, ShortSteps, "99 % of the proposals were accepted"),
            ({"n_nonfinite": [300] * 4}, NonfiniteProposals, "30 % of the proposals were rejected"),
            ({"n_obs_used": [66_000_000] * 4}, LittleSaved, "A decision used 66 % of the data"),
        ],
    )
    def test_each_trouble_is_found_alone(self, attrs: dict[str, Any], kind: type[Finding], text: str) -> None:
        (finding,) = findings_of(run(attrs=attrs))
        assert type(finding) is kind
        assert text in finding.describe().text
        assert finding.describe().remedy

    def test_high_acceptance_is_fine_for_other_proposals(self) -> None:
        assert findings_of(run(attrs={"n_accepted": [990] * 4, "settings": {"proposal": "laplace"}})) == ()

    def test_an_exact_run_needs_no_audit(self) -> None:
        all_data = {"test": "exact", "n_audited": [0] * 4, "n_obs_used": [100_000_000] * 4}
        assert findings_of(run(attrs=all_data | {"asked": {"test": "exact"}})) == ()

    def test_nuts_is_advised_if_decisions_need_most_data(self) -> None:
        used = {"n_obs_used": [99_000_000] * 4}
        (finding,) = findings_of(run(attrs=used))
        assert "stansub compare" in finding.describe().remedy
        assert "`test='exact'`" in finding.describe().remedy
        (finding,) = findings_of(run(attrs=used | {"test": "exact", "n_audited": [0] * 4}))
        assert "`test='exact'`" not in finding.describe().remedy
        assert findings_of(run(attrs=used | {"settings": {"proposal": "surrogate"}})) == ()
        (finding,) = findings_of(run(attrs=used | {"form": "functions"}))
        assert finding.describe().remedy == "Use `test='exact'` if it is faster."
        assert findings_of(run(attrs={"n_obs_used": [40_000_000] * 4})) == ()

    def test_an_error_below_epsilon_is_not_warned_of(self) -> None:
        assert findings_of(run(attrs={"n_audited": [500] * 4, "n_audit_wrong": [20] * 4})) == ()

    def test_trial_decisions_count_as_evidence(self) -> None:
        """113 audits alone cannot tell an error of half a percent, and need not where the trial can."""
        trial = {"tail_fails": False, "decisions_fail": False, "wrong_limit": 0.004}
        few = {"test": "pocock", "epsilon": 0.005, "n_audited": [28, 28, 28, 29]}
        assert findings_of(run(attrs=few | {"normality": trial})) == ()
        for limit in (0.03, 0.9):
            (finding,) = findings_of(run(attrs=few | {"normality": trial | {"wrong_limit": limit}}))
            assert isinstance(finding, TooFewAudits)
            assert (finding.n_audited, finding.level) == (113, ErrorLevel("epsilon", 0.005))
            assert finding.limit == pytest.approx(min(limit, 0.0321), abs=1e-4)
            assert ("3 %." if limit == 0.03 else "3.2 %.") in finding.describe().text
        assert kinds(run(attrs=few)) == [TooFewAudits], "draws of a run without a trial"
        wrong = few | {"normality": trial, "n_audit_wrong": [3, 2, 2, 2]}
        assert kinds(run(attrs=wrong)) == [WrongDecisions], "audits that show an error stand"
        assert "more than epsilon = 0.005 allows" in findings_of(run(attrs=wrong))[0].describe().text

    def test_a_bound_needs_no_evidence_but_that_its_range_holds(self) -> None:
        bound = {"test": "bernstein", "delta": 0.01, "guarantee": "bound", "n_audited": [25] * 4}
        assert findings_of(run(attrs=bound)) == ()
        assert TooFewAudits in kinds(run(attrs=bound | {"n_bound_violated": [1, 0, 0, 0]}))
        assert TooFewAudits in kinds(run(attrs=bound | {"guarantee": "void: range estimated"}))

    def test_the_error_that_the_user_accepts_is_what_audits_are_held_against(self) -> None:
        wrong = {"epsilon": 0.001, "n_audited": [100] * 4, "n_audit_wrong": [4, 4, 4, 4]}
        (finding,) = findings_of(run(attrs=wrong | {"settings": {"max_error": 0.01}}))
        assert isinstance(finding, WrongDecisions)
        assert (finding.level, finding.audit.n_wrong) == (ErrorLevel("max_error", 0.01), 16)
        assert "more than max_error = 0.01 allows" in finding.describe().text
        assert WrongDecisions not in kinds(run(attrs=wrong | {"settings": {"max_error": 0.1}}))
        assert "austerity with max_error = 0.1" in printed(run(attrs={"settings": {"max_error": 0.1}}))

    def test_draws_that_are_not_finite(self) -> None:
        draws = np.random.default_rng(2).normal(size=(4, 1000))
        spoilt = draws.copy()
        spoilt[1, 7] = np.nan
        finding = findings_of(run(posterior={"x": draws, "y_rep": spoilt}))[0]
        assert finding == NotFinite(1, ("y_rep",))
        assert "not finite (1): y_rep" in finding.describe().text

    def test_draws_of_another_engine_lack_the_record_but_are_checked(self) -> None:
        idata = inference_data.build(
            posterior={"x": np.random.default_rng(1).normal(size=(4, 500))}, sample_stats={}, attrs={}
        )
        assert record_of(idata).share_of_data is None
        assert findings_of(idata) == ()

    def test_what_rejects_the_draws_stands_above_the_table(self) -> None:
        mode = {"share": 0.4, "log_density": -3.0, "above": 12.0, "values": {"x": [9.0, 1.0, 2.0]}}
        found = {"n_starts": 12, "n_modes": 2, "missed": [mode], "interchangeable": [], "reason": "", "failed": False}
        idata = run(attrs={"mode_check": found, "n_accepted": [990] * 4})
        assert [one.severity for one in findings_of(idata)] == [Severity.REJECT, Severity.COST]
        text = printed(idata)
        assert text.startswith("Warning: Chains missed a mode: no chain visited about 40 % of the posterior")
        assert text.index("mcse_mean") < text.index("Warning: 99 % of the proposals")


def test_every_kind_of_finding_has_words() -> None:
    subclasses = set(Finding.__subclasses__())
    assert subclasses
    assert not [one for one in subclasses if inspect.isabstract(one)]


@pytest.mark.parametrize(("n", "k"), [(212, 0), (50, 3), (10, 10)])
def test_interval_ends_have_the_tail_probability_that_defines_them(n: int, k: int) -> None:
    audit = audit_of(n, k)
    if k > 0:
        assert binom.sf(k - 1, n, audit.low) == pytest.approx(0.025)
    if k < n:
        assert binom.cdf(k, n, audit.high) == pytest.approx(0.025)
    assert audit.low <= audit.rate <= audit.high


class TestRender:
    def test_a_healthy_run(self) -> None:
        text = printed(run())
        line = " ".join(text.partition("\n\n")[2].split())
        assert re.fullmatch(
            r"Converged \(R-hat 1\.\d{3}, ESS [\d,]+\); approximate \(austerity with epsilon = 0\.05, "
            r"0 of \d+ audited decisions wrong\); [\d.]+ % of the data a decision\.",
            line,
        )
        assert "Warning" not in text
        assert "\x1b" not in text

    def test_decisions_that_read_nothing(self) -> None:
        none = [0] * 4
        text = " ".join(printed(run(attrs={"n_obs_used": none, "n_obs_evaluated": none}), verbose=True).split())
        assert "; decisions need no data." in text
        assert "Data none of the 100,000 observations per decision" in text

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"attrs": {"guarantee": "exact", "test": "exact"}}, "Converged"),
            ({"attrs": {"guarantee": "exact", "test": "exact"}}, "; exact;"),
            ({"attrs": {"guarantee": "bound", "test": "bernstein"}}, "; error bounded (bernstein"),
            ({"attrs": {"n_decisions": [0] * 4}}, "; no accept/reject decisions;"),
            ({"chains": 1}, "One chain, convergence not checked (ESS "),
            ({"draws": 3}, "Convergence not checked; "),
            ({"posterior": {"x": autoregressive(0.8, (4, 800), 4)}}, "Too few effective draws (R-hat 1.005, ESS 366)"),
            ({"posterior": {"x": autoregressive(0.995, (4, 1000))}}, "Not converged (R-hat "),
            ({"attrs": {"n_obs_used": [1000] * 4}}, "; 1 observation a decision."),
            ({"attrs": {"wall_time": 3.0, "setup_time": 1.0, "compile_time": 50.0}}, " a decision; 54 s."),
            ({"attrs": {"wall_time": 3.0, "setup_time": 1.0, "quantities_time": 40.0}}, " a decision; 44 s."),
        ],
    )
    def test_one_line_says_whether_to_trust_the_draws(self, changes: dict[str, Any], expected: str) -> None:
        text = " ".join(printed(run(**changes)).split())
        assert expected in text
        assert "Converged" not in text or expected[0] in "C; "

    @pytest.mark.parametrize(("seconds", "warns"), [(300.0, True), (70.0, False), (0.5, False)])
    def test_slow_generated_quantities_have_their_time_and_a_remedy(self, seconds: float, warns: bool) -> None:
        """They took most of a run's time, which the summary left out."""
        times = {"compile_time": 9.0, "setup_time": 60.0, "wall_time": 240.0, "quantities_time": seconds}
        text = " ".join(printed(run(attrs=times), verbose=True).split())
        named = f"240 s warmup and sampling, {seconds:.0f} s transformed parameters and generated quantities"
        assert (named in text) == (seconds > 1)
        (found,) = [one for one in findings_of(run(attrs=times)) if isinstance(one, SlowQuantities)] or [None]
        assert (found is not None) == warns
        assert ("took 5 min, 50 % of the time of the run" in text) == warns
        assert ("a lower `iter_sampling`" in text) == warns
        if found is not None:
            assert as_flags(found.describe().remedy) == (
                "To finish sooner, keep fewer draws, with a lower --iter-sampling or with --thin auto, or leave them "
                "out with --no-generated-quantities."
            )

    def test_variables_that_are_not_saved_are_named(self) -> None:
        named = "\nNot saved (one value per observation): mu, y_rep. --observation-level saves them.\n"
        assert named in as_flags(printed(run(attrs={"unsaved": "mu, y_rep"})))
        assert "Not saved" not in printed(run())

    def test_each_choice_has_one_line_with_its_label(self) -> None:
        left = {"choices": {"surrogate transitions": "not used", "proposal": "random walk"}}
        text = printed(run(attrs=left), verbose=True)
        assert "\nSurrogate transitions not used\n" in text
        assert "\nProposal         random walk\n" in text
        taken = {"choices": {"proposal": "surrogate transitions"}, "settings": {"proposal": "surrogate"}}
        assert printed(run(attrs=taken), verbose=True).count("\nProposal ") == 1

    def test_what_an_audit_says_about_the_posterior_is_shown_to_who_asks_for_more(self) -> None:
        audited = {"n_audited": [53] * 4, "n_audit_wrong": [0] * 4}
        assert " ".join(printed(run(attrs=audited), verbose=True).split()).count(
            "would change the distribution of the draws by at most 1.7 % in total variation"
        )
        assert "total variation" not in printed(run(attrs=audited))
        # Not where nothing was audited, a step is several decisions, or decisions are not Metropolis' own.
        for other in ({"n_audited": [0] * 4}, {"n_decisions": [9] * 4}, {"test": "barker", "noise": 1.0}):
            idata = run(attrs=audited | other)
            assert step_bias(record_of(idata), inference_data.attrs(idata)) is None
        learned = {"n_audited": [0] * 4, "n_audited_acceptances": [50] * 4, "acceptance_error": [0.5] * 4}
        idata = run(attrs=learned | {"test": "factorised"})
        limit = step_bias(record_of(idata), inference_data.attrs(idata))
        assert limit is not None
        assert 0.01 < limit < 0.05

    @pytest.mark.parametrize("guarantee", ["exact", "exact by proved bounds"])
    def test_exact_decisions_have_no_bias_whatever_was_audited(self, guarantee: str) -> None:
        audited = {"test": "exact", "guarantee": guarantee, "n_audited": [53] * 4, "n_audit_wrong": [0] * 4}
        assert "none: exact decisions leave the posterior unchanged" in printed(run(attrs=audited), verbose=True)
        # Not where an audit says otherwise, or a step is several decisions, of which others may be approximate.
        wrong = run(attrs=audited | {"n_audit_wrong": [1] * 4})
        limit = step_bias(record_of(wrong), inference_data.attrs(wrong))
        assert limit is not None
        assert limit > 0.01
        several = run(attrs=audited | {"n_decisions": [9] * 4})
        assert step_bias(record_of(several), inference_data.attrs(several)) is None

    def test_audit_is_printed_with_its_interval(self) -> None:
        text = " ".join(printed(run(attrs={"n_audited": [53] * 4, "n_audit_wrong": [0] * 4}), verbose=True).split())
        assert "0 of 212 audited decisions were wrong: decision error at most 1.7 % with 95 % confidence" in text

    def test_decimal_points_stand_below_each_other(self) -> None:
        rng = np.random.default_rng(1)
        draws = {"x": rng.normal(size=(4, 1000)), "y": 40 * rng.normal(size=(4, 1000))}
        x, y = printed(run(posterior=draws)).splitlines()[1:3]
        assert [i for i, c in enumerate(x) if c == "."] == [i for i, c in enumerate(y) if c == "."]

    def test_lines_fit_whatever_the_scales_and_names(self) -> None:
        rng = np.random.default_rng(1)
        names = {"a_parameter_with_a_rather_long_name": 1e-3, "sigma": 1.0, "big": 1e6, "huge": 1e40, "tiny": 1e-9}
        text = printed(run(posterior={name: scale * rng.normal(size=(4, 1000, 2)) for name, scale in names.items()}))
        assert max(map(len, text.splitlines())) <= 100
        assert "a_para" in text
        assert "name[1]" in text

    @pytest.mark.parametrize("width", [60, 80])
    def test_a_narrow_terminal_wraps_nothing(self, width: int) -> None:
        draws = 0.005 * np.random.default_rng(1).normal(size=(4, 1000, 10)) - 1
        idata = run(posterior={"beta": draws}, attrs={"guarantee": "exact", "test": "exact", "wall_time": 52.0})
        assert max(map(len, printed(idata).splitlines())) > 80  # the table that has room
        out = io.StringIO()
        render(idata, Console(file=out, width=width, force_terminal=True, color_system=None))
        lines = out.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        assert {"mean", "sd", "5%", "95%", "ess_bulk", "r_hat"} <= set(lines[0].split())
        assert lines[-1].endswith(" s.")
        if width == 80:
            assert lines[-1].startswith("Converged (R-hat ")
            assert set(lines[0].split()) >= {"50%", "ess_tail"}

    def test_digits_follow_the_monte_carlo_error(self) -> None:
        draws = 123.456789 + 0.5 * np.random.default_rng(1).normal(size=(4, 1000))
        mean, sd, mcse = printed(run(posterior={"x": draws})).splitlines()[1].split()[1:4]
        assert mcse.startswith("0.00")
        assert [len(x.split(".")[1]) for x in (mean, sd, mcse)] == [3, 3, 4]

    def test_long_tables_are_cut_and_say_so(self) -> None:
        idata = run(posterior={"x": np.random.default_rng(1).normal(size=(4, 100, 60))}, draws=100)
        assert "50 of 60 quantities; stansub summary --all shows all" in printed(idata)
        assert "50 of 60 quantities; stansub summary x.nc --all shows" in printed(idata, full=in_full(Path("x.nc")))
        assert "x[60]" not in printed(idata)
        assert "x[60]" in printed(idata, max_rows=None)

    def test_trouble_beyond_the_rows_shown_is_printed(self) -> None:
        draws = np.random.default_rng(1).normal(size=(4, 1000, 60))
        draws[0, :, 59] += 2
        assert "x[60]" in printed(run(posterior={"x": draws}), max_rows=5)


def test_all_elements_of_small_variables_are_shown_and_checked(capsys, monkeypatch):
    """Scales often come after effects, and are what converges last."""
    assert apportioning._DRAWS == 2500 * 4 * 500
    monkeypatch.setattr(apportioning, "_DRAWS", 250 * 4 * 500)
    rng = np.random.default_rng(3)
    u, tau = rng.standard_normal((4, 500, 300)), rng.standard_normal((4, 500))
    tau += 3 * np.arange(4)[:, np.newaxis]
    idata = run(draws=500, posterior={"alpha": rng.standard_normal((4, 500)), "u": u, "pair": u[..., :2], "tau": tau})
    found = summarise(idata, max_rows=10)
    assert list(found.shown.index) == ["alpha", *(f"u[{k}]" for k in range(1, 7)), "pair[1]", "pair[2]", "tau"]
    assert len(found.statistics) == 250 < found.n_scalars
    assert "tau" in "".join(one.describe()[0] for one in found.findings)
    render(idata, Console(), summary=found)
    printed = capsys.readouterr().out
    assert "10 of 304 quantities" in printed
    assert "R-hat and ESS were checked for 250 quantities: all elements of small variables" in printed


@pytest.mark.parametrize(("limit", "expected"), [(2, ["alpha", "tau"]), (3, ["alpha", "u[1]", "tau"]), (None, None)])
def test_small_variables_come_before_large_ones(limit, expected):
    rng = np.random.default_rng(3)
    u = rng.standard_normal((2, 10, 4))
    idata = run(chains=2, draws=10, posterior={"alpha": u[..., 0], "u": u, "tau": u[..., 1]})
    names = chosen_names(idata, None, limit)
    assert names == (expected or ["alpha", "u[1]", "u[2]", "u[3]", "u[4]", "tau"])
    assert scalars(idata, None, limit)[0] == names


def test_a_large_file_keeps_enough_draws_for_r_hat(tmp_path, capsys):
    """Thinned to a few draws, thousands of quantities would always seem not to have converged."""
    rng = np.random.default_rng(5)
    draws = {"alpha": rng.standard_normal((4, 1000)), "u": rng.standard_normal((4, 1000, 40, 60))}
    whole = run(posterior=draws | {"tau": rng.standard_normal((4, 1000))})
    whole.to_netcdf(tmp_path / "whole.nc")
    size = 8 * 4 * 1000 * 2402
    read = inference_data.load(tmp_path / "whole.nc", most=size // 2)
    kept = inference_data.group(read, "posterior")
    assert kept.sizes["draw"] == 1000
    np.testing.assert_array_equal(kept["tau"].values, whole.posterior["tau"].values)
    n_kept = kept["u"].shape[3]
    assert kept["u"].shape == (4, 1000, 40, n_kept)
    assert 4 <= n_kept < 15
    np.testing.assert_array_equal(kept["u"].values, whole.posterior["u"].values[..., :n_kept])
    found = summarise(read, max_rows=10)
    assert found.n_scalars == 2402
    assert not [one for one in found.findings if isinstance(one, HighRHat | LowEss)]
    thinned = inference_data.load(tmp_path / "whole.nc", most=size // 2).isel(draw=slice(None, None, 16))
    assert [one for one in summarise(thinned, max_rows=10).findings if isinstance(one, HighRHat | LowEss)]
    render(read, Console(), summary=found)
    assert "of 2,402 quantities" in capsys.readouterr().out
