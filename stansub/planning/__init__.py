"""Planning: error bounds of approximate runs, and the best use of a time budget."""
