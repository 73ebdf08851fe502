"""A kernel as it was when an embedding was conditioned."""

from __future__ import annotations

import copy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor


class KernelSnapshot:
    """Remembers the parameters of a kernel, so that answers do not change when the kernel is learned further.

    While nothing has changed, :meth:`kernel` is the live kernel and gradients reach its parameters; once something
    has, it is a copy with the remembered values. A feature map that was in evaluation mode stays in it.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._live = kernel
        self._values = {name: tensor.detach().clone() for name, tensor in kernel.state_dict().items()}
        self._training = {name: module.training for name, module in kernel.named_modules()}
        self._copy: Kernel | None = None

    def kernel(self) -> Kernel:
        """The kernel with the remembered parameters."""
        if self._copy is None and self._unchanged():
            return self._live
        if self._copy is None:
            self._copy = copy.deepcopy(self._live)
            for name, tensor in [*self._copy.named_parameters(), *self._copy.named_buffers()]:
                if name in self._values:
                    tensor.data = self._values[name]  # with the dtype and device of then, whatever they are now
            for name, module in self._copy.named_modules():
                module.training = module.training and self._training.get(name, False)
            self._copy.requires_grad_(False)
        return self._copy

    def _unchanged(self) -> bool:
        if any(module.training and not self._training.get(name, False) for name, module in self._live.named_modules()):
            return False
        now = self._live.state_dict()
        return now.keys() == self._values.keys() and all(_same(now[name], old) for name, old in self._values.items())


def _same(now: Tensor, old: Tensor) -> bool:
    return now.dtype == old.dtype and now.device == old.device and torch.equal(now, old)
