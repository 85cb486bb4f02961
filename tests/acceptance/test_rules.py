"""What a stopping rule says of itself, the built-in ones and one of a user's own."""

import pickle

import numpy as np
import pytest

from stansub.acceptance.ranges import Estimate, Scan
from stansub.acceptance.rules import (
    RULES,
    TEST_NAMES,
    Austerity,
    Barker,
    Exact,
    Geometric,
    Guarantee,
    Hoeffding,
    Penalty,
    Pocock,
    Poisson,
    Table,
    as_rule,
    make_test,
)
from stansub.errors import InputError


class Own:
    """The least that a rule must have."""

    name, needs_range = "own", False

    def table(self, n_units: int) -> Table:
        return Table(np.array([10, n_units], np.int32), np.zeros(2), np.zeros(2))


class OwnWithLevel(Own):
    epsilon = 0.01


def test_every_rule_is_registered_under_its_name() -> None:
    assert [make_test(name).name for name in TEST_NAMES] == list(RULES)


@pytest.mark.parametrize("name", [name for name in TEST_NAMES if name not in ("exact", "factorised", "poisson")])
def test_a_level_takes_the_place_of_the_rules_own(name: str) -> None:
    rule = make_test(name)
    assert rule.error is not None
    strict, usual, own = rule.table(1000, 1e-4), rule.table(1000), rule.table(1000, rule.error.value)
    other = rule.with_error(1e-4).table(1000)
    for field in ("n", "scale", "offset"):
        np.testing.assert_array_equal(getattr(usual, field), getattr(own, field))
        np.testing.assert_array_equal(getattr(strict, field), getattr(other, field))
    assert (strict.scale + strict.offset)[0] > (usual.scale + usual.offset)[0]
    for level in (-0.1, 1.0, float("nan")):
        with pytest.raises(InputError, match="between 0 and 1"):
            rule.table(1000, level)


def test_the_exact_rule_has_no_level() -> None:
    assert Exact().error is None
    assert Exact().with_error(0.1) == Exact()
    assert Pocock().table(1000, 0.0).n.tolist() == Exact().table(1000, 0.0).n.tolist() == [1000]
    with pytest.raises(InputError, match="makes no errors"):
        Exact().table(1000, 0.1)


def test_what_is_promised() -> None:
    assert {name: make_test(name).guarantee(Scan()).value for name in TEST_NAMES} == {
        "austerity": "asymptotic",
        "pocock": "asymptotic",
        "hoeffding": "bound",
        "bernstein": "bound",
        "bernstein-serfling": "bound",
        "barker": "asymptotic",
        "penalty": "asymptotic",
        "factorised": "exact by proved bounds",
        "poisson": "exact by proved bounds",
        "exact": "exact",
    }
    assert Hoeffding().guarantee(Estimate()) == Guarantee.VOID == "void: range estimated"
    assert Austerity(epsilon=0).guarantee(None) == Guarantee.EXACT


def test_numbers_for_the_record() -> None:
    assert Penalty(noise=0.5).parameters == {"epsilon": 0.005, "noise": 0.5}
    assert Barker().error == Pocock().error == ("epsilon", 0.005)
    assert Hoeffding().error == ("delta", 0.01)
    assert Exact().parameters == {}
    assert Poisson(kappa=2).parameters == {"kappa": 2}
    assert Poisson().error is None


def test_a_rule_of_ones_own() -> None:
    rule = as_rule(given := Own())
    assert (rule.name, rule.needs_range, rule.error, rule.exact) == ("own", False, None, False)
    assert rule.table(100).n.tolist() == [10, 100]
    assert rule.guarantee(None) == Guarantee.UNKNOWN
    assert repr(rule) == repr(given)
    assert as_rule(rule) is rule
    assert as_rule(OwnWithLevel()).error == ("epsilon", 0.01)
    assert pickle.loads(pickle.dumps(as_rule(OwnWithLevel()))).error == ("epsilon", 0.01)
    with pytest.raises(InputError, match="has no looks"):
        rule.with_looks(Geometric(first=5))
    with pytest.raises(InputError, match="the error level of the own test is fixed"):
        rule.table(100, 0.1)
    with pytest.raises(InputError, match="is not a test"):
        as_rule(object())
