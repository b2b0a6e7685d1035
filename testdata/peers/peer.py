"""What the trainers of the benchmark against other tools have in common: how they get their orders, and how they answer.

They speak by lines: print "ready PID planted BYTES", then for each line with a number work for so many seconds and print

    steps NUMBER seconds WALL cpu CPU planted BYTES

(CPU is the user and system time of all threads in these steps; BYTES what the leaking line has kept in all, by the program's own
count). Between the lines they wait. At the line "exit" they leave as exit() of the C library does, so that the profilers that
write at the end find alive what was alive; at the end of the input they return to who runs them.
"""

import ctypes
import os
import resource
import sys
import time


def say(text):
    print(text, flush=True)


def cpu():
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime


def stretch(trainer, seconds):
    began, spent, steps = time.monotonic(), cpu(), 0
    while time.monotonic() < began + seconds:
        trainer.step()
        steps += 1
    wall, spent = time.monotonic() - began, cpu() - spent
    return f"steps {steps} seconds {wall:.6f} cpu {spent:.6f} planted {trainer.planted}"


def serve(trainer, warm_up):
    """Lets the trainer work as ordered, after some steps that fill its caches."""
    global serving
    serving = trainer  # memray clears the script's own globals before it checks what is alive
    for _ in range(warm_up):
        trainer.step()
    say(f"ready {os.getpid()} planted {trainer.planted}")
    for line in sys.stdin:
        if line == "exit\n":
            ctypes.CDLL(None).exit(0)
        say(stretch(trainer, float(line)))
