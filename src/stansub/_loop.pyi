"""Decisions of Metropolis-Hastings steps from blocks of data: the C++ loop.

A population of M blocks has log likelihoods l_b(theta); beside them stands a global log density (priors, Jacobians).
Parameters are unconstrained throughout. Addresses are plain integers, as `ctypes` gives them.
"""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import CapsuleType

class Evaluator:
    """A model as the loop sees it. An evaluator may hold scratch memory: one per chain."""

    @property
    def dim(self) -> int:
        """Number of unconstrained parameters."""

    @property
    def n_blocks(self) -> int:
        """Number of blocks, M."""

    def global_log_density(self, theta: NDArray[np.float64]) -> float:
        """Log density less the likelihood; -inf where it is not defined."""

    def block_log_lik(self, theta: NDArray[np.float64], which: NDArray[np.int32] | None = None) -> NDArray[np.float64]:
        """Log likelihoods of the given blocks (all by default); -inf where they are not defined.

        Raises
        ------
        IndexError
            When there is no such block.
        """

class CallbackEvaluator(Evaluator):
    """A model given by two C functions, which return 0 or, where the log density is not defined, something else::

        int global(void *self, const double *theta, double *value);
        int blocks(void *self, const double *theta, double global_value, const int32_t *which, int32_t n, double *out);

    The caller keeps the functions alive.
    """

    def __init__(
        self, dim: int, n_blocks: int, self_address: int, global_address: int, blocks_address: int
    ) -> None: ...

class InstanceEvaluator(Evaluator):
    """One BridgeStan model per block, whose log density is the global part plus the block's log likelihood.

    Parameters
    ----------
    dim : int
    block_models : ndarray of uint64, shape (M,)
        Addresses of the blocks' models.
    global_models : ndarray of uint64, shape (1,) or (3,)
        A model without observations, or the models of row 1, row 2, and both: the global part is then
        lp(row 1) + lp(row 2) - lp(rows 1 and 2).
    log_density_address, free_error_address : int
        Addresses of ``bs_log_density`` and ``bs_free_error_msg``.
    owner : object, optional
        Kept alive as long as the evaluator: whoever owns the models.
    """

    def __init__(
        self,
        dim: int,
        block_models: NDArray[np.uint64],
        global_models: NDArray[np.uint64],
        log_density_address: int,
        free_error_address: int,
        owner: object = None,
    ) -> None: ...

class LibraryEvaluator(Evaluator):
    """One library whose likelihood runs over the slices of the observations that ``stansub_set_blocks`` names.

    Parameters
    ----------
    dim : int
    model, rng : int
        Addresses of a BridgeStan model and random number generator.
    n_out : int
        Number of values that ``bs_param_constrain`` with generated quantities writes.
    starts, ends : ndarray of int32, shape (M,)
        First and last observation of each block, counted from 1.
    param_constrain_address, log_density_address, free_error_address, set_blocks_address : int
        Addresses of ``bs_param_constrain``, ``bs_log_density``, ``bs_free_error_msg`` and ``stansub_set_blocks``.
    owner : object, optional
        Kept alive as long as the evaluator: whoever owns model and generator.
    """

    def __init__(
        self,
        dim: int,
        model: int,
        rng: int,
        n_out: int,
        starts: NDArray[np.int32],
        ends: NDArray[np.int32],
        param_constrain_address: int,
        log_density_address: int,
        free_error_address: int,
        set_blocks_address: int,
        owner: object = None,
    ) -> None: ...

class Decision:
    """What a decision came to, and what it took."""

    @property
    def accepted(self) -> bool:
        """Whether the proposal became the state."""

    @property
    def log_ratio(self) -> float:
        """Log acceptance ratio as estimated when the decision fell; not finite if a log density was not."""

    @property
    def n_obs_used(self) -> int:
        """Observations in the blocks drawn."""

    @property
    def n_looks(self) -> int:
        """Looks taken."""

    @property
    def undecided(self) -> bool:
        """Whether the decision ran to all blocks although an earlier look could have settled it."""

    @property
    def audited(self) -> bool:
        """Whether the decision was taken again on all blocks."""

    @property
    def wrong(self) -> bool:
        """Whether the audit decided otherwise."""

    @property
    def bound_violated(self) -> bool:
        """Whether drawn differences lay further apart than the promised range."""

class Decider:
    """The accept/reject decisions of one chain, and its current state.

    Look k has n[k] blocks, drawn without replacement, and decides when the distance between the mean of their
    differences d_b = l_b(theta_new) - l_b(theta) and the threshold exceeds scale[k] * s + offset[k] * R, where s is
    the sd of the drawn differences (divisor n - 1) and R the range of all. The last look has all blocks and decides.
    While all drawn differences are equal, a look that knows R by them or not at all (offset 0) does not decide.

    Parameters
    ----------
    evaluator : Evaluator
        Used by this chain alone.
    block_sizes : ndarray of int32, shape (M,)
        Observations in each block.
    n : ndarray of int32, shape (K,)
        Blocks at each look, increasing; the last is M.
    scale, offset : ndarray of float64, shape (K,)
    range_kind : {"none", "lipschitz", "callback", "scan", "estimate"}
        Where R comes from: not needed; 2 * range_constant * ||theta_new - theta||; range_constant times what
        ``int range_function(void *range_self, const double *theta, const double *theta_new, double *out)`` writes
        (no decision before the last look if it does not return 0); an evaluation of all blocks; the range of
        the differences drawn so far.

    Raises
    ------
    ValueError
        When the arrays do not fit each other or the boundary needs a range and has none.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        block_sizes: NDArray[np.int32],
        n: NDArray[np.int32],
        scale: NDArray[np.float64],
        offset: NDArray[np.float64],
        *,
        range_kind: str = "none",
        range_constant: float = 0.0,
        range_self: int = 0,
        range_function: int = 0,
    ) -> None: ...
    def reset(self, theta: NDArray[np.float64]) -> None:
        """Move to ``theta``, shape (dim,); only the global part is evaluated."""

    @property
    def theta(self) -> NDArray[np.float64]:
        """A copy of the current state, shape (dim,)."""

    @property
    def global_log_density(self) -> float:
        """Global part of the log density at the current state."""

    def log_density(self) -> float:
        """Log density at the current state, from all blocks; those already known are not evaluated again."""

    def decide(
        self,
        theta_new: NDArray[np.float64],
        log_u: float,
        log_q_ratio: float,
        bitgen: CapsuleType,
        audit: bool = False,
    ) -> Decision:
        """Accept or reject a proposal; an accepted one becomes the state.

        Parameters
        ----------
        theta_new : ndarray, shape (dim,)
        log_u : float
            Logarithm of a uniform number, ``np.log1p(-rng.random())``.
        log_q_ratio : float
            log q(theta | theta_new) - log q(theta_new | theta).
        bitgen : capsule
            ``rng.bit_generator.capsule``; blocks are drawn from it, if not all are needed.
        audit : bool
            Take the decision again on all blocks and compare; nothing else changes.
        """

    def stretch(
        self,
        n_steps: int,
        cholesky: NDArray[np.float64],
        bitgen: CapsuleType,
        audit_bitgen: CapsuleType,
        audit_probability: float,
        theta: NDArray[np.float64],
        accepted: NDArray[np.uint8],
        n_obs_used: NDArray[np.int64],
        n_looks: NDArray[np.int32],
        undecided: NDArray[np.uint8],
        log_ratio: NDArray[np.float64],
        audited: NDArray[np.uint8],
        wrong: NDArray[np.uint8],
        bound_violated: NDArray[np.uint8],
        stop: NDArray[np.int32],
        progress: NDArray[np.int64],
    ) -> int:
        """Run random-walk Metropolis steps, the global interpreter lock released, and return how many were done.

        The same as, for each step, ``z = rng.standard_normal(dim)``, ``theta_new = theta + cholesky @ z``,
        ``log_u = np.log1p(-rng.random())`` and `decide`.

        Parameters
        ----------
        n_steps : int
        cholesky : ndarray, shape (dim, dim)
            Lower triangular; its product with its transpose is the covariance of a step.
        bitgen, audit_bitgen : capsule
            The chain's generator, and the one that says which steps are audited.
        audit_probability : float
            Share of steps that are audited.
        theta, ..., bound_violated : ndarray, at least n_steps rows
            Written, a row per step: the state after the step, shape (n_steps, dim), and the fields of `Decision`.
        stop : ndarray of int32, shape (1,)
            No further step is begun once it is not 0; may be set from another thread.
        progress : ndarray of int64, shape (4,)
            Increased with every step: steps, accepted, observations used, observations evaluated.
        """

    @property
    def n_decisions(self) -> int:
        """Decisions taken."""

    @property
    def n_accepted(self) -> int:
        """Proposals accepted."""

    @property
    def n_obs_used(self) -> int:
        """Observations in the blocks drawn, over all decisions."""

    @property
    def n_evaluated(self) -> int:
        """Observations whose log likelihood was evaluated for decisions, at either state."""

    @property
    def n_evaluated_extra(self) -> int:
        """Observations evaluated for audits and full log densities."""

    @property
    def n_nonfinite(self) -> int:
        """Decisions that met NaN (or a log density of +inf) and so rejected."""

    @property
    def n_bound_violated(self) -> int:
        """Decisions that saw differences further apart than the promised range."""
