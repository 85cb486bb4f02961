"""Sentences about what was chosen."""

import inspect
import io
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from clocks import set_clock
from rich.console import Console

from stansub import decision_selection, selection, variates_selection
from stansub.codec import fits
from stansub.errors import NotMixingError
from stansub.findings import HighRHat, LongRun, Quantities
from stansub.output.facts import Choice
from stansub.progress import Progress
from stansub.run import sample as driver
from stansub.run import transitions
from stansub.run.config import SampleConfig
from stansub.run.progress import Display
from stansub.run.thinning import Thinned
from stansub.selection import Chosen, RaceOutcome, Rival
from stansub.wording import BY_NUTS


def kinds(base: type[Chosen]) -> set[type[Chosen]]:
    """All kinds of choice, those that only gather others left out."""
    below = base.__subclasses__()
    return set().union(*map(kinds, below)) if below else {base}


def test_every_kind_of_choice_has_words_and_a_name() -> None:
    assert not [kind for kind in kinds(Chosen) if inspect.isabstract(kind)]
    assert {kind.about for kind in kinds(Chosen)} == {
        "mode",
        "products",
        "surrogate",
        "cost of a step",
        "control variates",
        "expansion point",
        "proposal",
        "test",
        "first look",
        "blocks",
        "max error",
        "range",
        "bounds",
        "kappa",
        "joint decisions",
        "surrogate transitions",
        "signs",
        "labels",
        "starts",
        "trajectories",
        Thinned.about,
    }


RACE = RaceOutcome("Laplace pCN with rho 0", 0.95, (Rival("Langevin", 4.04), Rival("random walk", 21.3)))


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (
            variates_selection.VariatesMoved(2, (512.2, 70.4, 9.6), 1000),
            "order 2: at this expansion point a decision needs about 10 of 1,000 blocks (10 with order 2, 70 with "
            "order 1, 512 with none)",
        ),
        (
            variates_selection.Moved(500, 1.23, (125, 250), 9.6, 70.4, 1000),
            "moved to the mean of the chains after 500 steps of warmup, as after 125 and 250, 1.2 sds from the one "
            "before: a decision needs about 10 of 1,000 blocks, 70 before",
        ),
        (
            variates_selection.KeptForCost(500, 0.7, 70.4, None, 1000),
            "kept: the mean of the chains after 500 steps of warmup is 0.7 sds from it; a decision needs about 70 of "
            "1,000 blocks",
        ),
        (
            variates_selection.VariatesOfObservations(3, 3.62, 12214, screened=True),
            "order 3, of single observations: a decision near the mode uses about 3.6 of 12,214 observations, which it "
            "selects by rows of 8 bits of all of them",
        ),
        (
            selection.SignsChange((("tau", "z"),)),
            "the posterior is the same if tau and z change their signs; unless you give `inits`, every second chain "
            "starts with other signs",
        ),
        (
            selection.StartsAtOneCopy(("nu", "p"), {"share": "1 - share"}),
            "the posterior is the same if the elements of nu and p change places, and share becomes 1 - share; unless "
            "you give `inits`, all chains start at one of the modes",
        ),
        (
            selection.StartsMoved((2, 3)),
            "chains 2 and 3 begin about the maximum of the likelihood to which a climb from the inits leads: at the "
            "inits, moves that suit the posterior would be rejected",
        ),
        (
            selection.RaceWon(RACE, 10),
            "Laplace pCN with rho 0 and one random-walk step in 10: 95 % accepted, 4 times the effective draws per "
            "observation of Langevin and 21 times that of random walk",
        ),
        (
            selection.WalkWon(RaceOutcome("random walk", 0.36, (Rival("Laplace pCN", 6.6e293),))),
            "random walk with an adapted scale: 36 % accepted; too few proposals of Laplace pCN were accepted",
        ),
        (
            selection.ProposalStays(RaceOutcome("Langevin", 0.6, (Rival("pCN", 3.0), Rival("random walk", 1e5)))),
            "Langevin as before: 60 % accepted, 3 times the effective draws per observation of pCN; too few proposals "
            "of random walk were accepted",
        ),
        (
            decision_selection.FirstLookFits(20, 31.0, decision_selection.LookTrial(0.02, 0.01, 4000, 0.001, 2000)),
            "20 blocks, of 31 in a typical decision: |t| beyond its critical value in 0.02 of 4,000 trial subsets "
            "(0.01 expected), 0.001 of 2,000 trial decisions wrong",
        ),
        (decision_selection.BlockSize(1, decision_selection.BlockReason.GIVEN), "1 observation each: as given"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Chosen) else "",
)
def test_sentences(choice: Chosen, text: str) -> None:
    assert choice.describe() == text
    assert fits(json.loads(json.dumps(choice.record())), Choice)


@pytest.mark.parametrize(
    ("choice", "line"),
    [
        (
            selection.TransitionsTaken(False, ("Z",), 84, None, 0.0, hardly_moves=True, diverging=0.2),
            "0 % of the trial transitions were accepted, and 20 % diverged.",
        ),
        (
            selection.TransitionsLeft(("z", "Q"), 123, hardly_moves=True, reason="observations are not affine in phi"),
            "Surrogate transitions are not used, although there are effects with an unknown scale (z and Q) among 123 "
            "parameters: observations are not affine in phi.",
        ),
        (
            selection.LevelsSettled(False, (30, 1), (0.01, 0.4), 3, 2, hardly_moves=True),
            "Metropolis within Gibbs moved 1 % of 30 levels and 40 % of the common coefficients in a trial.",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Chosen) else "",
)
def test_chains_that_hardly_move_are_warned_of_in_sentences(choice: Chosen, line: str) -> None:
    """Names keep their capitals."""
    setup: Any = SimpleNamespace(notes={choice.about: choice})
    out = io.StringIO()
    display = Display(Console(file=out), show=False)
    driver._warn_of_mixing(setup, display, fail=False)
    assert out.getvalue() == f"Warning: the chains will hardly move. {line} {BY_NUTS}\n"
    setup.notes["products"] = selection.ProductsLeft(("z",))
    driver._warn_of_mixing(setup, display, fail=False)
    assert "The likelihood multiplies z by other parameters: declare the product" in out.getvalue()
    with pytest.raises(NotMixingError, match=f"^{re.escape(line)}$"):
        driver._warn_of_mixing(setup, display, fail=True)


def test_records_are_plain() -> None:
    record: dict[str, Any] = selection.RaceWon(RACE, 10).record()
    assert record == {
        "kind": "RaceWon",
        "walk_every": 10,
        "sticky": False,
        "race": {
            "winner": "Laplace pCN with rho 0",
            "accepted": 0.95,
            "rivals": ({"name": "Langevin", "factor": 4.04}, {"name": "random walk", "factor": 21.3}),
        },
    }


@pytest.mark.parametrize(("r_hat", "advice"), [(1.03, "the chains nearly agree."), (1.3, "may have several modes")])
def test_chains_that_nearly_agree_need_more_iterations_only(r_hat: float, advice: str) -> None:
    finding = HighRHat(1.01, Quantities(1, 5, (("beta[1]", r_hat),)))
    remedy = finding.describe().remedy
    assert remedy.startswith("Double `iter_warmup` and `iter_sampling`")
    assert advice in remedy
    assert ("inspect the traces" in remedy) == (r_hat > 1.05)


def test_values_above_a_limit_are_not_rounded_to_it() -> None:
    for value, shown in ((1.0249, "1.025"), (1.01049, "1.0105"), (1.010004, "1.010004"), (float("nan"), "nan")):
        line = HighRHat(1.01, Quantities(1, 5, (("alpha", 1.3), ("beta[1]", value)))).describe().line
        assert f"beta[1] ({shown})" in line


def test_a_run_that_stopped_is_resumed_before_it_is_doubled() -> None:
    finding = HighRHat(1.01, Quantities(1, 5, (("beta[1]", 1.3),)), stopped=True)
    assert finding.describe().remedy.startswith("Resume the run (`resume`), which stopped before its last iteration")


@pytest.mark.parametrize(
    ("seconds", "left", "until", "line"),
    [
        (0.1, None, None, ""),
        (
            5.0,
            None,
            None,
            "Note: Sampling will take about 2.8 h: 4,000 steps of 24 gradients of all the data (5 s) on average, as "
            "measured before sampling. To finish sooner, lower `iter_sampling`, or stop at the precision that you "
            "need, with `until='ess=400'`; Ctrl-C keeps the draws so far.",
        ),
        (
            5.0,
            500.0,
            "ess=400",
            "Note: Sampling will take at most about 2.8 h: 4,000 steps of 24 gradients of all the data (5 s) on "
            "average, as measured before sampling. `max_time` ends the run after about 5 % of the steps. To finish "
            "sooner, lower `iter_sampling`; Ctrl-C keeps the draws so far.",
        ),
    ],
)
def test_long_runs_of_trajectories_on_the_posterior_are_forecast(
    seconds: float, left: float | None, until: str | None, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transitions, "cores", lambda: 2)
    lengths = {"chains": 4, "iter_warmup": 200, "iter_sampling": 800, "parallel_chains": 2}
    config, said = SampleConfig(**lengths, until=until), list[str]()  # type: ignore[arg-type]
    with set_clock():
        progress = Progress(max_time=left)
        progress.warn = said.append
        transitions.forecast(config, progress, selection.StepCost(24.2, seconds))
    assert said == ([line] if line else [])


def test_a_first_forecast_knows_no_gradients() -> None:
    assert selection.StepCost(None, 40.0).describe().startswith("several gradients of all the data (40 s) on average")


def test_a_forecast_names_idle_cores() -> None:
    words = LongRun(9000.0, 4000, "24 gradients", False, 1.0, 16).describe()
    assert words.remedy.endswith(" NUTS of CmdStan can use 16 cores if the likelihood is a `reduce_sum`.")
