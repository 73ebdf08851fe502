"""Regularised systems, factorised once and asked many times: the only place that factorises."""

from .dense import LowRankSystem, RidgeSystem, cholesky_factor, factorise, sandwich
from .features import FeatureRidgeSystem, Shards, whitening

__all__ = [
    "FeatureRidgeSystem",
    "LowRankSystem",
    "RidgeSystem",
    "Shards",
    "cholesky_factor",
    "factorise",
    "sandwich",
    "whitening",
]
