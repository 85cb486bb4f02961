"""The number of threads."""

from __future__ import annotations

import os

# Threads for work before chains begin, if no number is given.
THREADS = min(4, os.cpu_count() or 1)
