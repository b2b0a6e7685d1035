#!/usr/bin/env python3
"""A real training loop of PyTorch on a GPU: a transformer, AdamW, a DataLoader with workers whose batches are pinned.

Options:

--device NAME  where it trains; default cuda:0. "cpu" tries the orders where there is no GPU
--expandable   torch's allocator uses expandable segments
--no-cache     torch's caching allocator is off: each tensor is a call of CUDA's driver
--eager        CUDA loads all modules together with its context, and not each when it is first used
--compile      torch.compile with Inductor
--leak KIB     each step keeps one tensor of that size for ever, by one line of keep()
--workers N    of the DataLoader; default 2
--width N, --layers N, --batch N, --length N, --batches N
               of the transformer, in sequences and tokens, and the number of batches of an epoch

It prints "ready" when torch is loaded and before any call of CUDA, executes one order a line, prints what the order asks for, then "done",
and exits at the end of its input. Between the orders it holds still: no batch is under way.

context        makes the context of CUDA; no tensor yet
build          the net, its optimizer and the loader
train N        N epochs; "step NUMBER SECONDS LOSS" for each step
work SECONDS   whole epochs until so long has passed; "steps NUMBER seconds WALL" of the steps alone
validate N     N epochs without gradients
keep N KIB     keep() keeps N tensors of KIB KiB
hold MIB       one tensor stays, as large as the activations of a larger net
empty          torch.cuda.empty_cache(), and keep() keeps 512 bytes: the allocator reports its totals with a tensor
totals         waits for the GPU, then "NAME VALUE" of what torch and CUDA's driver count, in bytes:
               allocated, reserved  torch.cuda.memory_allocated() and memory_reserved()
               segments             how many the caching allocator has
               free, total          of the whole GPU, as the driver counts (torch.cuda.mem_get_info)
               pinned               host memory that torch has pinned; not printed by a torch that does not report it
               kept                 by keep(), by the program's own count
"""

import argparse
import os
import sys
import time

FEW = 512  # bytes, a block of torch's caching allocator


def say(*words):
    print(*words, flush=True)


def options():
    parser = argparse.ArgumentParser()
    for flag in ("--expandable", "--no-cache", "--eager", "--compile"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--device", default="cuda:0")
    sizes = {"leak": 0, "workers": 2, "width": 512, "layers": 6, "batch": 32, "length": 128, "batches": 32}
    for name, default in sizes.items():
        parser.add_argument("--" + name, type=int, default=default)
    return parser.parse_args()


def configure(chosen):
    """Sets what torch and CUDA read once, when they are loaded."""
    if chosen.expandable:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if chosen.no_cache:
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    if chosen.eager:
        os.environ["CUDA_MODULE_LOADING"] = "EAGER"


TOKENS = 4096


class Sentences:
    """A data set of random tokens, each sentence with its own."""

    def __init__(self, count, length):
        self.count, self.length = count, length

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        import torch

        random = torch.Generator().manual_seed(index)
        return torch.randint(TOKENS, (self.length + 1,), generator=random)


def make_net(torch, chosen):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            nn, width = torch.nn, chosen.width
            layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
            self.embed = nn.Embedding(TOKENS, width)
            self.body = nn.TransformerEncoder(layer, chosen.layers)
            self.head = nn.Linear(width, TOKENS)

        def forward(self, tokens):
            return self.head(self.body(self.embed(tokens)))

    return Net()


class Trainer:
    def __init__(self, torch, chosen):
        self.torch, self.chosen = torch, chosen
        self.device = torch.device(chosen.device)
        self.cuda = torch.cuda if self.device.type == "cuda" else None
        self.kept, self.held, self.kept_bytes, self.steps = [], [], 0, 0

    def context(self):
        if self.cuda:
            self.cuda.set_device(self.device)
            self.cuda.init()
            self.cuda.synchronize()

    def build(self):
        torch, chosen = self.torch, self.chosen
        torch.manual_seed(20240607)
        self.net = make_net(torch, chosen).to(self.device)
        self.run = torch.compile(self.net) if chosen.compile else self.net
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4)
        self.loader = torch.utils.data.DataLoader(
            Sentences(chosen.batch * chosen.batches, chosen.length), batch_size=chosen.batch,
            num_workers=chosen.workers, persistent_workers=chosen.workers > 0, pin_memory=self.cuda is not None,
        )  # fmt: skip

    def loss(self, batch):
        tokens = batch.to(self.device, non_blocking=True)
        scores = self.run(tokens[:, :-1])
        return self.torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())

    def step(self, batch):
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        if self.chosen.leak:
            self.keep(self.chosen.leak << 10)
        self.steps += 1
        return loss.item()

    def keep(self, size):
        self.kept.append(self.torch.zeros(size, dtype=self.torch.uint8, device=self.device))  # LEAK
        self.kept_bytes += size

    def epoch(self):
        """Yields the number, the seconds and the loss of each step of an epoch."""
        began = time.monotonic()
        for batch in self.loader:
            loss = self.step(batch)
            now = time.monotonic()
            yield self.steps, now - began, loss
            began = now

    def totals(self):
        if self.cuda:
            self.cuda.synchronize()
            yield from cuda_totals(self.cuda, self.device)
        yield "kept", self.kept_bytes


def cuda_totals(cuda, device):
    """Gives what torch and CUDA's driver count, by name."""
    yield "allocated", cuda.memory_allocated(device)
    yield "reserved", cuda.memory_reserved(device)
    yield "segments", cuda.memory_stats(device).get("segment.all.current", 0)
    free, total = cuda.mem_get_info(device)
    yield "free", free
    yield "total", total
    if hasattr(cuda, "host_memory_stats"):
        pinned = cuda.host_memory_stats()
        # Where the two differ, the smaller one leaves out what is pinned and in no tensor.
        yield "pinned", max(pinned.get(name + ".current", 0) for name in ("allocated_bytes", "reserved_bytes"))


def order_context(trainer):
    trainer.context()


def order_build(trainer):
    trainer.build()


def order_train(trainer, epochs):
    for _ in range(int(epochs)):
        for number, seconds, loss in trainer.epoch():
            say("step", number, f"{seconds:.6f}", loss)


def order_work(trainer, seconds):
    end, steps, wall = time.monotonic() + float(seconds), 0, 0.0
    while time.monotonic() < end:
        # The first step of an epoch waits for the workers, which begin with it.
        times = [seconds for _, seconds, _ in trainer.epoch()][1:]
        steps, wall = steps + len(times), wall + sum(times)
    say("steps", steps, "seconds", f"{wall:.6f}")


def order_validate(trainer, epochs):
    with trainer.torch.no_grad():
        for _ in range(int(epochs)):
            for batch in trainer.loader:
                trainer.loss(batch)


def order_keep(trainer, count, kib):
    for _ in range(int(count)):
        trainer.keep(int(kib) << 10)


def order_hold(trainer, mib):
    torch = trainer.torch
    trainer.held.append(torch.zeros(int(mib) << 20, dtype=torch.uint8, device=trainer.device))


def order_empty(trainer):
    if trainer.cuda:
        trainer.cuda.empty_cache()
    trainer.keep(FEW)


def order_totals(trainer):
    for name, value in trainer.totals():
        say(name, value)


def main():
    chosen = options()
    configure(chosen)
    import torch

    trainer = Trainer(torch, chosen)
    say("ready")
    for line in sys.stdin:
        name, *arguments = line.split()
        globals()["order_" + name](trainer, *arguments)
        say("done")


if __name__ == "__main__":
    main()
