"""Parts of sentences."""

from dataclasses import fields
from string import Formatter
from typing import get_type_hints

import pytest

from stansub import decision_findings, decision_selection, findings, mode_findings, selection, variates_selection
from stansub.output.style import percent_ticks
from stansub.wording import filled, percent, rounded

DESCRIBED = [
    one
    for module in (findings, decision_findings, mode_findings, selection, decision_selection, variates_selection)
    for one in vars(module).values()
    if isinstance(one, type)
    and issubclass(one, findings.Finding | selection.Chosen)
    and one.__module__ == module.__name__
]


@pytest.mark.parametrize(
    ("share", "written"),
    [(0, "0 %"), (1e-9, "0.0000001 %"), (0.00123, "0.12 %"), (0.0999, "10 %"), (0.996, "100 %"), (1, "100 %")],
)
def test_percentages_have_no_exponents(share: float, written: str) -> None:
    assert percent(share) == written


@pytest.mark.parametrize(("share", "written"), [(0.0, "0 %"), (1e-7, "0.00001 %"), (0.025, "2.5 %"), (1.0, "100 %")])
def test_nor_have_those_beside_axes(share: float, written: str) -> None:
    assert percent_ticks()(share) == written


@pytest.mark.parametrize(("value", "written"), [(0.0951, "0.095"), (3.0, "3"), (99.6, "100"), (4231.0, "4,200")])
def test_rounded_numbers_have_no_exponents(value: float, written: str) -> None:
    assert rounded(value) == written


def test_templates_take_attributes_in_words() -> None:
    mode = mode_findings.MissedMode(0.123, -1.0, 2.5, {})
    assert filled("{share:percent}, {above:.2f} above {log_density}", mode) == "12 %, 2.50 above -1.0"
    assert filled("{permuted:joined}", mode_findings.LabelsSwitch(("mu", "tau"))) == "mu, tau"


@pytest.mark.parametrize("kind", DESCRIBED)
def test_fields_of_templates_exist(kind: type) -> None:
    types = {one.name: get_type_hints(kind)[one.name] for one in fields(kind)}
    for template in (getattr(kind, name, "") for name in ("text", "remedy")):
        for field in filter(None, (field for _, field, _, _ in Formatter().parse(template))):
            name, _, attribute = field.partition(".")
            assert name in types
            assert not attribute or attribute in {*dir(types[name]), *get_type_hints(types[name])}


def test_every_kind_has_a_template_or_describes_itself() -> None:
    bases = findings.Finding, selection.Chosen, variates_selection.ExpansionPoint
    plain = [one for one in DESCRIBED if one not in bases and not hasattr(one, "text")]
    assert all(one.describe not in (findings.Finding.describe, selection.Chosen.describe) for one in plain)
    assert len(plain) > 20
