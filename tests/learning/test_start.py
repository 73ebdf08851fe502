"""What ``fit`` says of a start, and what it holds."""

import pytest
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import LinearKernel, RBFKernel
from linear_operator.utils.warnings import NumericalWarning
from sklearn.datasets import load_breast_cancer

import kernel_embed as ke

LOO = ke.LeaveOneOutRisk()


def table() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = load_breast_cancer(return_X_y=True)
    return torch.as_tensor(x[:150]), torch.as_tensor(y[:150])


def test_raw_features_are_warned_of_and_the_remedy_works() -> None:
    x, y = table()
    embedding = ke.MulticlassEmbedding(RBFKernel(), 2)
    with pytest.warns(NumericalWarning, match=r"sees no two points as near.*set_lengthscales_by_median"):
        stuck = ke.fit(embedding, LOO, x, y, max_evaluations=30)
    ke.kernels.set_lengthscales_by_median(embedding.kernel, x)
    learned = ke.fit(embedding, LOO, x, y, max_evaluations=30)
    assert learned.value < 0.6 * stuck.value


def test_a_constant_gram_is_warned_of() -> None:
    x, y = table()
    kernel = RBFKernel(lengthscale_constraint=Positive()).double()
    kernel.lengthscale = 1e9
    with pytest.warns(NumericalWarning, match="is constant up to rounding"):
        ke.fit(ke.MulticlassEmbedding(kernel, 2), LOO, x, y, max_evaluations=2)


def test_nothing_is_said_of_kernels_without_a_lengthscale_or_of_one_point() -> None:
    x, y = table()
    ke.fit(ke.MulticlassEmbedding(LinearKernel(), 2), LOO, x / 1000, y, max_evaluations=2)
    ke.fit(ke.MulticlassEmbedding(RBFKernel(), 2), LOO, torch.ones(10, 2), torch.arange(10) % 2, max_evaluations=2)


def test_the_ruler_of_the_targets_is_held() -> None:
    """Left free, the target's lengthscale ran to 172 and λ to 1e-144, with a risk of nearly zero."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(80, 1, dtype=torch.float64, generator=generator)
    y = torch.sin(6 * x.squeeze(-1)) + 0.1 * torch.randn(80, dtype=torch.float64, generator=generator)
    embedding = ke.ConditionalEmbedding(RBFKernel(), target_kernel=RBFKernel())
    before = embedding.target_kernel.lengthscale.item()
    result = ke.fit(embedding, ke.CrossValidationRisk(num_folds=5), x, y)
    assert result.fixed == ("target_kernel.raw_lengthscale",)
    assert embedding.target_kernel.lengthscale.item() == pytest.approx(before)
    assert embedding.regularization.item() > 1e-12
    mean = embedding.condition(x, y).expectation(lambda t: t, x)
    assert (mean.squeeze() - torch.sin(6 * x.squeeze(-1))).square().mean().sqrt() < 0.08
