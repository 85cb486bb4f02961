"""A likelihood written anew as a function of one observation, and proved to be the same."""
