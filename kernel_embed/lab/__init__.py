"""Comparison, papers and benchmarks: what the command line runs. Nothing in the library imports it."""
