"""What the text of a program shows is worked out once, and is a value."""

import pickle
import re
from pathlib import Path

import pytest
from texts import canonical

import stansub
from stansub.stan import family
from stansub.stan.analysis import Analysis
from stansub.target.remainders import NoPredictorsError

PACKAGE = Path(stansub.__file__).parent
MOVING = """data { int N; vector[N] y; } parameters { real a; real<lower=0> s; }
model { y ~ normal(a * reverse(y), s); }"""
SERIES = """data { int N; vector[N] y; } parameters { real a; real<lower=0> s; }
model { for (n in 2 : N) y[n] ~ normal(a * y[n - 1], s); }"""
LATENT = "data { int N; vector[N] y; } parameters { vector[N] z; } model { z ~ normal(0, 1); y ~ normal(z, 1); }"


def read(code: str) -> Analysis:
    return Analysis.of(canonical(code))


def test_it_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = read(SERIES)
    assert read(SERIES) is analysis, "another parse of the same text"
    found = analysis.size, analysis.rewriting, analysis.counted, analysis.has_family

    def again(*_: object) -> None:
        raise AssertionError("it was worked out already")

    monkeypatch.setattr(family, "added_density", again)
    after = analysis.size, analysis.rewriting, analysis.counted, analysis.has_family
    assert found == after
    assert after[2:4] == ("stansub_t", True)


def test_it_can_be_pickled() -> None:
    analysis = read(SERIES)
    expected = analysis.size, analysis.rewriting
    copy = pickle.loads(pickle.dumps(analysis))
    assert (copy.size, copy.rewriting) == expected


def test_why_there_is_no_surrogate_is_kept() -> None:
    analysis = read(LATENT)
    for _ in range(2):
        with pytest.raises(NoPredictorsError, match="the number of parameters grows with the observations"):
            analysis.likelihood_split()


def test_doubts_are_raised_where_no_structure_is_known() -> None:
    assert [one.message for one in read(MOVING).doubts()] == ["depends on the data of all observations"]
    assert list(read(SERIES).doubts()) == [], "a pass writes it over rows"
    latent = read(LATENT)
    assert latent.structure() is not None
    assert list(latent.doubts()) == []


def test_only_the_room_that_reads_programs_recognises_anything() -> None:
    """Others ask the analysis of a program for it."""
    recognising = re.compile(r"\b(recognise|recognised|rewriting|density_of|main_size|named|entries)\(\w*program")
    files = [one for one in PACKAGE.rglob("*.py") if "stan" not in one.relative_to(PACKAGE).parts]
    assert not [str(one) for one in files if recognising.search(one.read_text())]
