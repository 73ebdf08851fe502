"""Hypothesis tests with learned kernels: two or more samples, independence, conditional independence."""

from .bayes_factor import log_bayes_factor
from .causal import register_causal_test
from .conditional import conditional_independence_test, conditional_two_sample_test
from .differences import ColumnDifference, Differences
from .independence import independence_test
from .kernel_choice import AverageKernel, HasKernelDraws, KernelChoice
from .result import KernelTestResult, SamplesTestResult
from .samples import LinearTimeTwoSampleTest, k_sample_test, two_sample_test
from .transform_test import ConditionalTestResult, Diagnosis, LevelWarning

__all__ = [
    "AverageKernel",
    "ColumnDifference",
    "ConditionalTestResult",
    "Diagnosis",
    "Differences",
    "HasKernelDraws",
    "KernelChoice",
    "KernelTestResult",
    "LevelWarning",
    "LinearTimeTwoSampleTest",
    "SamplesTestResult",
    "conditional_independence_test",
    "conditional_two_sample_test",
    "independence_test",
    "k_sample_test",
    "log_bayes_factor",
    "register_causal_test",
    "two_sample_test",
]
