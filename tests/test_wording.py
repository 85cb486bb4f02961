"""Parts of sentences."""

import pytest

from stansub.output.style import percent_ticks
from stansub.wording import percent


@pytest.mark.parametrize(
    ("share", "written"),
    [(0, "0 %"), (1e-9, "0.0000001 %"), (0.00123, "0.12 %"), (0.0999, "10 %"), (0.996, "100 %"), (1, "100 %")],
)
def test_percentages_have_no_exponents(share: float, written: str) -> None:
    assert percent(share) == written


@pytest.mark.parametrize(("share", "written"), [(0.0, "0 %"), (1e-7, "0.00001 %"), (0.025, "2.5 %"), (1.0, "100 %")])
def test_nor_have_those_beside_axes(share: float, written: str) -> None:
    assert percent_ticks()(share) == written
