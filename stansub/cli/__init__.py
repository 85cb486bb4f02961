"""The command line: a module a group of commands, gathered in `application`."""

from __future__ import annotations

import os
import sys


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with a code.

    0 done, 1 failure at run time, 2 wrong use or input, 3 interrupted and draws written, 4 draws that must not be used,
    5 a program that may qualify, 130 interrupted and nothing to write, 141 nobody reads the output any more.

    Parameters
    ----------
    arguments : list of str, optional
        Those of the process by default. The process is then the command's own: before the command begins and after it
        has ended, an interrupt ends it at once.
    """
    own = arguments is None
    given = sys.argv[1:] if arguments is None else arguments
    try:
        from stansub import interrupts  # nothing else is imported before interrupts are handled
        from stansub.errors import InterruptError

        with interrupts.handled(InterruptError.NOTHING if own else None) as interrupt:
            from stansub.cli import streams

            streams.occupy()  # before imports, because some libraries open files
            from stansub.cli import application

            interrupt.exit_code = None
            try:
                code = application.run(given or ["--help"])
            except KeyboardInterrupt:  # Ctrl-C before the command begins, or again while its message is printed
                code = InterruptError.NOTHING
            if own:
                interrupt.exit_code = code
    except KeyboardInterrupt:
        if own:  # nothing has begun, and another one would be printed while the interpreter shuts down
            os._exit(130)
        code = 130
    sys.exit(code)
