"""The time, read here by everything that measures, limits or waits.

Only this module reads the computer's clock. A test that puts a clock of its own in its place decides when time passes,
and does not depend on how fast the machine is.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# Seconds since a moment that does not matter; seconds that the calling thread has computed.
now: Callable[[], float] = time.perf_counter
computed: Callable[[], float] = time.thread_time
