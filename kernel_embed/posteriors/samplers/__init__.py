"""Samplers as values: each draws from the same potential in its own way."""
