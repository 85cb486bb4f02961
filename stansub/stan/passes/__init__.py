"""Passes over programs: each takes a program and returns one with the same posterior, or why it cannot."""
