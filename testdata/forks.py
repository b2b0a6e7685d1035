"""A tree of forks, on command: prints "ready", executes one order a line, then prints "done". An order begins with the generation
that it is for: 0 is the root, 1 its newest child, 2 the newest child of that. All end when the root does.

N hold MIB              maps private memory and writes all of it
N write MIB             writes the first of what was held first
N discard MIB           gives the first of that back
N map PATH FROM MIB     maps a part of a file, and writes all of it; FROM in MiB
N fork                  prints "child PID"
N replace PID           kills the child, and starts another with its PID
N execute               executes a program that holds nothing
N leave                 exits
"""

import mmap
import os
import signal
import sys

sys.dont_write_bytecode = True
from forkas import fork_as  # noqa: E402

MIB = 1 << 20
held = []
orders = sys.stdin
child = None  # where it gets its orders
life, alive = os.pipe()  # the one that reads it waits for the root's end


def touch(memory, size):
    for i in range(0, size, 4096):
        memory[i] = 1


def hold(mib):
    held.append(mmap.mmap(-1, int(mib) * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    touch(held[-1], int(mib) * MIB)


def write(mib):
    touch(held[0], int(mib) * MIB)


def discard(mib):
    held[0].madvise(mmap.MADV_DONTNEED, 0, int(mib) * MIB)


def map(path, start, mib):
    file = os.open(path, os.O_RDWR)
    held.append(mmap.mmap(file, int(mib) * MIB, offset=int(start) * MIB))
    os.close(file)
    touch(held[-1], int(mib) * MIB)


def fork(pid=None):
    """It is the child that is done. It has that PID."""
    global orders, child, alive
    source, sink = os.pipe()
    pid = fork_as(pid) if pid else os.fork()
    if pid:
        os.close(source)
        if child is not None:
            os.close(child)
        child = sink
        return
    os.close(sink)
    for end in (alive, child):
        if end is not None:
            os.close(end)
    orders, child, alive = os.fdopen(source), None, None
    print("child", os.getpid(), flush=True)
    print("done", flush=True)


def replace(pid):
    os.kill(int(pid), signal.SIGKILL)
    fork(int(pid))


def execute():
    os.dup2(orders.fileno(), 0)
    os.execv(sys.executable, [sys.executable, "-S", "-c", "print('done', flush=True); import sys; sys.stdin.read()"])


signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # there is no wait for them
print("ready", flush=True)
while True:
    line = orders.readline()
    if not line and alive is None:
        os.read(life, 1)
    if not line:
        os._exit(0)
    generation, order = line.strip().split(" ", 1)
    if int(generation):
        os.write(child, b"%d %s\n" % (int(generation) - 1, order.encode()))
        continue
    name, *words = order.split()
    if name == "leave":
        print("done", flush=True)
        os._exit(0)
    {"hold": hold, "write": write, "discard": discard, "map": map, "fork": fork, "replace": replace, "execute": execute}[name](*words)
    if name not in ("fork", "replace"):
        print("done", flush=True)
