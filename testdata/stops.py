"""For gdb: stops a process at random calls of malloc and writes the stack of each as a line of JSON, a list of [program
counter, function], innermost first.

The breakpoint is a hardware one, on the first instruction: it comes before the uprobe there, which is a breakpoint in memory
of the kernel's own, and before a return probe has put its own return address in place of the caller's.

    gdb -nx -batch -p PID -ex 'python (stops, skip, path) = (200, 30, "out.json")' -x stops.py

stops: how many; skip: calls between two, on average.
"""

import json
import random

import gdb

REAL = (gdb.NORMAL_FRAME, gdb.SIGTRAMP_FRAME)  # neither inlined functions nor tail calls, which have no return address


def stack():
    frames = []
    frame = gdb.newest_frame()
    while frame is not None and frame.pc() != 0:  # 0: the caller of the first function of a makecontext
        if frame.type() in REAL:
            frames.append((frame.pc(), frame.name() or "?"))
        frame = frame.older()
    return frames


def is_guessed(frames):
    """Whether gdb has lost its way: a program counter of the stack is in memory without code."""
    with open(f"/proc/{gdb.selected_inferior().pid}/maps") as maps:
        mappings = [line.split() for line in maps]
    code = [[int(end, 16) for end in span.split("-")] for span, permissions, *_ in mappings if "x" in permissions]
    return not all(any(start <= pc < end for start, end in code) for pc, _ in frames)


def main():
    for setting in ("pagination off", "backtrace past-main on", "backtrace past-entry on", "backtrace limit unlimited"):
        gdb.execute("set " + setting)
    # What is in memory at malloc is the uprobe's breakpoint: gdb would take it for one of the program's own and skip it, or
    # execute a copy of it elsewhere.
    gdb.execute("set trust-readonly-sections on")
    gdb.execute("set displaced-stepping off")
    for event in ("SIGALRM", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPIPE", "SIG37"):
        gdb.execute(f"handle {event} nostop noprint pass", to_string=True)
    address = int(gdb.parse_and_eval("(long)&malloc"))
    breakpoint_ = gdb.Breakpoint(f"*{address:#x}", type=gdb.BP_HARDWARE_BREAKPOINT)
    with open(path, "w") as out:
        written, guessed = 0, 0
        while written < stops:
            breakpoint_.ignore_count = random.randrange(2 * skip + 1)
            gdb.execute("continue", to_string=True)
            frames = stack()
            if frames[0][0] != address:
                raise gdb.GdbError(f"stopped at {frames[0]}, not at malloc")
            if is_guessed(frames):
                guessed += 1
                if guessed > stops / 10:
                    raise gdb.GdbError(f"{guessed} stacks lead through memory without code, the last is {frames}")
                continue
            json.dump(frames, out)
            out.write("\n")
            written += 1
    breakpoint_.delete()
    gdb.execute("detach")


main()
