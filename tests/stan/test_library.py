"""Libraries that cannot be used end in one line; what they own has one owner."""

import copy
import multiprocessing
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stansub.errors import RunError
from stansub.stan.toolchain.library import Library, Model, Rng


def test_a_library_without_a_function_of_the_c_api(tmp_path):
    source, library = tmp_path / "old.cpp", tmp_path / "old.so"
    source.write_text('extern "C" void* bs_model_construct(const char*, unsigned, char**) { return nullptr; }')
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True)
    with pytest.raises(RunError, match=r"old\.so has no function bs_\w+: .*BRIDGESTAN.*doctor --clear`$"):
        Library(library)


def test_a_library_that_cannot_be_loaded(tmp_path):
    (tmp_path / "text.so").write_text("not a library")
    with pytest.raises(RunError, match=r"cannot load the compiled model .*text\.so.*doctor --clear"):
        Library(tmp_path / "text.so")


def test_a_forked_process_loads_libraries_too(tmp_path: Path) -> None:
    """It has none of the threads of the process that it was forked from, and waited for one of them."""

    def is_refused() -> bool:
        with pytest.raises(RunError, match="cannot load"):
            Library(tmp_path / "none.so")
        return True

    assert is_refused()
    process = multiprocessing.get_context("fork").Process(target=is_refused)
    process.start()
    process.join(60)
    waits = process.is_alive()
    process.kill()
    process.join()
    assert not waits
    assert process.exitcode == 0


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("owner", ["model", "rng"])
def test_owners_are_not_copied(owner: str, copied: Callable[[Model | Rng], object], normal_library: Path) -> None:
    """A copy would free what the library made, and its owner would crash."""
    model = Library(normal_library).model(b'{"N": 2, "y": [1, 2]}')
    with pytest.raises(TypeError, match="can be neither pickled nor copied: pickle the compiled model and the data"):
        copied(model if owner == "model" else model.rng(1))
    assert np.isfinite(model.log_density(np.zeros(2)))
