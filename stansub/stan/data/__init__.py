"""A program's data: sources, files, tables, and what the data block declares of them."""
