"""Cortes, Goyal, Kuznetsov and Mohri (2015): voted kernel regularization."""
