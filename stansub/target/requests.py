"""Requests: questions about observations whose answers add up.

A request is a value that can be pickled. It goes to the holders of the observations, which may be objects in this
process or partitions of the data on other machines, and the asker adds up the answers in the order of the holders. So
sums do not depend on who answers, nor on the order in which answers arrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from stansub.progress import Progress

Holder = TypeVar("Holder", contravariant=True)
Answer = TypeVar("Answer", covariant=True)

H = TypeVar("H", covariant=True)
A = TypeVar("A")


class Request(Protocol[Holder, Answer]):
    """A question; implementations are frozen dataclasses."""

    def answer(self, holder: Holder, *, threads: int = 1) -> Answer:
        """Return the answer for the observations of one holder, the same for any number of threads."""


class Holders(Protocol[H]):
    """Holders of all observations, in a fixed order."""

    progress: Progress
    """Shows what is waited for; if its checks raise, waiting ends."""

    def __len__(self) -> int: ...

    def answers(self, requests: Mapping[int, Request[H, A]]) -> list[A]:
        """Return answers to requests, given by the number of the holder, in the order of the requests."""


def ask_all(holders: Holders[H], request: Request[H, A]) -> list[A]:
    """Return the answers of all holders to one request, in order."""
    return holders.answers(dict.fromkeys(range(len(holders)), request))
