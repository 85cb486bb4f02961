"""How approximate a run should be: bounds, and what they make of a budget."""
