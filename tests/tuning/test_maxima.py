"""Maxima of a likelihood: climbs from random starts find the order of labels that the first climb did not."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hamiltonians import independent, sampler
from numpy.typing import NDArray

from stansub.errors import RunError
from stansub.kernels.surrogate import Gibbs, NoUTurn, SurrogateTransition
from stansub.mode_findings import ENOUGH_CLIMBS
from stansub.progress import Progress, TimeLimitError
from stansub.stan.analysis import Analysis
from stansub.stan.sparse import sparse_predictors
from stansub.stan.syntax import parse
from stansub.target.approximation import Approximation
from stansub.target.coordinates import Coordinates
from stansub.target.families import Poisson
from stansub.target.metric import Metric
from stansub.target.programs import ProgramFamily
from stansub.target.sparse import Quadratic, SparsePredictors, SparseRows
from stansub.tuning.surrogates import maxima, mode_shares, surrogate
from stansub.tuning.surrogates.evidence import Evidence
from stansub.tuning.surrogates.ridge import Region, is_maximum, ridge_mode
from stansub.tuning.surrogates.surrogate import TunedSurrogate

Array = NDArray[np.float64]
N, J = 400, 8
CODE = """
data { int N; int J; vector[N] y; vector[N] t; vector[N] wave; vector[N] three; array[N] int g; array[N] int k; }
parameters { vector[2] mu; real<lower=0> sigma; real<lower=0> other; real f; real<lower=0> tau; vector[J] u; }
model {
  u ~ normal(0, tau);
  for (n in 1 : N) target += TERM;
}
"""
LABELS = "log_mix(0.5, normal_lpdf(y[n] | mu[1] + u[g[n]], sigma), normal_lpdf(y[n] | mu[2] + u[g[n]], sigma))"
THREE = f"log_sum_exp([{', '.join(f'normal_lpdf(three[n] | {one}, 1)' for one in ('mu[1]', 'mu[2]', 'f'))}])"
SPIKES = "log_mix(0.5, normal_lpdf(y[n] | mu[1], sigma), normal_lpdf(y[n] | mu[2], other))"
WAVE = "normal_lpdf(wave[n] | mu[1] * cos(f * t[n]) + mu[2] * cos(f * t[n] + 1), sigma)"
FREQUENCY = 1.3
NONE = "0.01 * square(mu[1]) - square(y[n] - mu[2])"
PRECISION = "exp(mu[2] + f * t[n])"
MEAN = "inv_logit(mu[1] + u[g[n]])"
COUNTS = f"beta_binomial_lpmf(k[n] | 40, {MEAN} * {PRECISION}, (1 - {MEAN}) * {PRECISION})"
ONE = "-log(cosh((y[n] - mu[1] - mu[2] - u[g[n]]) / sigma)) - log(sigma)"


def data() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    y = np.where(rng.random(N) < 0.5, -1.5, 1.5) + 0.5 * rng.standard_normal(N)
    t = rng.uniform(0, 40, N)
    wave = np.cos(FREQUENCY * t) + 0.5 * rng.standard_normal(N)
    own = {"N": N, "J": J, "y": y, "t": t, "wave": wave}
    own |= {"g": rng.integers(1, J + 1, N), "k": rng.binomial(40, 0.5, N)}
    return own | {"three": rng.choice([-4.0, 0.0, 4.0], N) + rng.standard_normal(N)}


def predictors(term: str) -> SparsePredictors:
    return sparse_predictors(Analysis.of(parse(CODE.replace("TERM", term))).likelihood_split("N"), data(), N)


def split(term: str, preferred: Array | None = None) -> Any:
    """Parameters that are the likelihood's arguments, with a flat prior, or one that is normal about some of them."""

    def surrogate_of(approximation: Approximation) -> Any:
        def log_density_gradient(theta: Array) -> tuple[float, Array]:
            quadratic, beside = approximation.quadratic, np.zeros_like(theta)
            if preferred is not None:
                beside = np.where(np.isnan(preferred), 0.0, theta - preferred)
            return quadratic(theta) - 10 * float(beside @ beside), quadratic.slope(theta) - 20 * beside

        model = SimpleNamespace(log_density_gradient=log_density_gradient)
        return SimpleNamespace(phi=lambda theta: theta, model=model)

    own = predictors(term)
    zeros = np.zeros(own.dim)
    none = Approximation.plain(Quadratic.of(zeros, 0.0, zeros, sp.csr_array((own.dim, own.dim))))
    return SimpleNamespace(predictors=own, prior=lambda: surrogate_of(none), surrogate=surrogate_of)


def searched(own: Any, seed: int) -> tuple[list[Any], int]:
    rng = np.random.default_rng(seed)
    region = Region.of_split(own, own.predictors.dim, rng)
    return maxima._search(own, own.predictors.dim, region, rng, Progress())


def ends(term: str, seed: int, preferred: Array | None = None) -> list[Any]:
    own = split(term, preferred)
    found, n_starts = searched(own, seed)
    assert n_starts == 2 * maxima._PAIRS
    return found


@pytest.mark.parametrize("seed", range(3))
def test_both_orders_of_labels_are_found(seed: int) -> None:
    """They hold the same share; the saddle between them, where the climb from 0 ends, holds none."""
    first, second = ends(LABELS, seed)
    assert first.log_evidence == pytest.approx(second.log_evidence, abs=0.2)
    whole = Region.whole(len(first.expansion.point))
    assert not maxima.is_same(first.expansion, second.expansion, whole)
    assert first.n_climbs > 8 < second.n_climbs
    saddle, _ = ridge_mode(predictors(LABELS), Progress())
    assert maxima._End.of(saddle, whole, 1).log_evidence < first.log_evidence - maxima._WORTH
    assert is_maximum(first.expansion, whole)


@pytest.mark.parametrize("first", [-1.5, 1.5])
def test_the_prior_prefers_an_order_of_labels(first: float) -> None:
    """The other has the same likelihood, and is not worth a surrogate. Climbs to both count."""
    preferred = np.full(predictors(LABELS).dim, np.nan)
    preferred[0] = first
    only, *others = ends(LABELS, 1, preferred)
    assert not others
    assert only.expansion.point[0] == pytest.approx(first, abs=0.2)
    assert only.n_climbs > sum(one.n_climbs for one in ends(LABELS, 1)) / 3


def test_an_order_of_labels_to_which_no_random_start_leads_is_found_from_the_prior(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Random starts lead to two of the six orders of three components."""

    def starts(prior: Any, dim: int, *_: Any) -> Iterator[Array]:
        for means in maxima._PAIRS * ([0, 1, 3], [1, 3, 0]):
            yield np.array([*means, *np.zeros(dim - 3)], float) - 1.0

    monkeypatch.setattr(maxima, "_starts", starts)
    orders = {tuple(np.argsort(one.expansion.point[:3]).tolist()) for one in ends(THREE, 1)}
    assert 1 < len(orders) < 6
    other = min(set(permutations(range(3))) - orders)
    preferred = np.full(predictors(THREE).dim, np.nan)
    preferred[list(other)] = [-4.0, 0.0, 4.0]
    (only,) = ends(THREE, 1, preferred)
    np.testing.assert_allclose(only.expansion.point[:3], preferred[:3], atol=0.3)


def test_spikes_about_single_observations_are_no_maxima() -> None:
    """Where the scale of a component is nearly 0, the likelihood is the higher the nearer."""
    found = ends(SPIKES, 1)
    assert all(abs(one.expansion.point[2:4]).max() < 3 for one in found)
    own, spike = predictors(SPIKES), np.array([data()["y"][0], 0.0, -600.0, 0.5])
    assert own.log_lik(spike) > found[0].expansion.value


def test_a_likelihood_without_a_maximum_has_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few climbs show it: on the first subset, and from 0 on all observations."""
    climbs: list[int] = []
    passes: list[int] = []

    def counted(predictors: SparsePredictors, *args: Any, **options: Any) -> Any:
        end, n_passes = ridge_mode(predictors, *args, **options)
        climbs.append(predictors.n_observations)
        passes.append(n_passes)
        return end, n_passes

    monkeypatch.setattr(maxima, "ridge_mode", counted)
    own = split(NONE)
    assert not searched(own, 1)[0]
    assert climbs == [N] * len(climbs)
    assert sum(passes[:-2]) < maxima._PASSES <= sum(passes[:-1])
    monkeypatch.setattr(maxima, "_PASSES", np.inf)
    climbs.clear()
    assert not searched(own, 1)[0]
    assert climbs == [N] * (maxima._TRIED + 1)
    end, _ = ridge_mode(own.predictors, Progress())
    assert not is_maximum(end, Region.whole(len(end.point)))


def test_a_likelihood_with_one_maximum_has_one_end() -> None:
    own = predictors(ONE)
    assert isinstance(own.family, ProgramFamily)
    (end,) = ends(ONE, 0)
    assert end.n_climbs == 2 * maxima._PAIRS
    assert maxima.is_same(end.expansion, ridge_mode(own, Progress())[0], Region.whole(own.dim))


def test_rounding_errors_are_no_maximum() -> None:
    """At a precision of e^40 and more, the log likelihood is a difference of numbers of which no digit remains."""
    rng = np.random.default_rng(1)
    counts = {"k": rng.binomial(40, rng.beta(8, 8, N))}  # with a finite precision
    likelihood = Analysis.of(parse(CODE.replace("TERM", COUNTS))).likelihood_split("N")
    own = sparse_predictors(likelihood, data() | counts, N)
    start, far = np.zeros(own.dim), np.zeros((12, own.dim))
    far[:, 2] = np.linspace(0.9, 2, len(far))  # f
    assert max(map(own.log_lik, far)) > 0  # though it is the log of a probability
    whole, starts = Region.whole(own.dim), [(one, 1) for one in (start, *far)]
    (end,) = maxima._climbed(own, starts, whole, Progress())
    assert end.n_climbs == 1
    assert end.expansion.value < 0
    assert maxima._is_sure(own, end.expansion)
    assert not any(maxima._is_sure(own, own.expansion(one)) for one in far)


@pytest.mark.parametrize(("n_groups", "sizes"), [(8, [256, 1024]), (200, [4000]), (600, [])])
def test_subsets_keep_enough_observations_of_each_group(n_groups: int, sizes: list[int]) -> None:
    """Of 16,000 observations; with 600 groups of 27 each, a quarter of them would leave seven."""
    n = 16_000
    numbers = sp.csr_array((np.ones(n), np.arange(n) % n_groups, np.arange(n + 1)), shape=(n, n_groups))
    row = SparseRows.of(np.empty((1, 0)), np.empty(0, np.int64), numbers, np.zeros(1))
    own = SparsePredictors((row,), Poisson(np.ones(n), np.ones(n)))
    found = maxima._subsets(own, np.random.default_rng(1))
    assert [one.n_observations for one in found if one.n_observations < n] == sizes


@pytest.mark.parametrize("seed", range(2))
def test_the_best_of_many_maxima_is_found(seed: int) -> None:
    """A frequency has a maximum for each period that the observations span; a climb from 0 ends far below the best."""
    own = split(WAVE)
    found, _ = searched(own, seed)
    assert abs(found[0].expansion.point[3]) == pytest.approx(FREQUENCY, abs=0.01)
    assert found[0].n_climbs >= ENOUGH_CLIMBS
    assert ridge_mode(own.predictors, Progress())[0].value < found[0].expansion.value - 100


def tuned(centre: float, width: float = 0.1) -> TunedSurrogate:
    draws = centre + width * np.random.default_rng(3).standard_normal((50, 2))
    nowhere: Any = None
    return TunedSurrogate(SurrogateTransition(nowhere, Gibbs(nowhere), np.ones(1)), draws, 0.1, 0.0, 1)


@pytest.mark.parametrize("value", [0.0, -30.0])
@pytest.mark.parametrize("on_posterior", [False, True])
def test_the_share_of_a_mode_does_not_depend_on_the_point_of_the_expansion(value: float, on_posterior: bool) -> None:
    """The surrogate's program omits the log likelihood there; what the surrogate omits does not."""
    known, place, widths = 7.0, np.array([1.0, -2.0]), np.array([0.5, 2.0])

    def normal(constant: float) -> Any:
        def density(theta: Array) -> tuple[float, Array]:
            z = (theta - place) / widths
            return constant - 0.5 * float(z @ z), -z / widths

        def hamiltonian(centre: Array, metric: Metric, coordinates: Coordinates, *, power: float) -> Any:
            return sampler(density, metric, coordinates, centre, power)

        return SimpleNamespace(hamiltonian=hamiltonian, phi=lambda theta: theta)

    own: Any = SimpleNamespace(
        surrogate=lambda _: normal(0.0),
        posterior=lambda: normal(known),
        predictors=SimpleNamespace(log_lik=lambda _: known),
    )
    approximation: Any = type("A", (), {"quadratic": SimpleNamespace(value=value), "__call__": lambda _, __: value})()
    inner = NoUTurn(Coordinates.plain(2), place, independent(widths), 0.3)
    made = SurrogateTransition(approximation, inner, np.ones(1), on_posterior=inner if on_posterior else None)
    one = TunedSurrogate(made, place + widths * np.random.default_rng(1).standard_normal((50, 2)), 0.1, 0.0, 1)
    (found,) = mode_shares.evidence(own, [one], np.random.default_rng(1), Progress())
    assert found.log == pytest.approx(known + np.log(2 * np.pi * widths.prod()))


def test_trajectories_take_the_place_of_other_samplers_on_the_path() -> None:
    nowhere: Any = None
    approximation, surrogate = SimpleNamespace(precision=3), SimpleNamespace()
    made = SurrogateTransition(approximation, Gibbs(nowhere), np.ones(1))  # type: ignore[arg-type]
    tuner: Any = SimpleNamespace(about=lambda *given: given)
    one = replace(tuned(0), transition=made, tuner=tuner)
    of, precision, draws = one.hamiltonian(surrogate)  # type: ignore[arg-type, misc]
    assert (of, precision) == (surrogate, 3)
    assert draws is one.draws


def modes(weights: dict[float, float], monkeypatch: pytest.MonkeyPatch, width: float = 0.1) -> TunedSurrogate:
    """The surrogates that are kept, of those with these log shares of the posterior."""
    nowhere: Any = None
    by_evidence(weights, monkeypatch)
    return mode_shares.by_share(nowhere, [tuned(centre, width) for centre in weights], nowhere, Progress())


def by_evidence(weights: dict[float, float], monkeypatch: pytest.MonkeyPatch, error: float = 0.0) -> None:
    def evidence(_: Any, found: list[TunedSurrogate], *__: Any) -> list[Evidence]:
        return [Evidence(weights[round(float(one.draws.mean()))], error) for one in found]

    monkeypatch.setattr(mode_shares, "evidence", evidence)


def centres(found: TunedSurrogate) -> list[float]:
    return [round(float(one.draws.mean())) for one in (found, *found.others)]


def test_modes_with_a_share_of_the_posterior_count_the_largest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = modes({0: -3.0, 5: 0.0, 9: -20.0, 14: -30.0}, monkeypatch)
    assert centres(found) == [5, 0]
    assert found.behind == found.choice().behind == 20.0


@pytest.mark.parametrize(("error", "kept"), [(0.1, [5]), (4.0, [5, 0])])
def test_a_mode_counts_if_errors_may_hide_its_share(
    error: float, kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere: Any = None
    by_evidence({0: -15.0, 5: 0.0}, monkeypatch, error)
    assert centres(mode_shares.by_share(nowhere, [tuned(0), tuned(5)], nowhere, Progress())) == kept


def test_draws_that_overlap_are_of_one_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    found = modes({0: -3.0, 5: 0.0, 9: -20.0}, monkeypatch, width=4.0)
    assert centres(found) == [5]
    assert found.behind is None


@pytest.mark.parametrize(("noises", "centre"), [((np.inf, 0.5), 5), ((400.0, 0.5), 5), ((40.0, 500.0), 0)])
def test_a_surrogate_whose_draws_went_astray_does_not_count(
    noises: tuple[float, float], centre: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its estimated share of the posterior is of no use."""
    own, made = split(LABELS), iter(replace(tuned(5 * k), noise=noise) for k, noise in enumerate(noises))
    monkeypatch.setattr(surrogate, "tune", lambda *_, **__: next(made))
    monkeypatch.setattr(mode_shares, "evidence", lambda _, found, *__: [Evidence(one.noise, 0.0) for one in found])
    found = maxima.tune(own, own.predictors.dim, *map(np.random.default_rng, (1, 2)), Progress())
    assert found.draws.mean() == pytest.approx(centre, abs=0.1)
    assert not found.others


def test_the_best_surrogate_is_taken_and_chains_start_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end without a surrogate is left out; an interrupt is not."""
    own, made = split(LABELS), iter((tuned(0), tuned(5)))
    monkeypatch.setattr(surrogate, "tune", lambda *_, **__: next(made))
    by_evidence({0: 0.0, 5: 1.0}, monkeypatch)
    rngs = [np.random.default_rng(seed) for seed in (1, 2)]
    found = maxima.tune(own, own.predictors.dim, *rngs, Progress())
    assert found.draws.mean() == pytest.approx(5, abs=0.1)
    assert found.n_starts == 2 * maxima._PAIRS > found.n_reached > 8
    assert found.choice().n_modes == 2
    assert [round(float(start.mean())) for start in found.starts(4)] == [5, 0, 5, 0]

    def failing(error: Exception) -> TunedSurrogate:
        left = iter((tuned(0), error))

        def tune(*_: Any, **__: Any) -> TunedSurrogate:
            one = next(left)
            if isinstance(one, Exception):
                raise one
            return one

        monkeypatch.setattr(surrogate, "tune", tune)
        return maxima.tune(own, own.predictors.dim, *rngs, Progress())

    assert not failing(RunError("undefined")).others
    with pytest.raises(TimeLimitError):
        failing(TimeLimitError("`max_time` was reached"))
