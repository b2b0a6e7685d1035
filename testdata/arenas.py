"""Fills arenas of Python's allocator of small objects from several threads, beside large blocks of malloc; gives some back.

Prints how many arenas there are, in the words of sys._debugmallocstats(), then "ready", and waits for its input to end.
"""

import os
import sys
import threading
import time

kept = []


def fill(number):
    kept.append([object() for _ in range(60_000)])
    kept.append(bytearray(b"x" * 700_000))
    kept.append([str(i) * 3 for i in range(100_000)])
    kept.append({i: (number, i) for i in range(20_000)})
    dropped = [str(i) * 5 for i in range(50_000)]
    kept.append(bytearray(b"y" * 5_000_000))
    del dropped[:49_000]
    kept.append(dropped)


def is_running(thread):
    try:
        os.getpriority(os.PRIO_PROCESS, thread.native_id)
    except ProcessLookupError:
        return False
    return True


threads = [threading.Thread(target=fill, args=(number,)) for number in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
while any(map(is_running, threads)):  # a thread that has been joined may still give back what it had
    time.sleep(0.01)
os.dup2(1, 2)
sys._debugmallocstats()
print("ready", flush=True)
sys.stdin.readline()
