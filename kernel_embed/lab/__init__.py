"""Comparison, papers and benchmarks, run from the command line. The library does not import this package."""
