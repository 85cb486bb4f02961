"""Surrogates of a posterior: the expansion point, the sampler and its tuning, what the surrogate omits."""
