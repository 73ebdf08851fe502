"""Experiments that are not in the papers: tests, coverage, calibration, averaging, robustness."""

from ..experiment import Experiment, Settings, reproduce
from ..rejections import RejectionStudy, rejection_study
from .level import LEVEL
from .posteriors import AVERAGED, BANDS, RANKS
from .power import POWER
from .robustness import IMPORTANCES, INTERVALS, REPEATS

EXPERIMENTS: dict[str, Experiment] = {
    one.name: one for one in (AVERAGED, LEVEL, POWER, BANDS, RANKS, REPEATS, INTERVALS, IMPORTANCES)
}
"""By the name in ``kernel-embed reproduce NAME``."""

__all__ = ["EXPERIMENTS", "Experiment", "RejectionStudy", "Settings", "rejection_study", "reproduce"]
