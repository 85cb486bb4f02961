"""How often is stansub wrong, and how often without a warning? Run it with ``benchmarks/never_wrong.py``."""
