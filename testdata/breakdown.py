"""Memory of Python, on command: prints "ready", executes one order a line, prints the truth, then "done".

small   keeps 1,200,000 objects that the allocator of small objects serves
bytes   keeps 32 bytearrays of 1 MiB, which malloc serves

truth NAME KIND BYTES   what function NAME holds that is resident; arenas as sys._debugmallocstats() counts them
"""

import os
import re
import sys
import tempfile

kept = []


def arenas():
    """Bytes of the arenas that there are: the interpreter prints on the C library's stderr."""
    with tempfile.TemporaryFile() as stats:
        stderr = os.dup(2)
        os.dup2(stats.fileno(), 2)
        sys._debugmallocstats()
        os.dup2(stderr, 2)
        os.close(stderr)
        stats.seek(0)
        count, size = re.search(rb"(\d+) arenas \* (\d+) bytes/arena", stats.read()).groups()
    return int(count) * int(size)


def keep_small():
    before = arenas()
    kept.append([bytes(20 + i % 60) for i in range(1_200_000)])
    print("truth keep_small python", arenas() - before)


def keep_bytes():
    kept.append([bytearray(b"x") * (1 << 20) for _ in range(32)])
    print("truth keep_bytes heap", 32 << 20)


print("ready", flush=True)
for line in sys.stdin:
    {"small": keep_small, "bytes": keep_bytes}[line.strip()]()
    print("done", flush=True)
