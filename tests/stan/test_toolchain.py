"""Homes, stanc and the cache of libraries; most compilations here are done by stand-ins for make."""

import base64
import hashlib
import io
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import bridgestan
import numpy as np
import pytest
from clocks import HANGS, wait_until
from filelock import FileLock

import stansub
from stansub.errors import InputError, RunError
from stansub.progress import Progress, TimeLimitError
from stansub.stan import plan
from stansub.stan.toolchain import bridgestan_home, build, compiler, doctor, download, stanc
from stansub.stan.toolchain.bridgestan_home import _find_home, find_home

CODE = "parameters { real x; } model { x ~ normal(0, 1); }"

# Writes what make would write, in two steps, slowly where that matters, and notes that it was called.
FAKE_MAKE = """#!/bin/sh
echo "$@" >> {log}
case "$1" in --version) exit;; esac
for argument in "$@"; do
  case "$argument" in BRIDGE_O=*) api="${{argument#BRIDGE_O=}}";; esac
  target="$argument"
done
[ -f "$api" ] || echo api > "$api"
printf first > "$target"
sleep "${{PAUSE:-0}}"
printf second >> "$target"
"""


@pytest.fixture
def no_download(own_cache, monkeypatch):
    """A cache that remembers a failed download, so that none is tried."""
    monkeypatch.setattr(download, "_download", lambda folder: "no network in tests")
    return own_cache


@pytest.fixture
def fake_make(tmp_path, monkeypatch):
    """Replaces make by a script; gives the list of calls for programs."""
    log, script = tmp_path / "calls", tmp_path / "fake-make"
    script.write_text(FAKE_MAKE.format(log=log))
    script.chmod(0o755)
    monkeypatch.setenv("MAKE", str(script))
    monkeypatch.setattr(build, "_PROGRAMS_FIRST", 2)

    def calls(of_headers: bool = False) -> list[str]:
        lines = log.read_text().splitlines() if log.exists() else []
        return [line for line in lines if line.endswith(".hpp.gch" if of_headers else ".so")]

    return calls


@pytest.fixture
def endless_make(tmp_path, monkeypatch):
    """Replaces make by a script that comes to no end by itself."""
    script = tmp_path / "endless-make"
    script.write_text(f"#!/bin/sh\nexec sleep {2 * HANGS}\n")
    script.chmod(0o755)
    monkeypatch.setenv("MAKE", str(script))


def fake_sources(folder: Path, version: str | None = None) -> Path:
    """A folder that looks like BridgeStan's sources, with a stanc that says hello."""
    major, minor, patch = (version or download.bridgestan_version()).split(".")
    (folder / "src").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "Makefile").write_text("all:\n")
    (folder / "src/version.hpp").write_text(
        f"#define BRIDGESTAN_MAJOR {major}\n#define BRIDGESTAN_MINOR {minor}\n#define BRIDGESTAN_PATCH {patch}\n"
    )
    (folder / "bin/stanc").write_text("#!/bin/sh\necho hello\n")
    (folder / "bin/stanc").chmod(0o755)
    return folder


# Homes


def test_a_home_is_made_without_a_download(no_download):
    home = find_home()
    assert home.origin == "made"
    assert home.path.parent == no_download
    assert home.version == bridgestan.__version__
    assert subprocess.run([home.stanc, "--version"], capture_output=True, check=True).stdout.startswith(b"stanc3")
    assert tuple(map(int, home.stan_version.split("."))) >= (2, 35, 0)


def test_a_stale_home_is_put_right(no_download):
    home = find_home()
    link = home.path / "include"
    target = os.readlink(link)
    link.unlink()
    link.symlink_to("/an/environment/that/is/gone")
    _find_home.cache_clear()
    assert find_home() == home
    assert os.readlink(link) == target


def test_a_home_directory_that_cannot_be_read(no_download, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / ("x" * 300)))
    assert find_home().origin == "made"


@pytest.mark.parametrize("name", ["Makefile", "src/bridgestan.cpp", "src/version.hpp"])
def test_a_damaged_home_is_put_right(no_download, name):
    home = find_home()
    file = home.path / name
    content = file.read_bytes()
    os.truncate(file, 10)
    _find_home.cache_clear()
    assert find_home() == home
    assert file.read_bytes() == content


def wheel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed httpstan package of small files, and the note of their digests."""
    package = folder / "site" / "httpstan"
    files = {"stanc": b"a compiler" * 99, "lib/libtbb.so.2": b"threads" * 99, "include/stan/version.hpp": b""}
    record = []
    for name, content in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        record.append(f"httpstan/{name},sha256={digest},{len(content)}\n")
    facts = {"RECORD": "".join(record), "WHEEL": "Tag: any"}
    installed = SimpleNamespace(version="4.0", read_text=facts.get)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: installed)
    spec = SimpleNamespace(submodule_search_locations=[str(package)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    return package


@pytest.mark.parametrize("name", ["stanc", "lib/libtbb.so.2"])
def test_what_httpstan_brings_must_be_as_installed(no_download, tmp_path, monkeypatch, name):
    package = wheel(tmp_path, monkeypatch)
    bridgestan_home._made_home(no_download)
    os.truncate(package / name, 50)
    with pytest.raises(RunError, match=rf"{name} is damaged.*pip install --force-reinstall"):
        bridgestan_home._made_home(no_download)


def test_a_home_needs_httpstan(no_download, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RunError, match="pip install httpstan"):
        find_home()


def test_bridgestan_variable_comes_first(own_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("BRIDGESTAN", str(fake_sources(tmp_path / "mine")))
    home = find_home()
    assert (home.origin, home.path) == ("BRIDGESTAN", tmp_path / "mine")


def test_bridgestan_variable_may_name_a_made_home(no_download, monkeypatch):
    made = find_home()
    monkeypatch.setenv("BRIDGESTAN", str(made.path))
    home = find_home()
    assert home.origin == "BRIDGESTAN"
    assert home.identity == made.identity


@pytest.mark.parametrize(("version", "message"), [(None, "contains no Makefile"), ("2.1.0", "version is 2.1.0")])
def test_bridgestan_variable_must_be_usable(own_cache, tmp_path, monkeypatch, version, message):
    if version:
        fake_sources(tmp_path / "mine", version)
    monkeypatch.setenv("BRIDGESTAN", str(tmp_path / "mine"))
    with pytest.raises(InputError, match=message):
        find_home()


def test_an_earlier_download_is_used(own_cache, tmp_path):
    folder = fake_sources(tmp_path / ".bridgestan" / f"bridgestan-{download.bridgestan_version()}")
    home = find_home()
    assert (home.origin, home.path) == ("bridgestan", folder)


def test_a_download_is_used(own_cache, tmp_path, monkeypatch):
    name = f"bridgestan-{download.bridgestan_version()}"
    fake_sources(tmp_path / "release" / name)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.add(tmp_path / "release" / name, arcname=name)
    asked = []

    def urlopen(url, timeout):
        asked.append(url)
        return io.BytesIO(archive.getvalue())

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    home = find_home()
    assert home.origin == "download"
    assert home.path == tmp_path / ".bridgestan" / name
    assert len(asked) == 1
    assert f"/v{download.bridgestan_version()}/" in asked[0]
    assert sorted(path.name for path in home.path.parent.iterdir()) == [name]


def test_a_download_that_hangs_is_given_up_and_remembered(own_cache, monkeypatch):
    calls, answered = [], threading.Event()

    def urlopen(url, timeout):
        calls.append(url)
        answered.wait()

    monkeypatch.setattr(download, "CONNECT_SECONDS", 0.1)
    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    assert find_home().origin == "made"
    assert "no connection" in download.failed_download(own_cache)

    _find_home.cache_clear()
    find_home()
    assert len(calls) == 1

    note = download._failure_file(own_cache)
    yesterday = time.time() - download.RETRY_SECONDS - 60
    os.utime(note, (yesterday, yesterday))
    _find_home.cache_clear()
    find_home()
    assert len(calls) == 2
    answered.set()


# stanc


def test_canonical_resolves_includes_and_drops_comments(tmp_path):
    (tmp_path / "a, b").mkdir()
    (tmp_path / "a, b" / "prior.stan").write_text("x ~ normal(0, 1); // a comment\n")
    program = tmp_path / "a, b" / "program.stan"
    program.write_text("parameters { real x; }\nmodel {\n  for (i in 1:3)\n#include prior.stan\n}\n")
    text = stanc.canonical(program)
    assert " ".join(text.split()) == "parameters { real x; } model { for (i in 1 : 3) { x ~ normal(0, 1); } }"
    program.write_text(text)
    assert stanc.canonical(program) == text


@pytest.mark.parametrize(
    ("code", "line", "reason"),
    [
        ("parameters { real x; }\nmodel { x ~ normul(0, 1); }", 2, "normul"),
        ("data {\n  int N\n}", 3, ";"),
        ("#include missing.stan\n", 1, "missing.stan"),
    ],
)
def test_an_invalid_program_is_one_line_with_file_and_line(tmp_path, code, line, reason):
    program = tmp_path / "wrong.stan"
    program.write_text(code)
    with pytest.raises(InputError) as caught:
        stanc.canonical(program)
    message = str(caught.value)
    assert message.startswith(f"{program}, line {line}, column ")
    assert reason in message
    assert "\n" not in message


def test_an_error_in_an_included_file_names_that_file(tmp_path):
    (tmp_path / "part.stan").write_text("\nreal x = ;\n")
    program = tmp_path / "program.stan"
    program.write_text("model {\n#include part.stan\n}\n")
    with pytest.raises(InputError, match=r"^part\.stan, line 2"):
        stanc.canonical(program)


def test_a_program_that_cannot_be_read(tmp_path):
    for other in (3, {"N": 1}, b"m.stan"):
        with pytest.raises(InputError, match=r"^the program must be the path of a \.stan file, not of type "):
            stansub.compile_model(other)
    with pytest.raises(InputError, match="no such file"):
        stanc.canonical(tmp_path / "missing.stan")
    with pytest.raises(InputError, match=r"^the program is given as text; write it to a file and give .* name$"):
        stansub.compile_model("parameters { real x; }\nmodel { x ~ normal(0, 1); }")
    with pytest.raises(InputError, match="cannot read"):
        stanc.canonical(tmp_path)
    (tmp_path / "binary.stan").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r", line \d+: not UTF-8 text; save the program as UTF-8$"):
        stanc.canonical(tmp_path / "binary.stan")
    (tmp_path / "trailing.stan").write_text(f"{CODE}\n\0")
    with pytest.raises(InputError, match=r"trailing\.stan, line 2: NUL character, .* remove it"):
        stanc.canonical(tmp_path / "trailing.stan")
    (tmp_path / "included.stan").write_text("\0")
    (tmp_path / "including.stan").write_text(f"#include included.stan\n{CODE}")
    with pytest.raises(InputError, match="Invalid character found"):
        stanc.canonical(tmp_path / "including.stan")
    (tmp_path / "marked.stan").write_text("\ufeff" + CODE)
    assert stanc.canonical(tmp_path / "marked.stan").startswith("parameters {")


# Libraries


HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "$$(touch pwned)",
    "a; touch pwned",
    "a\ntouch pwned",
    "a' && touch pwned '",
    'a" | touch pwned "',
    "# %.stan: ; touch pwned",
    "../../pwned",
    "-f pwned",
    "$(shell touch pwned)",
    "%",
    "",
    "\x1b[31mred",
    "x" * 300,
]


def test_what_a_program_is_called_reaches_neither_make_nor_a_shell(own_cache, fake_make):
    for n, name in enumerate(HOSTILE):
        library = build.compile_library(CODE.replace("x", f"x{n}"), name=name)
        assert re.fullmatch(r"[A-Za-z]\w{0,70}-[0-9a-f]{20}\.so", library.name, re.ASCII)
        assert library.parent == own_cache / "libraries"
        *before, call = fake_make()
        assert len(before) == n
        assert "touch " not in call
        assert not set(call) & set('$`;"&|#%\n')


def test_a_library_is_compiled_once(no_download, fake_make):
    said = []
    library = build.compile_library(CODE, name="my model", progress=said.append)
    assert library.read_text() == "firstsecond"
    assert library.name.startswith("my_model-")
    assert len(said) == 1
    assert "my model" in said[0]
    assert build.compile_library(CODE, name="my model", progress=said.append) == library
    assert len(fake_make()) == len(said) == 1
    assert "STAN_THREADS=true" in fake_make()[0]
    assert not list((no_download / "build").iterdir())


def test_progress_says_what_is_compiled_and_why_in_a_line_that_fits(no_download, fake_make, clock):
    for n, goal in enumerate(["", plan.PROPOSALS, plan._FEW, plan._DATA, plan._SILENT]):
        texts, progress = [], Progress()
        name, why = f"a_name_of_many_letters_{n}", f": also {goal} (once)" if goal else " (about 30 s, once; kept for"
        build.compile_library(CODE, name=name, suffix="_of", goal=goal, progress=texts.append)
        assert texts[0].startswith(f"Compiling a_name_of_man...{why}")
        progress(texts[0])
        clock.advance(99)
        assert len(progress.stage.line) <= 80


def test_the_c_api_is_compiled_once_for_all_models(no_download, fake_make):
    build.compile_library(CODE, name="one")
    build.compile_library(CODE, name="two")
    first, second = fake_make()
    assert "--old-file" not in first
    assert f"BRIDGE_O={no_download / 'api'}" in second
    assert "--old-file" in second


def truncate(file: Path) -> None:
    os.truncate(file, 3)


def flip(file: Path) -> None:
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])


@pytest.mark.parametrize("harm", [truncate, flip])
def test_a_damaged_library_is_compiled_again_and_this_is_said(no_download, fake_make, harm):
    library = build.compile_library(CODE, name="m")
    harm(library)
    said = []
    assert build.compile_library(CODE, name="m", progress=said.append) == library
    assert library.read_text() == "firstsecond"
    assert len(said) == 1
    assert "compiled m in the cache is damaged: compiling it again" in said[0]
    assert len(fake_make()) == 2


def test_a_library_without_a_digest_is_compiled_again(no_download, fake_make):
    """It is what a compilation leaves that was ended before its last step, or an older version made it."""
    library = build.compile_library(CODE, name="m")
    library.with_name(f"{library.name}.sha256").unlink()
    build.compile_library(CODE, name="m")
    assert len(fake_make()) == 2


def test_a_damaged_c_api_is_compiled_again(no_download, fake_make):
    build.compile_library(CODE, name="one")
    (api,) = (no_download / "api").glob("*.o")
    truncate(api)
    build.compile_library(CODE, name="two")
    build.compile_library(CODE, name="three")
    assert ["--old-file" in call for call in fake_make()] == [False, False, True]
    assert api.read_text() == "api\n"


def test_build_folders_of_killed_processes_are_removed(no_download, fake_make):
    find_home()
    for name in ("abandoned", "in_use"):
        (no_download / "build" / name).mkdir(parents=True)
    (no_download / "locks").mkdir()
    with FileLock(no_download / "locks" / "in_use.lock"):
        build.compile_library(CODE, name="m")
    assert [folder.name for folder in (no_download / "build").iterdir()] == ["in_use"]


def test_the_environment_does_not_set_variables_of_the_makefile(no_download, tmp_path, monkeypatch):
    script = tmp_path / "make"
    script.write_text('#!/bin/sh\nfor target in "$@"; do :; done; env > "$target"\n')
    script.chmod(0o755)
    monkeypatch.setenv("MAKE", str(script))
    for name in ("INCLUDE", "LIB", "STANC", "MAKEFLAGS"):
        monkeypatch.setenv(name, "/somewhere/else")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    seen = build.compile_library(CODE, name="m").read_text()
    assert "/somewhere/else" not in seen
    assert "LC_ALL=C\n" in seen


def test_the_time_limit_ends_compiling_and_waiting(no_download, endless_make, clock):
    logs = [Progress(max_time=1) for _ in range(2)]

    def stages():
        return sorted(log.stage.name for log in logs if log.stage is not None)

    with build.in_background() as compiling:
        both = [compiling(CODE, name="one", progress=log) for log in logs]
        wait_until(lambda: stages() == ["Compiling one", "Waiting for another process to compile one"])
        clock.advance(1.1)
    errors = [library.exception() for library in both]
    assert all(isinstance(error, TimeLimitError) for error in errors)
    waited, compiled = sorted(map(str, errors), key=lambda told: "'Compiling one (about 30 s, once; " in told)
    assert "'Waiting for another process to compile one; " in waited
    assert "; raise `max_time` or compile the program first with `stansub check`" in compiled
    assert not list((no_download / "build").iterdir())


def test_what_is_compiled_in_the_background_is_stopped_by_a_failure(no_download, endless_make):
    libraries = []

    def interrupted():
        with build.in_background() as compiling:
            libraries.extend(compiling(CODE, name=name) for name in ("one", "two", "three"))
            wait_until(lambda: list(no_download.glob("build/*")))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert all("stopped" in str(library.exception()) for library in libraries)
    assert not list((no_download / "build").iterdir())


# Stan's headers, precompiled


def precompiled(cache: Path) -> list[Path]:
    return list((cache / "headers").rglob("*.gch"))


def compile_some(names: str) -> None:
    for name in names:
        build.compile_library(CODE, name=name)


def test_headers_are_precompiled_once_programs_have_been_compiled_without(no_download, fake_make):
    compile_some("ab")
    assert not precompiled(no_download)
    compile_some("cde")
    (header,) = precompiled(no_download)
    assert "#include" in header.with_suffix("").read_text()
    assert len(fake_make(of_headers=True)) == 1
    assert all(f"HEADERS={header.with_suffix('')} " in call for call in fake_make())
    assert not list((no_download / "build").iterdir())


def test_the_time_after_precompiling_counts_as_compiling(no_download, fake_make):
    compile_some("ab")
    said: list[str] = []
    progress = Progress(said.append)
    build.compile_library(CODE, name="e", progress=progress)
    progress.end()
    assert [text.partition(" (")[0] for text in said] == ["Compiling e", "Precompiling Stan's headers", "Compiling e"]
    assert list(progress.seconds) == ["Compiling e", "Precompiling Stan's headers"]


@pytest.mark.parametrize(("version", "expected"), [("g++ 12.2.0", "-g --param ggc-"), ("clang version 16", "-g")])
def test_flags_of_the_environment_come_first_and_our_own_suit_the_compiler(monkeypatch, tmp_path, version, expected):
    monkeypatch.setenv("CXXFLAGS", "-g")
    monkeypatch.setattr(compiler, "first_line", lambda program: version)
    flags = compiler.environment(tmp_path)["CXXFLAGS"]
    assert flags.startswith(expected)
    assert ("--param" in flags) == ("g++" in version)
    monkeypatch.delenv("CXXFLAGS")
    assert ("CXXFLAGS" in compiler.environment(tmp_path)) == ("g++" in version)


def test_headers_are_precompiled_for_each_compiler_and_old_ones_removed(no_download, fake_make, monkeypatch):
    compile_some("abc")
    monkeypatch.setenv("CXXFLAGS", "-g")
    compile_some("ab")
    old = precompiled(no_download)
    compile_some("c")
    (header,) = precompiled(no_download)
    assert header not in old
    assert f"HEADERS={header.with_suffix('')} " in fake_make()[-1]


@pytest.mark.parametrize("hindrance", ["clang", "no room", "BridgeStan's own sources"])
def test_programs_do_without_precompiled_headers(no_download, fake_make, tmp_path, monkeypatch, hindrance):
    if hindrance == "clang":
        monkeypatch.setattr(compiler, "first_line", lambda program: "Debian clang version 14.0.6")
    if hindrance == "no room":
        monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1e9))
    if hindrance == "BridgeStan's own sources":
        monkeypatch.setenv("BRIDGESTAN", str(fake_sources(tmp_path / "sources")))
    compile_some("abcd")
    assert not fake_make(of_headers=True)
    assert not precompiled(no_download)


def test_headers_that_another_process_precompiles_are_waited_for(no_download, fake_make):
    compile_some("ab")
    (folder,) = (no_download / "headers").iterdir()
    said: list[str] = []
    with ThreadPoolExecutor() as pool, FileLock(no_download / "locks" / f"{folder.name}-header.lock"):
        library = pool.submit(build.compile_library, CODE, name="c", progress=said.append)
        wait_until(lambda: any(text.startswith("Precompiling Stan's headers") for text in said))
        (folder / "stan.hpp.gch").touch(0o644)
    assert library.result().is_file()
    assert not fake_make(of_headers=True)


def test_a_program_that_waits_for_headers_counts_as_compiling_afterwards(no_download, fake_make):
    """Even if another thread reported the precompilation first."""
    compile_some("ab")
    (folder,) = (no_download / "headers").iterdir()
    said: list[str] = []
    reported = threading.Event()

    def hear(text: str) -> None:
        said.append(text)
        if not reported.is_set():
            reported.set()
            progress(build._PRECOMPILING)

    progress = Progress(hear)
    with ThreadPoolExecutor() as pool, FileLock(no_download / "locks" / f"{folder.name}-header.lock"):
        library = pool.submit(build.compile_library, CODE, name="c", progress=progress)
        wait_until(lambda: said.count(build._PRECOMPILING) == 2)
        (folder / "stan.hpp.gch").touch(0o644)
    assert library.result().is_file()
    assert said[-1].startswith("Compiling c")


def test_precompiled_headers_that_others_could_have_written_are_not_used(no_download, fake_make):
    compile_some("abc")
    (header,) = precompiled(no_download)
    header.chmod(0o666)
    compile_some("d")
    assert len(fake_make(of_headers=True)) == 2
    assert stat.S_IMODE(header.stat().st_mode) == 0o644


def test_a_program_that_fails_with_some_headers_is_compiled_with_all(no_download, fake_make):
    compile_some("abc")
    (header,) = precompiled(no_download)
    script = Path(os.environ["MAKE"])
    script.write_text(script.read_text().replace("target=", 'case "$*" in *HEADERS=*) exit 2;; esac; target=', 1))
    said: list[str] = []
    library = build.compile_library(CODE, name="d", progress=said.append)
    assert library.is_file()
    assert "Compiling d again with all of Stan's headers" in said
    assert not header.exists()
    assert ["HEADERS=" in call for call in fake_make()][-2:] == [True, False]


def test_headers_that_do_not_compile_are_done_without(no_download, fake_make):
    compile_some("ab")
    script = Path(os.environ["MAKE"])
    script.write_text(script.read_text().replace("target=", 'case "$*" in *.gch) exit 2;; esac; target=', 1))
    compile_some("cde")
    assert not precompiled(no_download)
    assert len(fake_make(of_headers=True)) == 1  # it is not tried for every program


@pytest.mark.slow
def test_a_program_is_the_same_with_precompiled_headers(no_download, monkeypatch):
    without = build.compile_library(CODE, name="same")
    monkeypatch.setattr(build, "_PROGRAMS_FIRST", 0)
    kept = without.read_bytes()
    without.unlink()
    again = build.compile_library(CODE, name="same")
    assert precompiled(no_download)
    assert again == without
    assert again.read_bytes() == kept


# What a library depends on


def test_everything_that_matters_is_in_the_name(no_download, fake_make, tmp_path, monkeypatch):
    header = tmp_path / "header.hpp"
    header.write_text("// one")
    libraries = [
        build.compile_library(CODE, name="m"),
        build.compile_library(CODE + " ", name="m"),
        build.compile_library(CODE, name="n"),
        build.compile_library(CODE, name="m", stanc_args=["--O1"]),
        build.compile_library(CODE, name="m", stanc_args=["--allow-undefined"], user_header=header),
    ]
    header.write_text("// two")
    libraries.append(build.compile_library(CODE, name="m", stanc_args=["--allow-undefined"], user_header=header))
    monkeypatch.setenv("CXXFLAGS", "-g")
    libraries.append(build.compile_library(CODE, name="m"))
    monkeypatch.setenv("TARGET_ARCH", "")
    libraries.append(build.compile_library(CODE, name="m"))
    monkeypatch.setattr(compiler, "processor", lambda: ("another", "avx"))
    libraries.append(build.compile_library(CODE, name="m"))
    monkeypatch.setattr(compiler, "first_line", lambda program: "another version")
    libraries.append(build.compile_library(CODE, name="m"))
    assert len(set(libraries)) == len(libraries) == len(fake_make())


def test_two_processes_compile_one_library(no_download, fake_make, monkeypatch):
    monkeypatch.setenv("PAUSE", "0.5")
    find_home()
    script = (
        "from stansub.stan.toolchain.build import compile_library\n"
        f"path = compile_library({CODE!r}, name='same', progress=print)\n"
        "print(path, path.read_text())\n"
    )
    source = str(Path(stansub.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    processes = [
        subprocess.Popen([sys.executable, "-P", "-c", script], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate()[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len({lines[-1] for lines in outputs}) == 1
    assert outputs[0][-1].endswith(" firstsecond")
    assert sum(lines[0].startswith("Compiling") for lines in outputs) == 1
    assert len(fake_make()) == 1


def test_what_stanc_refuses_is_one_line(no_download, tmp_path, monkeypatch):
    compiler = tmp_path / "compiler"
    compiler.write_text(
        '#!/bin/sh\nfor last in "$@"; do [ "$before" = -o ] && touch "$last"; before="$last"; done; :\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(RunError, match=r"^compiling m failed: m\.stan, line 1, column .*without.* definition\.$"):
        build.compile_library("functions { real f(real x); } " + CODE, name="m")


def test_a_failed_compilation_leaves_nothing(no_download, tmp_path, monkeypatch):
    script = tmp_path / "failing-make"
    script.write_text(
        "#!/bin/sh\necho 'm.hpp:7:1: error: no matching function' >&2\n"
        'for target in "$@"; do :; done; echo half > "$target"; exit 2\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("MAKE", str(script))
    with pytest.raises(RunError, match=r"compiling m failed: m\.hpp:7:1: error: no matching function"):
        build.compile_library(CODE, name="m")
    assert not list((no_download / "libraries").iterdir())
    assert not list((no_download / "build").iterdir())
    assert not list((no_download / "api").iterdir())


@pytest.mark.parametrize(("variable", "what"), [("CXX", r"C\+\+ compiler"), ("MAKE", "make")])
def test_missing_tools_say_what_to_install(no_download, monkeypatch, variable, what):
    monkeypatch.setenv(variable, "/nonexistent/tool")
    with pytest.raises(RunError, match=f"no {what}.*apt install g\\+\\+ make"):
        build.compile_library(CODE, name="m")


def test_a_cache_that_cannot_be_written(no_download, fake_make, tmp_path, monkeypatch):
    find_home()
    (no_download / "libraries").write_text("a file where a folder should be")
    with pytest.raises(InputError, match=r"cannot write to the cache directory.*STANSUB_CACHE"):
        build.compile_library(CODE, name="m")
    (tmp_path / "file").touch()
    monkeypatch.setenv("STANSUB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(InputError, match=r"/file is a file; set STANSUB_CACHE to a folder$"):
        find_home()


def test_a_full_disk_is_one_line(no_download, fake_make, monkeypatch):
    find_home()

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(RunError, match=r"No space left on device; set STANSUB_CACHE"):
        build.compile_library(CODE, name="m")


def test_a_disk_that_is_full_while_compiling(no_download, tmp_path):
    """The limit on the size of files leaves room for what is written before the compiler runs."""
    find_home()
    compiler = tmp_path / "compiler"
    compiler.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != -o ]; do case "$1" in --version) echo fake; exit;; esac; shift; done\n'
        'head -c 300000 /dev/zero > "$2" || { echo "error: No space left on device" >&2; exit 1; }\n'
    )
    compiler.chmod(0o755)
    script = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "from stansub.errors import RunError\n"
        "from stansub.stan.toolchain.build import compile_library\n"
        f"try: compile_library({CODE!r}, name='m')\n"
        "except RunError as error: print(error)\n"
    )
    environment = os.environ | {"CXX": str(compiler), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("compiling m failed: ")
    assert "No space left on device" in done.stdout
    assert done.stdout.count("\n") == 1
    for folder in ("libraries", "api", "build"):
        assert not list((no_download / folder).iterdir())


def test_a_cache_whose_name_make_cannot_take(monkeypatch, tmp_path):
    monkeypatch.setenv("STANSUB_CACHE", str(tmp_path / "my cache"))
    with pytest.raises(InputError, match="STANSUB_CACHE"):
        build.compile_library(CODE, name="m")
    assert any(not check.ok for check in doctor.examine())


@pytest.mark.slow
def test_stock_bridgestan_works_on_a_made_home(tmp_path, monkeypatch):
    """The home in the user's cache, so that its C API object is compiled for the first run only."""
    monkeypatch.delenv("BRIDGESTAN", raising=False)
    monkeypatch.setattr(download, "failed_download", lambda cache: "no network in tests")
    home = find_home()
    if home.origin != "made":
        pytest.skip("BridgeStan's own sources are installed")
    monkeypatch.setenv("BRIDGESTAN", str(home.path))
    (tmp_path / "program.stan").write_text(
        "functions { real twice(real x); } parameters { real x; } model { target += twice(x); }"
    )
    (tmp_path / "user_header.hpp").write_text(
        "#include <ostream>\nnamespace program_model_namespace {\n"
        "template <typename T> T twice(const T& x, std::ostream*) { return 2 * x; }\n}\n"
    )
    library = bridgestan.compile_model(
        tmp_path / "program.stan", stanc_args=["--allow-undefined"], make_args=["STAN_THREADS=true", "O=0"]
    )
    model = bridgestan.StanModel(library)
    value, slope = model.log_density_gradient(np.array([1.5]))
    assert (value, slope[0]) == (3.0, 2.0)


@pytest.mark.slow
def test_exact_hessian(tmp_path, monkeypatch):
    monkeypatch.delenv("BRIDGESTAN", raising=False)
    monkeypatch.setenv("BRIDGESTAN", str(find_home().path))
    (tmp_path / "program.stan").write_text("parameters { vector[2] x; } model { target += exp(x[1]) * sin(x[2]); }")
    library = bridgestan.compile_model(
        tmp_path / "program.stan", make_args=["STAN_THREADS=true", "O=0", "BRIDGESTAN_AD_HESSIAN=true"]
    )
    model = bridgestan.StanModel(library)
    assert "BRIDGESTAN_AD_HESSIAN=true" in model.model_info()
    x = np.array([0.7, 1.9])
    sine, cosine = np.exp(x[0]) * np.sin(x[1]), np.exp(x[0]) * np.cos(x[1])
    expected = np.array([[sine, cosine], [cosine, -sine]])
    np.testing.assert_allclose(model.log_density_hessian(x)[2], expected, rtol=1e-14)
    product = model.log_density_hessian_vector_product(x, np.array([1.0, -2.0]))[1]
    np.testing.assert_allclose(product, expected @ [1.0, -2.0], rtol=1e-14)


# doctor


def test_examine_when_all_is_well(no_download):
    checks = {check.name: check for check in doctor.examine()}
    assert all(check.ok or not check.is_needed for check in checks.values())
    assert {"C++ compiler", "make", "stanc", "BridgeStan home", "Stan", "bridgestan", "cache"} <= checks.keys()
    assert str(no_download) in checks["cache"].value
    download = checks["BridgeStan download"]
    assert "no network in tests" in download.value
    assert (download.ok, download.is_needed) == (False, False)


def test_examine_says_what_to_do(no_download, monkeypatch):
    monkeypatch.setenv("CXX", "/nonexistent/g++")
    monkeypatch.setenv("MAKE", "/nonexistent/make")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    bad = {check.name: check for check in doctor.examine() if not check.ok}
    assert bad.keys() == {"C++ compiler", "make", "BridgeStan home"}
    assert all(check.remedy for check in bad.values())
    assert "pip install httpstan" in bad["BridgeStan home"].remedy
    shutil.rmtree(no_download)
    no_download.touch()
    bad = {check.name: check for check in doctor.examine() if not check.ok}
    assert bad.keys() == {"C++ compiler", "make", "BridgeStan home", "cache"}
    assert bad["BridgeStan home"].remedy == bad["cache"].remedy == "set STANSUB_CACHE to a folder"


def test_the_list_of_signatures_is_kept_by_home(no_download, tmp_path, monkeypatch):
    log = tmp_path / "calls"
    for version in ("1", "2"):
        folder = fake_sources(tmp_path / version)
        (folder / "bin/stanc").write_text(f"#!/bin/sh\necho $1 >> {log}\necho 'f(real) => {version}'\n")
        monkeypatch.setenv("BRIDGESTAN", str(folder))
        assert [stanc.signatures() for _ in range(2)] == [f"f(real) => {version}\n"] * 2
    assert log.read_text().splitlines() == ["--dump-stan-math-signatures"] * 2
    doctor.clear()
    assert stanc.signatures() == "f(real) => 2\n"
    assert len(log.read_text().splitlines()) == 3


def test_signatures_without_a_place_to_keep_them(no_download, tmp_path, monkeypatch):
    folder = fake_sources(tmp_path / "home")
    monkeypatch.setenv("BRIDGESTAN", str(folder))
    no_download.mkdir(exist_ok=True)
    (no_download / "signatures").write_text("no folder")
    assert stanc.signatures() == "hello\n"


def test_no_signatures_from_a_stanc_that_fails(no_download, tmp_path, monkeypatch):
    folder = fake_sources(tmp_path / "home")
    (folder / "bin/stanc").write_text("#!/bin/sh\necho 'f(real) => real'\nexit 1\n")
    monkeypatch.setenv("BRIDGESTAN", str(folder))
    assert stanc.signatures() == ""
    assert not (no_download / "signatures").exists()


def test_examine_counts_damaged_libraries(no_download, fake_make):
    libraries = [build.compile_library(CODE, name=name) for name in ("one", "two")]
    programs = {check.name: check for check in doctor.examine()}["compiled programs"]
    assert programs.ok
    assert programs.value.startswith("2, 0.0 MB, none damaged")
    truncate(libraries[1])
    programs = {check.name: check for check in doctor.examine()}["compiled programs"]
    assert not programs.ok
    assert f"1 damaged ({libraries[1].name})" in programs.value


def test_clear_removes_what_was_compiled(no_download, fake_make):
    home = find_home()
    for name in ("one", "two"):
        build.compile_library(CODE, name=name)
    assert doctor.clear() == f"Removed the compiled programs in {no_download}: 2, 0.0 MB"
    assert not (no_download / "libraries").exists()
    assert not (no_download / "api").exists()
    assert home.stanc.exists()
    assert build.compile_library(CODE, name="one").is_file()
    assert len(fake_make()) == 3
