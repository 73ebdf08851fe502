"""Regularised systems, factorised once and asked many times: the only place that factorises."""

from .features import FeatureRidgeSystem, Shards, whitening
from .ridge import LowRankSystem, RidgeSystem, cholesky_factor, factorise, sandwich

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
