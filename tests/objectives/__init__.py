"""Every objective, by name."""

import kernel_embed as ke

OBJECTIVES = {
    "EmpiricalRisk": lambda: ke.EmpiricalRisk(),
    "EmpiricalRisk linear": lambda: ke.EmpiricalRisk(0.3, below="linear"),
    "LeaveOneOutRisk": lambda: ke.LeaveOneOutRisk(),
    "LeaveOneOutRisk linear": lambda: ke.LeaveOneOutRisk(0.1, below="linear"),
    "RademacherComplexity": lambda: ke.RademacherComplexity("4e/sqrt(n)"),
    "BatchValidationRisk": lambda: ke.BatchValidationRisk(0.4, ke.RademacherComplexity(0.1), epsilon=0.05),
    "CrossValidationRisk": lambda: ke.CrossValidationRisk(4),
    "CrossValidationRisk Song": lambda: ke.CrossValidationRisk(4, norm_penalty=True),
    "ConditionalEvidence": lambda: ke.ConditionalEvidence(),
    "CalibratedLeaveOneOutRisk": lambda: ke.CalibratedLeaveOneOutRisk(),
    "LeaveOneOutScore": lambda: ke.LeaveOneOutScore(),
    "sum": lambda: ke.LeaveOneOutRisk() + 0.5 * ke.RademacherComplexity("4e/n"),
}
