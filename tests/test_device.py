"""Data decide the device. Without a GPU this is proved by watching every factory function the package calls."""

import pathlib
import sys

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch.overrides import TorchFunctionMode

import kernel_embed as ke

from .conftest import make_problem, named_kernels
from .embeddings.test_conditional import evaluations
from .objectives import OBJECTIVES

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
