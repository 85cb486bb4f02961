"""The evaluators against stand-ins for the libraries that they call."""

import ctypes
import gc
import weakref

import numpy as np
import pytest
from populations import Model, address

from stansub._loop import CallbackEvaluator, Decider, InstanceEvaluator
from stansub.acceptance.decide import make_decider
from stansub.acceptance.rules import Exact
from stansub.errors import InputError

_DOUBLES = ctypes.POINTER(ctypes.c_double)
_ERROR = ctypes.POINTER(ctypes.c_void_p)
_LOG_DENSITY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool, _DOUBLES, _DOUBLES, _ERROR)
_GRADIENT = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool, _DOUBLES, _DOUBLES, _DOUBLES, _ERROR
)
_FREE_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

MESSAGE = 4711


class FakeLibrary:
    """Observations 1, ..., n with log likelihood i * theta[0]; the global part is -theta[1]^2."""

    def __init__(self, n: int = 10) -> None:
        self.n = n
        self.freed: list[int] = []
        self.flags: set[tuple[bool, bool]] = set()
        self.made: list[int] = []  # blocks whose models were asked for
        self.stays = True
        self.alone = False  # whether blocks leave the global part out
        self.gradient = _GRADIENT(self._gradient)
        self.log_density = _LOG_DENSITY(self._log_density)
        self.free_error = _FREE_ERROR(self.freed.append)

    def slices(self, model: int) -> list[tuple[int, int]]:
        """A model's address says which observations are its data: 100 * first + last, or 1 for none."""
        return [] if model == 1 else [(model // 100, model % 100)]

    def _log_density(self, model, propto, jacobian, theta, value, error):
        self.flags.add((propto, jacobian))
        if theta[0] < 0 and any(start == 3 for start, _ in self.slices(model)):
            error[0] = MESSAGE
            return 1
        value[0] = sum(sum(range(a, b + 1)) * theta[0] for a, b in self.slices(model))
        if not self.is_alone(model):
            value[0] -= theta[1] ** 2
        return 0

    def is_alone(self, model: int) -> bool:
        return self.alone and model != 1

    def _gradient(self, model, propto, jacobian, theta, value, out, error):
        if self._log_density(model, propto, jacobian, theta, value, error):
            return 1
        out[0], out[1] = sum(sum(range(a, b + 1)) for a, b in self.slices(model)), -2 * theta[1]
        if self.is_alone(model):
            out[1] = 0
        return 0

    def instances(self, global_models, *, gradients=True, alone=False) -> InstanceEvaluator:
        self.alone = alone
        return InstanceEvaluator(
            2,
            3,
            self._block_model,
            np.array(global_models, np.uint64),
            address(self.log_density),
            address(self.free_error),
            log_density_gradient_address=address(self.gradient) if gradients else 0,
            alone=alone,
        )

    def _block_model(self, block: int) -> tuple[int, bool]:
        self.made.append(block)
        return [102, 304, 505][block], self.stays


THETA = np.array([0.5, 3.0])


KINDS = ["instances", "instances by difference", "likelihoods alone"]


def make(fake, kind):
    return {
        "instances": lambda: fake.instances([1]),
        # rows 1 and 2 alone and together
        "instances by difference": lambda: fake.instances([101, 202, 102]),
        "likelihoods alone": lambda: fake.instances([1], alone=True),
    }[kind]()


def flags(kind):
    """All constants; Jacobians wherever the global part is evaluated."""
    return {(False, True), (False, False)} if kind == "likelihoods alone" else {(False, True)}


@pytest.mark.parametrize("kind", KINDS)
def test_values(kind):
    fake = FakeLibrary()
    evaluator = make(fake, kind)
    assert (evaluator.dim, evaluator.n_blocks) == (2, 3)
    assert evaluator.global_log_density(THETA) == pytest.approx(-9.0)
    np.testing.assert_allclose(evaluator.block_log_lik(THETA), [1.5, 3.5, 2.5])
    np.testing.assert_allclose(evaluator.block_log_lik(THETA, np.array([2, 0], np.int32)), [2.5, 1.5])
    assert evaluator.block_log_lik(THETA, np.array([], np.int32)).shape == (0,)
    assert fake.flags == flags(kind)
    assert fake.freed == []


def test_a_block_that_fails_is_minus_infinity_and_its_message_is_freed():
    fake = FakeLibrary()
    values = fake.instances([1]).block_log_lik(np.array([-1.0, 0.0]))
    np.testing.assert_allclose(values, [-3.0, -np.inf, -5.0])
    assert fake.freed == [MESSAGE]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    fake = FakeLibrary()
    evaluator = make(fake, kind)
    np.testing.assert_allclose(evaluator.global_gradient(THETA), [0, -6])
    np.testing.assert_allclose(evaluator.block_gradients(THETA), [[3, 0], [7, 0], [5, 0]], atol=1e-12)
    np.testing.assert_allclose(evaluator.block_gradients(THETA, np.array([2, 0], np.int32)), [[5, 0], [3, 0]])
    assert evaluator.block_gradients(THETA, np.array([], np.int32)).shape == (0, 2)
    for which, value, gradient in (
        (None, -1.5, [15, -6]),
        ([2, 0], -5.0, [8, -6]),
        ([1], -5.5, [7, -6]),
        ([], -9.0, [0, -6]),
    ):
        blocks = None if which is None else np.array(which, np.int32)
        got = evaluator.subset_log_density_gradient(THETA, blocks)
        assert got[0] == pytest.approx(value)
        np.testing.assert_allclose(got[1], gradient)
    assert fake.flags == flags(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_undefined_gradients_name_the_block(kind):
    fake, theta = FakeLibrary(), np.array([-1.0, 0.0])
    evaluator = make(fake, kind)
    out = np.zeros((3, 2), np.float32)
    with pytest.raises(ValueError, match="block 1 is not defined"):
        evaluator.block_gradients(theta)
    with pytest.raises(ValueError, match="block 1 is not defined"):
        evaluator.block_taylor(theta, np.arange(3, dtype=np.int32), 1, out)
    np.testing.assert_allclose(evaluator.block_gradients(theta, np.array([2], np.int32)), [[5, 0]])
    assert evaluator.subset_log_density_gradient(theta)[0] == -np.inf
    assert np.isnan(evaluator.subset_log_density_gradient(theta)[1]).all()
    assert fake.freed == [MESSAGE] * 4


def test_evaluators_made_without_gradients_say_so():
    for evaluator in (
        FakeLibrary().instances([1], gradients=False),
        Model(2, 3, lambda theta, which: which).evaluator(),
    ):
        with pytest.raises(RuntimeError, match="without a function for gradients"):
            evaluator.block_gradients(THETA)


def test_undefined_global_part():
    evaluator = Model(1, 3, lambda theta, which: which * 1.0, lambda theta: None).evaluator()
    assert evaluator.global_log_density(np.zeros(1)) == -np.inf
    assert (evaluator.block_log_lik(np.zeros(1)) == -np.inf).all()


def test_refusals():
    fake = FakeLibrary()
    with pytest.raises(ValueError, match="one model or three"):
        fake.instances([1, 1])
    with pytest.raises(ValueError, match="null address"):
        fake.instances([0])
    with pytest.raises(ValueError, match="null address"):
        CallbackEvaluator(1, 1, 0, 0, 0)
    with pytest.raises(ValueError, match="at least one block"):
        InstanceEvaluator(2, 0, lambda block: (1, True), np.array([1], np.uint64), 1, 1)
    with pytest.raises(IndexError, match="no block 3"):
        fake.instances([1]).block_log_lik(THETA, np.array([3], np.int32))
    with pytest.raises(ValueError, match="length 2, not 1"):
        fake.instances([1]).global_log_density(np.zeros(1))


def test_functions_that_hold_the_decider_that_calls_them_are_collected():
    def hold() -> weakref.ref[Model]:
        held: list[Decider] = []
        model = Model(1, 3, lambda theta, which: theta[0] * which * len(held))
        held.append(make_decider(model.evaluator(), model.blocks.sizes, Exact()))
        return weakref.ref(model)

    gone = hold()
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(("stays", "made"), [(True, [2, 0]), (False, [2, 0, 2, 2])])
def test_models_of_blocks_are_made_when_they_are_first_evaluated(stays: bool, made: list[int]) -> None:
    fake = FakeLibrary()
    fake.stays = stays
    evaluator = fake.instances([1])
    assert not fake.made
    for which in ([2, 0], [2]):
        evaluator.block_log_lik(THETA, np.array(which, np.int32))
    evaluator.subset_log_density_gradient(THETA, np.array([2], np.int32))
    assert fake.made == made


def test_what_making_a_model_raises_is_raised() -> None:
    def refuse(block: int) -> tuple[int, bool]:
        raise InputError(f"block {block} is refused")

    fake = FakeLibrary()
    evaluator = InstanceEvaluator(
        2, 3, refuse, np.array([1], np.uint64), address(fake.log_density), address(fake.free_error)
    )
    with pytest.raises(InputError, match="block 1 is refused"):
        evaluator.block_log_lik(THETA, np.array([1], np.int32))
