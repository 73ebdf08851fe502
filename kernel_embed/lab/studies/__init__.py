"""Experiments that are not in the papers: levels and power of tests, coverage, calibration, averaging, penalties."""

from ..experiment import Experiment, Settings, reproduce
from ..rejections import RejectionStudy, rejection_study
from .averaging import AVERAGED
from .causal_graphs import CAUSAL_GRAPHS
from .chains import PRIOR_CHAINS, RANKS
from .coverage import BANDS, INTERVALS
from .penalties import PENALTIES
from .rejection_rates import LEVEL, POWER

_ALL = (AVERAGED, CAUSAL_GRAPHS, LEVEL, POWER, BANDS, INTERVALS, RANKS, PRIOR_CHAINS, PENALTIES)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
"""By the name in ``kernel-embed reproduce NAME``."""

__all__ = ["EXPERIMENTS", "Experiment", "RejectionStudy", "Settings", "rejection_study", "reproduce"]
