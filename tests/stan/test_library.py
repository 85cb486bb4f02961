"""Libraries that cannot be used end in one line."""

import subprocess

import pytest

from stansub.errors import RunError
from stansub.stan.library import Library


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
