"""Degenerate and overfitted results of ``fit``: bounds, one warning, and early stopping of networks."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel
from linear_operator.utils.warnings import NumericalWarning
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV
from torch import Tensor, nn

import kernel_embed as ke
from kernel_embed.learning.degeneracy import column_gaps, neighbor_gap


def indicators(seed: int = 0, n: int = 200) -> tuple[Tensor, Tensor]:
    """Five columns of zeros and ones, of which two matter, and labels of which three in ten are wrong."""
    generator = torch.Generator().manual_seed(seed)
    x = (torch.rand(n, 5, generator=generator) < 0.5).double()
    y = (x[:, 0] + x[:, 1] == 1).long()
    return x, torch.where(torch.rand(n, generator=generator) < 0.3, 1 - y, y)


def halves(n: int = 100) -> tuple[Tensor, Tensor]:
    """Five columns, the first of which decides without noise."""
    x = torch.rand(n, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, (x[:, 0] > x[:, 0].median()).long()


@pytest.mark.parametrize("weighted", [False, True], ids=["direct", "autograd"])
def test_a_lengthscale_of_zeros_and_ones_stays_in_their_units(weighted: bool) -> None:
    x, y = indicators()
    embedding = ke.MulticlassEmbedding(RBFKernel(ard_num_dims=5), 2)
    weights = torch.ones(len(x), dtype=torch.float64) if weighted else None
    with pytest.warns(NumericalWarning, match=r"kernel.lengthscale of column 1 is so short") as caught:
        result = ke.fit(embedding, ke.LeaveOneOutRisk(), x, y, weights=weights, progress=False)
    assert len(caught) == 1
    assert embedding.kernel.lengthscale.min() >= 0.01 * (1 - 1e-9)  # 1.7e-62 without bounds
    assert not result.converged
    assert "column 1" in result.degenerate[0]
    assert "degenerate=" in repr(result)


def test_regularization_stays_above_rounding_error() -> None:
    x, y = halves()
    embedding = ke.MulticlassEmbedding(MaternKernel(0.5, ard_num_dims=5), 2)
    with pytest.warns(NumericalWarning, match="regularization is at the rounding error") as caught:
        result = ke.fit(embedding, ke.LeaveOneOutRisk(), x, y, progress=False)
    assert len(caught) == 1
    assert embedding.regularization > 2e-14  # exactly 0 without bounds
    assert result.degenerate
    assert not result.converged


def test_an_optimizer_that_steps_in_place_stays_inside_the_bounds() -> None:
    x, y = indicators()
    embedding = ke.MulticlassEmbedding(RBFKernel(ard_num_dims=5), 2)
    embedding.regularization = 1e-13
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        ke.fit(embedding, ke.EmpiricalRisk(), x, y, optimizer=ke.Adam(5, learning_rate=20.0), progress=False)
    assert embedding.kernel.lengthscale.min() >= 0.01 * (1 - 1e-9)
    assert embedding.regularization >= 2e-14


def test_a_start_outside_the_bounds_is_allowed_and_reported() -> None:
    x, y = halves()
    embedding = ke.MulticlassEmbedding(MaternKernel(0.5), 2)
    embedding.regularization = 1e-18
    with pytest.warns(NumericalWarning, match="regularization"):
        result = ke.fit(embedding, ke.EmpiricalRisk(), x, y, max_evaluations=2, progress=False)
    assert result.degenerate


def test_gaps_are_those_of_the_data() -> None:
    x = torch.tensor([[0.0, 1.0, 7.0], [1.0, 1.0, 7.5], [1.0, 3.0, 9.0], [0.0, 3.0, 7.0]], dtype=torch.float64)
    assert column_gaps(x).tolist() == [1.0, 2.0, 0.5]
    assert column_gaps(torch.ones(3, 1)).tolist() == [0.0]
    assert float(neighbor_gap(torch.tensor([[0.0, 0.0], [0.0, 1.0], [3.0, 4.0]]))) == 1.0
    assert float(neighbor_gap(torch.ones(3, 2))) == 0.0


def test_the_warning_names_the_column_of_a_table() -> None:
    x, y = indicators()
    table = pd.DataFrame(x.numpy(), columns=["age", "smoker", "a", "b", "c"])
    model = ke.MulticlassEmbeddingClassifier(RBFKernel(ard_num_dims=5), ke.LeaveOneOutRisk(), progress=False)
    with pytest.warns(NumericalWarning, match="kernel.lengthscale of column 'smoker'"):
        model.fit(table, y.numpy())


def test_a_grid_search_warns_once_for_each_degenerate_fit() -> None:
    x, y = indicators(n=120)
    model = ke.MulticlassEmbeddingClassifier(RBFKernel(ard_num_dims=5), ke.LeaveOneOutRisk(), progress=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NumericalWarning)
        GridSearchCV(model, {"regularization": [1e-3, 1e-1]}, cv=3).fit(x.numpy(), y.numpy())
    messages = [str(warning.message) for warning in caught]
    assert all(message.startswith("The fit is degenerate") for message in messages)
    assert len(messages) <= 7  # one for each fit at most; there were several for each evaluation
    assert len(set(messages)) <= 3  # without numbers, so that Python shows each text once


def test_a_network_keeps_the_weights_that_predict_held_out_rows() -> None:
    def rings(n: int, seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(n, 5, generator=generator, dtype=torch.float64)
        y = (x[:, :2].square().sum(1) > 1.4).long()
        return x, torch.where(torch.rand(n, generator=generator) < 0.03, 1 - y, y)

    (x, y), (x_test, y_test) = rings(200, 1), rings(1000, 101)
    accuracy, results = {}, {}
    for early_stopping in (None, False):
        torch.manual_seed(1)
        network = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 8))
        embedding = ke.MulticlassEmbedding(ke.FeatureKernel(network, RBFKernel()), 2).double()
        result = ke.fit(embedding, ke.LeaveOneOutRisk(), x, y, early_stopping=early_stopping, progress=False)
        accuracy[early_stopping] = float((embedding.condition(x, y).predict(x_test) == y_test).double().mean())
        results[early_stopping] = result
    early, full = results[None], results[False]
    assert accuracy[None] > accuracy[False] + 0.04  # 0.88 and 0.81
    assert full.held_out == ()
    assert 38 <= len(early.held_out) <= 40
    assert np.bincount(y[list(early.held_out)]).min() > 10
    losses = [record["held_out"] for record in early.history]
    assert early.value == early.history[int(np.argmin(losses))]["value"]
    assert set(early.terms) == set(full.terms)
    assert early.message.startswith("stopped early")


def test_early_stopping_resumes_and_is_refused_where_nothing_can_be_held_out(tmp_path) -> None:
    x, y = indicators(n=60)

    def learn(limit: int, **options) -> tuple[ke.FitResult, Tensor]:
        torch.manual_seed(0)
        embedding = ke.MulticlassEmbedding(ke.FeatureKernel(nn.Linear(5, 3)), 2).double()
        result = ke.fit(embedding, ke.LeaveOneOutRisk(), x, y, max_evaluations=limit, progress=False, **options)
        return result, embedding.kernel.feature_map.weight.detach()

    whole, weight = learn(12)
    learn(5, checkpoint=tmp_path / "fit.pt")
    resumed, again = learn(12, checkpoint=tmp_path / "fit.pt")
    assert torch.equal(weight, again)
    assert [record["held_out"] for record in resumed.history] == [record["held_out"] for record in whole.history]
    with pytest.raises(ValueError, match="early_stopping needs a conditional embedding"):
        ke.fit(ke.BayesianMeanEmbedding(RBFKernel()), ke.EmbeddingEvidence(), x, early_stopping=True)


# --- starts -----------------------------------------------------------------------------------------------------------


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
