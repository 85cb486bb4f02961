"""Whole runs on compiled programs: reproducibility, exactness, counts, settings, chains that fail."""

import gc
import json
import subprocess
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocks import Clock
from drawn import statistic, unconstrained
from numpy.typing import NDArray
from recording import Recording

import stansub
from stansub import Austerity, CompiledModel, Exact, Geometric, InputError, Pocock, RandomWalk, RunError
from stansub.acceptance import rules as boundary
from stansub.findings import Stopped
from stansub.output import inference_data
from stansub.output.checks import findings_of
from stansub.output.record import record_of
from stansub.progress import TimeLimitError
from stansub.run import chain_factory
from stansub.run import sample as driver
from stansub.stan.syntax import parser
from stansub.stan.toolchain.bridgestan_home import find_home

EXAMPLES = Path(__file__).parents[2] / "stan_models"
PLAIN: dict[str, Any] = {"control_variates": 0, "proposal": "adaptive-metropolis"}
SHORT: dict[str, Any] = PLAIN | {"chains": 3, "iter_warmup": 60, "iter_sampling": 80, "seed": 5, "block_size": 20}
LOOSE = Austerity(epsilon=0.1, looks=Geometric(first=10))

Array = NDArray[np.float64]


def same(left: Any, right: Any) -> None:
    """Both runs hold the same draws, statistics and quantities."""
    assert inference_data.groups(left) == inference_data.groups(right)
    for name in inference_data.groups(left):
        a, b = inference_data.group(left, name), inference_data.group(right, name)
        assert list(a.data_vars) == list(b.data_vars)
        for variable in a.data_vars:
            if variable.endswith("_time"):
                continue
            np.testing.assert_array_equal(a[variable].values, b[variable].values, err_msg=f"{name} {variable}")


@pytest.fixture(scope="module")
def short(logistic: CompiledModel, logistic_data: dict[str, Any]) -> Any:
    return stansub.sample(logistic, logistic_data, test=LOOSE, **SHORT)


@pytest.mark.parametrize("parallel_chains", [1, 2, 8])
def test_draws_do_not_depend_on_the_number_of_threads(
    short: Any, logistic: CompiledModel, logistic_data: dict[str, Any], parallel_chains: int
) -> None:
    again = stansub.sample(logistic, logistic_data, test=LOOSE, parallel_chains=parallel_chains, **SHORT)
    same(short, again)


def test_a_chain_does_not_depend_on_how_many_others_there_are(
    short: Any, logistic: CompiledModel, logistic_data: dict[str, Any]
) -> None:
    alone = stansub.sample(logistic, logistic_data, test=LOOSE, **(SHORT | {"chains": 1}))
    np.testing.assert_array_equal(unconstrained(alone)[0], unconstrained(short)[0])


def test_seeds_and_chains_differ(short: Any, logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    other = stansub.sample(logistic, logistic_data, test=LOOSE, **(SHORT | {"seed": 6}))
    chains = [*unconstrained(short), *unconstrained(other)]
    for i, one in enumerate(chains):
        for another in chains[:i]:
            assert not np.isin(one, another).any(), "not a single value in common"


def test_a_posterior_that_is_at_hand_gives_the_same_draws(
    short: Any, logistic: CompiledModel, logistic_data: dict[str, Any]
) -> None:
    posterior = logistic.with_data(logistic_data, block_size=SHORT["block_size"], seed=SHORT["seed"])
    settings = {name: value for name, value in SHORT.items() if name != "block_size"}
    same(short, stansub.sample(posterior, test=LOOSE, **settings))
    with pytest.raises(InputError, match="the given posterior fixes"):
        stansub.sample(posterior, logistic_data, test=LOOSE, **settings)


def test_an_evaluator_keeps_its_models_alive(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    posterior = logistic.with_data(logistic_data, seed=1)
    held, point = weakref.ref(posterior.population), np.zeros(posterior.dim)
    evaluator = posterior.population.evaluator()
    before = evaluator.block_log_lik(point)
    del posterior
    gc.collect()
    assert held() is not None
    np.testing.assert_array_equal(evaluator.block_log_lik(point), before)
    del evaluator
    gc.collect()
    assert held() is None


def test_audits_leave_the_draws_as_they_are(short: Any, logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    runs = [stansub.sample(logistic, logistic_data, test=LOOSE, audit=audit, **SHORT) for audit in (0.0, 1.0)]
    for idata in runs:
        np.testing.assert_array_equal(unconstrained(idata), unconstrained(short))
    none, every = (record_of(idata).audit for idata in runs)
    assert none is None
    assert every is not None
    assert every.n_audited == 3 * 80
    assert 0 < every.n_wrong < 0.3 * 3 * 80, "a test this loose errs now and then"


@pytest.mark.parametrize("test", [Exact(), Pocock(epsilon=0.0), Austerity(epsilon=0.0)], ids=repr)
def test_exact_decisions_are_those_of_plain_metropolis(
    logistic: CompiledModel, logistic_data: dict[str, Any], test: Any
) -> None:
    factor = np.linalg.cholesky(np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 2.0]])) * 0.03
    start = {"alpha": -0.4, "beta": [0.3, -0.6]}
    idata = stansub.sample(
        logistic, logistic_data, test=test, proposal=RandomWalk(factor), inits=start, chains=2, iter_warmup=0,
        iter_sampling=300, seed=8,
    )  # fmt: skip
    model = logistic.original.model(logistic.read_data(logistic_data).json())
    for chain in range(2):
        rng = np.random.default_rng(np.random.SeedSequence(8, spawn_key=(1 + chain, 1)))
        position = np.array([-0.4, 0.3, -0.6])
        density, expected = model.log_density(position), []
        for _ in range(300):
            proposed = position + factor @ rng.standard_normal(3)
            proposed_density = model.log_density(proposed)
            if proposed_density - density > np.log1p(-rng.random()):
                position, density = proposed, proposed_density
            expected.append(position)
        np.testing.assert_allclose(unconstrained(idata)[chain], expected, rtol=1e-9)
        assert 0.1 < np.mean(np.diff(expected, axis=0)[:, 0] != 0) < 0.9
    used = statistic(idata, "n_obs_used")
    assert (used == 2000).all()
    assert inference_data.attrs(idata)["guarantee"] == "exact"


def test_a_proposal_written_in_python_makes_the_same_decisions(
    logistic: CompiledModel, logistic_data: dict[str, Any]
) -> None:
    walk = RandomWalk(0.05 * np.eye(3))

    def own(rng: np.random.Generator, position: Array) -> tuple[Array, float]:
        return walk(rng, position)

    settings = SHORT | {"iter_warmup": 0}
    runs = [
        stansub.sample(logistic, logistic_data, test=LOOSE, **(settings | {"proposal": proposal}))
        for proposal in (walk, own)
    ]
    np.testing.assert_allclose(unconstrained(runs[0]), unconstrained(runs[1]), rtol=1e-12)
    assert len(np.unique(unconstrained(runs[0])[0, :, 0])) > 10
    assert [inference_data.attrs(idata)["settings"]["proposal"] for idata in runs] == ["RandomWalk", "function"]


@pytest.mark.parametrize("save_warmup", [False, True])
def test_thinned_draws_and_totals(
    short: Any, logistic: CompiledModel, logistic_data: dict[str, Any], save_warmup: bool
) -> None:
    idata = stansub.sample(logistic, logistic_data, test=LOOSE, thin=7, save_warmup=save_warmup, **SHORT)
    np.testing.assert_array_equal(unconstrained(idata), unconstrained(short)[:, 6::7])
    kept = inference_data.group(idata, "posterior").sizes
    assert (kept["chain"], kept["draw"]) == (3, 80 // 7)
    groups = inference_data.groups(idata)
    assert ("warmup_posterior" in groups) == ("warmup_sample_stats" in groups) == save_warmup
    if save_warmup:
        assert inference_data.group(idata, "warmup_posterior").sizes["draw"] == 60 // 7
    facts, unthinned = inference_data.attrs(idata), inference_data.attrs(short)
    for name in ("n_steps", "n_accepted", "n_obs_used", "n_obs_evaluated", "n_audited", "warmup_n_steps"):
        assert facts[name] == unthinned[name], name
    assert facts["n_steps"] == [80] * 3
    assert facts["warmup_n_steps"] == [60] * 3


def test_every_setting_is_written_down(short: Any) -> None:
    facts = inference_data.attrs(short)
    assert facts["settings"] == {
        "chains": 3,
        "parallel_chains": facts["settings"]["parallel_chains"],
        "executor": "threads",
        "kernel": None,
        "final_epsilon": None,
        "iter_warmup": 60,
        "iter_sampling": 80,
        "thin": 1,
        "seed": 5,
        "inits": "2.0",
        "proposal": "adaptive-metropolis",
        "control_variates": 0,
        "max_time": None,
        "until": None,
        "max_error": None,
        "range_source": "none",
        "audit": 0.01,
        "block_size": 20,
        "observations": None,
        "evaluator": "instances",
        "save_warmup": False,
        "generated_quantities": True,
        "observation_level": False,
        "save": None,
        "drop": None,
    }
    assert facts["test"] == "austerity"
    assert facts["epsilon"] == 0.1
    assert "first=10" in facts["test_settings"]
    assert set(facts["versions"]) == {"stansub", "stan", "bridgestan", "arviz", "numpy", "python"}
    assert all(facts["versions"].values())
    assert facts["versions"]["stan"] == find_home().stan_version
    assert (facts["n_observations"], facts["n_blocks"], facts["block_size"]) == (2000, 100, 20)
    assert facts["model"] == "logistic"
    for name in ("compile_time", "setup_time", "wall_time"):
        assert facts[name] >= 0, name
    for name in ("sampling_time", "warmup_time"):
        assert len(facts[name]) == 3
        assert min(facts[name]) > 0
    assert facts["data_order"] == "shuffled"
    assert facts["stopped"] == facts["left_out"] == ""
    assert len(facts["model_hash"]) == len(facts["data_hash"]) == 16


def test_hashes_tell_data_apart(
    short: Any, logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path
) -> None:
    other = dict(logistic_data, y=1 - logistic_data["y"])
    tiny = SHORT | {"iter_sampling": 5, "iter_warmup": 0}
    changed = inference_data.attrs(stansub.sample(logistic, other, **tiny))
    file = tmp_path / "data.json"
    file.write_text(json.dumps({name: np.asarray(value).tolist() for name, value in logistic_data.items()}, indent=2))
    reread = inference_data.attrs(stansub.sample(logistic, file, **tiny))
    facts = inference_data.attrs(short)
    assert reread["data_hash"] == facts["data_hash"] != changed["data_hash"]
    assert reread["model_hash"] == facts["model_hash"] == changed["model_hash"]


def test_draws_can_be_written_and_read_back(short: Any, tmp_path: Path) -> None:
    stansub.write_draws(short, tmp_path / "draws.nc", overwrite=False)
    again = stansub.read_draws(tmp_path / "draws.nc")
    same(short, again)
    np.testing.assert_equal(inference_data.attrs(again), inference_data.attrs(short))


def test_observed_data_hold_what_was_observed(short: Any, logistic_data: dict[str, Any]) -> None:
    observed = inference_data.group(short, "observed_data")
    assert list(observed.data_vars) == ["y"]
    np.testing.assert_array_equal(observed["y"].values, logistic_data["y"])


def test_the_seed_is_drawn_and_written_down_when_none_is_given(
    logistic: CompiledModel, logistic_data: dict[str, Any]
) -> None:
    settings = SHORT | {"seed": None}
    first = stansub.sample(logistic, logistic_data, test=LOOSE, **settings)
    seed = inference_data.attrs(first)["settings"]["seed"]
    again = stansub.sample(logistic, logistic_data, test=LOOSE, **(SHORT | {"seed": np.int64(seed)}))
    same(first, again)


def test_the_time_limit_keeps_what_there_is(
    logistic: CompiledModel, logistic_data: dict[str, Any], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.advance_with_batches(monkeypatch, 0.05)
    settings = SHORT | {"iter_sampling": 2_000_000, "parallel_chains": 1}
    idata = stansub.sample(logistic, logistic_data, test=LOOSE, max_time=9.0, **settings)
    n = unconstrained(idata).shape[1]
    assert 80 < n < 20_000
    assert inference_data.attrs(idata)["stopped"] == "max_time"
    assert findings_of(idata)[0] == Stopped("max_time")
    complete = stansub.sample(logistic, logistic_data, test=LOOSE, **SHORT)
    np.testing.assert_array_equal(unconstrained(idata)[:, :80], unconstrained(complete))


def test_a_time_limit_that_is_not_reached_is_no_stop(
    logistic: CompiledModel, logistic_data: dict[str, Any], clock: Clock
) -> None:
    idata = stansub.sample(logistic, logistic_data, test=LOOSE, max_time=1.0, **SHORT)
    assert inference_data.attrs(idata)["stopped"] == ""


def test_a_time_limit_within_warmup_says_so(
    logistic: CompiledModel, logistic_data: dict[str, Any], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.advance_with_batches(monkeypatch, 0.05)
    with pytest.raises(RunError, match=r"max_time.*iter_warmup"):
        stansub.sample(logistic, logistic_data, max_time=4.0, **(SHORT | {"iter_warmup": 2_000_000}))


def test_a_time_limit_within_set_up_says_what_it_got_to(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    with pytest.raises(TimeLimitError, match=r"`max_time=1e-09` was reached during set-up, before the first draw"):
        stansub.sample(logistic, logistic_data, max_time=1e-9, **SHORT)


def test_the_time_limit_counts_set_up(
    logistic: CompiledModel, logistic_data: dict[str, Any], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_chain, limit = chain_factory.make_chain, 2.0

    def slow(*arguments: Any, **options: Any) -> Any:
        clock.advance(limit + 0.1)
        return make_chain(*arguments, **options)

    monkeypatch.setattr(chain_factory, "make_chain", slow)
    with pytest.raises(TimeLimitError, match=r"in the stage 'Finding starting values; .* so far, 0 of 3"):
        stansub.sample(logistic, logistic_data, max_time=limit, **SHORT)


def test_blocks_and_proof_tell_how_far_they_are(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    recorded, repeats = Recording(), 20
    many = {"N": 2000 * repeats, "K": 2} | {name: np.repeat(logistic_data[name], repeats, axis=0) for name in "xy"}
    logistic.with_data(many, block_size=20, progress=recorded)
    assert recorded.texts[1:] == ["Making blocks: 2,000 of 20 observations", "Proving the cut into blocks"]
    assert recorded.counts == [(n, 9) for n in range(1, 10)], "parts of 4,096 observations at least"
    with pytest.raises(TimeLimitError):
        logistic.with_data(many, block_size=20, progress=Recording().until(3))


def test_the_seconds_of_the_stages_are_written_down(short: Any) -> None:
    facts = inference_data.attrs(short)
    times = facts["setup_times"]
    assert {"Reading the data", "Loading data", "Making blocks", "Proving the cut into blocks"} <= set(times)
    assert "Finding starting values" in times
    assert 0 < sum(times.values()) <= facts["compile_time"] + facts["setup_time"]


def test_why_each_program_was_compiled_is_written_down(short: Any, tmp_path: Path) -> None:
    programs = inference_data.attrs(short)["programs"]
    assert set(programs) == {"program"}, "linear predictors come from the text"
    assert programs["program"].startswith("the original program")
    inference_data.write(short, tmp_path / "draws.nc")
    assert inference_data.attrs(inference_data.read(tmp_path / "draws.nc"))["programs"] == programs


def breaks_beyond(limit: float) -> Any:
    def proposal(rng: np.random.Generator, position: Array) -> tuple[Array, float]:
        if position[0] > limit:
            raise ValueError("too far\nto propose")
        return position + 0.02 * rng.standard_normal(3), 0.0

    return proposal


@pytest.mark.parametrize("parallel_chains", [1, 3])
def test_a_chain_that_fails_does_not_take_the_others_along(
    logistic: CompiledModel, logistic_data: dict[str, Any], parallel_chains: int
) -> None:
    inits = [{"alpha": alpha, "beta": [0.4, -0.7]} for alpha in (-0.5, 20.0, -0.5)]
    settings = SHORT | {"proposal": breaks_beyond(10.0), "inits": inits, "parallel_chains": parallel_chains}
    idata = stansub.sample(logistic, logistic_data, test=LOOSE, **settings)
    assert unconstrained(idata).shape == (2, 80, 3)
    assert inference_data.attrs(idata)["stopped"] == "chain 2 failed (too far to propose)"
    assert findings_of(idata)[0] == Stopped("chain 2 failed (too far to propose)")


def test_the_only_chain_that_is_left_can_be_told_of_and_compared(
    logistic: CompiledModel, logistic_data: dict[str, Any], short: Any, tmp_path: Path
) -> None:
    inits = [{"alpha": alpha, "beta": [0.4, -0.7]} for alpha in (-0.5, 20.0)]
    settings = SHORT | {"proposal": breaks_beyond(10.0), "inits": inits, "chains": 2}
    idata = stansub.sample(logistic, logistic_data, test=LOOSE, **settings)
    stansub.write_draws(idata, tmp_path / "draws.nc")
    back = stansub.read_draws(tmp_path / "draws.nc")
    totals = inference_data.group(back, "chain_stats")
    assert all(totals[name].shape == (1,) for name in ("n_steps", "n_fallback", "audit_squares"))
    assert record_of(back) == record_of(idata)
    assert findings_of(back) == findings_of(idata)
    assert sorted(stansub.compare(back, short).parameters.index) == ["alpha", "beta[1]", "beta[2]"]


def test_when_all_chains_fail_the_first_reason_is_told(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    with pytest.raises(RunError, match=r"chain 1 failed \(too far to propose\)"):
        stansub.sample(logistic, logistic_data, **(SHORT | {"proposal": breaks_beyond(-100.0)}))


@pytest.mark.parametrize(
    ("answer", "returned"),
    [
        (lambda position: position, "one value (ndarray)"),
        (lambda position: (position, 0.0, 1), "3 values (tuple)"),
        (lambda position: None, "one value (NoneType)"),
        (lambda position: (position[:1], 0.0), "an array of shape (1,) as the position"),
        (lambda position: (position[None], 0.0), "an array of shape (1, 3) as the position"),
        (lambda position: (position.astype(str), 0.0), "no numbers as the position"),
        (lambda position: (position + 1j, 0.0), "no numbers as the position"),
        (lambda position: ([0.0, [1.0, 2.0]], 0.0), "no numbers as the position"),
        (lambda position: (position, float("nan")), "nan as the log ratio"),
        (lambda position: (position, float("inf")), "inf as the log ratio"),
        (lambda position: (position, None), "None as the log ratio"),
        (lambda position: (position, [0.0, 0.0]), "[0.0, 0.0] as the log ratio"),
    ],
)
def test_a_malformed_proposal_is_told_what_it_must_return(
    logistic: CompiledModel, logistic_data: dict[str, Any], answer: Any, returned: str
) -> None:
    with pytest.raises(InputError) as caught:
        stansub.sample(logistic, logistic_data, **(SHORT | {"proposal": lambda rng, position: answer(position)}))
    assert "the proposal must return (proposed, log_ratio), an array of 3 numbers" in str(caught.value)
    assert str(caught.value).count(f"it returned {returned}") == 1
    assert "\n" not in str(caught.value)


def test_a_proposal_may_answer_in_any_numbers_and_write_into_what_it_is_given(
    logistic: CompiledModel, logistic_data: dict[str, Any]
) -> None:
    def plain(rng: np.random.Generator, position: Array) -> Any:
        return (position + 0.1 * rng.standard_normal(3).astype(np.float32)).tolist(), 0

    def in_place(rng: np.random.Generator, position: Array) -> Any:
        position += 0.1 * rng.standard_normal(3).astype(np.float32)
        return position, np.float32(0)

    first, second = (
        stansub.sample(logistic, logistic_data, test=LOOSE, **(SHORT | {"proposal": one})) for one in (plain, in_place)
    )
    same(first, second)
    accepted = statistic(first, "accepted")[:, 1:]
    np.testing.assert_array_equal((np.diff(unconstrained(first), axis=1) != 0).all(axis=2), accepted)


def test_a_move_to_nowhere_is_rejected(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    def nowhere(rng: np.random.Generator, position: Array) -> Any:
        return position * np.nan, np.nan

    idata = stansub.sample(logistic, logistic_data, test=LOOSE, **(SHORT | {"proposal": nowhere}))
    assert inference_data.attrs(idata)["n_accepted"] == [0] * 3


@pytest.mark.parametrize(
    "error", [lambda: ValueError("no such\ndimension"), KeyboardInterrupt], ids=["error", "interrupt"]
)
def test_whatever_fails_after_sampling_the_draws_are_kept(
    error: Callable[[], BaseException],
    short: Any,
    logistic: CompiledModel,
    logistic_data: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def broken(**_: Any) -> None:
        # Made here: an exception that outlives the test keeps the chains that its traceback reaches.
        raise error()

    monkeypatch.setattr(inference_data, "build", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RunError, match=r"^(no such dimension|interrupted); the unconstrained draws were saved"):
        stansub.sample(logistic, logistic_data, test=LOOSE, **SHORT)
    (kept,) = tmp_path.glob("stansub-*/draws.npz")
    with np.load(kept) as arrays:
        np.testing.assert_array_equal([arrays[name] for name in arrays.files], unconstrained(short))


class Hasty:
    """Decides by the sign of the mean of ten blocks."""

    name = "hasty"
    needs_range = False

    def table(self, n_units: int) -> boundary.Table:
        return boundary.Table(np.array([10, n_units], np.int32), np.zeros(2), np.zeros(2))


class HastyWithLevel(Hasty):
    epsilon = 0.01


@pytest.mark.parametrize(
    ("test", "level", "told", "remedy"),
    [
        (Hasty(), None, "the test hasty declares no error level", "attribute epsilon"),
        (HastyWithLevel(), 0.01, "more than epsilon = 0.01 allows", "Make the test stricter"),
    ],
)
def test_wrong_decisions_of_a_test_of_the_users_own_are_warned_of(
    logistic: CompiledModel,
    logistic_data: dict[str, Any],
    test: Any,
    level: float | None,
    told: str,
    remedy: str,
) -> None:
    idata = stansub.sample(logistic, logistic_data, test=test, audit=1.0, **SHORT)
    facts = inference_data.attrs(idata)
    assert (facts.get("epsilon"), facts["guarantee"]) == (level, "unknown")
    assert not {"delta", "noise"} & set(facts)
    (warning,) = [line for line in facts["warnings"].splitlines() if "audited decisions were wrong" in line]
    assert told in warning
    assert remedy in warning


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 0.05}, "0.05 is not a test"),
        ({"chains": 0}, "chains=0"),
        ({"chains": True}, "chains=True`"),
        ({"chains": 2.0}, "chains=2.0`"),
        ({"iter_sampling": 0}, "iter_sampling=0`"),
        ({"iter_warmup": -1}, "iter_warmup=-1`"),
        ({"thin": 0}, "thin=0"),
        ({"thin": 100}, "no draw would be kept"),
        ({"parallel_chains": 0}, "parallel_chains=0"),
        ({"block_size": 0}, "block_size=0`"),
        ({"seed": -1}, "seed=-1`"),
        ({"audit": 1.5}, "audit=1.5`"),
        ({"audit": float("nan")}, "audit=nan`"),
        ({"max_time": 0}, "max_time=0`"),
        ({"proposal": "nuts"}, "proposal 'nuts'"),
        ({"proposal": RandomWalk(np.eye(2))}, "3 unconstrained"),
        ({"test": "bootstrap"}, "bootstrap"),
        ({"test": Pocock(), "epsilon": 0.1}, "a test given as an object has"),
        ({"epsilon": 1.5}, "epsilon` must be between 0 and 1"),
        ({"delta": 0.1}, "`delta` is the level of the concentration bounds"),
        ({"looks": "often"}, "looks 'often'"),
        ({"range_source": "scan"}, "does not use a range"),
        ({"test": "hoeffding"}, "log_lik_lipschitz_i"),
        ({"observations": "M"}, "`observations='M'`"),
        ({"iter_sampling": 10**12}, "GB of memory"),
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(
    logistic: CompiledModel, logistic_data: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        stansub.sample(logistic, logistic_data, **(SHORT | options))
    assert message in str(caught.value)


def test_a_size_that_the_program_does_not_sum_over_is_refused(
    normal_mean: CompiledModel, mean_data: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match="candidates are N"):
        stansub.sample(normal_mean, mean_data, observations="K", **SHORT)


def test_public_values_are_shown_in_a_line(logistic: CompiledModel, logistic_data: dict[str, Any], short: Any) -> None:
    posterior = logistic.with_data(logistic_data, block_size=20)
    again = stansub.sample(posterior, **{name: value for name, value in SHORT.items() if name != "block_size"})
    shown = [repr(logistic), repr(posterior), repr(stansub.compare(short, again))]
    assert all(len(text) < 250 and "\n" not in text for text in shown)
    assert shown[1] == "<Posterior of logistic: 2,000 observations in 100 blocks, 3 unconstrained parameters>"
    assert "logistic" in shown[0]
    assert shown[2].startswith("<Comparison of logistic, 3 quantities: do not use: ")


def test_a_program_is_read_once(
    logistic: CompiledModel, logistic_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, program, stanc = subprocess.run, parser._Parser.program, find_home().stanc
    read: list[str] = []

    def counted(command: Any, *rest: Any, **options: Any) -> Any:
        read.extend(["stanc"] * (command[0] == stanc))
        return run(command, *rest, **options)

    def parsed(one: Any) -> Any:
        read.append("parser")
        return program(one)

    monkeypatch.setattr(subprocess, "run", counted)
    monkeypatch.setattr(parser._Parser, "program", parsed)
    stansub.sample(EXAMPLES / "logistic.stan", logistic_data, **SHORT)
    assert sorted(read) == ["parser", "stanc"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("logistic", {}),
        pytest.param("logistic", {"test": "exact"}, marks=pytest.mark.slow),
        pytest.param("normal_mean", {"test": "hoeffding", "range_source": "scan"}, marks=pytest.mark.slow),
        pytest.param("normal_mean", {"control_variates": 0}, marks=pytest.mark.slow),
    ],
    ids=["default", "exact", "bound", "plain"],
)
def test_blocks_of_a_posterior_without_a_block_size_are_those_of_a_model(
    name: str, options: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    model: CompiledModel = request.getfixturevalue(name)
    few: dict[str, Any] = {"chains": 1, "iter_warmup": 40, "iter_sampling": 40, "seed": 3} | options
    data = request.getfixturevalue({"logistic": "logistic_data", "normal_mean": "mean_data"}[name])
    from_model = stansub.sample(model, data, **few)
    from_posterior = stansub.sample(model.with_data(data, seed=3), **few)
    same(from_model, from_posterior)
    ours, theirs = inference_data.attrs(from_model), inference_data.attrs(from_posterior)
    assert ours["block_size"] == theirs["block_size"]
    assert ours["choice_values"]["blocks"] == theirs["choice_values"]["blocks"]


def test_a_block_size_that_was_named_stays(normal_mean: CompiledModel, mean_data: dict[str, Any]) -> None:
    posterior = normal_mean.with_data(mean_data, seed=3, block_size=17)
    few = stansub.sample(posterior, test="exact", chains=1, iter_warmup=40, iter_sampling=40, seed=3)
    assert inference_data.attrs(few)["block_size"] == 17
    assert inference_data.attrs(few)["choice_values"]["blocks"]["reason"] == "given"
    assert "as given" in inference_data.attrs(few)["choices"]["blocks"]


def test_draws_outlive_a_display_that_fails(
    logistic: CompiledModel, logistic_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(self: Any) -> None:
        if all(chain.sampling.n_kept for chain in self._chains):
            raise OSError("the terminal went away")

    monkeypatch.setattr(driver._Watch, "__call__", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RunError, match=r"^the terminal went away; the unconstrained draws were saved"):
        stansub.sample(logistic, logistic_data, test=LOOSE, **SHORT)
    (kept,) = tmp_path.glob("stansub-*/draws.npz")
    with np.load(kept) as arrays:
        assert sorted(arrays.files) == [f"chain_{k + 1}" for k in range(SHORT["chains"])]
