#!/usr/bin/env python3
"""Holds tensors and knows which. Prints "ready", then executes one order a line, prints "done", and exits at the end of its input.

With the argument "late", torch is imported by the order "import". What is held becomes old by the order "age"; "forget" frees
that. "alive" prints how many storages there are of tensors that are not old, and their bytes."""

import ctypes
import sys
import threading


def say(*words):
    print(*words, flush=True)


class Holder:
    def __init__(self):
        self.old, self.kept, self.net, self.optimizer = [], [], None, None

    def order_import(self):
        global torch
        import torch

        torch.set_num_threads(1)

    def order_age(self):
        self.old += [self.kept, self.net, self.optimizer]
        self.kept, self.net, self.optimizer = [], None, None

    def order_forget(self):
        self.old.clear()

    def order_keep(self, n, size):
        for _ in range(int(n)):
            self.kept.append(torch.empty(int(size), dtype=torch.uint8))  # keeps

    def order_fill(self, n, size):
        for _ in range(int(n)):
            self.kept.append(torch.ones(int(size), dtype=torch.uint8))  # fills

    def order_fail(self, n):
        """Asks for more than there is, from C++ alone: what is thrown passes through torch before Python sees it."""
        for _ in range(int(n)):
            try:
                torch.empty(2**48, dtype=torch.uint8)
            except RuntimeError as error:
                said = str(error)
        say(said.replace("\n", " "))

    def order_view(self):
        self.kept += [tensor[: len(tensor) // 2] for tensor in self.kept]

    def order_churn(self, n, size):
        for _ in range(int(n)):
            torch.empty(int(size), dtype=torch.uint8)

    def order_clear(self, n, size):
        """Is in calloc nearly all the time, which clears what was free before, and keeps a tensor after each."""
        for _ in range(int(n)):
            bytes(int(size))
            self.kept.append(torch.empty(100, dtype=torch.uint8))

    def order_drop(self, n):
        """In another thread."""
        other = threading.Thread(target=self.kept.__delitem__, args=(slice(0, int(n)),))
        other.start()
        other.join()

    def order_train(self, steps):
        if self.net is None:
            self.net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
            self.optimizer = torch.optim.Adam(self.net.parameters())
        for _ in range(int(steps)):
            self.optimizer.zero_grad()
            self.net(torch.randn(32, 64)).square().mean().backward()
            self.optimizer.step()

    def order_save(self, n):
        """Keeps a tensor, and n more of 4000 bytes that autograd alone refers to: sigmoid saves its result."""
        activation = torch.ones(1000, requires_grad=True).sigmoid()
        for _ in range(int(n)):
            activation = activation.sigmoid()
        self.kept.append(activation)

    def tensors(self):
        yield from self.kept
        if self.net is not None:
            for parameter in self.net.parameters():
                yield parameter.detach()
                yield parameter.grad
            for state in self.optimizer.state.values():
                yield from (value for value in state.values() if torch.is_tensor(value))

    def order_alive(self):
        storages = {}
        for tensor in self.tensors():
            storage = tensor.storage()
            storages[storage.data_ptr()] = storage.nbytes()
        storages.pop(0, None)  # nothing was allocated for it
        say(len(storages), sum(storages.values()))

    def order_library(self, path, n, size, function="keep"):
        """Has a library allocate; see c10.cc."""
        ctypes.CDLL(path)[function](int(n), ctypes.c_size_t(int(size)))


def main():
    holder = Holder()
    if sys.argv[1:] != ["late"]:
        holder.order_import()
    say("ready")
    for line in sys.stdin:
        name, *arguments = line.split()
        getattr(holder, "order_" + name)(*arguments)
        say("done")


if __name__ == "__main__":
    main()
