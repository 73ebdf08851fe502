"""Learned kernel embeddings for GPyTorch and Pyro."""
