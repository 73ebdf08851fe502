"""Regularized systems A = K + ηW⁻¹, factorized once and used many times."""

from .cholesky import extended, require_finite, whitening
from .dense import DenseSystem, factorize, single_precision
from .features import FeatureSystem, Shards
from .forms import DenseForm, DistanceForm, QuadraticForm
from .implicit import sandwich
from .iterative import IterativeSystem, conjugate_gradients
from .ridge_path import RidgePath, left_out_from_leverage
from .system import LinearSystem, left_out

__all__ = [
    "DenseForm",
    "DenseSystem",
    "DistanceForm",
    "FeatureSystem",
    "IterativeSystem",
    "LinearSystem",
    "QuadraticForm",
    "RidgePath",
    "Shards",
    "conjugate_gradients",
    "extended",
    "factorize",
    "left_out",
    "left_out_from_leverage",
    "require_finite",
    "sandwich",
    "single_precision",
    "whitening",
]
