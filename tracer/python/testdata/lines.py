"""Prints, a JSON object a line, the line tables of much code and what the interpreter itself makes of them.

{"code": name, "first": first line, "table": hexadecimal, "answers": [[instructions, line], ...]}

Answers are PyCode_Addr2Line's for the offset -1, then for 0, 2, 4 ... to the end of the bytecode; -1: no line.
Runs on Python 3.8 and later.
"""
import ast
import ctypes
import itertools
import json
import os
import random
import sys
import types

sys.dont_write_bytecode = True
addr2line = ctypes.pythonapi.PyCode_Addr2Line
addr2line.argtypes = [ctypes.py_object, ctypes.c_int]
addr2line.restype = ctypes.c_int
TABLE = "co_linetable" if sys.version_info >= (3, 10) else "co_lnotab"


def show(code):
    answers = []
    for offset in [-1, *range(0, len(code.co_code), 2)]:
        line = addr2line(code, offset)
        if answers and answers[-1][1] == line:
            answers[-1][0] += 1
        else:
            answers.append([1, line])
    name = ascii(code.co_filename + ":" + code.co_name)
    table = getattr(code, TABLE).hex()
    print(json.dumps({"code": name, "first": code.co_firstlineno, "table": table, "answers": answers}))


def show_all(code):
    show(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            show_all(constant)


def library():
    """One file in four of the standard library."""
    return itertools.islice(files(), 0, None, 4)


def files():
    for folder, folders, files in os.walk(os.path.dirname(os.__file__)):
        folders[:] = sorted(set(folders) - {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"})
        for name in sorted(files):
            if name.endswith(".py"):
                yield os.path.join(folder, name)


def long_function():
    """More than 1000 lines, with gaps and calls that lead 300 lines back."""
    lines = ["def long(f, x):"]
    for i in range(200):
        lines += [f"    x = f(x,", *["        # nothing"] * (i % 7), f"        {i})"]
    lines += ["    x = f("] + ["        # far"] * 300 + ["        f(x)(", "", "    ),"] + [""] * 40000 + ["    )"]
    lines += ["    for x in [x", *[""] * 200, "            for x in f(x) if x]:", *[""] * 400, "        f(x)"]
    return "\n".join(lines + ["    return x"])


NASTY = '''
import contextlib, functools

@functools.lru_cache(
    maxsize=None,
)
@functools.wraps(
    len
)
def decorated(a=(lambda: 1), *,
              b=[x
                 for x in range(3)
                 if x]):
    "A function."
    try:
        try:
            return a(
                b
            )
        except (ValueError,
                TypeError) as error:
            raise KeyError from error
        else:
            b = 1
        finally:
            del b
    finally:
        with contextlib.suppress(Exception) as c, \\
             open(
                 "x"
             ):
            pass
        while a:
            if b: continue
            break

class Größe:
    x: int = (
        1)
    def méthode(self):
        return {k: v for k, v in self.x
                if k
                for v in k}, (lambda:
            lambda: (yield)), None
    名前 = property(lambda self:
        self.méthode())

async def waits(x):
    async for y in x:
        async with y as z, \\
                   x:
            yield await z
    await x; [a async for a in
        x]

def generates():
    def inner():
        nonlocal a
        a = yield from generates()
    a = yield
    return (inner
        (a)
        .b
        [
            0])

def optimized():
    if 0:
        never()
    assert optimized, (
        "x"
    )
    while 1:
        pass; pass

def empty(): pass
'''

MATCH = '''
def matches(x):
    match x:
        case [1, *rest] if rest:
            return (
                rest)
        case {"a": b, **c}:
            pass
        case (Point(x=0)
              | None):
            return 2
        case _: return 3
'''
GROUPS = '''
def groups():
    try:
        pass
    except* ValueError as e:
        print(e)
    except* (TypeError,
             KeyError):
        raise
'''
GENERICS = '''
type Pair[T] = tuple[
    T, T]
def generic[T: (int,
                str)](x: T) -> T:
    return [f"{x
        !r}" for x in x]
class Box[T]:
    pass
'''


def handmade():
    sources = [NASTY, long_function()]
    for version, source in [((3, 10), MATCH), ((3, 11), GROUPS), ((3, 12), GENERICS)]:
        if sys.version_info >= version:
            sources.append(source)
    for source in sources:
        for optimize in (0, 2):
            yield compile(source, "/tmp/Prüfung/名前 \U0001f600.py", "exec", optimize=optimize)
        for first in (0, 3, 100000, 2**20):
            yield compile(ast.increment_lineno(ast.parse(source), first), "<string>", "exec")
        yield compile(source, "<odd>", "exec").replace(co_firstlineno=2**31 - 50000000)


def signed_deltas(rng):
    return bytes(rng.choice([0, 1, 2, 6, 254, 255, rng.randrange(256)]) for _ in range(rng.randrange(600)))


def ranges(rng):
    """Ends in a range that is not empty: the interpreter relies on it."""
    pairs = [(rng.choice([0, 2, 4, 6, 254]), rng.choice([0, 1, 127, 128, 129, 255, rng.randrange(256)]))
             for _ in range(rng.randrange(400))]
    return b"".join(map(bytes, pairs + [(2, 1)]))


def varint(value):
    out = []
    while value >= 64:
        out.append(64 | value & 63)
        value >>= 6
    return bytes(out + [value])


def location(rng):
    kind, units = rng.randrange(16), rng.randrange(8)
    step = rng.choice([0, 1, 40, 2000, 100000]) * rng.choice([1, 1, -1]) + rng.randrange(3)
    out = bytes([0x80 | kind << 3 | units])
    if kind in (13, 14):
        out += varint(-step << 1 | 1 if step < 0 else step << 1)
    if kind == 14:
        out += varint(rng.randrange(5)) + varint(rng.randrange(500)) + varint(rng.randrange(500))
    if kind < 13:
        out += bytes(rng.randrange(128) for _ in range(1 if kind < 10 else 2))
    return out


def locations(rng):
    return b"".join(location(rng) for _ in range(rng.randrange(1, 400)))


def invented():
    """Tables that no compiler made, all of them valid."""
    rng = random.Random(1)
    code = compile("x = [y]\n" * 500, "<invented>", "exec")
    make = locations if sys.version_info >= (3, 11) else ranges if sys.version_info >= (3, 10) else signed_deltas
    for _ in range(500):
        yield code.replace(co_firstlineno=rng.choice([1, 50, 3000000]), **{TABLE: make(rng)})


def main():
    for path in library():
        with open(path, "rb") as file:
            show_all(compile(file.read(), path, "exec", dont_inherit=True))
    for code in handmade():
        show_all(code)
    for code in invented():
        show(code)


main()
