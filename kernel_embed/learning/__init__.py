"""Learning: minimise an objective over the parameters of an embedding."""

from .fit import FitResult, fit
from .maxima import LocalMaximum, local_maxima

__all__ = ["FitResult", "LocalMaximum", "fit", "local_maxima"]
