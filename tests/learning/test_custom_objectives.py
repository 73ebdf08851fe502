"""Mistakes in objectives of users: values of another shape, floats, and names that do not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke


class Rows(ke.Objective):
    def evaluate(self, attached: Any) -> torch.Tensor:
        return (attached.leave_one_out() - attached.Y).square().sum(-1)


class Number(ke.Objective):
    def evaluate(self, attached: Any) -> float:
        return float((attached.leave_one_out() - attached.Y).square().sum().detach())


class DirectRows(ke.Objective):
    inputs = ("leave_one_out",)

    def value_and_gradient(self, data: Any, F: Any) -> tuple[Any, tuple[Any, ...]]:
        return ((F - data.Y) ** 2).sum(-1), (2.0 * (F - data.Y),)


def learn(objective: ke.Objective, n: int) -> object:
    x = torch.rand(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    embedding = ke.MulticlassEmbedding(RBFKernel(), 2)
    return ke.fit(embedding, objective, x, (x[:, 0] > 0.5).long(), max_evaluations=2, progress=False)


def draw(objective: ke.Objective, n: int) -> object:
    x = torch.rand(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    embedding = ke.MulticlassEmbedding(RBFKernel(), 2)
    return ke.sample_posterior(embedding, objective, x, (x[:, 0] > 0.5).long(), num_samples=1, num_chains=1)


@pytest.mark.parametrize("use", [learn, draw])
@pytest.mark.parametrize("n", [20, 600], ids=["direct", "autograd"])
def test_a_value_for_each_row_and_a_float_are_refused(use: Callable, n: int) -> None:
    for objective in (Rows(), 0.5 * Rows(), *([DirectRows()] if n == 20 else [])):
        with pytest.raises(ValueError, match=rf"Rows\(\) must return one number, not a tensor of shape \({n},\).*mean"):
            use(objective, n)
    with pytest.raises(TypeError, match=r"Number\(\) must return a tensor with one number, not float"):
        use(Number(), n)


def test_a_call_refuses_the_same() -> None:
    embedding, x = ke.MulticlassEmbedding(RBFKernel(), 2), torch.rand(8, 1)
    with pytest.raises(ValueError, match="one number"):
        Rows()(embedding, x, torch.arange(8) % 2)


@pytest.mark.parametrize("inputs", [("leave_one_oot",), "leave_one_out"])
def test_unknown_inputs_are_refused_with_the_class(inputs: object) -> None:
    with pytest.raises(ValueError, match=r"Typo.inputs has .*among .*leave_one_out"):
        type("Typo", (ke.Objective,), {"inputs": inputs})


def test_an_objective_has_its_class_as_its_name() -> None:
    assert repr(Rows() + 2.0 * Number()) == "Rows() + 2 * Number()"
    assert np.isfinite(learn(ke.LeaveOneOutRisk(), 20).value)
