"""The clock, used by all code that measures, limits or waits.

Only this module reads the system time. A test that replaces it controls when time passes, so it does not depend on the
speed of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# Seconds since an arbitrary moment; processor seconds of the calling thread.
now: Callable[[], float] = time.perf_counter
computed: Callable[[], float] = time.thread_time
