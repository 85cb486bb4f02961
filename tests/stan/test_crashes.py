"""Programs that end the process on data cut in a way that their author did not foresee."""

import numpy as np
import pytest
from simulated import PROGRAMS
from test_identity import check_identity

from stansub.stan.analysis import NotASumError
from stansub.stan.compilation import compile_model


@pytest.mark.slow
def test_one_length_under_several_names_is_found_though_single_names_make_literals_fail() -> None:
    rng = np.random.default_rng(3)
    data = {"N": 53, "N_a": 53, "a": rng.standard_normal(53), "N_b": 53, "b": rng.standard_normal(53)}
    model = compile_model(PROGRAMS / "two_outcomes.stan")
    posterior = model.with_data(data, block_size=4, seed=7)
    assert posterior.sizes == ("N_a", "N_b", "N")
    assert posterior.blocks.n_observations == 53
    check_identity(posterior, model, data)


@pytest.mark.slow
def test_a_cut_on_which_a_program_crashes_is_no_cut() -> None:
    data = {"N": 50, "counted": 40, "y": np.random.default_rng(3).standard_normal(50)}
    with pytest.raises(NotASumError, match="evaluating it crashes"):
        compile_model(PROGRAMS / "bottomless.stan").with_data(data)
