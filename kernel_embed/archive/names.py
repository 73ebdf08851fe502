"""The allow-list of classes and functions: exact names, each resolved in the module that defines it."""

from __future__ import annotations

import importlib
import re
import sys
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gpytorch.kernels import Kernel


def _exact(table: Mapping[str, str]) -> dict[str, None]:
    """The names ``package.module:name`` of a table ``{"package": "module:name,name module:name"}``, in its order."""
    parts = [(package, *part.split(":")) for package, text in table.items() for part in text.split()]
    return {f"{package}{module}:{name}": None for package, module, names in parts for name in names.split(",")}


CLASSES = _exact({
    "gpytorch.constraints.": "constraints:GreaterThan,Interval,LessThan,Positive",
    "gpytorch.kernels.": (
        "constant_kernel:ConstantKernel cosine_kernel:CosineKernel cylindrical_kernel:CylindricalKernel "
        "hamming_kernel:HammingIMQKernel index_kernel:IndexKernel kernel:AdditiveKernel,ProductKernel "
        "linear_kernel:LinearKernel matern_kernel:MaternKernel periodic_kernel:PeriodicKernel "
        "piecewise_polynomial_kernel:PiecewisePolynomialKernel polynomial_kernel:PolynomialKernel "
        "rbf_kernel:RBFKernel rff_kernel:RFFKernel rq_kernel:RQKernel scale_kernel:ScaleKernel "
        "spectral_mixture_kernel:SpectralMixtureKernel"
    ),
    "gpytorch.likelihoods.": (
        "gaussian_likelihood:DirichletClassificationLikelihood,GaussianLikelihood "
        "noise_models:FixedGaussianNoise,HomoskedasticNoise"
    ),
    "gpytorch.means.": "constant_mean:ConstantMean linear_mean:LinearMean zero_mean:ZeroMean",
    "gpytorch.priors.": (
        "horseshoe_prior:HorseshoePrior smoothed_box_prior:SmoothedBoxPrior torch_priors:GammaPrior,HalfCauchyPrior,"
        "HalfNormalPrior,LogNormalPrior,MultivariateNormalPrior,NormalPrior,UniformPrior"
    ),
    "sklearn.": (
        "calibration:CalibratedClassifierCV,_CalibratedClassifier,_SigmoidCalibration "
        "compose._column_transformer:ColumnTransformer,make_column_selector compose._target:TransformedTargetRegressor "
        "decomposition._pca:PCA feature_selection._variance_threshold:VarianceThreshold "
        "impute._base:MissingIndicator,SimpleImputer linear_model._logistic:LogisticRegression "
        "linear_model._ridge:Ridge,RidgeCV pipeline:FeatureUnion,Pipeline preprocessing._data:MaxAbsScaler,"
        "MinMaxScaler,Normalizer,PowerTransformer,QuantileTransformer,RobustScaler,StandardScaler "
        "preprocessing._encoders:OneHotEncoder,OrdinalEncoder preprocessing._function_transformer:FunctionTransformer "
        "preprocessing._label:LabelBinarizer,LabelEncoder svm._classes:SVC"
    ),
    "torch.distributions.": (
        "cauchy:Cauchy gamma:Gamma normal:Normal uniform:Uniform "
        "transforms:AbsTransform,AffineTransform,ExpTransform,_InverseTransform"
    ),
    "torch.nn.modules.": (
        "activation:ELU,GELU,Hardtanh,LeakyReLU,LogSigmoid,LogSoftmax,Mish,PReLU,ReLU,ReLU6,SELU,SiLU,Sigmoid,Softmax,"
        "Softplus,Tanh batchnorm:BatchNorm1d,BatchNorm2d,BatchNorm3d conv:Conv1d,Conv2d,Conv3d "
        "container:ModuleDict,ModuleList,ParameterDict,ParameterList,Sequential linear:Bilinear,Identity,Linear "
        "dropout:AlphaDropout,Dropout,Dropout1d,Dropout2d flatten:Flatten,Unflatten sparse:Embedding "
        "normalization:GroupNorm,LayerNorm,RMSNorm pooling:AdaptiveAvgPool1d,AdaptiveAvgPool2d,AdaptiveMaxPool1d,"
        "AdaptiveMaxPool2d,AvgPool1d,AvgPool2d,MaxPool1d,MaxPool2d"
    ),
})  # fmt: skip
"""Classes of the libraries below this package."""

OWN: Mapping[str, str] = {
    "bounds": "Bound",
    "embeddings": (
        "BayesianMeanEmbedding CalibratedMulticlass ConditionalEmbedding ConditionedEmbedding "
        "ConditionedMeanEmbedding ConditionedMulticlass Distribution Expansion JointEmbedding MeanEmbedding "
        "MulticlassEmbedding MulticlassExpansion Recalibration ShrinkageMeanEmbedding SoftmaxCalibration "
        "SquaredDistancePosterior WeightedEmbedding Witness"
    ),
    "estimators": (
        "Candidate Component ConditionalEmbeddingRegressor FeatureImportances IndicatorEmbedding LogisticPredictor "
        "Member Mixture MulticlassEmbeddingClassifier Output PooledPredictor RepeatedInputs Table VotedKernelClassifier"
    ),
    "kernels": (
        "BagKernel DeltaKernel DiscreteMeasure FeatureKernel FourierFeatures GaussianMeasure LebesgueMeasure "
        "LipschitzBound MMDKernel MahalanobisKernel MeanDiagonal NominalDiagonal NystromFeatures SmoothedKernel "
        "SupDiagonal"
    ),
    "lab": "Categories DirichletModel PaperClassifier ReferenceClassifier ReferenceRegressor SingleKernelRegressor",
    "learning": "Adam FitResult LBFGS",
    "linalg": "DenseSystem FeatureSystem Shards Units",
    "objectives": (
        "BatchValidationRisk CalibratedLeaveOneOutRisk ConditionalEvidence CrossValidationRisk "
        "EmbeddingEvidence EmpiricalRisk EmpiricalScore LeaveOneOutRisk LeaveOneOutScore LogarithmicPool "
        "RademacherComplexity RiskBound Sum"
    ),
    "scale": (
        "ConjugateGradients FeaturePredictor FeatureStatistics MulticlassFeaturePredictor Nystrom RandomFeatures"
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

FUNCTIONS = _exact({
    "": "numpy:abs,exp,expm1,log,log1p,sqrt torch:exp,log,logit,relu,sigmoid,tanh",
    "gpytorch.utils.": "transforms:inv_sigmoid,inv_softplus",
    "kernel_embed.lab.compare.": "embedding_classifiers:evidence_kernel,median_kernel,paper_kernel,scaled_kernel",
    "torch.nn.": "functional:elu,gelu,leaky_relu,relu,sigmoid,softplus,tanh",
})  # fmt: skip
"""Transforms of constraints, activations, functions of columns, and starts of kernels."""

TYPES: Mapping[str, type] = {
    **{f"builtins:{kind.__name__}": kind for kind in (bool, int, float, str, object)},
    **{f"numpy:{kind.__name__}": kind for kind in {*np.sctypeDict.values()} if not issubclass(kind, np.void)},
}
"""Types of cells, which are stored by table transformers."""
DTYPE = re.compile(r"[<>|=]?([biufc](1|2|4|8|16)|[US]\d{1,6}|[mM]8(\[\w{1,10}\])?|O)")
DEVICE = re.compile(r"(cpu|cuda|mps|meta)(:\d{1,3})?")
NOT_FINITE = re.compile("nan|-?inf")


def name_of(thing: Any) -> str:
    """``module:qualname`` of a class or function."""
    return f"{thing.__module__}:{thing.__qualname__}"


def find_class(name: object, extra: Iterable[type] = ()) -> type:
    """The class of that name: listed here, or one of ``extra``."""
    for kind in extra:
        if name_of(kind) == name:
            return kind
    module, _, qualname = str(name).partition(":")
    own = OWN_MODULE.fullmatch(module)
    if str(name) not in CLASSES and not (own and qualname in OWN.get(own[1], "").split()):
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
    """The function of that name, if it is listed."""
    if str(name) not in FUNCTIONS:
        raise ValueError(f"It names the function {str(name)[:200]}, which is not one that a file may use.")
    module, _, qualname = str(name).partition(":")
    return vars(importlib.import_module(module))[qualname]


def function_name(function: Any) -> str | None:
    """The name under which a function is listed; ``None`` if it is not."""
    for name in FUNCTIONS:
        module, _, qualname = name.partition(":")
        if module in sys.modules and vars(sys.modules[module]).get(qualname) is function:
            return name
    return None


def matching(pattern: re.Pattern[str], value: object) -> str:
    """``value``, which must be text of one of the patterns above."""
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"It holds {str(value)[:80]!r} in place of a type, a device or a number that is not finite.")
    return value


def checksums(names: Iterable[str]) -> dict[str, int]:
    """CRC-32 of the sources of those modules that belong to this package and are loaded.

    Between two releases the version does not show whether a class has changed.
    """
    specs = {n: getattr(sys.modules.get(n), "__spec__", None) for n in sorted(names) if n.startswith("kernel_embed.")}
    loaders: dict[str, Any] = {name: getattr(spec, "loader", None) for name, spec in specs.items()}
    sources = {name: loader.get_source(name) for name, loader in loaders.items() if hasattr(loader, "get_source")}
    return {name: zlib.crc32(source.encode()) for name, source in sources.items() if source is not None}
