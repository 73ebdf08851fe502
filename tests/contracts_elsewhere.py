"""The suites of ``kernel_embed.testing`` on a pretended device: no tensor of the CPU meets one of the device."""

import types

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior, HalfCauchyPrior, LogNormalPrior, UniformPrior

import kernel_embed as ke
from kernel_embed import validation
from kernel_embed.objectives import pac_bayes_bound
from kernel_embed.runtime import device_memory
from kernel_embed.testing import EmbeddingContract, KernelContract, ObjectiveContract

from .objectives import OBJECTIVES
from .pretended import DEVICE, Pretended, elsewhere, pretending
from .testing import checks

KERNELS = {
    "rbf": lambda: RBFKernel(ard_num_dims=2),
    "matern": lambda: ScaleKernel(MaternKernel(2.5)),
    "linear": LinearKernel,
    "sum": lambda: ScaleKernel(RBFKernel()) + MaternKernel(1.5),
}
EMBEDDINGS = {
    "multiclass": lambda: ke.MulticlassEmbedding(MaternKernel(1.5, ard_num_dims=2), 2),
    "multiclass, features": lambda: ke.MulticlassEmbedding(LinearKernel(), 2),
    "conditional": lambda: ke.ConditionalEmbedding(ScaleKernel(RBFKernel())),
}
CASES = [
    *[(KernelContract, name, check) for name in KERNELS for check in checks(KernelContract)],
    *[(EmbeddingContract, name, check) for name in EMBEDDINGS for check in checks(EmbeddingContract)],
    *[(ObjectiveContract, name, check) for name in OBJECTIVES for check in checks(ObjectiveContract)],
]


def on_the_device(contract, name):
    """The suite with its objects and its data on the device."""

    class Suite(contract):
        def make_kernel(self):
            return elsewhere(KERNELS[name]().double())

        _kernel = make_kernel

        def make_embedding(self):
            return elsewhere(EMBEDDINGS[name]().double() if name in EMBEDDINGS else super().make_embedding())

        def make_objective(self):
            return OBJECTIVES[name]()

        def make_data(self):
            return elsewhere(super().make_data())

        def make_points(self, *args, **kwargs):
            return elsewhere(super().make_points(*args, **kwargs))

    return Suite()


@pytest.mark.parametrize(("contract", "name", "check"), CASES)
def test_contracts(contract, name, check):
    with pretending():
        getattr(on_the_device(contract, name), check)()


x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
y = (x[:, 0] > 0).long()
PRIORS = {
    "log-normal": lambda: LogNormalPrior(0.0, 1.0),
    "half-Cauchy": lambda: HalfCauchyPrior(1.0),
    "uniform": lambda: UniformPrior(0.01, 50.0),
    "gamma": lambda: GammaPrior(2.0, 1.0),
}


@pytest.mark.filterwarnings("ignore::kernel_embed.posteriors.PosteriorWarning")
@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("sampler", [ke.NUTS(), ke.Laplace()])
def test_posteriors(name, sampler):
    """The base of a prior moves, too, and the summary and predictions are on one device each."""
    embedding = ke.MulticlassEmbedding(RBFKernel(lengthscale_prior=PRIORS[name]()).double(), 2, 0.1)
    settings = {"num_samples": 4, "warmup_steps": 4, "num_chains": 2, "seed": 0, "progress": False}
    with pretending():
        data = elsewhere(x), elsewhere(y)
        posterior = ke.sample_posterior(elsewhere(embedding), ke.LeaveOneOutRisk(), *data, sampler=sampler, **settings)
        assert "lengthscale" in repr(posterior)
        assert isinstance(posterior.probabilities(data[0][:3]), Pretended)


def test_most_contracts_run_there():
    assert len(CASES) >= 85, len(CASES)


def test_the_regressor_has_a_device():
    with pretending():
        model = ke.ConditionalEmbeddingRegressor(device=str(DEVICE), max_evaluations=2, random_state=0)
        model.fit(x.numpy(), y.numpy())
        assert isinstance(model.outputs_[0].table.x, Pretended)
        assert model.predict_interval(x.numpy()).shape == (30, 2)


def test_bounds_and_votes():
    with pretending():
        bound = pac_bayes_bound(elsewhere(x.abs().clamp_max(1.0)), prior=torch.full((30,), 1.0))
        vote = ke.VotedKernelClassifier(num_calibration_folds=0).fit(elsewhere(x), elsewhere(y))
        assert vote.predict(elsewhere(x[:3])).shape == (3,)
    assert isinstance(bound.details["weights"], Pretended)


def test_memory_of_a_gpu_is_checked(monkeypatch):
    memory = {"mem_get_info": (2**25, 2**30), "memory_reserved": 2**20, "memory_allocated": 0}
    for name, value in memory.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert device_memory(torch.device("cuda")) == 2**25 + 2**20
    stand_in = types.SimpleNamespace(device=torch.device("cuda"), element_size=lambda: 8)
    with pytest.raises(MemoryError, match="Take less"):
        validation.check_memory(10**4, stand_in, 1, "Take less.")


def test_the_device_refuses_what_a_gpu_refuses():
    x = elsewhere(torch.ones(3))
    with pytest.raises(RuntimeError, match="one device"):
        x + torch.ones(3)
    with pytest.raises(TypeError, match="NumPy array"):
        x.numpy()
    assert isinstance(x + torch.tensor(1.0), Pretended)
