"""What a program's text says: types, sizes, dependence, reach."""
