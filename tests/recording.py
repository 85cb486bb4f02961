"""A `Progress` that records what it is given."""

from __future__ import annotations

from stansub.progress import Progress


class Limited(Progress):
    """Has the time limit come after so many checks, which it counts."""

    def __init__(self, n: float = float("inf")) -> None:
        super().__init__(max_time=1e9)
        self.n_checks, self._n = 0, n

    def check(self) -> None:
        self.n_checks += 1
        if self.n_checks > self._n:
            self._max_time = 0.0
        super().check()


class Recording(Progress):
    """Records texts and counts; `until` has the time limit come after so many more counts."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        super().__init__(self.texts.append)
        self.counts: list[tuple[int, int]] = []

    def until(self, n: int) -> Recording:
        self.counts.clear()
        self._left = n
        self._max_time = 1e9
        return self

    def advance(self, done: int, total: int) -> None:
        if self._max_time is not None and len(self.counts) >= self._left:
            self._max_time = 0.0
        super().advance(done, total)
        self.counts.append((done, total))
