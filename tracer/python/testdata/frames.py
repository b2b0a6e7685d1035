"""Frames of every shape, each in a thread that waits. Told to, it says in JSON what the interpreter knows of them."""
import json
import os
import sys
import threading

nothing, _ = os.pipe()
from_sub, to_main = os.pipe()


def wait():
    os.read(nothing, 1)


def recursion(depth=30):
    return recursion(depth - 1) if depth else wait()


def generator():
    yield 1
    wait()


def generators():
    return sum(sum(generator()) for _ in range(1))


class Awaited:
    def __await__(self):
        wait()
        yield


async def inner():
    await Awaited()


async def coroutine():
    await inner()


def coroutines():
    coroutine().send(None)


def callbacks():
    return sorted([1], key=lambda _: list(map(lambda _: wait(), "x")))


def comprehensions():
    return {n: [wait() for _ in "x"] for n in "y"}


def executed():
    exec(compile("def größe():\n\n\n  wait()\ngröße()", "<made up>", "exec"), {"wait": wait})


class Made:
    def __init__(self):
        wait()

    def __del__(self):
        pass


def made():
    Made()


SUB = """
import os, sys
def inner():
    frames, frame = [], sys._getframe()
    while frame:
        frames.append('["%%s", %%d, -1]' %% (frame.f_code.co_name, id(frame.f_code)))
        frame = frame.f_back
    os.write(%d, ('[%%s]\\n' %% ", ".join(frames)).encode())
    os.read(%d, 1)
def outer():
    inner()
outer()
""" % (to_main, nothing)


def subinterpreter():
    try:
        import _interpreters as module
    except ImportError:
        import _xxsubinterpreters as module
    module.run_string(module.create(), SUB)


def chain(frame):
    frames = []
    while frame:
        frames.append((frame.f_code.co_name, id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return frames


def report(sub):
    threads = [{"key": key, "frames": chain(frame)} for key, frame in sys._current_frames().items()
               if key != threading.get_ident()]
    own = [(name, code, -1) for name, code, _ in chain(sys._getframe(1))]  # goes on after this
    threads.append({"key": threading.get_ident(), "frames": own})
    return json.dumps({"threads": threads, "sub": json.loads(sub), "version": "%d.%d" % sys.version_info[:2]})


def main():
    shapes = [recursion, generators, coroutines, callbacks, comprehensions, executed, made, subinterpreter]
    for shape in shapes:
        threading.Thread(target=shape, daemon=True).start()
    sub = os.read(from_sub, 1 << 16)
    os.write(1, b"%d\nstarted\n" % len(shapes))
    while os.read(0, 100):
        os.write(1, (report(sub) + "\nreported\n").encode())
    os._exit(0)


main()
