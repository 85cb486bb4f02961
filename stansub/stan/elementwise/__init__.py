"""Rewriting of a likelihood as a function of one observation, with a proof."""
