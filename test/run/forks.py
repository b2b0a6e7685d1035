"""Forks 1,000 children, eight at a time, each of which allocates and exits with a status of its own."""

import os

COUNT, AT_ONCE = 1000, 8


def child(i):
    data = [bytes(1 << 14) for _ in range(100)]
    os._exit(len(data) * 0 + i % 7)


statuses = []
for i in range(COUNT):
    if i >= AT_ONCE:
        statuses.append(os.wait()[1])
    if os.fork() == 0:
        child(i)
while len(statuses) < COUNT:
    statuses.append(os.wait()[1])
print(len(statuses), sum(os.waitstatus_to_exitcode(s) for s in statuses))
