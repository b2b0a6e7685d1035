#!/usr/bin/env python3
"""Holds tensors of all kinds, and prints, a line each, what PyTorch itself says of those that gc knows: address, dtype, shape, device, data_ptr and
bytes of its storage; or "skipped" in place of these, if its elements are not in memory in the ordinary form. Then it prints the memory that
autograd alone holds, and "ready". It exits at the end of its input."""

import gc
import json
import sys
import warnings

warnings.simplefilter("ignore")
import torch
from torch import nn

held = []


def keep(make):
    """Keeps what make returns, unless this PyTorch cannot make it."""
    try:
        held.append(make())
    except (RuntimeError, TypeError, AttributeError, NotImplementedError, ImportError) as error:
        print("not here:", str(error).split("\n")[0], file=sys.stderr)


class Sub(torch.Tensor):
    pass


def views():
    base = torch.arange(24.0).reshape(2, 3, 4)
    channels_last = torch.empty(2, 3, 5, 7).to(memory_format=torch.channels_last)
    return [
        base, base[1], base.t() if base.dim() < 3 else base.transpose(0, 2), base[:, ::2], base.view(-1),
        torch.ones(3, 1).expand(3, 1000), torch.ones(1).expand(2**40), base.detach(), base[0, 0, 0], channels_last,
        torch.empty(100)[90:], torch.empty(10, 10).unbind(),
    ]


def shapes():
    return [
        torch.empty(0), torch.empty(3, 0, 2), torch.tensor(1.5), torch.empty(1, 2, 1, 2, 1), torch.empty(1, 2, 1, 2, 1, 2),
        torch.empty([1] * 12 + [5]), torch.empty([1] * 60), torch.empty(2, 3, 4, 5, 6, 7).permute(5, 4, 3, 2, 1, 0), torch.empty(0)[:],
    ]


def dtypes():
    kinds = {d for d in vars(torch).values() if isinstance(d, torch.dtype)}
    for kind in kinds:
        keep(lambda: torch.empty(3, dtype=kind))
    keep(lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8))


def trained():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2))
    optimizer = torch.optim.Adam(net.parameters())
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = net(torch.randn(5, 3, 8, 8)).square().sum()
        loss.backward(retain_graph=True)
        optimizer.step()
        losses.append(loss)  # not detached
    return net, optimizer, losses, [p.grad for p in net.parameters()]


saved = []


def graph():
    """Activations that only autograd holds: sigmoid saves its result, of which no Python object is left."""
    activation = torch.ones(1000, requires_grad=True).sigmoid()
    for _ in range(50):
        saved.append({"data": activation.data_ptr(), "bytes": 4000, "saved": True})
        activation = activation.sigmoid()
    return activation


def owned_by_cpp():
    """A tensor whose Python object only the TensorImpl refers to."""
    parameter = torch.ones(7, requires_grad=True)
    parameter.register_hook(lambda gradient: gradient)
    return (parameter * 2).sum()


def sparse():
    coordinates = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2))
    return coordinates, torch.eye(3).to_sparse_csr()


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    return mode, mode.from_tensor(torch.empty(4, 4))


def resized():
    empty = torch.empty(10, 10)
    storage = empty.untyped_storage() if hasattr(empty, "untyped_storage") else empty.storage()
    storage.resize_(0)  # as FSDP does
    return empty


def shared():
    import numpy

    array = numpy.zeros((50, 4), dtype=numpy.float32)
    return torch.from_numpy(array), torch.from_numpy(array[:, 1:]), torch.zeros(1000).share_memory_()


def batched():
    kept = []
    torch.vmap(lambda row: kept.append(row) or row * 2)(torch.ones(3, 4))
    return kept


def inference():
    with torch.inference_mode():
        return torch.ones(12), torch.ones(12)[3:]


def storage_of(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()._storage


def describe(tensor):
    skipped = {"object": id(tensor), "skipped": True}
    try:
        with torch._C.DisableTorchFunction():
            if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested or tensor.is_meta:
                return skipped
            storage, shape = storage_of(tensor), list(tensor.size())  # UninitializedParameter has no .shape
            if storage.data_ptr() == 0 and tensor.numel() > 0:
                return skipped
    except (RuntimeError, NotImplementedError):  # PyTorch gives no storage
        return skipped
    return {
        "object": id(tensor),
        "skipped": False,
        "dtype": str(tensor.dtype).replace("torch.", ""),
        "shape": shape,
        "device": str(tensor.device),
        "data": storage.data_ptr(),
        "bytes": storage.nbytes(),
        "storage": storage._cdata,
        "hasgradfn": tensor.grad_fn is not None,
    }


for make in (
    views, shapes, trained, graph, owned_by_cpp, sparse, fake, resized, shared, batched, inference,
    lambda: torch.empty(5, 5, device="meta"), lambda: torch.empty(0, device="meta"), lambda: torch.ones(3, 3).to_mkldnn(),
    lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]), lambda: torch.ones(9).as_subclass(Sub),
    lambda: nn.Parameter(torch.ones(6)[2:]), lambda: torch.ones(4, names=("N",)), lambda: torch.ones(6).conj(),
    lambda: torch.ones(3, dtype=torch.complex64).conj(), lambda: nn.parameter.UninitializedParameter(), lambda: torch.ones(8).neg(),
    lambda: torch.ones(3000000), lambda: [torch.ones(100) for _ in range(20000)],
):
    keep(make)
dtypes()

gc.collect()
tensors = [o for o in gc.get_objects() if isinstance(o, torch.Tensor)]
for tensor in tensors:
    print(json.dumps(describe(tensor)))
for memory in saved:
    print(json.dumps(memory))
print("ready", flush=True)
for _ in sys.stdin:
    pass
