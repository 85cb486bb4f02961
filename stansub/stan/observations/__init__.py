"""A likelihood for one observation: its arguments as functions of the parameters, followed through the text."""
