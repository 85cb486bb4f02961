"""The kinds of failure a user meets, each with the exit code of the command line, and the one kind of warning."""


class StansubError(Exception):
    """A failure that users see as one line."""

    exit_code = 1


class InputError(StansubError, ValueError):
    """Something the user gave (a file, an option, a program, data) cannot be used: exit code 2.

    The message says what is wrong, where, and what to do.
    """

    exit_code = 2


class RunError(StansubError, RuntimeError):
    """Something failed while running (compiler, disk, numerical trouble): exit code 1."""

    exit_code = 1


# Exit code of a check whose program may qualify: there were no data to prove it with, so it is no approval.
MAY_QUALIFY = 5

# Exit code where draws were written that must not be used: a mode that no chain visited was found after sampling.
MISSED_MODE = 4


class InterruptError(RunError):
    """A run was interrupted: exit code 3 where draws were written nevertheless, 130 where there is nothing to write."""

    WRITTEN, NOTHING = 3, 130

    def __init__(self, message: str, *, written: bool = False) -> None:
        super().__init__(message)
        self.exit_code = self.WRITTEN if written else self.NOTHING


class NotMixingError(RunError):
    """The chains would hardly move, and whoever runs them wants to know before they begin."""


class DrawsWarning(UserWarning):
    """Something speaks against draws that are returned: what it is, and what to do."""


def one_line(error: BaseException) -> str:
    """An error's message in one line, or its type where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def printable(text: str) -> str:
    """Return a text with control characters spelled out: a file's name may hold line breaks or codes for terminals."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
