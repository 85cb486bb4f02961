"""The search for modes: starts, climbs, checks of the end points."""
