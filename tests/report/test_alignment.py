"""Quantities are paired by name and shape, and draws of different posteriors are refused."""

from __future__ import annotations

import fakes
import numpy as np
import pytest
from numpy.typing import NDArray

from stansub.diagnostics.alignment import align, check_provenance
from stansub.errors import InputError
from stansub.output.statistics import still

FloatArray = NDArray[np.float64]


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_common_quantities_are_paired_by_name_and_shape() -> None:
    ones = np.ones((4, 1000))
    draws = fakes.draws(rng(), more={"tau": ones, "wide": np.ones((4, 1000, 3)), "mine": ones, "same": ones})
    reference = fakes.reference(
        rng(), draws=500, more={k: np.ones((4, 500, *s)) for k, s in (("tau", ()), ("wide", (2,)), ("theirs", ()))}
    )
    alignment, x, y = align(draws, reference)
    assert alignment.common == ("alpha", "beta[1]", "beta[2]", "beta[3]")
    assert alignment.constant == ("tau",)
    assert alignment.only_in_draws == ("mine", "same")
    assert alignment.only_in_reference == ("theirs",)
    assert alignment.other_shape == ("wide (3 against 2)",)
    assert (x.shape, y.shape) == ((4, 1000, 4), (4, 500, 4))
    np.testing.assert_array_equal(x[:, :, 2], draws["posterior"]["beta"].values[:, :, 1])


def test_variables_can_be_chosen() -> None:
    alignment, x, _ = align(fakes.draws(rng()), fakes.reference(rng()), ["beta"])
    assert alignment.common == ("beta[1]", "beta[2]", "beta[3]")
    assert x.shape[2] == 3
    with pytest.raises(InputError, match="no such variable on either side: gamma"):
        align(fakes.draws(rng()), fakes.reference(rng()), ["beta", "gamma"])


def test_linear_functions_of_another_quantity_are_compared_once() -> None:
    def more(alpha: FloatArray, shift: float = 0.0) -> dict[str, FloatArray]:
        return {
            "same": alpha.copy(),
            "mirrored": np.stack([1e3 - 5 * alpha, alpha**2], axis=2),
            "near": alpha + 1e-3 * alpha**2,
            "shifted": alpha + shift,
        }

    draws, reference = fakes.draws(np.random.default_rng(4)), fakes.reference(np.random.default_rng(5))
    own, other = (idata["posterior"]["alpha"].values for idata in (draws, reference))
    draws = fakes.draws(np.random.default_rng(4), more=more(own))
    reference = fakes.reference(np.random.default_rng(5), more=more(other, shift=1e-3))
    alignment, x, y = align(draws, reference)
    assert alignment.copies == ("same (alpha)", "mirrored[1] (alpha)")
    assert alignment.common[4:] == ("mirrored[2]", "near", "shifted")
    assert x.shape[2] == y.shape[2] == len(alignment.common)
    chosen, *_ = align(draws, reference, ["same"])
    assert (chosen.common, chosen.copies) == (("same",), ())


def test_what_is_not_finite_or_does_not_move_has_no_copies() -> None:
    holes, still = np.full((4, 1000, 2), np.nan), np.full((4, 1000, 2), 2.0)
    moving = np.random.default_rng(4).standard_normal((4, 1000, 2))
    draws = fakes.draws(rng(), more={"holes": holes, "still": still})
    alignment, *_ = align(draws, fakes.reference(rng(), more={"holes": moving, "still": moving}), ["holes", "still"])
    assert alignment.common == ("holes[1]", "holes[2]", "still[1]", "still[2]")
    assert alignment.copies == ()


@pytest.mark.parametrize(("own", "other", "compared"), [(1.0, 1.0 + 1e-7, False), (1.0, 1.1, True), (0.0, 0.0, False)])
def test_equal_constants_are_set_aside(own: float, other: float, compared: bool) -> None:
    draws = fakes.draws(rng(), more={"c": np.full((4, 1000), own)})
    alignment, *_ = align(draws, fakes.reference(rng(), more={"c": np.full((4, 1000), other)}))
    assert ("c" in alignment.common) == compared
    assert ("c" in alignment.constant) != compared


def test_a_constant_of_one_side_is_compared() -> None:
    draws = fakes.draws(rng(), more={"c": np.zeros((4, 1000))})
    alignment, *_ = align(draws, fakes.reference(rng(), more={"c": rng().standard_normal((4, 1000))}))
    assert "c" in alignment.common


def test_rounding_is_no_movement() -> None:
    values = np.stack([np.full((2, 50), 0.3), np.full((2, 50), 0.3), np.full((2, 50), np.nan)], axis=2)
    values[0, 7, 0] += 1e-16
    values[0, 7, 1] += 1e-5
    np.testing.assert_array_equal(still(values), [True, False, True])


def test_nothing_in_common() -> None:
    with pytest.raises(
        InputError, match=r"no common parameters: the draws have beta \(3\), the reference has beta \(5\)"
    ):
        align(fakes.draws(rng()), fakes.reference(rng(), size=6), ["beta"])
    ones = {"c": np.ones((4, 1000))}
    with pytest.raises(InputError, match="nothing to compare"):
        align(fakes.draws(rng(), more=ones), fakes.reference(rng(), more=ones), ["c"])


def test_too_few_draws() -> None:
    with pytest.raises(
        InputError, match=r"^reference: too few draws to compare \(3 per chain\); sample at least 1000$"
    ):
        align(fakes.draws(rng()), fakes.reference(rng(), draws=3))


def test_other_models_and_data_are_refused() -> None:
    draws = fakes.draws(rng())
    assert check_provenance(draws, fakes.reference(rng())) == ()
    with pytest.raises(InputError, match=r"different models: logistic .*0123456789abcdef.* and probit .*beef"):
        check_provenance(draws, fakes.reference(rng(), attrs={"reference_for": "beef", "model": "probit"}))
    with pytest.raises(InputError, match="different data"):
        check_provenance(draws, fakes.reference(rng(), attrs={"data_hash": "beef"}))


def test_a_faster_formulation_stands_for_the_model() -> None:
    assert check_provenance(fakes.draws(rng()), fakes.reference(rng(), attrs={"model_hash": "another"})) == ()


def test_another_run_can_be_the_reference() -> None:
    assert check_provenance(fakes.draws(rng()), fakes.draws(rng())) == ()
    with pytest.raises(InputError, match="different models"):
        check_provenance(fakes.draws(rng()), fakes.draws(rng(), attrs={"model_hash": "beef"}))


def test_what_is_not_recorded_is_noted() -> None:
    assert check_provenance(fakes.draws(rng()), fakes.foreign(rng())) == (
        "the reference does not record which model it came from",
        "the reference does not record which data it came from",
    )


def test_names_and_complex_numbers_of_others_are_brought_to_ours() -> None:
    values = np.random.default_rng(4).standard_normal((4, 1000, 4))
    own = {"at:1": values[..., :2], "z": values[..., 2:]}
    others = {"at.1:1": values[..., 0], "at.2:1": values[..., 1], "z": values[..., 2] + 1j * values[..., 3]}
    alignment, x, y = align(fakes.draws(rng(), more=own), fakes.reference(rng(), more=others))
    assert alignment.common[-4:] == ("at:1[1]", "at:1[2]", "z[1]", "z[2]")
    assert alignment.only_in_draws == alignment.only_in_reference == ()
    np.testing.assert_array_equal(x[..., -4:], y[..., -4:])


def test_points_in_names_may_mean_something_else() -> None:
    others = {"b.intercept": np.ones((4, 1000)), "beta.1": np.ones((4, 1000))}
    alignment, *_ = align(fakes.draws(rng()), fakes.reference(rng(), more=others))
    assert alignment.only_in_reference == ("b.intercept", "beta.1")


def test_what_neither_side_kept_or_is_no_number_is_named() -> None:
    words = {"word": np.full((4, 1000), "x")}
    reference = fakes.reference(rng(), more=words, attrs={"not_kept": "eta, log_lik"})
    draws = fakes.draws(rng(), more={"eta": np.ones((4, 1000, 3))})
    alignment, *_ = align(draws, reference)
    assert (alignment.only_in_draws, alignment.in_neither) == (("eta",), ("log_lik",))
    assert alignment.not_numeric == ("word",)
    chosen, *_ = align(draws, reference, ["beta"])
    assert (chosen.in_neither, chosen.not_numeric, chosen.only_in_draws) == ((), (), ())
