"""Messages name options as Python does, and the command line shows them as flags."""

import ast
import json
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.text import Text

import stansub
from stansub import InputError, cli
from stansub.cli.flags import FlagConsole, as_code, as_flags, in_one_line

PACKAGE = Path(stansub.__file__).parent
EXAMPLES = Path(__file__).parents[1] / "stan_models"
# Rooms whose words are written elsewhere, and those that call programs with flags of their own.
LEFT_OUT = (
    "cli/",
    "stan/toolchain/stanc.py",
    "stan/reading/typing.py",
    "stan/toolchain/build.py",
    "stan/toolchain/compiler.py",
)
# Flags that belong to a whole command, or to another program.
COMMAND = re.compile(r"(stansub|stanc|pip|xcode-select)[ \w]*( --[\w-]+)+|--allow-undefined|--filename-in-msg=")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("lower `thin`", "lower --thin"),
        ("`control_variates=0` or", "--control-variates 0 or"),
        ("`range_source='scan'`", "--range scan"),
        ('`engine="nutpie"`', "--engine nutpie"),
        ("`observations='my size'`: no", "--observations my size: no"),
        ("`save_warmup=True`", "--save-warmup"),
        ("`generated_quantities=False`", "--no-generated-quantities"),
        ("`overwrite=True` or `force=True`", "--force or --force"),
        ("look at `stansub summary` and `needs_range`", "look at `stansub summary` and `needs_range`"),
    ],
)
def test_options_in_backticks_are_shown_as_flags(text: str, shown: str) -> None:
    assert as_flags(text) == shown
    written = StringIO()
    FlagConsole(file=written, width=200).print(Text(text, style="bold"))
    assert written.getvalue() == f"{shown}\n"


def test_flags_on_a_page_are_code() -> None:
    text = "lower `thin`, or use `audit=0.01`; see `stansub plot` and `needs_range`"
    assert as_code(text) == "lower `--thin`, or use `--audit 0.01`; see `stansub plot` and `needs_range`"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[red]x[/].nc", "[red]x[/].nc"),
        ("\x1b[31mred\x9b0m", "\\x1b[31mred\\x9b0m"),
        ("\udcff.nc", "\\udcff.nc"),
        ("é\u00a0ü²", "é\\xa0ü²"),
        ("a\nb", "a\nb"),
    ],
)
def test_texts_of_the_user_are_neither_markup_nor_control_sequences(text: str, shown: str) -> None:
    written = StringIO()
    console = FlagConsole(file=written, width=200)
    console.print(text)
    console.print(Text(text))
    assert written.getvalue() == f"{shown}\n{shown}\n"
    assert in_one_line(text) == shown.replace("\n", "\\n")


def test_tabs_are_spaces_in_a_text_and_spelled_out_in_a_line() -> None:
    written = StringIO()
    FlagConsole(file=written, width=200).print("a\tb")
    assert written.getvalue() == "a       b\n"
    assert in_one_line("a\tb") == "a\\tb"


def test_nothing_below_the_command_line_speaks_of_flags() -> None:
    found = []
    for file in PACKAGE.rglob("*.py"):
        place = file.relative_to(PACKAGE).as_posix()
        if place.startswith(LEFT_OUT):
            continue
        texts = [node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)]
        found += [
            f"{place}: {text}"
            for text in texts
            if isinstance(text, str) and re.search(r"(?<![\w-])--[a-z]", COMMAND.sub("", text))
        ]
    assert not found


def test_python_and_the_command_line_say_the_same_each_in_its_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"N": 30, "y": [0.1 * i for i in range(30)], "sigma": 2.0}))
    program = EXAMPLES / "normal_mean.stan"
    with pytest.raises(InputError) as caught:
        stansub.sample(program, data, test="pocock", range_source="scan")
    assert str(caught.value) == "the pocock test does not use a range: leave out `range_source='scan'`"
    with pytest.raises(SystemExit):
        cli.main(["sample", str(program), str(data), "--test", "pocock", "--range", "scan"])
    shown = capsys.readouterr().err
    assert shown == "stansub: error: the pocock test does not use a range: leave out --range scan\n"
