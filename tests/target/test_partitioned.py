"""Observations in partitions that answer requests: the same sums and candidates as from all of them together."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_info, threadpool_limits

from stansub import _loop
from stansub.acceptance.decide import make_decider
from stansub.acceptance.rules import Factorised
from stansub.progress import Progress
from stansub.target import foreseeing, observations
from stansub.target.classes import Classes, Pooled, keys
from stansub.target.families import Binomial
from stansub.target.functions import FunctionFactors
from stansub.target.observations import ObservationVariates, foreseen
from stansub.target.partitioned import Derivatives, OfPredictors, PartitionedPredictors, Predictors
from stansub.target.predictor_derivatives import LogLikelihood
from stansub.target.remainders import LinearPredictors
from stansub.target.requests import Request
from stansub.target.rows import ColumnRows
from stansub.target.sites import Candidates, Expand, Expanded, Site, Sums, Survey, Surveyed

Array = NDArray[np.float64]
N, DIM = 900, 2
ENDS = (100, 150, 600, N)
THETA = np.array([0.4, -0.2])
CHOLESKY = np.array([[0.08, 0.0], [0.01, 0.07]])


def predictors(rows: slice = slice(0, N)) -> LinearPredictors:
    rng = np.random.default_rng(3)
    z = rng.standard_normal((N, DIM))
    z[::50] = 0  # bounds of 0
    y = (rng.random(N) < 1 / (1 + np.exp(-z @ [0.5, -0.3]))).astype(float)
    design = ColumnRows(z[rows].shape, ((slice(0, DIM), z[rows]),))
    n = len(z[rows])
    return LinearPredictors((design,), (np.full(n, 0.1),), Binomial(y[rows], np.ones(n)))


@dataclass(frozen=True)
class Holder:
    own: LinearPredictors

    def predictors(self) -> Predictors:
        return self.own


@dataclass
class InPickles:
    """Holders that get requests as pickles, in any order; `lost` counts what they have kept and lost."""

    held: list[Holder]
    forgetful: bool = False
    asked: list[int] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)

    def __len__(self) -> int:
        return len(self.held)

    def answers(self, requests: Mapping[int, Request[Any, Any]]) -> list[Any]:
        found = {}
        for number in reversed(list(requests)):
            holder, request = self.held[number], pickle.loads(pickle.dumps(requests[number]))
            if self.forgetful:  # as a worker that opens the partition again
                holder = Holder(predictors(slice((0, *ENDS)[number], ENDS[number])))
            found[number] = pickle.loads(pickle.dumps(request.answer(holder)))
            self.asked.append(number)
        return [found[number] for number in requests]


def partitioned(*, forgetful: bool = False) -> PartitionedPredictors:
    held = [Holder(predictors(slice(*one))) for one in zip((0, *ENDS), ENDS, strict=False)]
    counts = tuple(one.own.n_observations for one in held)
    return PartitionedPredictors(InPickles(held, forgetful), counts, held[0].own.part(slice(0, 0)), None)


def test_sums_are_those_of_all_observations() -> None:
    whole, parts = predictors(), partitioned()
    assert parts.n_observations == N
    value, gradient = parts.gradient_at(THETA)
    expected = whole.gradient_at(THETA)
    assert value == pytest.approx(expected[0], rel=1e-13)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-12)
    assert sum(parts.ask(LogLikelihood(THETA))) == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(parts.hessian_at(THETA), whole.hessian_at(THETA), rtol=1e-12)
    bounds = [one.bounds for one in parts.ask(Survey(Site(THETA, CHOLESKY), (2, 3)))]
    for order, bound in whole.ask(Survey(Site(THETA, CHOLESKY), (2, 3)))[0].bounds.items():
        assert sum(one[order] for one in bounds) == pytest.approx(bound, rel=1e-12)


def test_sums_do_not_depend_on_who_answers_nor_on_threads() -> None:
    one, other = partitioned(), partitioned(forgetful=True)
    np.testing.assert_array_equal(one.hessian_at(THETA), other.hessian_at(THETA))
    for request in (Derivatives(THETA), LogLikelihood(THETA)):
        for mine, again in zip(one.ask(request), other.ask(request), strict=True):
            np.testing.assert_array_equal(
                mine[-1] if isinstance(mine, tuple) else mine,
                np.array(again[-1] if isinstance(again, tuple) else again),
            )
        whole = predictors()
        assert pickle.dumps(request.answer(whole)) == pickle.dumps(request.answer(whole, threads=3))


def test_a_gradient_and_a_hessian_are_one_pass() -> None:
    parts = partitioned()
    parts.gradient_at(THETA)
    parts.hessian_at(THETA)
    assert isinstance(parts.holders, InPickles)
    assert len(parts.holders.asked) == len(ENDS)
    parts.hessian_at(2 * THETA)
    assert len(parts.holders.asked) == 2 * len(ENDS)


def test_hessians_have_one_thread_of_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """As workers of a cluster have, so that sums round alike."""
    seen: list[int] = []

    def hessian(self: LinearPredictors, curves: Array) -> Array:
        seen.extend(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return np.eye(DIM)

    monkeypatch.setattr(LinearPredictors, "hessian", hessian)
    with threadpool_limits(limits=3, user_api="blas"):
        Derivatives(THETA).answer(predictors())
    assert seen
    assert set(seen) == {1}


def test_each_place_is_one_observation_of_its_class() -> None:
    constants = np.exp(np.random.default_rng(1).normal(-9, 3, N))
    constants[::7] = 0
    parts = [Classes.of([keys(constants[slice(*one)])]) for one in zip((0, *ENDS), ENDS, strict=False)]
    pooled = Pooled.of([(part.keys, np.diff(part.starts)) for part in parts])
    whole = Classes.of([keys(constants)])
    np.testing.assert_array_equal(pooled.keys, whole.keys)
    np.testing.assert_array_equal(pooled.starts, whole.starts)
    assert pooled.total == pytest.approx(whole.total)
    partitions, places = pooled.located(np.arange(len(whole.members)))
    firsts = np.array([0, *ENDS[:-1]])
    found = [firsts[number] + parts[number].members[place] for number, place in zip(partitions, places, strict=True)]
    # within a class, members stand in the order of the observations, as without partitions
    np.testing.assert_array_equal(found, whole.members)


def test_candidates_are_asked_of_the_partitions_that_have_them() -> None:
    parts, expand = partitioned(forgetful=True), Expand(Site(THETA, CHOLESKY), 2)
    whole = predictors()
    answers = parts.ask(expand)
    pooled = Pooled.of([(one.keys, one.counts) for one in answers])
    _, classes = expand.kept(whole)
    for number in range(len(ENDS)):
        places = np.flatnonzero(pooled.located(np.arange(len(classes.members)))[0] == number)[:5]
        own = pooled.located(places)[1]
        records, rows = parts.ask_some({number: Candidates(expand, own)})[0]
        expected, designs = whole.ask(Candidates(expand, places))[0]
        np.testing.assert_array_equal(records, expected)
        np.testing.assert_array_equal(rows[0], designs[0])


def decisions(known: Predictors, n: int = 4000) -> tuple[list[bool], _loop.Decider]:
    whole = predictors()
    factors = FunctionFactors(
        ["a", "b"], N, lambda theta, which: whole.family.part(which).log_lik(whole.part(which).at(theta)), block_size=4
    )
    variates = ObservationVariates.at(known, THETA, CHOLESKY)
    decider = make_decider(factors.evaluator(), factors.blocks.sizes, Factorised(), **variates.parts(factors))
    rng, accepted = np.random.default_rng(5), []
    decider.reset(THETA)
    for _ in range(n):
        proposed = THETA + CHOLESKY @ rng.standard_normal(DIM)
        accepted.append(decider.decide(proposed, np.log1p(-rng.random()), 0.0, rng.bit_generator.capsule).accepted)
    return accepted, decider


def test_candidates_are_foreseen_from_some_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "_is_affordable", lambda _: False)  # so that both are of the second order
    known = predictors()
    expected = ObservationVariates.at(known, THETA, CHOLESKY).expected
    for n, error in ((N, 0.06), (N // 3, 0.5)):  # classes of observations have constants that are rounded up
        monkeypatch.setattr(foreseeing, "_FORESEEN", n)
        assert foreseen(known, THETA, CHOLESKY) == pytest.approx(expected, rel=error)
    assert foreseen(known, THETA, 3 * CHOLESKY) > 10 * expected, "bounds grow with the cube of the sds"


def test_decisions_do_not_depend_on_who_holds_the_observations() -> None:
    one, decider = decisions(partitioned())
    other, again = decisions(partitioned(forgetful=True))
    assert one == other
    np.testing.assert_array_equal(decider.state.theta, again.state.theta)
    # one holder of all observations; its batches are smaller, so it draws other candidates of the same distribution
    whole = np.mean(decisions(predictors())[0])
    assert np.mean(one) == pytest.approx(whole, abs=4 * np.sqrt(0.25 / 4000))


# Times that each observation stands in for, so that there are more than 2^31.
TIMES = 1 << 23


@dataclass
class Repeated(InPickles):
    """Holders as if each observation occurred many times in a row."""

    largest: int = 0

    def answers(self, requests: Mapping[int, Request[Any, Any]]) -> list[Any]:
        own = {number: one.request for number, one in requests.items()}
        for number, one in own.items():
            if isinstance(one, Candidates):
                self.largest = max(self.largest, int(one.places.max()))
                own[number] = replace(one, places=one.places // TIMES)
        found = super().answers({number: OfPredictors(one) for number, one in own.items()})
        return [self._repeated(one) for one in found]

    @staticmethod
    def _repeated(found: Any) -> Any:
        if isinstance(found, Expanded):
            sums = Sums(*(TIMES * part for part in found.sums[:3]), found.sums.ratios)
            return Expanded(sums, found.keys, TIMES * found.counts)
        if isinstance(found, Surveyed):
            return Surveyed({order: TIMES * bound for order, bound in found.bounds.items()}, {})
        return found  # records of candidates


def test_places_of_more_observations_than_32_bits_can_number() -> None:
    constants = np.exp(np.random.default_rng(1).normal(-9, 3, N))
    parts = [Classes.of([keys(constants[slice(*one)])]) for one in zip((0, *ENDS), ENDS, strict=False)]
    once = Pooled.of([(part.keys, np.diff(part.starts)) for part in parts])
    often = once._replace(counts=TIMES * once.counts)
    assert often.starts[-1] == N * TIMES > 2**31
    places = np.arange(N) * TIMES + np.random.default_rng(2).integers(0, TIMES, N)
    partitions, own = often.located(places)
    for one, other in zip((partitions, own // TIMES), once.located(np.arange(N)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_decisions_about_more_observations_than_32_bits_can_number() -> None:
    """Their probabilities are those of Metropolis and Hastings, from candidates among all observations."""
    whole, mode = predictors(), THETA
    for _ in range(20):
        mode = mode - np.linalg.solve(whole.hessian_at(mode), whole.gradient_at(mode)[1])
    cholesky = np.linalg.cholesky(np.linalg.inv(-whole.hessian_at(mode) * TIMES))
    anchor = mode + cholesky @ np.array([15.0, 0.0])  # off, so that there are candidates at all
    held = partitioned().holders.held  # type: ignore[attr-defined]
    holders = Repeated(held)
    counts = tuple(TIMES * one.own.n_observations for one in held)
    known = PartitionedPredictors(holders, counts, held[0].own.part(slice(0, 0)), None)
    variates = ObservationVariates.at(known, anchor, cholesky)

    def value(theta: Array) -> float:
        return TIMES * float(whole.log_lik(theta).sum() - whole.log_lik(mode).sum())

    n = sum(counts)
    evaluator = _loop.FunctionEvaluator(DIM, 1, lambda theta: 0.0, lambda theta, which: np.zeros(len(which)))
    decider = make_decider(evaluator, np.array([n]), Factorised(), **variates.parts(None))  # type: ignore[arg-type]
    rng, differences = np.random.default_rng(5), []
    decider.reset(mode)
    for _ in range(4000):
        here, there = decider.theta.copy(), mode + cholesky @ rng.standard_normal(DIM)
        found = decider.decide(there, np.log1p(-rng.random()), 0.0, rng.bit_generator.capsule)
        differences.append(found.accepted - min(1.0, np.exp(value(there) - value(here))))
    assert decider.n_candidates > 50
    assert holders.largest > 2**31
    assert abs(np.mean(differences)) < 4 * np.std(differences) / np.sqrt(len(differences))


def test_far_from_the_anchor_all_observations_are_evaluated() -> None:
    _, decider = decisions(partitioned(), n=1)
    far = THETA + CHOLESKY @ np.array([30.0, 0.0])
    _, whole = decisions(predictors(), n=1)
    found = []
    for one in (decider, whole):
        rng = np.random.default_rng(1)
        found.append(one.decide(far, -1e9, 0.0, rng.bit_generator.capsule))
    assert [one.n_obs_used for one in found] == [N, N]
    assert found[0].log_ratio == pytest.approx(found[1].log_ratio, rel=1e-12)
