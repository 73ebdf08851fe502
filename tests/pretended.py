"""A pretended device, to see without a GPU whether code keeps its tensors together.

A ``Pretended`` tensor holds one of the CPU and says it is elsewhere. An operation on both kinds raises, numbers aside,
and so does a conversion to NumPy without ``.cpu()``. Lists as indices and tensors of inference mode are beyond it.
"""

import contextlib

import torch
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

backend_registration._setup_privateuseone_for_python_backend("elsewhere")
DEVICE = torch.device("elsewhere:0")
aten = torch.ops.aten
READS, COPIES = (aten._local_scalar_dense.default, aten.equal.default), (aten._to_copy.default, aten.copy_.default)
INDEXED = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index")


class Pretended(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, hidden):
        layout = {"strides": hidden.stride(), "storage_offset": hidden.storage_offset(), "dtype": hidden.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, hidden.shape, device=DEVICE, **layout)

    def __init__(self, hidden):
        self.hidden = hidden

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})

    def numpy(self, *args, **kwargs):
        raise TypeError("a tensor of another device cannot be a NumPy array; use Tensor.cpu() first")

    __array__ = numpy

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, value):
        self.hidden = value.hidden

    def tolist(self):
        return self.hidden.tolist()

    def __deepcopy__(self, memo):
        copied = Pretended(self.hidden.detach().clone())
        if isinstance(self, torch.nn.Parameter) or getattr(self, "_is_param", False):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        memo[id(self)] = copied
        return copied


def is_elsewhere(device):
    return device is not None and torch.device(device).type == DEVICE.type


def run(func, args, kwargs):
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    ours = [tensor for tensor in tensors if isinstance(tensor, Pretended)]
    strangers = [tensor.shape for tensor in tensors if not isinstance(tensor, Pretended) and tensor.dim() > 0]
    is_index = func._schema.name in INDEXED and isinstance(args[0], Pretended)
    if ours and strangers and func not in COPIES and not is_index:
        raise RuntimeError(f"Expected all tensors on one device, but {func} has one of the CPU of shape {strangers[0]}")
    target, own = kwargs.get("device"), {name: value for name, value in kwargs.items() if name != "pin_memory"}
    own |= {} if target is None else {"device": torch.device("cpu")}
    args_inside, own = tree_map_only(Pretended, lambda tensor: tensor.hidden, (args, own))
    result = func(*args_inside, **own)
    if func in READS:
        return result
    if func is aten.copy_.default:
        return args[0]
    if not (ours if target is None else is_elsewhere(target)):
        return result
    known = {id(tensor.hidden): tensor for tensor in ours}  # operations in place return their argument
    return tree_map_only(torch.Tensor, lambda t: known[id(t)] if id(t) in known else Pretended(t), result)


class Factories(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


@contextlib.contextmanager
def pretending():
    """Tensors can be made on the device; ``torch.tensor`` and ``as_tensor`` are, which do not ask a dispatch mode."""
    originals = {name: getattr(torch, name) for name in ("tensor", "as_tensor")}

    def moved(make, data, *args, device=None, **kwargs):
        if is_elsewhere(device) and not isinstance(data, Pretended):
            return make(data, *args, **kwargs).to(DEVICE)
        return make(data, *args, device=device, **kwargs)

    try:
        for name, make in originals.items():
            setattr(torch, name, lambda data, *args, make=make, **kwargs: moved(make, data, *args, **kwargs))
        with Factories():
            yield
    finally:
        for name, make in originals.items():
            setattr(torch, name, make)


def elsewhere(thing):
    """A tensor, or a module with its parameters and buffers, on the device; a module in place."""
    if isinstance(thing, torch.Tensor):
        return thing if isinstance(thing, Pretended) else Pretended(thing.detach().clone())
    for module in thing.modules() if isinstance(thing, torch.nn.Module) else ():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = torch.nn.Parameter(elsewhere(parameter), parameter.requires_grad)
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else elsewhere(buffer)
    return tuple(elsewhere(part) for part in thing) if isinstance(thing, tuple) else thing
