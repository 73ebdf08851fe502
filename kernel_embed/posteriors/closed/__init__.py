r"""Potentials in closed form: from the raw vector to U and ∂U/∂u in a handful of calls, without a graph.

For few data the time of a gradient is that of the interpreter: modules, constraints, priors and autograd, evaluated for
a handful of numbers. Where every piece is known, one squared-exponential or Matérn kernel with one of the usual
objectives and log-normal or gamma priors on :math:`\theta = e^u`, the same formulas are written out once more: here for
a sample, and in :mod:`kernel_embed.learning.closed` for targets. The general road stays their judge: it is asked at the
first point, and wherever a number is out of the ordinary.
"""

from .priors import closed_priors
from .recognize import ClosedForm, closed_form
from .sample import closed_sample

__all__ = ["ClosedForm", "closed_form", "closed_priors", "closed_sample"]
