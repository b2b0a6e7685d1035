"""A CUDA graph for each new shape: each has a private pool of memory, and server.graphs keeps them
all.

Once a second comes a shape that has no graph yet. Its graph is captured with a temporary tensor of
TEMPORARY bytes and a result of RESULT bytes. The pool has one segment of 20 MiB; what is free
there serves no other allocation. Each step replays the last graph.

Truth, with N graphs: the private pools reserve N * 20 MiB and N * RESULT is allocated in them.
Beside them there is one segment of 2 MiB with what the graphs' random numbers need, 2 blocks of
512 bytes. torch.cuda.empty_cache() returns nothing.
"""

import torch

import case

TEMPORARY = 8 * case.MIB
RESULT = 2 * case.MIB
SEGMENT = 20 * case.MIB


class Server:
    def __init__(self):
        self.graphs = {}

    def capture(self, shape):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            case.tensor(TEMPORARY)
            result = case.tensor(RESULT)
        self.graphs[shape] = graph, result

    def serve(self, shape):
        if shape not in self.graphs:
            self.capture(shape)
        self.graphs[shape][0].replay()


server = Server()


def step(n):
    server.serve((n // case.STEPS_PER_SECOND, RESULT))


def truth():
    graphs = len(server.graphs)
    return {
        "true_allocated": graphs * RESULT + 2 * 512,
        "true_reserved": graphs * SEGMENT + 2 * case.MIB,
    }


case.run(step, truth)
