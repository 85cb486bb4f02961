"""Data handed over in memory are, to the last bit, those handed over as JSON."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from layout import example
from simulated import PROGRAMS, Compiled

from stansub.errors import InputError
from stansub.stan.compilation import CompiledModel
from stansub.stan.data import data
from stansub.stan.instances import Slicer, build
from stansub.stan.syntax import parse
from stansub.stan.toolchain.arrays import Arrays
from stansub.stan.toolchain.library import Model
from stansub.target.blocks import Blocks
from stansub.types import FloatArray

THETA = np.array([0.3])


@pytest.fixture(scope="module")
def layout(compiled: Compiled) -> CompiledModel:
    return compiled(PROGRAMS / "layout.stan")


@pytest.fixture
def json_alone(layout: CompiledModel) -> Iterator[Callable[[bool], None]]:
    """Says whether the library is one that takes no data in memory, as those of BridgeStan's own sources."""

    def switch(alone: bool) -> None:
        layout.original.takes_arrays = not alone

    yield switch
    switch(False)


def returned(model: Model) -> FloatArray:
    return model.param_constrain(THETA, include_gq=True, rng=model.rng(0))


def test_the_library_takes_arrays(layout: CompiledModel) -> None:
    assert layout.original.takes_arrays


@pytest.mark.parametrize(("n", "k"), [(5, 3), (1, 1), (3, 0), (0, 2), (0, 0)])
def test_all_of_the_data(layout: CompiledModel, n: int, k: int) -> None:
    values = layout.read_data(example(n, k))
    assert np.array_equal(returned(values.model(layout.original)), returned(layout.original.model(values.json())))


@pytest.mark.parametrize("order", [None, np.random.default_rng(2).permutation(7)], ids=["as given", "shuffled"])
@pytest.mark.parametrize(("start", "stop"), [(0, 7), (2, 5), (6, 7), (3, 3)])
def test_rows(layout: CompiledModel, order: Any, start: int, stop: int, json_alone: Callable[[bool], None]) -> None:
    slicer = Slicer(layout.original, layout.read_data(example(7)), ("N",), order)
    found = returned(slicer.model(start, stop))
    json_alone(True)
    expected = returned(Slicer(slicer.library, slicer.data, ("N",), order).model(start, stop))
    assert np.array_equal(found, expected)
    assert found[1] == stop - start
    if stop - start == 3:
        assert not np.array_equal(found, returned(slicer.model(start - 1, stop - 1)))


def test_a_library_that_takes_json_alone(layout: CompiledModel, json_alone: Callable[[bool], None]) -> None:
    values = layout.read_data(example(7))

    def models() -> list[Model]:
        blocks = build(Slicer(layout.original, values, ("N",)), Blocks(7, 3), ())
        return [values.model(layout.original), *(blocks.models.get(b, 0)[0] for b in range(3)), *blocks.global_models]

    json_alone(True)
    from_text = models()
    json_alone(False)
    for one, other in zip(from_text, models(), strict=True):
        assert np.array_equal(returned(one), returned(other))


@pytest.mark.parametrize(
    "changes",
    [
        {"z": np.array([1, -2, 3])},
        {"N": 4},
        {"fixed": np.zeros(0)},
        {"x": np.zeros((2, 3))},
        {"y": np.zeros((3, 1))},
        {"z": np.array([1.0, 2.0, 3.0])},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_program_refuses_both_in_the_same_words(layout: CompiledModel, changes: dict[str, Any]) -> None:
    good = layout.read_data(example(3))
    bad = data.Data({**good.values, **changes}, good.declarations, good.source)
    with pytest.raises(InputError) as from_text:
        layout.original.model(bad.json())
    with pytest.raises(InputError) as from_memory:
        bad.model(layout.original)
    assert str(from_memory.value) == str(from_text.value)


def test_arrays_of_other_layouts(layout: CompiledModel) -> None:
    values = layout.read_data(example(5, 3))
    other = {name: np.asarray(value).copy(order="F") for name, value in values.values.items()}
    other |= {"m": other["m"].astype(np.int32), "z": other["z"].astype(np.uint32), "y": np.repeat(other["y"], 2)[::2]}
    expected = returned(values.model(layout.original))
    assert np.array_equal(returned(layout.original.model_of(Arrays(other, {}, ()))), expected)


def test_a_variable_that_is_missing(layout: CompiledModel) -> None:
    values = dict(layout.read_data(example(3)).values)
    del values["y"]
    with pytest.raises(InputError, match=r"variable does not exist.*variable name=y"):
        layout.original.model_of(Arrays(values, {}, ()))


@pytest.mark.parametrize("row", [-1, 3])
def test_rows_that_are_not_there(layout: CompiledModel, row: int) -> None:
    values = layout.read_data(example(3))
    arrays = values.arrays(values.axes(["N"]), ["N"])
    assert arrays is not None
    with pytest.raises(InputError, match="a row that is not in y"):
        layout.original.model_of(arrays, np.array([0, row]))


def test_tuples_are_left_to_json() -> None:
    declarations = parse("data { int N; tuple(int, real) pair; }").data.declarations
    values = data.read({"N": 2, "pair": {"1": 3, "2": 4.5}}, declarations)
    assert values.arrays({}, ()) is None
