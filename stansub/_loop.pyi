"""Decisions of Metropolis-Hastings steps from blocks of data: the C++ loop.

A population of M blocks has log likelihoods l_b(theta); beside them stands a global log density (priors, Jacobians).
Parameters are unconstrained throughout. Addresses are plain integers, as `ctypes` gives them.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import CapsuleType

def read_json_numbers(
    text: bytes, threads: int = 1, piece: int = 2**20
) -> dict[str, NDArray[np.int64] | NDArray[np.float64]] | None:
    """Variables of a JSON object of numbers and nested arrays of numbers, without a Python object for each number.

    The arrays are those that numpy makes of what a JSON reader returns, to the last bit: integers where all of a
    variable's numbers are written as such. None where there is anything else in the text: strings, null, NaN, ragged
    arrays, numbers out of range, or what is not JSON.

    Parameters
    ----------
    text : bytes
    threads : int
        How many read an array whose text is long enough. Arrays without elements that are then met in pieces are left
        to others, too; nothing else depends on it.
    piece : int
        Characters that are worth a thread.
    """

class MappedFile:
    """A file mapped into memory, which may be cut short while it is read.

    Within a ``with`` block, pages that the file no longer has read as zeros: ask `is_lost` at its end. Elsewhere,
    reading such a page ends the process with one line on standard error.

    Parameters
    ----------
    path : str

    Raises
    ------
    OSError
        When it cannot be mapped, as a file of no bytes.
    """

    def __init__(self, path: str) -> None: ...
    @property
    def bytes(self) -> NDArray[np.uint8]:
        """What the file holds, of which nothing is copied; read-only."""

    @property
    def is_lost(self) -> bool:
        """Whether a page was read that the file no longer has."""

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...

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

    def global_gradient(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Gradient of the global log density, shape (dim,).

        Raises
        ------
        ValueError
            When it is not defined at ``theta``.
        RuntimeError
            When the evaluator was made without a function for gradients; so do the methods below.
        """

    def block_gradients(
        self, theta: NDArray[np.float64], which: NDArray[np.int32] | None = None
    ) -> NDArray[np.float64]:
        """Gradients of the log likelihoods of the given blocks (all by default), shape (len(which), dim).

        Raises
        ------
        ValueError
            When a gradient is not defined at ``theta``; the message names the block.
        IndexError
            When there is no such block.
        """

    def block_taylor(
        self,
        theta: NDArray[np.float64],
        which: NDArray[np.int32],
        order: int,
        out: NDArray[np.float32],
        steps: NDArray[np.float64] | None = None,
    ) -> None:
        """Write what `Decider` takes as ``coefficients``: a row a block, its derivatives at ``theta``.

        Parameters
        ----------
        theta : ndarray, shape (dim,)
        which : ndarray of int32, shape (n,)
        order : {1, 2}
        out : ndarray of float32, shape (n, dim) or (n, dim + dim * (dim + 1) / 2)
            Gradient g and, in the second order, the lower triangle of the Hessian, row by row: H[0, 0], H[1, 0],
            H[1, 1], H[2, 0], ...
        steps : ndarray, shape (dim,), optional
            The Hessian is the central difference of gradients over theta[i] +- steps[i], made symmetric. The default
            balances truncation and rounding: the cube root of the machine epsilon times max(1, abs(theta[i])).

        Raises
        ------
        ValueError
            When a gradient is not defined at ``theta`` or a step away; the message names the block. Rows of the blocks
            before it are written.
        IndexError
            When there is no such block.
        """

    def subset_log_density_gradient(
        self, theta: NDArray[np.float64], which: NDArray[np.int32] | None = None
    ) -> tuple[float, NDArray[np.float64]]:
        """Value and gradient, shape (dim,), of the global part plus the given blocks (all by default) in one call.

        Where they are not defined the value is -inf and the gradient NaN, as an optimiser takes them.

        Raises
        ------
        IndexError
            When there is no such block.
        """

class CallbackEvaluator(Evaluator):
    """A model given by C functions, which return 0 or, where the log density is not defined, something else::

        int global(void *self, const double *theta, double *value);
        int blocks(void *self, const double *theta, double global_value, const int32_t *which, int32_t n, double *out);
        int gradient(void *self, const double *theta, const int32_t *which, int32_t n, double *value, double *out);

    The last one is optional: value and gradient of the global part plus n blocks. The caller keeps the functions alive.
    """

    def __init__(
        self,
        dim: int,
        n_blocks: int,
        self_address: int,
        global_address: int,
        blocks_address: int,
        gradient_address: int = 0,
    ) -> None: ...

class FunctionEvaluator(Evaluator):
    """A model made of Python functions, which return None where something is not defined; what they raise passes on.

    Parameters
    ----------
    dim, n_blocks : int
    global_log_density : callable
        Of theta.
    block_log_lik : callable
        Of theta and which, an array of int32: ndarray of float64, shape (len(which),).
    gradient : callable, optional
        Of theta and which: global part plus log likelihoods of these blocks, and the gradient, shape (dim,).
    """

    def __init__(
        self,
        dim: int,
        n_blocks: int,
        global_log_density: Callable[[NDArray[np.float64]], float | None],
        block_log_lik: Callable[[NDArray[np.float64], NDArray[np.int32]], NDArray[np.float64] | None],
        gradient: Callable[[NDArray[np.float64], NDArray[np.int32]], tuple[float, NDArray[np.float64]] | None]
        | None = None,
    ) -> None: ...

class InstanceEvaluator(Evaluator):
    """One BridgeStan model per block, whose log density is the block's log likelihood, or the global part plus that.

    Parameters
    ----------
    dim : int
    n_blocks : int
        M.
    block_model : callable
        From a block to the address of its model, and whether that stays; otherwise it does until the next one is asked
        for. Called when a block is first evaluated, and again where its model does not stay.
    global_models : ndarray of uint64, shape (1,) or (3,)
        A model without observations, or the models of row 1, row 2, and both: the global part is then
        lp(row 1) + lp(row 2) - lp(rows 1 and 2).
    log_density_address, free_error_address : int
        Addresses of ``bs_log_density`` and ``bs_free_error_msg``.
    owner : object, optional
        Kept alive as long as the evaluator: whoever owns the models.
    log_density_gradient_address : int
        Address of ``bs_log_density_gradient``; gradients need it.
    alone : bool
        Whether the log density of a block's model, without Jacobian, is the block's log likelihood alone.
    """

    def __init__(
        self,
        dim: int,
        n_blocks: int,
        block_model: Callable[[int], tuple[int, bool]],
        global_models: NDArray[np.uint64],
        log_density_address: int,
        free_error_address: int,
        owner: object = None,
        *,
        log_density_gradient_address: int = 0,
        alone: bool = False,
    ) -> None: ...

class Proposal:
    """Proposal of a Metropolis-Hastings step, as a function of the position and of standard normal numbers."""

    @property
    def dim(self) -> int:
        """Number of parameters."""

class Affine(Proposal):
    """Gaussian proposal with a mean that is affine in the state.

    theta_new = A theta + c + L z with z standard normal, and log q(theta | theta_new) - log q(theta_new | theta) =
    (|z|^2 - |L^-1 (theta - A theta_new - c)|^2) / 2, which is 0 where A is the identity and c is 0.

    Parameters
    ----------
    matrix, cholesky : ndarray, shape (dim, dim)
        A and L; L is lower triangular and, unless the proposal is symmetric, invertible.
    offset : ndarray, shape (dim,)
        c.

    Raises
    ------
    ValueError
        When the arrays do not fit each other or this description.
    """

    def __init__(
        self, matrix: NDArray[np.float64], offset: NDArray[np.float64], cholesky: NDArray[np.float64]
    ) -> None: ...

class Trajectory(Proposal):
    """Hamiltonian trajectory on the log density -|w|^2 / 2 + C(w), theta = m + L w, where C is a cubic form.

    Parameters
    ----------
    centre : ndarray, shape (dim,)
        m.
    cholesky : ndarray, shape (dim, dim)
        L, lower triangular and invertible.
    cubic : ndarray, shape (dim (dim + 1) (dim + 2) / 6,)
        Coefficients of w_j w_k w_l in C, for j, then k <= j, then l <= k.
    angle : float
        By which the trajectory turns where C is 0.
    n_steps : int
        Steps, each with one gradient of C.

    Raises
    ------
    ValueError
        When the arrays do not fit each other or this description.
    """

    def __init__(
        self,
        centre: NDArray[np.float64],
        cholesky: NDArray[np.float64],
        cubic: NDArray[np.float64],
        angle: float,
        n_steps: int,
    ) -> None: ...

class Proposals:
    """Proposals, one of which is chosen at each step.

    Parameters
    ----------
    proposals : sequence of Proposal
    weights : sequence of float
        Probabilities.

    Raises
    ------
    ValueError
        If there is none, weights are not their probabilities, or they differ in the number of parameters.
    """

    def __init__(self, proposals: Sequence[Proposal], weights: Sequence[float]) -> None: ...
    @property
    def dim(self) -> int:
        """Number of parameters."""

    def draw(self, bitgen: CapsuleType, theta: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """theta_new, shape (dim,), and the log ratio.

        The same as, with several proposals, ``rng.random()`` for the choice (the first whose cumulative weight
        exceeds it), then ``rng.standard_normal(dim)``.
        """

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
        """Whether the decision was taken again on all blocks; not where noise was part of it (see `audit_z`)."""

    @property
    def wrong(self) -> bool:
        """Whether the audit decided otherwise."""

    @property
    def bound_violated(self) -> bool:
        """Whether drawn differences lay further apart than the promised range."""

    @property
    def standard_error(self) -> float:
        """Standard error of the log ratio where its noise was part of the decision, else 0."""

    @property
    def audit_z(self) -> float:
        """Standardised error of such a log ratio by all blocks, as a standard normal deviate; NaN if not audited.

        The error over its standard error is Student's t with one degree of freedom less than blocks, and is mapped to
        the normal deviate of the same tail probability (Wallace 1959).
        """

class Surrogate:
    """Taylor expansions of the blocks' log likelihoods about an anchor, or several of which a point takes the nearest.

    With e = theta - anchor the expansion is v_b + c_b.w, c_b being row b of the anchor's coefficients and w the
    features e_i and, in the second order, e_i e_j for i >= j, halved where i = j. From theta to theta_new block b
    changes by the difference of its expansions at both, each about its own anchor; v_b cancels where that is the same.

    Parameters
    ----------
    anchors : sequence of ndarray, shape (dim,)
    coefficients : tuple of ndarray of float32, shape (M, dim) or (M, dim + dim * (dim + 1) / 2)
        An array an anchor, as `Evaluator.block_taylor` writes it. Kept, not copied, and not to be changed.
    values : tuple of ndarray, shape (M,), optional
        v, the blocks' log likelihoods at each anchor, where there are several. Kept, not copied.
    precisions : sequence of ndarray, shape (dim, dim), optional
        Matrices P of each anchor, where there are several: the nearest anchor is that with the smallest e' P e.

    Raises
    ------
    ValueError
        When the arrays do not fit each other, or a number is not finite.
    """

    def __init__(
        self,
        anchors: Sequence[NDArray[np.float64]],
        coefficients: tuple[NDArray[np.float32], ...],
        values: tuple[NDArray[np.float64], ...] = (),
        precisions: Sequence[NDArray[np.float64]] = (),
    ) -> None: ...
    @property
    def order(self) -> int:
        """Of the expansions: 1 or 2."""

    def changes(self, theta: NDArray[np.float64], theta_new: NDArray[np.float64]) -> NDArray[np.float64]:
        """Changes of all blocks' expansions from one point, shape (dim,), to another; shape (M,)."""

class Table:
    """The looks of a stopping rule.

    Look k has n[k] units and decides when the distance between mean and threshold exceeds scale[k] * s + offset[k] * R
    (see `Decider`); the last look has all units and decides in any case.

    Parameters
    ----------
    n : ndarray of int32, shape (K,)
        Units at each look, increasing.
    scale, offset : ndarray of float64, shape (K,)

    Raises
    ------
    ValueError
        When the arrays do not fit each other.
    """

    def __init__(self, n: NDArray[np.int32], scale: NDArray[np.float64], offset: NDArray[np.float64]) -> None: ...

class Subset:
    """Some of the blocks, and when a decision among them is clear.

    Parameters
    ----------
    which : ndarray of int32, shape (n,)
        The blocks, none of them twice.
    table : Table or None
        Its last look is at n units. None for an empty subset, which has no looks.

    Raises
    ------
    ValueError
        When the table is not one for so many blocks.
    """

    def __init__(self, which: NDArray[np.int32], table: Table | None) -> None: ...
    @property
    def which(self) -> NDArray[np.int32]:
        """A copy of the blocks."""

class Range:
    """Where the range R comes from, largest less smallest of the blocks' log likelihood differences or remainders."""

class LipschitzRange(Range):
    """2 * constant * ||theta_new - theta||."""

    def __init__(self, constant: float) -> None: ...

class FunctionRange(Range):
    """``factor`` times what a C function writes; infinite, so that no look but the last decides, where it fails.

    The function is ``int (*)(void *self, const double *theta, const double *theta_new, double *out)`` and returns 0.
    The range keeps its owner alive.
    """

    def __init__(self, address: int, self_address: int = 0, factor: float = 1.0, owner: object = None) -> None: ...

class DerivativeRange(Range):
    """Twice the largest remainder of blocks whose derivative of order p + 1 is at most ``constant`` in operator norm.

    p being the order of the control variates, a remainder is at most
    constant / (p + 1)! * (||e_new||^(p + 1) + ||e||^(p + 1)) + 2^-22 max ||c_b|| ||w||, e being the distance from the
    anchor and the last term for rounding.
    """

    def __init__(self, constant: float) -> None: ...

class RemainderRange(Range):
    """Twice the largest of the blocks' bounds on remainders; infinite beyond the last radius."""

    def __init__(self, bounds: RemainderBounds) -> None: ...

class ScannedRange(Range):
    """The range itself, from an evaluation of all blocks."""

    def __init__(self) -> None: ...

class EstimatedRange(Range):
    """The range of the blocks drawn so far."""

    def __init__(self) -> None: ...

class NoiseRule:
    """How the noise of an estimated log ratio x settles a decision.

    A decision falls at the first look at which the standard error of x, s = M sd / sqrt(n) sqrt(1 - (n - 1) / (M - 1)),
    is positive and at most ``limit``, or ``limit`` n / 20 after less than 20 blocks. Where more than ``share`` of the
    blocks would be needed, by the s of a look, the looks decide from that one on.
    """

class PenaltyRule(NoiseRule):
    """Accepts when x - s^2/2 - s^4 / (4 (n + 1)) - s^6 / (3 (n + 1) (n + 3)) > log u (Ceperley and Dewing 1999)."""

    def __init__(self, limit: float, share: float) -> None: ...

class BarkerRule(NoiseRule):
    """Accepts when x + sqrt(limit^2 - s^2) z > points[j] (Seita et al. 2017).

    j is the number of ``bounds`` that do not exceed logit u, and z a standard normal number drawn after the blocks. The
    looks have logit u in place of log u.

    Parameters
    ----------
    limit, share : float
    points, bounds : ndarray, shape (k,) and (k - 1,)
        The correction distribution.
    """

    def __init__(
        self, limit: float, share: float, points: NDArray[np.float64], bounds: NDArray[np.float64]
    ) -> None: ...

class RemainderBounds:
    """Bounds c_b |w|^(p + 1) on how far expansions of order p are off, with w = A (theta - anchor).

    Parameters
    ----------
    anchor : ndarray, shape (dim,)
    whitening : ndarray, shape (dim, dim)
        A.
    order : {1, 2}
        p.
    radii : ndarray, shape (k,)
        Increasing; the constants of a row hold wherever |w| is no more than its radius.
    constants : ndarray, shape (k, M)
        c_b of each block.
    share : float
        Where more candidates than this share of the blocks are expected, all of them are evaluated.
    proved : bool
        Whether they hold for certain; elsewhere a larger remainder is counted and taken for its bound.

    Raises
    ------
    ValueError
        When shapes do not fit, radii do not increase, or constants are negative or not finite.
    """

    def __init__(
        self,
        anchor: NDArray[np.float64],
        whitening: NDArray[np.float64],
        order: int,
        radii: NDArray[np.float64],
        constants: NDArray[np.float64],
        share: float,
        proved: bool = True,
    ) -> None: ...

class Writer:
    """Writes a program's values of many draws; for one thread.

    Parameters
    ----------
    model, rng : int
        Addresses of a ``bs_model`` and a ``bs_rng`` (0 where nothing needs one).
    param_constrain_address, free_error_address : int
        Of BridgeStan's functions of these names.
    include_tp, include_gq : bool
        Whether transformed parameters and generated quantities are among the values.
    n_written : int
        Values that the program writes.
    columns : ndarray of int64, shape (k,)
        Places of those that are kept.

    Raises
    ------
    ValueError
        When an address is null or there is no such column.
    """

    def __init__(
        self,
        model: int,
        rng: int,
        param_constrain_address: int,
        free_error_address: int,
        *,
        include_tp: bool,
        include_gq: bool,
        n_written: int,
        columns: NDArray[np.int64],
    ) -> None: ...
    def write(self, theta: NDArray[np.float64], out: NDArray[np.float64], stop: NDArray[np.int32]) -> tuple[int, bytes]:
        """Fill the first rows of ``out``, shape (n, k), from draws of shape (n, dim), without the interpreter's lock.

        Returns
        -------
        n_done : int
            Draws before the program raised an error or ``stop``, shape (1,), was not 0 any more.
        message : bytes
            Of that error.
        """

class GlobalQuadratic:
    """A global part value + sum_j (slope_j d_j + curvature_j d_j^2 / 2), d = theta - centre.

    Parameters
    ----------
    centre, reach : ndarray, shape (dim,)
        A decider uses it where each |d_j| is at most reach_j, and asks the evaluator elsewhere.
    value : float
    slope, curvature : ndarray, shape (dim,)

    Raises
    ------
    ValueError
        When shapes do not fit.
    """

    def __init__(
        self,
        centre: NDArray[np.float64],
        reach: NDArray[np.float64],
        value: float,
        slope: NDArray[np.float64],
        curvature: NDArray[np.float64],
    ) -> None: ...
    def __call__(self, theta: NDArray[np.float64]) -> float:
        """What it gives at ``theta``, shape (dim,), within reach or not."""

class Density(Enum):
    """Log likelihoods of one observation, up to constants, as functions of the arguments that depend on parameters.

    `binomial` takes successes and trials, `poisson` a count and its exposure, `neg_binomial` a count and its
    dispersion, `normal` and `logistic` an outcome and the scale of its error, `student_t` an outcome, degrees of
    freedom and the scale; with `_scale` behind the name the log of the scale is the second argument. The others take
    the observation alone, a category from 0 or, for `extreme_scale`, the log of a Weibull variable.
    """

    binomial = ...
    poisson = ...
    neg_binomial = ...
    normal = ...
    student_t = ...
    logistic = ...
    normal_scale = ...
    student_t_scale = ...
    logistic_scale = ...
    extreme_scale = ...
    neg_binomial_2 = ...
    gamma = ...
    categorical = ...
    ordered = ...

def density_log_lik(density: Density | Program, data: NDArray[np.float64], eta: NDArray[np.float64]) -> float:
    """Of one observation, from its data and its arguments, shape (q,)."""

OPERATIONS: tuple[str, ...]
"""What instructions of a `Program` do, by their codes; the last ones are functions of one number."""

class Program:
    """The log likelihood of one observation as a straight-line program, in variants.

    Parameters
    ----------
    starts : ndarray of int32, shape (n_variants + 1,)
        Where the instructions of each variant begin.
    codes : ndarray of int32, shape (n, 3)
        What an instruction does (see `OPERATIONS`), and to which earlier ones, argument or number of data.
    values : ndarray, shape (n,)
        Of constants.
    n_arguments, n_data : int
        The first number of an observation's data is its variant.

    Raises
    ------
    ValueError
        When an instruction reads what is not there.
    """

    def __init__(
        self,
        starts: NDArray[np.int32],
        codes: NDArray[np.int32],
        values: NDArray[np.float64],
        n_arguments: int,
        n_data: int,
    ) -> None: ...
    def expand(
        self, degree: int, data: NDArray[np.float64], eta: NDArray[np.float64], out: NDArray[np.float64]
    ) -> None:
        """Write Taylor coefficients in the arguments at ``eta``, shape (q, n), up to a degree, shape (m, n).

        Coefficients stand by degree and then in lexicographic order; ``data`` has shape (n_data, n).
        """
    def derivatives(
        self, order: int, data: NDArray[np.float64], eta: NDArray[np.float64], out: NDArray[np.float64]
    ) -> None:
        """Write log likelihoods, gradients and Hessians in the arguments up to an order, as 1, q and q * q rows."""
    def set_widths(
        self,
        data: NDArray[np.float64],
        centre: NDArray[np.float64],
        lengths: NDArray[np.float64],
        times: float,
        out: NDArray[np.float64],
    ) -> None:
        """Write the widths of absolute values to their places among the data, in ``out``, shape (n_data, n).

        Within a width of its kink, an absolute value is smooth in Taylor coefficients and gradients. A width is a
        multiple of the sum of the operand's absolute derivatives at the centre, times lengths.
        """
    def largest(
        self,
        order: int,
        data: NDArray[np.float64],
        centre: NDArray[np.float64],
        lengths: NDArray[np.float64],
        radii: Sequence[float],
        out: NDArray[np.float64],
        floor: float = 0.0,
    ) -> None:
        """Write bounds on errors of expansions of one order less on boxes, by radius and argument, shape (r q, n).

        If argument k differs from the centre by its length times s_k, |s_k| <= radius, the error is at most the sum of
        bounds times (floor + |s_k|^order) / order!. They are infinite if a kink is within reach and the floor is 0.
        """

    def enclose(
        self,
        order: int,
        data: NDArray[np.float64],
        centre: NDArray[np.float64],
        lengths: NDArray[np.float64],
        radius: float,
        out: NDArray[np.float64],
    ) -> None:
        """Write upper limits of absolute Taylor coefficients of an order, times lengths, on boxes.

        ``out`` has a row for each coefficient, in the order of those of `expand`, and a column for each observation.
        """

SKETCH_UNIT: float
"""What stands for 1 in a sketch of rows (see `Observations`)."""

SCREEN_UNIT: float
"""What stands for 1 in a screen of rows (see `Observations`)."""

SCREEN_POINT_UNIT: float
"""What stands for the length of a point where a screen rounds it."""

MOST_SCREENED: int
"""Largest number of parameters of a screen."""

class RemainderSource:
    """Where decisions by thinning have candidates, bounds and remainders from, in place of blocks."""

class Observations(RemainderSource):
    """Expansions of single observations' log likelihoods about an anchor, and bounds on what they leave.

    With w = A (theta - anchor), observation i's expansion of order p is off by at most factor c_i t^(p + 1) wherever
    |w| is no more than a radius, t being the largest of its arguments' changes from the anchor, each times 1 / l_k; t
    is at most |w|.

    Parameters
    ----------
    density : Density or Program
    designs : tuple of ndarray, each of shape (n, dim) or (1, dim)
        The rows of the q arguments; one where all observations have the same. Kept, not copied.
    records : ndarray, shape (n, width)
        A row an observation: c_i, infinite if there is none; for its arguments 1 / l_k, values at the anchor, slopes of
        the log likelihood (q each) and its second derivatives (lower triangle row by row), and in the third order the
        third one; data of the density. Kept, not copied.
    anchor : ndarray, shape (dim,)
    whitening : ndarray, shape (dim, dim)
        A, lower triangular.
    gradient, hessian : ndarray, shapes (dim,) and (dim, dim)
        Of the sum of all log likelihoods at the anchor.
    third : ndarray, shape (dim (dim + 1) (dim + 2) / 6,) or (0,)
        Its third derivatives for j, k <= j, l <= k, times the number of orders in which the three can stand: p is 3,
        and there is one argument. Nothing where p is 2.
    radii, factors : ndarray, shape (k,)
        Radii increase.
    share : float
        Where more candidates than this share of the observations are expected, all of them are evaluated.
    sketch : ndarray of int16, shape (n, width), optional
        Where one argument alone has a row for each observation: A^-T z / l, times `SKETCH_UNIT`, rounded, and then
        zeros. Most candidates are sent away by it, and decisions are the same as without. Kept, not copied.
    screen : ndarray of int8, shape (n, dim), optional
        Instead of a sketch: A^-T z / l, times `SCREEN_UNIT`, rounded. Each decision first finds bounds of all
        observations from these rows, and draws candidates in proportion to them. At most 1000 parameters. Copied.
    floor : float
        With kinks: bounds are factor c_i (floor + t^(p + 1)).
    constants, starts, members
        In place of records: classes of observations (see `stansub.target.classes.Classes`). Designs then have no rows
        where observations have rows of their own. Members are kept, not copied. Without members, observations are known
        by their places among all members.
    source : callable
        From numbers of observations to their records, without constants, and their designs. Called from threads that
        draw candidates, with the lock.
    batch : int
        Candidates for which the source is called at once.
    n, width : int
        Observations, and numbers of a record.

    Raises
    ------
    ValueError
        When shapes do not fit, radii do not increase, or a c_i is negative or not finite.
    """

    @overload
    def __init__(
        self,
        density: Density | Program,
        designs: tuple[NDArray[np.float64], ...],
        records: NDArray[np.float64],
        anchor: NDArray[np.float64],
        whitening: NDArray[np.float64],
        gradient: NDArray[np.float64],
        hessian: NDArray[np.float64],
        third: NDArray[np.float64],
        radii: NDArray[np.float64],
        factors: NDArray[np.float64],
        share: float,
        sketch: NDArray[np.int16] | None = None,
        screen: NDArray[np.int8] | None = ...,
        floor: float = 0.0,
    ) -> None: ...
    @overload
    def __init__(
        self,
        density: Density | Program,
        designs: tuple[NDArray[np.float64], ...],
        *,
        constants: NDArray[np.float64],
        starts: NDArray[np.int64],
        members: NDArray[np.int32] | None = None,
        source: Callable[[NDArray[np.int64]], tuple[NDArray[np.float64], list[NDArray[np.float64]]]],
        batch: int,
        n: int,
        width: int,
        anchor: NDArray[np.float64],
        whitening: NDArray[np.float64],
        gradient: NDArray[np.float64],
        hessian: NDArray[np.float64],
        third: NDArray[np.float64],
        radii: NDArray[np.float64],
        factors: NDArray[np.float64],
        share: float,
        floor: float = 0.0,
    ) -> None: ...

class DeciderState:
    """All that later decisions of a chain depend on, beside its generators: see `Decider.state`. It can be pickled."""

    @property
    def theta(self) -> NDArray[np.float64]:
        """A copy of the chain's position, shape (dim,)."""

    def __getstate__(
        self,
    ) -> tuple[
        NDArray[np.float64],
        float,
        NDArray[np.int32],
        NDArray[np.float64],
        NDArray[np.int32],
        NDArray[np.int32],
        NDArray[np.int32],
        NDArray[np.float64],
        tuple[int, int, int, int, int, int, int, int, int, float, float, int, float, int, float],
    ]:
        """Position, global log density there, blocks known there, their values; the order in which blocks are drawn.

        Then the blocks of the last decision among a subset, the order in which these are drawn, candidates of
        factorised decisions that are drawn ahead, and the counters.
        """

class Decider:
    """The accept/reject decisions of one chain, and its current state.

    Look k has n[k] blocks, drawn without replacement, and decides when the distance between the mean of their
    differences d_b = l_b(theta_new) - l_b(theta) and the threshold exceeds scale[k] * s + offset[k] * R, where s is
    the sd of the drawn differences (divisor n - 1) and R the range of all. The last look has all blocks and decides.
    While all drawn differences are equal, a look that knows R by them or not at all (offset 0) does not decide.

    With control variates the looks before the last take mean, s and R not of the differences but of the remainders
    r_b = d_b - q_b, and the sum of the changes q_b of all blocks' expansions (see `Surrogate`) goes into the threshold
    (Bardenet, Doucet and Holmes 2017, section 7). A range that is a constant or a function is then promised for the
    remainders. The last look, audits and log densities do without control variates.

    With a noise rule (see `NoiseRule`) the noise of the log ratio counts, and the looks decide where it is too large.

    Parameters
    ----------
    evaluator : Evaluator
        Used by this chain alone.
    block_sizes : ndarray of int64, shape (M,)
        Observations in each block.
    table : Table
        Its last look is at M blocks.
    range : Range, optional
        Where R comes from, for tables that need it.
    noise : NoiseRule, optional
    surrogate : Surrogate, optional
        Control variates.
    bounds : RemainderBounds, optional
        Of these control variates, which are about one anchor: decisions about all blocks are then taken by thinning,
        factorised (Cornish et al. 2019) or joint, and take no looks. A remainder above a proved bound is a RuntimeError
        that names the block; above one that is not proved it is taken for the bound, and the decision says so
        (`Decision.bound_violated`).
    observations : RemainderSource, optional
        The same with a factor for each observation, in the place of control variates and bounds of blocks.
    quadratic : GlobalQuadratic, optional
        What the evaluator's global part is, where it reaches.
    kappa : float, optional
        At least 1/2: decisions by thinning are joint (Zhang and De Sa 2019), from Poisson variables with means of kappa
        times the bounds. Otherwise they are factorised.

    Raises
    ------
    ValueError
        When these do not fit each other or the table needs a range and has none.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        block_sizes: NDArray[np.int64],
        table: Table,
        *,
        range: Range | None = None,
        noise: NoiseRule | None = None,
        surrogate: Surrogate | None = None,
        bounds: RemainderBounds | None = None,
        observations: RemainderSource | None = None,
        quadratic: GlobalQuadratic | None = None,
        kappa: float | None = None,
    ) -> None: ...
    def set_table(self, table: Table) -> None:
        """Take other looks for the decisions to come; nothing else changes.

        Raises
        ------
        ValueError
            As for the table of a new decider.
        """

    def reset(self, theta: NDArray[np.float64]) -> None:
        """Move to ``theta``, shape (dim,); only the global part is evaluated."""

    @property
    def state(self) -> DeciderState:
        """Position, what is known of the log density there, the order of the blocks and the counters.

        A decider of the same model, table and control variates that is given it continues with the very same decisions,
        draws and counters, provided that the generators' states are the same; nothing is evaluated.

        Raises
        ------
        RuntimeError
            When it is asked for before the first `reset`.
        ValueError
            When it is of a decider of another model.
        """

    @state.setter
    def state(self, state: DeciderState) -> None: ...
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
        subset: Subset | None = None,
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
            ``rng.bit_generator.capsule``; blocks are drawn from it, if not all are needed, and after them the normal
            number of Barker's test.
        audit : bool
            Take the decision again on all blocks and compare; nothing else changes.
        subset : Subset, optional
            Sum over these blocks only, as if there were no others. With none of them the rest of the log ratio decides.

        Raises
        ------
        ValueError
            When a block of the subset does not exist or stands in it twice, or its table needs a range and there is
            none.
        """

    def batch(
        self,
        n_steps: int,
        proposals: Proposals,
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
        """Run Metropolis-Hastings steps, the global interpreter lock released, and return how many were done.

        The same as, for each step, ``theta_new, log_q_ratio = proposals.draw(bitgen, theta)``, ``log_u =
        np.log1p(-rng.random())`` and `decide`.

        Parameters
        ----------
        n_steps : int
        proposals : Proposals
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
    def audit_seconds(self) -> float:
        """Seconds that audits took."""

    @property
    def n_nonfinite(self) -> int:
        """Decisions that met NaN (or a log density of +inf) and so rejected."""

    @property
    def n_bound_violated(self) -> int:
        """Decisions that saw differences further apart than the promised range."""

    @property
    def n_screened(self) -> int:
        """Numbers of 8 bits that a decision reads to find bounds of all observations."""

    @property
    def n_waits(self) -> int:
        """Batches of candidates that decisions waited for."""

    @property
    def wait_seconds(self) -> float:
        """Seconds that they waited."""

    @property
    def n_candidates(self) -> int:
        """Observations, or blocks, picked by decisions by thinning."""

    @property
    def bound_tightness(self) -> float:
        """Largest remainder of these, as a share of its bound."""

    @property
    def n_audited_acceptances(self) -> int:
        """Audits of decisions by thinning whose bounds are not proved."""

    @property
    def acceptance_error(self) -> float:
        """Sum over these of how far the acceptance probability is off that of all blocks."""

    @property
    def n_fallback(self) -> int:
        """Decisions left to the looks because their noise was too large for the noise rule."""

    @property
    def n_audited_estimates(self) -> int:
        """Log ratios decided upon with their noise that were audited."""

    @property
    def audit_squares(self) -> float:
        """Sum of the squares of their standardised errors (see `Decision.audit_z`)."""

class Transition:
    """What a transition on a surrogate came to."""

    @property
    def acceptance_rate(self) -> float:
        """Mean over the trees' states, or share of the sweeps accepted."""

    @property
    def n_steps(self) -> int:
        """Integrator steps, or sweeps."""

    @property
    def tree_depth(self) -> int:
        """Of the deepest tree."""

    @property
    def diverging(self) -> bool:
        """Whether energies in a tree differed too much, or the density was not defined."""

class Coordinates:
    """Coordinates in which a sampler moves (see `stansub.target.coordinates.Coordinates`).

    Parameters
    ----------
    sizes, places, counts, starts, columns : ndarray of int32
    divided : ndarray of uint8
        Whether the parameters of a block are divided by S rather than multiplied.
    coefficients, constants : ndarray
    mean_places, mean_starts, mean_columns : ndarray of int32
    means : ndarray
        Means that are removed from effects, by rows, each after those that it reads.
    column_starts, column_places, row_starts, row_places : ndarray of int32
    column_values, row_values : ndarray
        The combination: a matrix by columns and its inverse by rows, all empty for none.
    dim : int

    Raises
    ------
    ValueError
        When the parts do not fit together, or a function depends on effects.
    """

    def __init__(
        self,
        sizes: NDArray[np.int32],
        places: NDArray[np.int32],
        divided: NDArray[np.uint8],
        counts: NDArray[np.int32],
        starts: NDArray[np.int32],
        columns: NDArray[np.int32],
        coefficients: NDArray[np.float64],
        constants: NDArray[np.float64],
        mean_places: NDArray[np.int32],
        mean_starts: NDArray[np.int32],
        mean_columns: NDArray[np.int32],
        means: NDArray[np.float64],
        column_starts: NDArray[np.int32],
        column_places: NDArray[np.int32],
        column_values: NDArray[np.float64],
        row_starts: NDArray[np.int32],
        row_places: NDArray[np.int32],
        row_values: NDArray[np.float64],
        dim: int,
    ) -> None: ...
    @property
    def dim(self) -> int:
        """Number of parameters."""

    def inward(self, theta: NDArray[np.float64], inner: NDArray[np.float64]) -> None:
        """Write the inner coordinates of parameters."""

    def outward(self, inner: NDArray[np.float64], theta: NDArray[np.float64]) -> None:
        """Write the parameters of inner coordinates."""

    def pull(self, inner: NDArray[np.float64], log_density: float, gradient: NDArray[np.float64]) -> float:
        """Return a log density of parameters as one of inner coordinates; its gradient becomes that of the other."""

class NormalEffects:
    """Effects that are normal given their scales (see `stansub.target.normal_effects.NormalEffects`).

    Raises
    ------
    ValueError
        When the parts do not fit together.
    """

    def __init__(
        self,
        coefficients: NDArray[np.int32],
        scales: NDArray[np.int32],
        low: float,
        step: float,
        values: NDArray[np.float64],
        slopes: NDArray[np.float64],
        sizes: NDArray[np.int32],
        places: NDArray[np.int32],
        counts: NDArray[np.int32],
        starts: NDArray[np.int32],
        columns: NDArray[np.int32],
        factors: NDArray[np.float64],
        constants: NDArray[np.float64],
        has_effects: NDArray[np.uint8],
        precision_starts: NDArray[np.int32],
        precision_columns: NDArray[np.int32],
        precision: NDArray[np.float64],
        linear: NDArray[np.float64],
        part_sizes: NDArray[np.int32],
        pattern_starts: NDArray[np.int32],
        pattern_rows: NDArray[np.int32],
        order: NDArray[np.int32],
        move_starts: NDArray[np.int32],
        move_columns: NDArray[np.int32],
        directions: NDArray[np.float64],
        widths: NDArray[np.float64],
        fixes_effects: NDArray[np.uint8],
        share: float,
        centre: NDArray[np.float64],
        root: NDArray[np.float64],
        mean_places: NDArray[np.int32],
        mean_starts: NDArray[np.int32],
        mean_columns: NDArray[np.int32],
        means: NDArray[np.float64],
        column_starts: NDArray[np.int32],
        column_places: NDArray[np.int32],
        column_values: NDArray[np.float64],
        row_starts: NDArray[np.int32],
        row_places: NDArray[np.int32],
        row_values: NDArray[np.float64],
    ) -> None: ...
    @property
    def dim(self) -> int:
        """Number of parameters."""

    def log_density(self, theta: NDArray[np.float64]) -> float:
        """Return the log density of parameters, up to a constant."""

    def sweep(self, bits: CapsuleType, theta: NDArray[np.float64]) -> bool:
        """Sweep from theta, which becomes the end; False if the coefficients have no normal distribution."""

class SurrogateEffects:
    """Samplers of a compiled program with normal effects.

    Methods make so many transitions from theta, which becomes their end, without the interpreter's lock. They raise
    ValueError if the density is not defined at the start.

    Parameters
    ----------
    model, log_density_gradient_address, free_error_address : int
        Addresses of a model and of functions of BridgeStan's C API.
    effects : NormalEffects
    owner : object
        Kept alive.
    """

    def __init__(
        self,
        model: int,
        log_density_gradient_address: int,
        free_error_address: int,
        effects: NormalEffects,
        owner: object,
    ) -> None: ...
    @property
    def dim(self) -> int:
        """Number of parameters."""

    def gibbs(self, bits: CapsuleType, theta: NDArray[np.float64], n: int = 1) -> Transition:
        """Sweep, and accept or reject each sweep by the difference of the program from normal effects."""

    def given_scales(
        self, bits: CapsuleType, theta: NDArray[np.float64], n: int = 1, *, step_size: float, n_steps: int
    ) -> Transition:
        """Follow trajectories of standardised coefficients with the scales fixed, between proposals of all scales.

        Raises
        ------
        ValueError
            Also when the effects have no proposals of all scales.
        """

class SurrogateHamiltonian:
    """Hamiltonian Monte Carlo on a compiled program, in the metric of a precision.

    Methods make so many transitions from theta, which becomes their end, without the interpreter's lock. They raise
    ValueError if the density is not defined at the start.

    Parameters
    ----------
    model, log_density_gradient_address, free_error_address : int
        Addresses of a model and of functions of BridgeStan's C API.
    centre : ndarray, shape (dim,)
    starts, rows : ndarray of int32
    values : ndarray
    order : ndarray of int32, shape (dim,)
        A Cholesky factor (see `stansub.target.cholesky.Factor`).
    directions : ndarray, shape (n, dim)
    sds : ndarray, shape (n,)
        Directions along which the precision differs from the factor's (see `stansub.target.metric.Metric`).
    coordinates : Coordinates
        Those in which it moves: centre and precision are in them.
    owner : object
        Kept alive.
    power : float
        t of the density p^t q^(1 - t) on which it moves: p is the program's, and q the normal one of centre and
        precision.

    Raises
    ------
    ValueError
        When the parts of the factor do not fit together, or the power is not in (0, 1].
    """

    def __init__(
        self,
        model: int,
        log_density_gradient_address: int,
        free_error_address: int,
        centre: NDArray[np.float64],
        starts: NDArray[np.int32],
        rows: NDArray[np.int32],
        values: NDArray[np.float64],
        order: NDArray[np.int32],
        directions: NDArray[np.float64],
        sds: NDArray[np.float64],
        coordinates: Coordinates,
        owner: object,
        power: float = 1.0,
    ) -> None: ...
    @property
    def dim(self) -> int:
        """Number of parameters."""

    def log_ratio(self, theta: NDArray[np.float64]) -> float:
        """Return log p - log q, without the constant of q: in its white coordinates, log q is -|z|^2 / 2."""

    def nuts(
        self, bits: CapsuleType, theta: NDArray[np.float64], n: int = 1, *, step_size: float, max_tree_depth: int
    ) -> Transition:
        """Transitions of the no-U-turn sampler."""

    def hmc(
        self, bits: CapsuleType, theta: NDArray[np.float64], n: int = 1, *, step_size: float, n_steps: int
    ) -> Transition:
        """Trajectories of a fixed number of steps, each with a step size at most 15 % from the given one."""

    def random_length_hmc(
        self, bits: CapsuleType, theta: NDArray[np.float64], n: int = 1, *, step_size: float, n_steps: int
    ) -> Transition:
        """Trajectories of a length uniform up to that of the given steps, each in as few steps as possible."""

def minimum_degree(starts: NDArray[np.int32], rows: NDArray[np.int32], most_bits: int = 512) -> NDArray[np.int32]:
    """Order of little fill-in for a symmetric matrix, that of multiple minimum external degree in SuperLU.

    Parameters
    ----------
    starts, rows : ndarray
        The pattern by columns.
    most_bits : int
        Most bits per element of the pattern for sets of all neighbours, dim^2 bits: faster if neighbours are many.

    Returns
    -------
    ndarray
        Which column stands at each place.
    """

LEAST_PIVOT: float

def modified_cholesky(
    starts: NDArray[np.int32], rows: NDArray[np.int32], values: NDArray[np.float64], least_left: int, increases: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64], int]:
    """L with L L' = A + E, E diagonal and not negative, and 0 where A is positive definite.

    Parameters
    ----------
    starts, rows, values : ndarray
        The lower triangle of A, which is scaled to a diagonal of 1, by columns that begin with their diagonal.
    least_left : int
        From how many last columns that are full these are left, if E is 0 in the others.
    increases : bool
        Whether E may be positive if columns would be left; if not, the values are nan from there on.

    Returns
    -------
    starts, rows, values : ndarray
        The same of L.
    n_left : int
        Number of the last columns that are left; their values are the Schur complement of the others.
    """

def cholesky_pattern(starts: NDArray[np.int32], rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Places of the elements of L, by columns, from those of the lower triangle of L L', whose columns begin with
    their diagonal.
    """

def cholesky_solve(
    starts: NDArray[np.int32], rows: NDArray[np.int32], values: NDArray[np.float64], right: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(L L')^-1 times a vector; L by columns that begin with their diagonal."""

def table_transitions(
    energies: NDArray[np.float64], start: int, stops: Callable[[int, int], bool], max_tree_depth: int
) -> list[float]:
    """Probabilities of where a transition of the no-U-turn sampler ends, all its random choices enumerated.

    Parameters
    ----------
    energies : ndarray, shape (n,)
        Of the states of a trajectory, of which the first follows the last.
    start : int
    stops : callable
        Whether a tree from a state to a state is not to be doubled.
    max_tree_depth : int

    Returns
    -------
    list of float, length n
    """

class Arguments:
    """Arguments of all observations, affine in phi: numbers in common places, columns, and offsets.

    Arrays of n numbers stay where they are, at any distances in memory.

    Parameters
    ----------
    rows : list of list of ndarray, shape (n, k) or (1, k)
        For each argument adjacent columns of the numbers that all observations have, p in all.
    places : list of ndarray of int32, shape (p,)
        Of these in phi.
    offsets : list of ndarray, shape (n,)
        For each argument.
    gathered_of : list of int
        The argument of each column.
    gathered_places, gathered_factors : list of ndarray of int32 and of numbers, shape (n,)
        Place of each observation's coefficient, -1 for none, and its factor.
    n, dim : int
        Observations and coefficients.

    Raises
    ------
    ValueError
        If the parts do not fit together, or a place does not exist.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[NDArray[np.float64]]],
        places: Sequence[NDArray[np.int32]],
        offsets: Sequence[NDArray[Any]],
        gathered_of: Sequence[int],
        gathered_places: Sequence[NDArray[np.int32]],
        gathered_factors: Sequence[NDArray[Any]],
        n: int,
        dim: int,
    ) -> None: ...

class FullData:
    """The log likelihood of all observations, up to constants, and its gradient.

    Parameters
    ----------
    arguments : Arguments
    density : Density or Program
    data : list of ndarray, shape (n,)
        What the density takes; stays where it is.
    constant : float, default 0
        What is added.

    Raises
    ------
    ValueError
        If the density takes other data.
    """

    def __init__(
        self,
        arguments: Arguments,
        density: Density | Program,
        data: Sequence[NDArray[Any]],
        constant: float = 0.0,
    ) -> None: ...
    function_address: ClassVar[int]
    """Address of a function from an object's address, phi and memory for a gradient to the log likelihood."""
    @property
    def dim(self) -> int: ...
    @property
    def address(self) -> int: ...
    def log_lik(self, phi: NDArray[np.float64]) -> float: ...
    def gradient(self, phi: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the log likelihood and its gradient, shape (dim,). Absolute values in programs must have no kinks."""

class GroupedObservations(RemainderSource):
    """Remainders of second-order expansions of the log likelihoods of observations with sparse rows.

    Parameters
    ----------
    density : Density or Program
    arguments : Arguments
    whitenings : list of ndarray, shape (p, p)
        For each argument, upper triangular, of the precision of the coefficients that all observations read.
    sds : ndarray, shape (m,)
        About how far coefficients are from the point. The terms of an observation's argument have shares by them in
        the bounds by which observations are picked.
    records : ndarray, shape (n, width)
        Of each observation the constant c, infinite if there is none; g and then the slope of each argument at the
        point; the lower triangle of the second derivatives. Remainders are at most c times the sum of (g |change|)^3.
    lengths : ndarray, shape (q, n)
        Lengths l of the arguments.
    data : list of ndarray, shape (n,)
        What the density takes.
    point : ndarray, shape (m,)
    radii, factors : ndarray
        Where all arguments are off by no more than a radius, in lengths l, bounds are so many times what c says.
    share : float
        Candidates as a share of the observations from which all are evaluated.

    Raises
    ------
    ValueError
        When these do not fit together.
    """

    def __init__(
        self,
        density: Density | Program,
        arguments: Arguments,
        whitenings: list[NDArray[np.float64]],
        sds: NDArray[np.float64],
        records: NDArray[np.float64],
        lengths: NDArray[np.float64],
        data: list[NDArray[Any]],
        point: NDArray[np.float64],
        radii: NDArray[np.float64],
        factors: NDArray[np.float64],
        share: float,
    ) -> None: ...

class Slices:
    """Slice sampling of a compiled program's density along moves by one number c each: x + c v, and then factors e^c.

    Parameters
    ----------
    model, log_density_address, free_error_address : int
        Addresses of a model and of functions of BridgeStan's C API.
    coordinates : Coordinates
        Those of x.
    directions : sequence of ndarray, shape (dim,)
        v of each move.
    scaled : sequence of ndarray of int32
        Coordinates with a factor.
    owner : object
        Kept alive.
    """

    def __init__(
        self,
        model: int,
        log_density_address: int,
        free_error_address: int,
        coordinates: Coordinates,
        directions: Sequence[NDArray[np.float64]],
        scaled: Sequence[NDArray[np.int32]],
        owner: object,
    ) -> None: ...
    def __call__(
        self,
        bits: CapsuleType,
        x: NDArray[np.float64],
        scale: NDArray[np.float64],
        shift: NDArray[np.float64],
        widths: NDArray[np.float64],
        lengths: NDArray[np.float64],
    ) -> None:
        """Draw a number for each move in turn, without the interpreter's lock.

        Parameters
        ----------
        x, scale, shift : ndarray, shape (dim,)
            Coordinates, and those of x = scale y + shift with a fixed y; updated in place.
        widths : ndarray
            First width of each slice.
        lengths : ndarray
            Becomes the numbers c.
        """

class LevelPasses:
    """Passes over all observations of one chain, for moves of the levels of groupings.

    Parameters
    ----------
    arguments : Arguments
    levels : sequence of ndarray of int32, shape (n,)
        For each grouping the level of an observation, ``n_levels`` for none.
    level_places : sequence of ndarray of int32
        For each grouping its coefficients.
    n_levels : sequence of int
    program : Program or None
        Without one, the caller writes log likelihoods and gradients to `proposed` before it calls `place` or `propose`.
    data : ndarray, shape (n_data, n), or None
        Of the program.

    Raises
    ------
    ValueError
        If the parts do not fit together, or a place or level does not exist.
    """

    def __init__(
        self,
        arguments: Arguments,
        levels: Sequence[NDArray[np.int32]],
        level_places: Sequence[NDArray[np.int32]],
        n_levels: Sequence[int],
        program: Program | None,
        data: NDArray[np.float64] | None,
    ) -> None: ...
    @property
    def proposed(self) -> NDArray[np.float64]:
        """Log likelihoods at the proposal and their gradients in the arguments, shape (1 + q, n): a view."""

    @property
    def state(self) -> NDArray[np.float64]:
        """The same at the state; the last decision counts only after `apply` or `slopes`."""

    def arguments(self, x: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write the arguments at ``x``, shape (q, n)."""

    def place(self, x: NDArray[np.float64]) -> None:
        """Evaluate the observations at ``x``, which becomes the state."""

    def propose(
        self, x: NDArray[np.float64], which: int, change: NDArray[np.float64], slopes: NDArray[np.float64]
    ) -> None:
        """Evaluate the observations at ``x``.

        Parameters
        ----------
        change : ndarray, shape (n_levels + 1,)
            Receives the changes of the log likelihood by level of grouping ``which``, the last for no level.
        slopes : ndarray, shape (dim,)
            Receives the gradient in its coefficients; other elements are arbitrary.
        """

    def settle(self, which: int, accepted: NDArray[np.bool_]) -> None:
        """Make the proposal the state of observations of accepted levels, shape (n_levels,)."""

    def apply(self) -> None:
        """Carry out the last decision; otherwise, the next pass does."""

    def slopes(self, which: int, out: NDArray[np.float64]) -> None:
        """Write the gradient at the state in the coefficients of a grouping; other elements are arbitrary."""

class SurrogateDecider:
    """Joint Poisson decisions of one chain about what a surrogate leaves out.

    Parameters
    ----------
    observations : GroupedObservations
    kappa : float
        At least 1; where more than ``most`` candidates would be expected of a move it is smaller.
    most : float
    """

    def __init__(self, observations: GroupedObservations, kappa: float, most: float) -> None: ...
    @property
    def n_unbounded(self) -> int:
        """Observations without a bound, which every decision evaluates."""

    @property
    def n_evaluated(self) -> int:
        """Observations evaluated so far."""

    @property
    def n_candidates(self) -> int:
        """Observations picked so far."""

    @property
    def bound_tightness(self) -> float:
        """Largest remainder so far, as a share of its bound."""

    def decide(
        self, phi: NDArray[np.float64], phi_new: NDArray[np.float64], log_u: float, bits: CapsuleType
    ) -> Decision:
        """Accept or reject a move that leaves the surrogate as it is."""

    def costs(self, phi: NDArray[np.float64], phi_new: NDArray[np.float64]) -> tuple[float, float, float]:
        """Sum of the bounds by which observations are picked, of the bounds b_i by their rows, and of r_i^2 / b_i."""
