"""Flaxman, Sejdinovic, Cunningham and Filippi (2016): Bayesian learning of kernel embeddings."""
