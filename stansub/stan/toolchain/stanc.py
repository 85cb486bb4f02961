"""The Stan compiler's front end: the canonical text of a program, and its errors in one line."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from stansub.errors import InputError, RunError, StansubError, printable
from stansub.output import files
from stansub.stan.toolchain.bridgestan_home import find_home
from stansub.stan.toolchain.cache import cache_dir, is_ours, make_folder

# Not --print-canonical: in newer versions it overrides the list and keeps comments.
_CANONICAL = [
    "--auto-format",
    "--canonicalize=includes,strip-comments,deprecations,braces,parentheses",
    "--max-line-length=10000",
]
# Newer versions give a range, "line 4, column 20 to column 21" or "to line 5, column 3", and break the line after it.
_WARNING = re.compile(r"^Warning(?: in '[^']*', line (?P<line>\d+), column \d+(?: to [^:]*)?)?:\s", re.MULTILINE)
# stanc takes the name of a user's function that is passed to `reduce_sum` for a variable.
_NOT_ASSIGNED = re.compile(r"The variable (\w+) may not have been assigned")
# stanc misses priors of several parameters, and those that a transformed parameter adds up, as brms's lprior does.
_NO_PRIOR = re.compile(r"The parameter (\w+) has no priors")
STANC_ERROR = re.compile(r"^(?P<kind>.* error) in '(?P<file>.*?)', line (?P<line>\d+), column (?P<column>-?\d+)")
_RULE = re.compile(r"^\s*-{20,}\s*$")


def read(stan_file: Path) -> str:
    """Return the text of a Stan program; InputError if the file cannot be read or is not text."""
    try:
        code = stan_file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        if {"\n", "{"} <= set(str(stan_file)):
            raise InputError("the program is given as text; write it to a file and give the file's name") from None
        raise InputError(f"{stan_file}: no such file") from None
    except OSError as error:
        raise InputError(f"{stan_file}: cannot read the file ({error.strerror})") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(f"{stan_file}, line {line}: not UTF-8 text; save the program as UTF-8") from error
    if "\0" in code:
        line = code.count("\n", 0, code.index("\0")) + 1
        raise InputError(f"{stan_file}, line {line}: NUL character, which is not allowed in Stan programs; remove it")
    return code


def canonical(stan_file: Path) -> str:
    """Return a Stan program in stanc's normal form: includes resolved, no comments, braces, one statement a line.

    ``#include`` looks in the program's folder. Raises `InputError`, with file, line and reason, if the file cannot be
    read or stanc rejects the program; `RunError` if there is no stanc or it does not run.
    """
    # stanc runs in the program's folder because a folder's name may contain a comma, which separates include paths.
    return canonical_code(read(stan_file), str(stan_file), folder=stan_file.absolute().parent)


def canonical_code(code: str, name: str, *, folder: Path | None = None) -> str:
    """Return a program's text in stanc's normal form (see `canonical`); ``#include`` looks in ``folder``.

    Raises `InputError` if stanc rejects the program; `RunError` if there is no stanc or it does not run.
    """
    arguments = [*_CANONICAL, "--include-paths=.", f"--filename-in-msg={printable(name)}"]
    done = _stanc(code, arguments, folder)
    if done.returncode != 0:
        raise InputError(explain(done.stderr, name))
    return done.stdout


def warnings_of(stan_file: Path, *, pedantic: bool, with_prior: Collection[str] = ()) -> tuple[str, ...]:
    """Return stanc's warnings about a valid program, each in one line; empty if stanc does not run.

    Parameters
    ----------
    pedantic : bool
        Whether to include those of stanc's pedantic mode, such as unused parameters and unusual priors.
    with_prior : collection of str
        Parameters that have a prior, even if stanc sees none.
    """
    arguments = ["--allow-undefined", "--include-paths=.", "--o=/dev/null", *(["--warn-pedantic"] if pedantic else [])]
    try:
        code = read(stan_file)
        found = _stanc(code, arguments, stan_file.absolute().parent).stderr
    except StansubError:
        return ()
    places = [*_WARNING.finditer(found)]
    ends = [one.start() for one in places[1:]] + [len(found)] * bool(places)
    texts = [
        (f"line {one['line']}: " if one["line"] else "") + " ".join(found[one.end() : end].split())
        for one, end in zip(places, ends, strict=True)
    ]
    return tuple(text for text in dict.fromkeys(texts) if not _is_false(text, code, with_prior))


def signatures() -> str:
    """Return stanc's list of the functions of Stan's library, a signature a line; empty if stanc does not run.

    stanc takes a quarter of a second to print it, so it is kept in the cache.
    """
    home = find_home()
    kept = cache_dir() / "signatures" / f"{home.identity}.txt"
    if is_ours(kept):
        return kept.read_text(encoding="utf-8")
    try:
        found = subprocess.run([home.stanc, "--dump-stan-math-signatures"], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    with suppress(OSError, StansubError):  # asked again next time
        make_folder(kept.parent)
        files.write(kept, found, overwrite=True).chmod(0o644)
    return found.decode()


def _is_false(warning: str, code: str, with_prior: Collection[str]) -> bool:
    """Return whether stanc warns of a user's function, or misses a prior."""
    missed, unassigned = _NO_PRIOR.search(warning), _NOT_ASSIGNED.search(warning)
    # Only the name of a function is before a parenthesis.
    name = unassigned[1].replace("_lup", "_lp") if unassigned else ""
    return bool(name and re.search(rf"\b{name}\s*\(", code)) or (missed is not None and missed[1] in with_prior)


def _stanc(code: str, arguments: Sequence[str], folder: Path | None) -> subprocess.CompletedProcess[str]:
    """Run stanc on a program and return its output; RunError if there is no stanc or it does not run."""
    stanc = find_home().stanc
    try:
        return subprocess.run(
            [stanc, *arguments, "/dev/stdin"],
            input=code,
            cwd=folder,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    except OSError as error:
        raise RunError(f"cannot run {stanc}: {error.strerror}; run `stansub doctor` for details") from error


def explain(stderr: str, name: str) -> str:
    """Return the first error in stanc's output in one line: file, line, column, reason.

    ``name`` is the program's, if the output has none.
    """
    lines = stderr.strip().splitlines()
    for start, line in enumerate(lines):
        place = STANC_ERROR.match(line)
        if not place:
            continue
        rules = [i for i, other in enumerate(lines) if i > start and _RULE.match(other)]
        reason: list[str] = []
        for other in lines[rules[1] + 1 if len(rules) > 1 else start + 1 :]:
            if other.strip():
                reason.append(other.strip())
            elif reason:
                break
        where = f"{place['file'].removeprefix('./')}, line {place['line']}, column {place['column']}"
        return f"{where}: {place['kind'].lower()}: {' '.join(reason)}"
    return f"{name}: {lines[0] if lines else 'stanc failed without a message'}"
