"""The program in parts: which statements stand together, and what comes along."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stansub.stan import stanc
from stansub.stan.home import find_home
from stansub.stan.parts import Parts, divide
from stansub.stan.syntax import parse

PROGRAMS = Path(__file__).parents[1] / "model" / "programs"
ROOT = Path(__file__).parents[2]

Divide = Callable[[str], Parts | None]


@pytest.fixture
def divided(tmp_path: Path) -> Divide:
    """A program in parts, which stanc takes."""

    def divided(code: str) -> Parts | None:
        file = tmp_path / "program.stan"
        file.write_text(code)
        parts = divide(parse(stanc.canonical(file)))
        for text in (parts.code, parts.exporting) if parts else ():
            if text:
                file.write_text(text)
                stanc.canonical(file)
        return parts

    return divided


def switched(parts: Parts | None, *sizes: str) -> str:
    """The group of these sizes, without white space at the ends of lines."""
    assert parts is not None
    pieces = re.split(r"^if \(stansub_parts\[\d+\]\) \{\n", parts.code, flags=re.MULTILINE)[1:]
    return pieces[parts.groups.index(frozenset(sizes))].strip().removesuffix("}").strip().removesuffix("}").strip()


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() not in ("{", "}")]


HEAD = """
data { int N; int M; int J; vector[N] y; vector[M] z; array[N] int g; }
parameters { real a; real<lower=0> s; vector[J] u; }
"""


def test_a_group_has_what_it_needs_and_no_more(divided: Divide) -> None:
    parts = divided(
        HEAD
        + """
transformed parameters {
  vector[J] scaled = s * u;
  real b = 2 * a;
  real unread = square(a);
}
model {
  real c, d;
  c = b + 1;
  d = exp(a);
  u ~ normal(c, 1);
  a ~ std_normal();
  y ~ normal(scaled[g], d);
  target += normal_lpdf(z | c, s);
}
"""
    )
    assert parts is not None
    assert parts.sizes == ("N", "M")
    assert [set(group) for group in parts.groups] == [set(), {"N"}, {"M"}]
    assert lines(switched(parts, "N")) == [
        "vector[J] scaled = s * u;",
        "real c, d;",
        "c = b + 1;",
        "d = exp(a);",
        "y ~ normal(scaled[g], d);",
    ] or lines(switched(parts, "N"))
