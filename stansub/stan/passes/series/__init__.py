"""Time series whose likelihood is a sum given the data, written over rows of data."""
