"""Values as documents: what comes back is what was put in, and nothing but known types is ever made."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple, TypeVar, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from stansub.acceptance.rules import Pocock
from stansub.codec import ANEW, GIVEN, Codec, Encoded, Foreign, MalformedError, NotKeptError, _hints, fits
from stansub.decision_selection import BlockReason, BlockSize
from stansub.kernels.proposals import Affine, NoAdapter, RandomWalk
from stansub.run.checkpoint_types import CODEC
from stansub.run.moments import Moments
from stansub.run.state import PhaseCounts, Totals
from stansub.tuning.adapt import CovarianceAdapter

NOTHING = Foreign()
NUMBER = TypeVar("NUMBER", bound=np.generic)
# As `type VECTOR[NUMBER] = ...`, which needs Python 3.12.
VECTOR: Any = TypeAliasType("VECTOR", np.ndarray[Any, np.dtype[NUMBER]], type_params=(NUMBER,))


def through(value: Any, foreign: Foreign = NOTHING, codec: Codec = CODEC) -> Any:
    """What comes back, by way of the text of the document."""
    document, arrays = codec.encode(value, foreign)
    text = json.dumps(document, allow_nan=False)
    return codec.decode(Encoded(json.loads(text), {name: bytes(one) for name, one in arrays.items()}), foreign)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    return bool(one == other)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(PLAIN)
def test_plain_values(value: Any) -> None:
    assert same(through(value), value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.arange(6.0).reshape(2, 3).T,
        np.arange(12.0).reshape(3, 4)[:, ::2],
        np.array([True, False]),
        np.array(3.5),
        np.empty((0, 3), np.float32),
        np.array([np.nan, -np.inf, -0.0]),
        np.array(["a", "bc"]),
        np.arange(3, dtype=">i4"),
    ],
)
def test_arrays(array: Any) -> None:
    made = through(array)
    assert same(made, np.array(array))
    assert made.flags.writeable
    assert made.flags.f_contiguous == array.flags.f_contiguous or not array.flags.c_contiguous
    copied, viewed = CODEC.encode(array), CODEC.encode(array, copy=False)
    assert copied.document == viewed.document


def test_a_scalar_of_numpy_keeps_its_type() -> None:
    for value in (np.float32(0.1), np.int64(-3), np.bool_(True), np.float64("nan")):
        assert same(np.array(through(value)), np.array(value))
        assert type(through(value)) is type(value)


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_generators_continue(bits: Any) -> None:
    rng = np.random.Generator(bits(3))
    rng.integers(0, 10, 5, np.int32)
    again = through(rng)
    np.testing.assert_array_equal(again.standard_normal(20), rng.standard_normal(20))


def test_what_is_shared_stays_shared() -> None:
    position, rng = np.zeros(2), np.random.default_rng(1)
    about = Moments(position, np.eye(2))
    first, second, (array, one, other) = through((about, [about], (position, rng, rng)))
    assert first is second[0]
    assert array is first.position
    assert one is other


def test_values_of_the_package() -> None:
    walk, size = (
        RandomWalk(np.eye(2)),
        BlockSize(3, BlockReason.EXACT),
    )
    again, block, rule = through((walk, size, Pocock(epsilon=0.02)))
    assert same(again.cholesky, walk.cholesky)
    assert (type(again), block, rule) == (RandomWalk, size, Pocock(epsilon=0.02))
    adapter = CovarianceAdapter(2)
    adapter.update(np.random.default_rng(1).normal(size=(100, 2)), 0.3)
    assert same(vars(through(adapter)), vars(adapter))
    totals = through(PhaseCounts(3, Totals(n_steps=4))).totals
    assert totals["none"] == 0
    assert totals["n_steps"] == 4


def test_nothing_of_a_value_is_called() -> None:
    """A mixture's weights would be divided by their sum again; an affine proposal would be checked again."""
    broken = Affine(np.eye(1), np.zeros(1), np.eye(1))
    object.__setattr__(broken, "offset", np.array([np.nan]))
    assert np.isnan(through(broken).offset).all()


def test_annotations_of_all_types_can_be_checked() -> None:
    for kind in CODEC.known.values():
        assert set(_hints(kind)) or kind in CODEC.special or not getattr(kind, "__dataclass_fields__", {}), kind


def test_types_of_fields_are_known() -> None:
    """A dataclass or named tuple of the package that a known type contains."""
    unknown = set()
    for kind in CODEC.known.values():
        kept = {one.name for one in fields(kind) if "codec" not in one.metadata} if is_dataclass(kind) else _hints(kind)
        for name in kept:
            unknown |= {one for one in named(_hints(kind)[name]) if one not in CODEC.known.values()}
    assert not unknown


def named(hint: Any) -> Iterator[type]:
    """The dataclasses and named tuples of the package in an annotation."""
    if isinstance(hint, type) and hint.__module__.startswith("stansub") and hasattr(hint, "__match_args__"):
        yield hint
    for one in get_args(getattr(hint, "__value__", hint)):
        yield from named(one)


class Point(NamedTuple):
    x: int


@dataclass
class Own:
    number: int
    function: Any = field(default=None, metadata=GIVEN)
    cache: list[int] = field(default_factory=list, metadata=ANEW)


def test_types_of_the_users_own_are_known_where_options_bring_them() -> None:
    value = {"a": [Own(3, math.sin, [1])], "b": Point(4)}
    with pytest.raises(NotKeptError, match="a value of type Own"):
        CODEC.encode(value)
    foreign = CODEC.foreign(value)
    assert foreign == Foreign((math.sin,), {"Own": Own, "Point": Point})
    assert through(value, foreign) == {"a": [Own(3, math.sin, [])], "b": Point(4)}
    with pytest.raises(MalformedError, match="unknown type 'Own'"):
        CODEC.decode(CODEC.encode(value, foreign))


def test_values_of_the_users_own_that_are_odd() -> None:
    """What a run does without checkpoints is not in danger from them."""
    itself, unset = Own(1), Own(2)
    itself.cache = [itself]  # type: ignore[list-item]
    del unset.number
    assert CODEC.foreign(itself, unset).types == {"Own": Own}
    with pytest.raises(NotKeptError, match="number"):
        CODEC.encode(unset, CODEC.foreign(unset))


def test_a_proposal_that_is_kept_as_it_was_given_is_not_written() -> None:
    adapter = NoAdapter(lambda rng, position: (position, 0.0))
    foreign = CODEC.foreign(adapter)
    assert through(adapter, foreign)._proposal is adapter._proposal
    with pytest.raises(NotKeptError, match="a value of type function"):
        CODEC.encode(NoAdapter(lambda rng, position: (position, 1.0)), foreign)


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, np.array([None]), lambda: 0, np.array([1], dtype="m8[s]")])
def test_what_no_document_holds(value: Any) -> None:
    with pytest.raises(NotKeptError):
        CODEC.encode([value])


def test_a_value_that_contains_itself() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotKeptError, match="contains itself"):
        CODEC.encode(value)


DIGEST = CODEC.encode(np.zeros(2)).document["array"][3]
WALK = "kernels.proposals:RandomWalk"


@pytest.mark.parametrize(
    "document",
    [
        {"object": ["os:system", {"command": "true"}]},
        {"object": ["posix:system", {}]},
        {"object": ["builtins:eval", {}]},
        {"object": [WALK, {}]},
        {"object": [WALK, {"cholesky": "text"}]},
        {"object": [WALK, {"cholesky": None, "__class__": None}]},
        {"object": [WALK, {"cholesky": {"array": ["|O", [2], "C", DIGEST]}}]},
        {"object": [["a"], {}]},
        {"object": [WALK, ["cholesky"]]},
        {"object": ["_loop:DeciderState", {}]},
        {"object": ["chosen:BlockReason", {}]},
        {"special": ["_loop:DeciderState", {"tuple": [1, 2]}]},
        {"special": [WALK, None]},
        {"special": ["run.state:Totals", {"dict": [["n", "text"]]}]},
        {"enum": ["chosen:BlockReason", "none of them"]},
        {"enum": [WALK, 1]},
        {"array": ["<f8", [3], "C", DIGEST]},
        {"array": ["<f8", [-2], "C", DIGEST]},
        {"array": ["<f8", [2.0], "C", DIGEST]},
        {"array": ["<f8", [2], "C", "other"]},
        {"array": ["<f8", [2], "K", DIGEST]},
        {"array": ["V8", [2], "C", DIGEST]},
        {"array": [[["a", "<f8"]], [2], "C", DIGEST]},
        {"generator": ["PCG64", {"dict": []}]},
        {"generator": ["system", None]},
        {"generator": ["PCG64", 3]},
        {"given": 0},
        {"given": -1},
        {"same": 0},
        {"same": True},
        {"float": "1"},
        {"number": ["|O", "00"]},
        {"number": ["<f8", "00"]},
        {"dict": [[{"dict": []}, 1]]},
        {"dict": 3},
        {"bytes": "no"},
        {"tuple": 3},
        {"unknown": 3},
        {"tuple": [], "dict": []},
        {},
    ],
)
def test_a_document_of_no_value_is_refused(document: Any) -> None:
    with pytest.raises(MalformedError):
        CODEC.decode(Encoded(document, {DIGEST: bytes(16)}))


def test_a_document_that_is_nested_too_deeply_is_refused() -> None:
    document: Any = []
    for _ in range(100_000):
        document = [document]
    with pytest.raises(MalformedError, match="nested too deeply"):
        CODEC.decode(Encoded(document, {}))


def test_a_value_of_another_type_than_is_wanted_is_refused() -> None:
    with pytest.raises(MalformedError, match="found a int"):
        CODEC.decode(CODEC.encode(3), hint=Moments)


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (3, int, True),
        (True, int, False),
        (np.int64(3), int, True),
        (3, float, True),
        ("3", float, False),
        (None, int | None, True),
        ((1, "a"), tuple[int, str], True),
        ((1,), tuple[int, str], False),
        ((1, 2), tuple[int, ...], True),
        ([1.0, "a"], list[float], False),
        ({"a": 1}, dict[str, int], True),
        ({"a": "b"}, dict[str, int], False),
        (np.zeros(2), np.ndarray[Any, np.dtype[np.float64]], True),
        (np.zeros(2, int), np.ndarray[Any, np.dtype[np.float64]], False),
        (np.zeros(2), VECTOR[np.float64], True),
        (np.zeros(2, int), VECTOR[np.float64], False),
    ],
)
def test_fits(value: Any, hint: Any, expected: bool) -> None:
    assert fits(value, hint) == expected
