"""Errors that users see, with the exit codes of the command line, and the warning about draws."""


class StansubError(Exception):
    """Base class of errors that users see as one line."""

    exit_code = 1


class InputError(StansubError, ValueError):
    """An input (file, option, program or data) cannot be used. Exit code 2.

    The message says what is wrong, where, and what to do.
    """

    exit_code = 2


class RunError(StansubError, RuntimeError):
    """Something failed at run time (compiler, disk, numerical trouble). Exit code 1."""

    exit_code = 1


# Exit code of `check` if a program may qualify but no data were given to prove it: not an approval.
MAY_QUALIFY = 5

# Exit code if draws were written but must not be used: the search after sampling found a mode that no chain visited.
MISSED_MODE = 4


class EndedError(RunError):
    """A run ended before it was done, but nothing failed: an interrupt, a stop, or the time limit."""


class InterruptError(EndedError):
    """A run was interrupted. Exit code 3 if draws were written, 130 if there was nothing to write."""

    WRITTEN, NOTHING = 3, 130

    def __init__(self, message: str, *, written: bool = False) -> None:
        super().__init__(message)
        self.exit_code = self.WRITTEN if written else self.NOTHING


class NotMixingError(RunError):
    """The chains would hardly move, and the caller asked to be told before they start."""


class DrawsWarning(UserWarning):
    """A reason to distrust returned draws, with a remedy."""


def one_line(error: BaseException) -> str:
    """Return an error's message in one line, or its type if it has no message."""
    return " ".join(str(error).split()) or type(error).__name__


def printable(text: str) -> str:
    """Return a text with control characters escaped: a file name may hold line breaks or terminal codes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
