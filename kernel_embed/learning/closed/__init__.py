r"""Objectives in closed form: from hyperparameters to q and ∂q/∂log θ in a handful of calls, without a graph.

For a few hundred rows the time of an evaluation is that of the interpreter: modules, constraints, validation and
autograd, for a handful of numbers. Where every piece is known, one squared-exponential or Matérn kernel with the usual
objectives, the same formulas are written out once more here in NumPy and LAPACK. The general road stays their judge: it
is asked first, and wherever a number is out of the ordinary.
"""

from .factor import Factor
from .gram import RadialGram, radial_gram_of
from .loss import ClosedLoss, Pieces, closed_loss
from .objective import ClosedObjective, Parameters, closed_objective
from .priors import LogPriors

__all__ = [
    "ClosedLoss",
    "ClosedObjective",
    "Factor",
    "LogPriors",
    "Parameters",
    "Pieces",
    "RadialGram",
    "closed_loss",
    "closed_objective",
    "radial_gram_of",
]
