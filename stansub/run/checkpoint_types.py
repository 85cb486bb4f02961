"""The closed list of types that a checkpoint may contain; reading creates no other."""

from __future__ import annotations

from dataclasses import is_dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub import decision_selection, selection, variates_selection
from stansub._loop import DeciderState
from stansub.acceptance import bounds, decreasing_level, looks, noise, stopping, student
from stansub.acceptance.normality import Trial
from stansub.codec import Codec, Special
from stansub.kernels import (
    between_modes,
    jumps,
    polya_gamma,
    proposals,
    recipes,
    sgld,
    stiefel,
    surrogate,
    trajectories,
    within_gibbs,
)
from stansub.kernels.base import State
from stansub.run import state
from stansub.run.moments import Moments
from stansub.target import (
    approximation,
    cholesky,
    coordinates,
    directions,
    elimination,
    group_candidates,
    groupings,
    laplace,
    metric,
    normal_effects,
    observations,
    prior_means,
    remainders,
    simplexes,
    sparse,
    symmetries,
    taylor,
)
from stansub.tuning import adapt, mode_setup
from stansub.tuning.modes import mode

_RUN = (
    state.Options,
    state.Facts,
    state.AdaptationState,
    state.ChainState,
    state.PhaseCounts,
    state.Plan,
    State,
    decreasing_level.DecreasingLevel,
    Trial,
)
_PROPOSALS = (
    proposals.RandomWalk,
    proposals.Affine,
    proposals.Mixture,
    proposals.Checked,
    adapt.FirstWalk,
    between_modes.LaplaceMixture,
    between_modes.NearestWalk,
    jumps.Moves,
    sgld.Sgld,
    stiefel.StiefelWalk,
    trajectories.Trajectory,
)
_ADAPTERS = (
    proposals.NoAdapter,
    proposals.CheckedAdapter,
    adapt.ScaleAdapter,
    adapt.CovarianceAdapter,
    adapt.SgldAdapter,
    adapt.SomeAdapter,
    adapt.PartAdapters,
    jumps.MovesAdapter,
    stiefel.ScaleLearner,
)
_RECIPES = (
    recipes.Metropolis,
    recipes.OnParameters,
    recipes.Sequence,
    recipes.Mixture,
    polya_gamma.PolyaGamma,
    surrogate.SurrogateTransition,
    surrogate.PosteriorTransition,
    surrogate.NoUTurn,
    surrogate.FixedLength,
    surrogate.RandomLength,
    surrogate.Gibbs,
    surrogate.GivenScales,
    within_gibbs.MetropolisWithinGibbs,
    symmetries.Symmetry,
)
_RULES = (
    stopping.Exact,
    stopping.Factorised,
    stopping.Poisson,
    stopping.GivenRule,
    student.Austerity,
    student.Pocock,
    bounds.Hoeffding,
    bounds.Bernstein,
    bounds.BernsteinSerfling,
    noise.Barker,
    noise.Penalty,
    looks.Geometric,
    looks.Fixed,
)
_ABOUT_THE_MODE = (
    mode_setup.ModeSetup,
    mode.Modes,
    mode.Start,
    laplace.Mode,
    taylor.ControlVariates,
    taylor.Expansion,
    observations.ObservationVariates,
    remainders.RemainderBounds,
    simplexes.Simplexes,
    sparse.Quadratic,
    approximation.Profiles,
    directions.Frame,
    directions.DirectionalTerms,
    elimination.Elimination,
    groupings.Means,
    approximation.Approximation,
    prior_means.PriorMeans,
    coordinates.Combination,
    coordinates.Coordinates,
    normal_effects.NormalEffects,
    cholesky.Factor,
    metric.Metric,
    group_candidates.Joint,
    Moments,
)
_CHOICES = tuple(
    one
    for module in (selection, variates_selection, decision_selection)
    for one in vars(module).values()
    if isinstance(one, type) and one.__module__ == module.__name__ and (is_dataclass(one) or issubclass(one, Enum))
)

_Places = NDArray[np.int32]
_Numbers = NDArray[np.float64]
_Counters = tuple[int, int, int, int, int, int, int, int, int, float, float, int, float, int, float, int, float]


def _decider_state(parts: tuple[Any, ...]) -> DeciderState:
    made = DeciderState.__new__(DeciderState)
    made.__setstate__(parts)  # type: ignore[attr-defined]
    return made


CODEC = Codec(
    (*_RUN, *_PROPOSALS, *_ADAPTERS, *_RECIPES, *_RULES, *_ABOUT_THE_MODE, *_CHOICES),
    {
        DeciderState: Special(
            tuple[_Numbers, float, _Places, _Numbers, _Places, _Places, _Places, _Numbers, _Counters],
            DeciderState.__getstate__,
            _decider_state,
        ),
        state.Totals: Special(dict[str, float], dict, state.Totals),
    },
)
