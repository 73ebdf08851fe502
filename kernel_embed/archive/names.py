"""The allow-list of classes and functions: exact names, each resolved in the module that defines it."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gpytorch.kernels import Kernel

CLASSES: Mapping[str, str] = {
    "gpytorch.constraints.constraints": "GreaterThan Interval LessThan Positive",
    "gpytorch.kernels.constant_kernel": "ConstantKernel",
    "gpytorch.kernels.cosine_kernel": "CosineKernel",
    "gpytorch.kernels.cylindrical_kernel": "CylindricalKernel",
    "gpytorch.kernels.hamming_kernel": "HammingIMQKernel",
    "gpytorch.kernels.index_kernel": "IndexKernel",
    "gpytorch.kernels.kernel": "AdditiveKernel ProductKernel",
    "gpytorch.kernels.linear_kernel": "LinearKernel",
    "gpytorch.kernels.matern_kernel": "MaternKernel",
    "gpytorch.kernels.periodic_kernel": "PeriodicKernel",
    "gpytorch.kernels.piecewise_polynomial_kernel": "PiecewisePolynomialKernel",
    "gpytorch.kernels.polynomial_kernel": "PolynomialKernel",
    "gpytorch.kernels.rbf_kernel": "RBFKernel",
    "gpytorch.kernels.rff_kernel": "RFFKernel",
    "gpytorch.kernels.rq_kernel": "RQKernel",
    "gpytorch.kernels.scale_kernel": "ScaleKernel",
    "gpytorch.kernels.spectral_mixture_kernel": "SpectralMixtureKernel",
    "gpytorch.likelihoods.gaussian_likelihood": "DirichletClassificationLikelihood GaussianLikelihood",
    "gpytorch.likelihoods.noise_models": "FixedGaussianNoise HomoskedasticNoise",
    "gpytorch.means.constant_mean": "ConstantMean",
    "gpytorch.means.linear_mean": "LinearMean",
    "gpytorch.means.zero_mean": "ZeroMean",
    "gpytorch.priors.horseshoe_prior": "HorseshoePrior",
    "gpytorch.priors.smoothed_box_prior": "SmoothedBoxPrior",
    "gpytorch.priors.torch_priors": (
        "GammaPrior HalfCauchyPrior HalfNormalPrior LogNormalPrior MultivariateNormalPrior NormalPrior UniformPrior"
    ),
    "sklearn.calibration": "CalibratedClassifierCV _CalibratedClassifier _SigmoidCalibration",
    "sklearn.compose._column_transformer": "ColumnTransformer make_column_selector",
    "sklearn.compose._target": "TransformedTargetRegressor",
    "sklearn.decomposition._pca": "PCA",
    "sklearn.feature_selection._variance_threshold": "VarianceThreshold",
    "sklearn.impute._base": "MissingIndicator SimpleImputer",
    "sklearn.linear_model._logistic": "LogisticRegression",
    "sklearn.linear_model._ridge": "Ridge RidgeCV",
    "sklearn.pipeline": "FeatureUnion Pipeline",
    "sklearn.preprocessing._data": (
        "MaxAbsScaler MinMaxScaler Normalizer PowerTransformer QuantileTransformer RobustScaler StandardScaler"
    ),
    "sklearn.preprocessing._encoders": "OneHotEncoder OrdinalEncoder",
    "sklearn.preprocessing._function_transformer": "FunctionTransformer",
    "sklearn.preprocessing._label": "LabelBinarizer LabelEncoder",
    "sklearn.svm._classes": "SVC",
    "torch.distributions.cauchy": "Cauchy",
    "torch.distributions.gamma": "Gamma",
    "torch.distributions.normal": "Normal",
    "torch.distributions.transforms": "AbsTransform AffineTransform ExpTransform _InverseTransform",
    "torch.distributions.uniform": "Uniform",
    "torch.nn.modules.activation": (
        "ELU GELU Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish PReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softplus "
        "Tanh"
    ),
    "torch.nn.modules.batchnorm": "BatchNorm1d BatchNorm2d BatchNorm3d",
    "torch.nn.modules.container": "ModuleDict ModuleList ParameterDict ParameterList Sequential",
    "torch.nn.modules.conv": "Conv1d Conv2d Conv3d",
    "torch.nn.modules.dropout": "AlphaDropout Dropout Dropout1d Dropout2d",
    "torch.nn.modules.flatten": "Flatten Unflatten",
    "torch.nn.modules.linear": "Bilinear Identity Linear",
    "torch.nn.modules.normalization": "GroupNorm LayerNorm RMSNorm",
    "torch.nn.modules.pooling": (
        "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveMaxPool1d AdaptiveMaxPool2d AvgPool1d AvgPool2d MaxPool1d "
        "MaxPool2d"
    ),
    "torch.nn.modules.sparse": "Embedding",
}
"""Classes by module. They are made empty and filled with plain state; none of their own code runs while loading."""

OWN: Mapping[str, str] = {
    "bounds": "Bound",
    "embeddings": (
        "BayesianMeanEmbedding CalibratedMulticlass ConditionalEmbedding ConditionedEmbedding "
        "ConditionedMeanEmbedding ConditionedMulticlass Distribution JointEmbedding MeanEmbedding "
        "MulticlassEmbedding Recalibration ShrinkageMeanEmbedding SoftmaxCalibration SquaredDistancePosterior "
        "WeightedEmbedding Witness"
    ),
    "estimators": (
        "Candidate ConditionalEmbeddingRegressor Conditioning DirectComponent DistributionalModel "
        "FeatureImportances Grid IndicatorEmbedding Labels Logistic LogisticPredictor Member MemberCandidate Mixture "
        "MulticlassEmbeddingClassifier Output PlainSoftmax PooledPredictor Settings ShiftedComponent Table "
        "VotedKernelClassifier"
    ),
    "kernels": (
        "BagKernel DeltaKernel DiscreteMeasure FeatureKernel FourierFeatures GaussianMeasure LebesgueMeasure "
        "LipschitzBound MMDKernel MahalanobisKernel MeanDiagonal NominalDiagonal NystromFeatures SmoothedKernel "
        "SupDiagonal"
    ),
    "lab": (
        "Categories DirichletClassifier GridSearchedSVC NetworkClassifier ProbabilisticRidge "
        "SingleKernelRegressor TunedLogistic _DirichletModel"
    ),
    "learning": "Adam FitResult LBFGS",
    "linalg": "DenseSystem FeatureSystem Shards Units",
    "objectives": (
        "BatchValidationRisk CalibratedLeaveOneOutRisk ConditionalEvidence CrossValidationRisk "
        "EmbeddingEvidence EmpiricalRisk EmpiricalScore LeaveOneOutRisk LeaveOneOutScore LogarithmicPool "
        "RademacherComplexity RiskBound Sum"
    ),
    "scale": (
        "ConjugateGradients Expansion FeaturePredictor FeatureStatistics MulticlassExpansion "
        "MulticlassFeaturePredictor Nystrom RandomFeatures"
    ),
    "softmax": "SoftmaxScaling",
    "tabular": (
        "DateEncoder EncodedColumn NumberEncoder Partitions Quantile Squash Standard TableEncoder TextEncoder "
        "TiedLaplaceKernel TiedMaternKernel TiedRBFKernel Tree"
    ),
    "voting": "BaseFunctions ColumnGeneration Complexities CoordinateDescent KernelFamily SparseVote",
}
"""Classes of this package by subpackage, in whichever of its modules they are defined."""
OWN_MODULE = re.compile(r"kernel_embed\.([a-z]\w*)((?:\.[a-z]\w*)*)")

FUNCTIONS: Mapping[str, str] = {
    "gpytorch.utils.transforms": "inv_sigmoid inv_softplus",
    "kernel_embed.lab.compare.classifiers": "evidence_kernel median_kernel paper_kernel scaled_kernel",
    "numpy": "abs exp expm1 log log1p sqrt",
    "torch": "exp log logit relu sigmoid tanh",
    "torch.nn.functional": "elu gelu leaky_relu relu sigmoid softplus tanh",
}
"""Functions by module: transforms of constraints, activations, columns, and starts of kernels."""

TYPES: Mapping[str, type] = {
    **{f"builtins:{kind.__name__}": kind for kind in (bool, int, float, str, object)},
    **{f"numpy:{kind.__name__}": kind for kind in {*np.sctypeDict.values()} if not issubclass(kind, np.void)},
}
"""Types of cells, which are stored by table transformers."""


def name_of(thing: Any) -> str:
    """``module:qualname`` of a class or function."""
    return f"{thing.__module__}:{thing.__qualname__}"


def find_class(name: object, extra: Iterable[type] = ()) -> type:
    """The class of that name: listed here, or one of ``extra``.

    Example:
        >>> find_class("gpytorch.kernels.rbf_kernel:RBFKernel").__name__
        'RBFKernel'
    """
    for kind in extra:
        if name_of(kind) == name:
            return kind
    module, _, qualname = str(name).partition(":")
    own = OWN_MODULE.fullmatch(module)
    if qualname not in (OWN.get(own[1], "") if own else CLASSES.get(module, "")).split():
        raise ValueError(
            f"It needs the class {module[:200]}.{qualname[:100]}, which is not on the list. If it is yours, or you "
            "trust it, pass it: ke.load(path, classes=[…])."
        )
    defined = vars(importlib.import_module(module)).get(qualname)
    if not isinstance(defined, type) or name_of(defined) != name:
        raise ValueError(f"The installed version of {module} does not define {qualname}.")
    return defined


def find_type(name: object, extra: Iterable[type] = ()) -> type:
    """A class as a value: the type of a cell, or a kernel's class."""
    if name in TYPES:
        return TYPES[str(name)]
    kind = find_class(name, extra)
    if not issubclass(kind, Kernel):
        raise ValueError(f"{kind.__name__} is not a class of kernels.")
    return kind


def find_function(name: object) -> Any:
    """The function of that name, if it is listed.

    Example:
        >>> find_function("torch:exp")(torch.zeros(1))
        tensor([1.])
    """
    module, _, qualname = str(name).partition(":")
    if qualname not in FUNCTIONS.get(module, "").split():
        raise ValueError(f"It names the function {str(name)[:200]}, which is not one that a file may use.")
    return vars(importlib.import_module(module))[qualname]


@functools.cache
def _listed() -> dict[int, str]:
    loaded = {m: importlib.import_module(m) for m in FUNCTIONS if not m.startswith("kernel_embed.")}
    return {id(vars(loaded[m])[n]): f"{m}:{n}" for m in reversed(loaded) for n in FUNCTIONS[m].split()}


def function_name(function: Any) -> str | None:
    """The name under which a function is listed; ``None`` if it is not."""
    name = _listed().get(id(function)) or name_of(function) if hasattr(function, "__qualname__") else None
    module, _, qualname = str(name).partition(":")
    return name if qualname in FUNCTIONS.get(module, "").split() and find_function(name) is function else None
