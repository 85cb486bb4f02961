"""Posterior draws from Stan models with tall data, by subsampled Metropolis-Hastings."""
