#!/usr/bin/env python3
"""Prints what was alive at the end of a memray recording, a line for each stack: its frames from the outermost on, with ";" between
them, a space, and the bytes. The argument is the file that `memray run` has written.
"""

import collections
import sys

import memray


def frames(record, native):
    stack = record.hybrid_stack_trace() if native else record.stack_trace()
    return ";".join(f"{function} ({file}:{line})" for function, file, line in reversed(stack))


def main():
    reader, alive = memray.FileReader(sys.argv[1]), collections.Counter()
    for record in reader.get_leaked_allocation_records(merge_threads=True):
        alive[frames(record, reader.metadata.has_native_traces)] += record.size
    for stack, size in alive.items():
        print(stack, size)


if __name__ == "__main__":
    main()
