"""The benchmark suite: workloads, engines, and what is measured of each pair. Run it with ``benchmarks/run.py``."""
