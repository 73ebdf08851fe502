"""Results do not depend on the gradient mode and the default dtype of the process."""

import contextlib
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch import nn
from torch.overrides import TorchFunctionMode

import kernel_embed as ke

from .conftest import make_problem, named_kernels
from .embeddings.test_conditional import evaluations
from .objectives import OBJECTIVES

X = np.random.default_rng(0).normal(size=(60, 2))
LABELS = (X[:, 0] * X[:, 1] > 0).astype(int)
DRAWS = {"num_samples": 4, "warmup_steps": 4, "num_chains": 1, "progress": False}


def rows():
    """New tensors, which belong to the mode that they are made in."""
    return torch.as_tensor(X) + 0, torch.as_tensor(LABELS) + 0


def classes(kernel=RBFKernel):
    torch.manual_seed(0)
    return ke.MulticlassEmbedding(kernel().double(), 2)


def learned(embedding, seed=None, **settings):
    return ke.fit(embedding, ke.LeaveOneOutRisk(), *rows(), progress=False, seed=seed, **settings).value


def drawn(seed=0, **settings):
    posterior = ke.sample_posterior(classes(), ke.ConditionalEvidence(), *rows(), seed=seed, **DRAWS, **settings)
    return posterior.samples["regularization"].tolist()


def classified(*arguments):
    model = ke.MulticlassEmbeddingClassifier(*arguments, progress=False).fit(X, LABELS)
    return model.predict_proba(X[:3]).ravel().tolist()


TASKS = {
    "network": lambda: learned(classes(lambda: ke.FeatureKernel(nn.Linear(2, 3))), max_evaluations=5),
    "adam": lambda: learned(classes(), seed=0, optimizer=ke.Adam(3)),
    "nuts": drawn,
    "classifier": classified,
    "kernel": lambda: classified(RBFKernel(), ke.LeaveOneOutRisk()),
    "regressor": lambda: ke.ConditionalEmbeddingRegressor().fit(X, X[:, 0]).predict(X[:3]).tolist(),
    "votes": lambda: [kernel.lengthscale.item() for kernel in ke.voting.gaussian_kernels([0.3, 0.7])],
}


@pytest.mark.parametrize("task", ["network", "adam", "nuts", "classifier", "regressor"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_enabled_where_they_are_needed(task, mode):
    expected = TASKS[task]()
    with mode():
        assert TASKS[task]() == expected


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("task", ["classifier", "kernel", "regressor", "votes", "nuts"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_default_dtype_has_no_influence(task, dtype):
    expected = TASKS[task]()
    with default_dtype(dtype):
        np.testing.assert_allclose(TASKS[task](), expected, rtol=1e-12)


def test_the_network_of_the_comparison_starts_from_the_same_weights():
    from kernel_embed.lab.compare.embedding_classifiers import perceptron

    with default_dtype(torch.float64):
        assert next(perceptron(2, (4,)).parameters()).dtype is torch.float32


def test_the_first_draws_of_a_process_are_those_of_the_second():
    """The libraries that the first call loads must obey its limit of threads."""
    code = """
import warnings, torch, kernel_embed as ke
from gpytorch.kernels import RBFKernel
warnings.simplefilter("ignore")
torch.set_num_threads(2)
x = torch.rand(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
settings = {"num_samples": 20, "warmup_steps": 20, "num_chains": 2, "seed": 3, "progress": False}
first, second = (
    ke.sample_posterior(
        ke.MulticlassEmbedding(RBFKernel(ard_num_dims=2).double(), 2), ke.ConditionalEvidence(), x,
        (x[:, 0] > 0.5).long(), **settings,
    ).samples["regularization"]
    for _ in range(2)
)
assert torch.equal(first, second), (first - second).abs().max()
"""
    threads = {name: "2" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **threads}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_seeds_of_numpy_are_seeds(tmp_path):
    x, y = rows()

    def approximated(method):
        return ke.approximate(classes(), x, y, method=method)[0].probabilities(x[:2]).tolist()

    for call in (
        lambda seed: learned(classes(), seed=seed, max_evaluations=2),
        lambda seed: drawn(seed, checkpoint=tmp_path / f"{type(seed)}"),
        lambda seed: approximated(ke.RandomFeatures(8, seed=seed)),
        lambda seed: approximated(ke.Nystrom(10, seed=seed)),
        lambda seed: ke.EmbeddingEvidence(10, seed=seed)(ke.BayesianMeanEmbedding(RBFKernel().double()), x).item(),
        lambda seed: ke.two_sample_test(x[:30], x[30:], seed=seed).pvalue,
        lambda seed: ke.independence_test(x[:, :1], x[:, 1:], seed=seed).pvalue,
    ):
        assert call(np.int64(3)) == call(3)


# --- devices ----------------------------------------------------------------------------------------------------------


PACKAGE = str(pathlib.Path(ke.__file__).parent)

FACTORIES = {
    torch.zeros, torch.ones, torch.empty, torch.full, torch.eye, torch.arange, torch.range, torch.linspace,
    torch.logspace, torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy, torch.scalar_tensor, torch.rand,
    torch.randn, torch.randint, torch.randperm, torch.normal, torch.tril_indices, torch.triu_indices,
    torch.empty_strided,
}  # fmt: skip
"""Everything that makes a tensor on the default device unless told otherwise. The ``*_like`` and ``new_*`` families
follow the tensor they are given."""


def follows_its_argument(func, args, kwargs) -> bool:
    """Calls that are right without a device: a tensor goes in, or a CPU generator asks for a CPU tensor."""
    if func in (torch.as_tensor, torch.asarray) and isinstance(args[0], torch.Tensor):
        return True
    return "generator" in kwargs


class NoFactoryWithoutDevice(TorchFunctionMode):
    """Fails where a line of the package itself makes a tensor without saying on which device."""

    def __init__(self) -> None:
        super().__init__()
        self.watched = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in FACTORIES and kwargs.get("device") is None and not follows_its_argument(func, args, kwargs):
            frame = sys._getframe(1)
            if frame.f_code.co_filename.startswith(PACKAGE):
                place = f"{pathlib.Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                raise AssertionError(f"torch.{func.__name__} without device at {place}")
        self.watched += 1
        return func(*args, **kwargs)


def test_the_watch_sees_a_factory_in_the_package():
    """The watch itself: a line that pretends to be in the package is caught, one outside is not."""
    code = compile("import torch\nx = torch.zeros(3)", PACKAGE + "/pretended.py", "exec")
    with NoFactoryWithoutDevice(), pytest.raises(AssertionError, match=r"torch.zeros without device at pretended.py:2"):
        exec(code, {})
    with NoFactoryWithoutDevice() as watch:
        torch.zeros(3)
    assert watch.watched > 0


@pytest.fixture
def watch():
    with NoFactoryWithoutDevice() as mode:
        yield mode
        assert mode.watched > 0


@pytest.mark.parametrize("name", named_kernels())
def test_embeddings_name_the_device(name, watch, problem):
    embedding = ke.MulticlassEmbedding(named_kernels()[name], problem.m)
    conditioned = embedding.condition(problem.x, problem.y)
    evaluations(conditioned, problem.query)
    conditioned.predict(problem.query)
    ke.kernels.sup_diagonal(embedding.kernel, problem.x, bound=9.0)
    continuous = ke.ConditionalEmbedding(named_kernels()[name]).condition(problem.x, problem.x[:, 0])
    continuous.expectation(lambda y: y, problem.query)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_name_the_device(name, watch, problem):
    embedding = ke.MulticlassEmbedding(named_kernels()["sum"], problem.m)
    OBJECTIVES[name]()(embedding, problem.x, problem.y).backward()


@pytest.mark.parametrize("how", [{"num_restarts": 1, "max_evaluations": 4}, {"num_epochs": 3, "batch_size": 12}])
def test_fit_names_the_device(how, watch, problem, tmp_path):
    embedding = ke.MulticlassEmbedding(named_kernels()["rbf"], problem.m)
    objective = ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n")
    for _ in range(2):  # the second time resumes
        ke.fit(embedding, objective, problem.x, problem.y, checkpoint=tmp_path / "fit.pt", seed=0, **how)


def test_kernels_and_the_classifier_name_the_device(watch, problem):
    ke.default_kernel(problem.x)
    ke.kernels.median_distance(problem.x)
    ke.kernels.median_distance(problem.x[:1])
    ke.set_lengthscales_by_median(ScaleKernel(RBFKernel()).double(), problem.x)
    ke.gram(MaternKernel(0.5).double(), problem.x, problem.query)
    classifier = ke.MulticlassEmbeddingClassifier(max_evaluations=3, device="cpu")
    classifier.fit(problem.x.numpy(), problem.y.numpy()).predict_proba(problem.query.numpy())


def test_the_default_device_does_not_matter(problem):
    """Data on the CPU while the host's default device is another one: nothing of ours may land there."""
    embedding = ke.MulticlassEmbedding(named_kernels()["rbf"], problem.m)
    objective = ke.CalibratedLeaveOneOutRisk() + ke.RademacherComplexity("4e/n")
    with torch.device("meta"):
        value = objective(embedding, problem.x, problem.y)
        assert value.device.type == "cpu"
        ke.fit(embedding, objective, problem.x, problem.y, max_evaluations=3)
        answer = embedding.condition(problem.x, problem.y).probabilities(problem.query)
    assert answer.device.type == "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_default_dtype_does_not_matter(dtype, problem):
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if dtype == torch.float32 else torch.float32)
    try:
        embedding = ke.MulticlassEmbedding(named_kernels()["sum"], problem.m)
        result = ke.fit(embedding, ke.LeaveOneOutRisk(), problem.x.to(dtype), problem.y, max_evaluations=3)
        answer = embedding.condition(problem.x.to(dtype), problem.y).probabilities(problem.query.to(dtype))
    finally:
        torch.set_default_dtype(default)
    assert answer.dtype == dtype
    assert result.num_evaluations > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
class TestGPU:
    """The same values as on the CPU, and on the device of the data."""

    @pytest.mark.parametrize("name", named_kernels())
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_predictions(self, name, dtype):
        problem, values = make_problem(dtype=dtype), []
        for device in ("cpu", "cuda"):
            embedding = ke.MulticlassEmbedding(named_kernels()[name].to(device, dtype), 3)
            conditioned = embedding.condition(problem.x.to(device), problem.y)
            values.append(conditioned.probabilities(problem.query.to(device)))
        assert values[1].is_cuda
        torch.testing.assert_close(values[1].cpu(), values[0], rtol=1e-3, atol=1e-4)

    @pytest.mark.parametrize("name", OBJECTIVES)
    def test_objectives(self, name, problem):
        values = [
            OBJECTIVES[name]()(
                ke.MulticlassEmbedding(named_kernels()["rbf"].to(d), 3), problem.x.to(d), problem.y.to(d)
            )
            for d in ("cpu", "cuda")
        ]
        values[1].backward()
        torch.testing.assert_close(values[1].cpu(), values[0], rtol=1e-6, atol=1e-8)

    @pytest.mark.parametrize("how", [{}, {"batch_size": 12, "num_epochs": 5}])
    def test_fit(self, how, problem, tmp_path):
        embedding, objective = ke.MulticlassEmbedding(named_kernels()["rbf"], 3), ke.CalibratedLeaveOneOutRisk()
        x, y, path = problem.x.cuda(), problem.y.cuda(), tmp_path / "fit.pt"
        for _ in range(2):
            ke.fit(embedding, objective, x, y, checkpoint=path, seed=0, **how)
        assert all(p.is_cuda for p in embedding.parameters())

    def test_classifier(self, problem):
        classifier = ke.MulticlassEmbeddingClassifier(device="cuda", max_evaluations=5)
        p = classifier.fit(problem.x.numpy(), problem.y.numpy()).predict_proba(problem.query.numpy())
        assert p.shape == (7, 3)
