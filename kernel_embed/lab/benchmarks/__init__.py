"""``kernel-embed benchmark``: speed compared with other libraries, as ratios measured in one run."""

from . import distributions, hypothesis, objectives, posteriors, tables
from .measurement import DEFAULT, KEY, PARTS, Measurement, Scope, run, summary

_ = distributions, hypothesis, objectives, posteriors, tables  # which register their parts

__all__ = ["DEFAULT", "KEY", "PARTS", "Measurement", "Scope", "run", "summary"]
