"""Which headers a program is compiled with, on a small library of headers."""

from pathlib import Path

import pytest

from stansub.stan.toolchain import build
from stansub.stan.toolchain.headers import Headers

FILES = {
    "stan/model/model_header.hpp": "#include <stan/math/prim/fun.hpp>\n#include <stan/math/rev/core/var.hpp>\n",
    "stan/math/rev/core/var.hpp": "/* not gamma(x) */ inline var operator+(var a, var b) { return add(a, b); }",
    "stan/math/prim/fun.hpp": "".join(
        f"#include <stan/math/{name}.hpp>\n"
        for name in ("prim/fun/add", "rev/fun/add", "prim/fun/beta", "prim/fun/cube", "prim/fun/gamma", "prim/fun/pi")
    ),
    "stan/math/prim/fun/add.hpp": "template <typename T, when<T>* = nullptr>\nauto add(T a, T b) { return a + b; }",
    "stan/math/rev/fun/add.hpp": "namespace stan { inline var add(var a, var b) { return twice(a); } }",
    # Needs cube without including it, which comes after it in the order of the alphabet.
    "stan/math/prim/fun/beta.hpp": "inline double beta(double a, double b) { return cube(a) * PI; }",
    "stan/math/prim/fun/cube.hpp": "template <typename T>\ninline return_t<T>\ncube(const T& gamma_of) { return 0; }",
    "stan/math/prim/fun/gamma.hpp": 'inline double gamma(double a) { static const char* f = "beta"; return a; }',
    "stan/math/prim/fun/pi.hpp": "const int PI = 3;\nstruct circle { circle() {} double area() { return cube(1); } };",
}


def guard(name: str) -> str:
    return name.upper().replace("/", "_").replace(".", "_")


@pytest.fixture
def headers(tmp_path: Path) -> Headers:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"#ifndef {guard(name)}\n#define {guard(name)}\n{text}\n#endif\n")
    return Headers.of(tmp_path)


def included(text: str) -> list[str]:
    return [line.split("/")[-1].removesuffix(".hpp>") for line in text.splitlines() if line.startswith("#include")]


def test_all_programs_share_what_the_machinery_mentions(headers):
    assert sorted(headers.common) == ["stan/math/prim/fun/add.hpp", "stan/math/rev/fun/add.hpp"]
    lines = headers.for_all().splitlines()
    assert lines[-1] == "#include <stan/model/model_header.hpp>"
    left_out = [f"stan/math/prim/fun/{name}.hpp" for name in ("beta", "cube", "gamma", "pi")]
    assert sorted(lines[:-1]) == [f"#define {guard(name)}" for name in left_out]


def test_a_program_includes_what_it_mentions_and_what_that_mentions_first(headers):
    text = headers.for_one("double x = stan::math::beta(1, 2); // gamma(x)")
    assert included(text) == ["cube", "pi", "beta"]
    assert text.count("#undef") == 3
    assert included(headers.for_one("circle c;")) == ["cube", "pi"]
    assert included(headers.for_one("add(1, 2);")) == []
    assert included(headers.for_one("double area = 1;")) == [], "a function of a type is not one of the namespace"
    assert included(headers.for_one('std::string gamma_of = "gamma";')) == []


@pytest.mark.slow
def test_no_header_that_a_program_needs_is_left_out(own_cache, request):
    """Functions of each kind of header, with signatures that need others."""
    code = (request.path.parent / "programs" / "functions.stan").read_text()
    said: list[str] = []
    build.compile_library(code, name="functions", progress=said.append)
    assert not [line for line in said if "again" in line]
