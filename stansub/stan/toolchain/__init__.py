"""The toolchain: stanc, compilation, its cache, and calls of compiled libraries."""
