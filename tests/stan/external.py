"""Programs whose functions are defined in C++."""

import subprocess

from stansub.stan.toolchain.bridgestan_home import find_home


def accepted(code: str) -> str:
    """Canonical text of a program with external functions; fails where stanc rejects it."""
    options = ["--allow-undefined", "--print-canonical", "--max-line-length=10000", "/dev/stdin"]
    command = [str(find_home().stanc), *options]
    done = subprocess.run(command, input=code, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, f"{done.stderr}\n{code}"
    return done.stdout
