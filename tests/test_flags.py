"""Options that messages of the library name, as the command line spells them."""

import pytest

from stansub.cli.flags import spelled


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("Run `chains=4`.", "Run --chains 4."),
        ("Raise `audit` or `iter_sampling`.", "Raise --audit or --iter-sampling."),
        ("(`range_source=scan` needs none)", "(--range scan needs none)"),
        ("look at `stansub plot`", "look at `stansub plot`"),
        ("the function `log_lik_i`", "the function `log_lik_i`"),
        ("`model` is an argument", "`model` is an argument"),
    ],
)
def test_options_become_flags_and_nothing_else(text: str, printed: str) -> None:
    assert spelled(text) == printed
