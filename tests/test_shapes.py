"""Shapes that broadcast, beside what PyTorch and GPyTorch say."""

import itertools

import pytest
import torch
from gpytorch.kernels import ConstantKernel, LinearKernel, RBFKernel, ScaleKernel

from kernel_embed.kernels import FeatureKernel
from kernel_embed.kernels.structure import batch_shape_of
from kernel_embed.validation import broadcast_shapes

SHAPES = [(), (1,), (3,), (2, 1), (1, 3), (4, 1, 1), (0,)]


@pytest.mark.parametrize("shapes", list(itertools.product(SHAPES, SHAPES)))
def test_shapes_are_those_of_pytorch(shapes):
    try:
        expected = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="Expected shapes that broadcast"):
            broadcast_shapes(*shapes)
    else:
        assert broadcast_shapes(*shapes) == expected


def test_no_shape_is_that_of_a_number():
    assert broadcast_shapes() == torch.Size()


@pytest.mark.parametrize(
    "kernel",
    [
        RBFKernel(),
        RBFKernel(batch_shape=torch.Size([2])) + LinearKernel(),
        ScaleKernel(RBFKernel(batch_shape=torch.Size([3, 1])), batch_shape=torch.Size([2])),
        FeatureKernel(torch.nn.Identity(), RBFKernel(batch_shape=torch.Size([2])) * ConstantKernel()),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_batch_shapes_are_those_of_gpytorch(kernel):
    assert batch_shape_of(kernel) == kernel.batch_shape
