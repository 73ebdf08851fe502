"""No public function or class is forgotten: each is called by an entry of the fuzz, or it is said here why not."""

from __future__ import annotations

import ast
import importlib
import inspect
import pathlib

import kernel_embed as ke

MODULES = (
    "embeddings", "estimators", "hypothesis", "kernels", "learning", "objectives", "plots", "posteriors", "scale",
    "tabular", "voting",
)  # fmt: skip
SOURCES = ("applications", "entries", "files", "inference", "kernels")

NOT_CALLED = {
    "an answer, which the library makes and entries look through": """
        CalibratedMulticlass ConditionedEmbedding ConditionedMeanEmbedding ConditionedMulticlass Distribution
        JointEmbedding
        SquaredDistancePosterior Member PooledPredictor ColumnDifference ConditionalTestResult Diagnosis Differences
        KernelTestResult SamplesTestResult SupDiagonal Evaluation FitResult LocalMaximum Outcome Progress
        Visit Bound LogarithmicPool SoftmaxCalibration
        ConditionalPosterior Draws EntropyParts GaussianMixture KernelDraws MeanPosterior MulticlassPosterior Posterior
        PowerChoice TemperatureChoice ApproximationError CompressionReport FeaturePredictor
        MulticlassFeaturePredictor
        ShardedMulticlass BaseFunctions Complexities CrossValidation PathPoint Solution""",
    "a base, or a piece, of classes of one's own, which the contract suites of kernel_embed.testing try": """
        KernelEmbedding Objective RegularizedEmbedding Representation
        Initialization
        GaussianTerms Measure Node PlainProfile Radial RadialProfile check_width plain_profile Problem Plan
        DateEncoder NumberEncoder TextEncoder EncodedColumn column_type
        register_column_type""",
    "called by functions that have an entry": "vote_guarantee AverageKernel",
    "the name of a type": "NoiseKind KernelChoice InputTransform",
    "takes no arguments": "styled cached_transforms",
}


def called() -> set[str]:
    """Every name that the entries take from a module or import."""
    names: set[str] = set()
    for source in SOURCES:
        text = (pathlib.Path(__file__).parent / f"{source}.py").read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.ImportFrom):
                names |= {alias.name for alias in node.names}
    return names


def callables() -> set[str]:
    """Public functions and classes that can be called: no contracts, no warnings and errors."""
    modules = [ke, *(importlib.import_module(f"kernel_embed.{module}") for module in MODULES)]
    found = {name: getattr(module, name) for module in modules for name in module.__all__}
    return {name for name, thing in found.items() if callable(thing) and not _is_contract(thing)}


def _is_contract(thing: object) -> bool:
    return inspect.isclass(thing) and (
        inspect.isabstract(thing) or getattr(thing, "_is_protocol", False) or issubclass(thing, Exception)
    )


def test_every_public_name_is_called_or_excused():
    excused = {name for names in NOT_CALLED.values() for name in names.split()}
    public, reached = callables(), called()
    assert public - reached - excused == set(), "write an entry in tests/fuzz"
    assert excused - public == set(), "no longer public"
    assert excused & reached == set(), "called, and needs no excuse"
