"""Objectives measure how well an embedding fits its data. They can be added and scaled."""

from ..bounds import Bound
from ..embeddings import ConditionedMulticlass
from ..embeddings.calibration import SoftmaxCalibration, calibrate
from .base import Objective, attach
from .bounds import EmpiricalScore, RiskBound, generalization_bound, score_bound
from .calibrated import CalibratedLeaveOneOutRisk
from .cross_validation import BatchValidationRisk, CrossValidationRisk
from .evidence import ConditionalEvidence, EmbeddingEvidence
from .holdout import holdout_bound, kl_inverse, pac_bayes_bound
from .pool import LogarithmicPool, pool
from .risk import RATES, EmpiricalRisk, LeaveOneOutRisk, RademacherComplexity, rademacher_complexity
from .score import LeaveOneOutScore, leave_one_out_scores

__all__ = [
    "RATES",
    "BatchValidationRisk",
    "Bound",
    "CalibratedLeaveOneOutRisk",
    "ConditionalEvidence",
    "CrossValidationRisk",
    "EmbeddingEvidence",
    "EmpiricalRisk",
    "EmpiricalScore",
    "LeaveOneOutRisk",
    "LeaveOneOutScore",
    "LogarithmicPool",
    "Objective",
    "RademacherComplexity",
    "RiskBound",
    "SoftmaxCalibration",
    "attach",
    "calibrate",
    "default_objective",
    "generalization_bound",
    "holdout_bound",
    "kl_inverse",
    "leave_one_out_scores",
    "pac_bayes_bound",
    "pool",
    "rademacher_complexity",
    "score_bound",
]


def default_objective() -> Objective[ConditionedMulticlass]:
    """The objective used by default, with one setting for all data.

    Example:
        >>> default_objective()
        CalibratedLeaveOneOutRisk(penalty=1) + RademacherComplexity(rate='1/n')
    """
    return CalibratedLeaveOneOutRisk() + RademacherComplexity("1/n")
