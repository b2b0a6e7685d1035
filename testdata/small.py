"""Keeps small objects of types that Python keeps no free ones of: tracemalloc gives those to who takes them again.
Prints "ready" and waits for a line. Then prints, if tracemalloc traces, what the lines that end in "# kept" hold, as
LINE OBJECTS BYTES, and "done". Goes on until its input ends."""

import linecache
import sys
import tracemalloc

N = 3000


class Node:
    __slots__ = ("value", "name")


def keep_strings(kept):
    for i in range(N):
        kept[i] = str(i) * 3  # kept


def keep_numbers(kept):
    for i in range(N):
        kept[i] = (i + 1000) ** 5  # kept


def keep_sets(kept):
    for i in range(N):
        kept[i] = {i, i + 1, i + 2, "a", "b", "c", "d"}  # kept


def keep_nodes(kept):
    for i in range(N):
        kept[i] = Node()  # kept
        kept[i].name = f"node {i}"  # kept


print("ready", flush=True)
sys.stdin.readline()
kept = []
for keep in keep_strings, keep_numbers, keep_sets, keep_nodes:
    kept.append([None] * N)
    keep(kept[-1])

if tracemalloc.is_tracing():
    tracemalloc.take_snapshot()  # takes a free object that counted for the last line of a loop
    for line in tracemalloc.take_snapshot().statistics("lineno"):
        at = line.traceback[0]
        if at.filename == __file__ and linecache.getline(__file__, at.lineno).endswith("# kept\n"):
            print(at.lineno, line.count, line.size)
print("done", flush=True)
sys.stdin.read()
