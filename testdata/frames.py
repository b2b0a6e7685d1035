#!/usr/bin/env python3
"""Allocates a block from every sort of Python frame there is, and prints the stack of each in the interpreter's own words.

Each case has a size of its own, by which its blocks are found, and asks for the stack on the line on which it allocates:
keep(stack(), bytearray(size("case"))). Cases are run cold, many times without effect, and once more: by then the
interpreter has specialised their code.

With names of functions as arguments, only those run, and what is not in such a function.

It speaks by lines: prints "ready", runs the cases without effect for each line "again" and repeats it, and at any other
allocates, prints an object for each block (its case, size and frames, leaf first) and "done", and exits at the end of its
input; until then the blocks stay. It runs as a file or from an argument of python3 -c, on Python 3.8 and later.
"""

import abc
import asyncio
import atexit
import codecs
import concurrent.futures
import contextlib
import copy
import ctypes
import functools
import gc
import importlib
import itertools
import json
import marshal
import operator
import os
import re
import signal
import sys
import tempfile
import threading
import weakref

try:
    import greenlet
except ImportError:
    greenlet = None
try:
    import gevent
except ImportError:
    gevent = None

HOOKS = 48 if hasattr(sys, "gettotalrefcount") else 0  # bytes that a debug build adds to a block, 24 twice
HEAD = 32 if sys.version_info >= (3, 15) and "free-threading" not in sys.version else 0  # before the data of a bytearray
BASE, STEP = 100_000 - HOOKS - HEAD, 16  # bytes: less than malloc would map, more than anything else here asks for
WARM_UP = 40  # rounds

if "free-threading" in sys.version:
    # bytearray takes its memory from the interpreter's own mimalloc. These blocks come from malloc, without another frame.
    class Block:
        def __init__(self, address, size):
            self.address, self.size = address, size

        def __len__(self):
            return self.size

        def __del__(self):
            free(self.address)

    libc = ctypes.CDLL(None)
    free, bytearray = libc.free, libc.malloc
    free.argtypes, bytearray.argtypes, bytearray.restype = [ctypes.c_void_p], [ctypes.c_size_t], ctypes.c_void_p
    bytearray.errcheck = lambda result, function, arguments: Block(result, arguments[0])
    SUB_BLOCK = "__import__('ctypes').CDLL(None).malloc"
else:
    bytearray = bytearray
    SUB_BLOCK = "bytearray"

chosen = sys.argv[2:]  # names of functions with cases
sizes, records, blocks, cases = {}, [], [], []
armed = False


def size(case):
    """Bytes of a block of the case."""
    return sizes.setdefault(case, BASE + STEP * len(sizes)) if armed else 1


def stack():
    """The frames of the caller, leaf first."""
    frame, frames = sys._getframe(1), []
    while frame:
        code = frame.f_code
        function = getattr(code, "co_qualname", code.co_name)  # 3.11 and later
        line = frame.f_lineno or 0
        frames.append({"Function": function, "File": code.co_filename, "Line": line, "StartLine": code.co_firstlineno})
        frame = frame.f_back
    return frames


def keep(frames, block):
    if armed:
        blocks.append(block)
        records.append((len(block), frames))


def case(function):
    cases.append(function)
    return function


def run(source, name="<source>", dies=False):
    """Runs source of its own file. The code lives on, unless it dies, so that it can be read when the stack is known."""
    code = compile(source, name, "exec")
    if armed and not dies:
        blocks.append(code)
    names = {"keep": keep, "stack": stack, "size": size, "case": case, "bytearray": bytearray}
    exec(code, {"__name__": "source", **names})


# Functions.


@case
def plain_function():
    keep(stack(), bytearray(size("a function")))


@case
def nested_functions():
    def outer(captured):
        def inner():
            keep(captured and stack(), bytearray(size("a closure")))

        inner()

    outer(True)
    (lambda: keep(stack(), bytearray(size("a lambda"))))()
    (lambda block=bytearray(size("a default of a lambda")), frames=stack(): keep(frames, block))()


class Methods:
    def method(self):
        keep(stack(), bytearray(size("a method")))

    @classmethod
    def of_class(cls):
        keep(stack(), bytearray(size("a class method")))

    @staticmethod
    def static():
        keep(stack(), bytearray(size("a static method")))

    class Inner:
        def method(self):
            return [keep(stack(), bytearray(size("a comprehension in a method of a nested class"))) for _ in "a"]


class Derived(Methods):
    def method(self):
        keep(stack(), bytearray(size("an overriding method")))
        super().method()


@case
def methods():
    Derived().method()
    Methods.of_class()
    Methods.static()
    Methods.Inner().method()
    bound = Methods().method
    bound()


@case
def many_lines():
    functools.reduce(
        lambda a, b: a,
        [
            1,
            2,
        ],
        plain(
            "a call over many lines",
            *[
                3,
                4,
            ],
        ),
    )


def plain(name, *rest, **more):
    keep(stack(), bytearray(size(name)))
    return name


@case
def expressions():
    if (frames := stack()) and (block := bytearray(size("a walrus"))):
        keep(frames, block)
    keep(*(stack(), bytearray(size("a starred call"))))
    keep(**{"frames": stack(), "block": bytearray(size("a call by keywords"))})
    first, *rest = stack(), bytearray(size("an unpacking"))
    keep(first, *rest)
    f"{keep(stack(), bytearray(size('a formatted string')))}"
    plain("starred", *[], **{})
    keep(stack() if armed else None, True and bytearray(size("a conditional")))
    for frames, block in [(stack(), bytearray(size("a loop")))]:
        keep(frames, block)
    assert keep(stack(), bytearray(size("an assertion"))) is None


def decorate(*arguments):
    def decorator(function):
        @functools.wraps(function)
        def wrapper(*rest, **more):
            return function(*rest, **more)

        keep(stack(), bytearray(size("a decorator")))
        return wrapper

    return decorator


@case
def decorated():
    @decorate(1)
    @decorate(
        2,
    )
    def twice():
        keep(stack(), bytearray(size("a decorated function")))

    twice()


def deep(levels):
    if levels:
        deep(levels - 1)
    else:
        keep(stack(), bytearray(size("deep recursion")))


def deep_through_c(levels):
    if levels:
        return max([levels - 1], key=deep_through_c)
    keep(stack(), bytearray(size("recursion through C")))
    return 0


@case
def recursion():
    deep(250)
    deep_through_c(8)


# Comprehensions and generators.


@case
def comprehensions():
    [keep(stack(), bytearray(size("a list comprehension"))) for _ in range(2)]
    {keep(stack(), bytearray(size("a set comprehension"))) for _ in range(2)}
    {_: keep(stack(), bytearray(size("a dict comprehension"))) for _ in range(2)}
    list(keep(stack(), bytearray(size("a generator expression"))) for _ in range(2))
    any(keep(stack(), bytearray(size("a generator expression in any"))) for _ in range(2))
    [[keep(stack(), bytearray(size("a nested comprehension"))) for _ in "a"] for _ in "b"]
    [(lambda: keep(stack(), bytearray(size("a lambda in a comprehension"))))() for _ in "a"]


def counter(name):
    try:
        got = keep(stack(), bytearray(size(name + ", first part")))
        got = yield 1
        keep(stack(), bytearray(size(name + ", second part")))
        yield got
    except KeyError:
        keep(stack(), bytearray(size(name + ", thrown into")))
        yield 2
    finally:
        keep(stack(), bytearray(size(name + ", finally")))


def delegate(name):
    yield from counter(name)
    keep(stack(), bytearray(size(name + ", after yield from")))


@case
def generators():
    sum(_ or 0 for _ in counter("a generator in a loop"))
    sent = counter("a generator")
    next(sent)
    sent.send(3)
    list(delegate("a delegate"))
    thrown = delegate("a delegate with an exception")
    next(thrown)
    if sys.version_info[:2] != (3, 9):  # which does not tell the delegate who called it
        thrown.throw(KeyError("deliberate"))
    thrown.close()
    dropped = counter("a dropped generator")
    next(dropped)
    del dropped


# Coroutines.


class Resource:
    def __await__(self):
        keep(stack(), bytearray(size("__await__")))
        yield from asyncio.sleep(0).__await__()

    async def __aenter__(self):
        await asyncio.sleep(0)
        keep(stack(), bytearray(size("__aenter__")))

    async def __aexit__(self, *_):
        keep(stack(), bytearray(size("__aexit__")))

    def __aiter__(self):
        return self.values()

    async def values(self):
        for _ in range(2):
            keep(stack(), bytearray(size("an asynchronous generator")))
            yield await asyncio.sleep(0, 1)


@contextlib.asynccontextmanager
async def managed():
    keep(stack(), bytearray(size("an asynchronous context manager")))
    yield


async def chain(levels, name):
    if levels:
        await chain(levels - 1, name)
    else:
        await asyncio.sleep(0)
        keep(stack(), bytearray(size(name)))


async def coroutines():
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(asyncio.ensure_future(chain(3, "several tasks")) for _ in range(3)))
    await chain(5, "a chain of awaits")
    async with Resource() as _, managed():
        keep(stack(), bytearray(size("async with")))
    async for _ in Resource():
        keep(stack(), bytearray(size("async for")))
    [keep(stack(), bytearray(size("an asynchronous comprehension"))) async for _ in Resource()]
    await Resource()
    loop.call_soon(plain, "a callback of the loop")
    await loop.run_in_executor(None, lambda: plain("an executor"))
    await asyncio.wait_for(chain(1, "wait_for"), 60)


@case
def event_loop():
    asyncio.run(coroutines())
    alone = chain(0, "a coroutine by hand")
    alone.send(None)
    with contextlib.suppress(StopIteration):
        alone.send(None)


# Classes and what the interpreter calls.


class Meta(type):
    @classmethod
    def __prepare__(mcs, *_):
        keep(stack(), bytearray(size("__prepare__")))
        return {}

    def __new__(mcs, *arguments):
        keep(stack(), bytearray(size("__new__ of a metaclass")))
        return super().__new__(mcs, *arguments)

    def __call__(cls, *arguments):
        keep(stack(), bytearray(size("__call__ of a metaclass")))
        return super().__call__(*arguments)


class Descriptor:
    def __set_name__(self, *_):
        keep(stack(), bytearray(size("__set_name__")))

    def __get__(self, *_):
        keep(stack(), bytearray(size("__get__")))

    def __set__(self, *_):
        keep(stack(), bytearray(size("__set__")))


@case
def classes():
    class Body(metaclass=Meta):
        keep(stack(), bytearray(size("a class body")))
        [keep(stack(), bytearray(size("a comprehension in a class body"))) for _ in "a"]
        field = Descriptor()

        def __init_subclass__(cls):
            keep(stack(), bytearray(size("__init_subclass__")))

        def __new__(cls):
            keep(stack(), bytearray(size("__new__")))
            return super().__new__(cls)

        def __init__(self):
            keep(stack(), bytearray(size("__init__")))
            self.field = self.field

    class Heir(Body):
        pass

    class Plain:
        def __init__(self, name):
            keep(stack(), bytearray(size(name)))

    Heir()
    Plain("__init__ by a call")
    list(map(Plain, ["__init__ by C"]))


class Operators(abc.ABC):  # isinstance() goes by way of C and Python
    def __getattr__(self, name):
        keep(stack(), bytearray(size("__getattr__")))

    @property
    def prop(self):
        keep(stack(), bytearray(size("a property")))

    @prop.setter
    def prop(self, value):
        keep(stack(), bytearray(size("a setter")))

    def __add__(self, other):
        return keep(stack(), bytearray(size("__add__")))

    def __hash__(self):
        keep(stack(), bytearray(size("__hash__")))
        return 1

    def __eq__(self, other):
        keep(stack(), bytearray(size("__eq__")))
        return True

    def __getitem__(self, key):
        return keep(stack(), bytearray(size("__getitem__")))

    def __call__(self):
        return keep(stack(), bytearray(size("__call__")))

    def __bool__(self):
        keep(stack(), bytearray(size("__bool__")))
        return False

    def __format__(self, _):
        keep(stack(), bytearray(size("__format__")))
        return ""

    def __iter__(self):
        keep(stack(), bytearray(size("__iter__")))
        return iter(())

    def __contains__(self, _):
        keep(stack(), bytearray(size("__contains__")))
        return True

    def __class_getitem__(cls, _):
        keep(stack(), bytearray(size("__class_getitem__")))

    @classmethod
    def __subclasshook__(cls, _):
        keep(stack(), bytearray(size("__subclasshook__")))
        return NotImplemented

    def __reduce__(self):
        keep(stack(), bytearray(size("__reduce__")))
        return Operators, ()


@case
def operators():
    one = Operators()
    one.missing, one.prop, one + 1, one[0], one(), not one, f"{one}", Operators[0]
    one.prop = 1
    getattr(one, "prop"), sum([one], one), {one: 1}[Operators()], list(one), 1 in one
    issubclass(type("Fresh", (), {}), Operators)
    copy.copy(one)


class Mortal:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        keep(stack(), bytearray(size(self.name)))


@case
def deaths():
    mortal = Mortal("__del__ by del")
    del mortal
    Mortal("__del__ of a temporary")
    cycle = Mortal("__del__ in a collection")
    cycle.itself = cycle
    del cycle
    gc.collect()
    referent = Mortal("a weak reference's __del__")
    reference = weakref.ref(referent, lambda _: keep(stack(), bytearray(size("a weak reference's callback"))))
    weakref.finalize(referent, plain, "a finalizer")
    del referent
    del reference


@case
def automatic_collection():
    before, dead, alive = gc.get_threshold(), [], []
    gc.set_threshold(0)  # one that comes before it is garbage would make it old, and the old are rarely checked
    cycle = Mortal("__del__ in a collection by itself")
    reference = weakref.ref(cycle, dead.append)
    cycle.itself = cycle
    del cycle
    gc.set_threshold(5, 1, 1)
    for _ in range(1_000_000):
        alive.append([])  # without the GIL, their number must have grown by a quarter
        if dead:
            break
    gc.set_threshold(*before)
    assert dead == [reference]


# Calls from C.


@case
def called_by_c():
    sorted([2, 1], key=lambda _: keep(stack(), bytearray(size("a key of sorted"))) or _)
    min([1], key=lambda _: keep(stack(), bytearray(size("a key of min"))))
    list(map(lambda _: keep(stack(), bytearray(size("map"))), [1, 2]))
    list(filter(lambda _: keep(stack(), bytearray(size("filter"))), [1, 2]))
    functools.reduce(lambda a, b: keep(stack(), bytearray(size("reduce"))), [1, 2, 3])
    functools.partial(plain, "partial")()
    functools.lru_cache()(lambda: keep(stack(), bytearray(size("lru_cache"))))()
    [2, 1].sort(key=functools.cmp_to_key(lambda a, b: keep(stack(), bytearray(size("cmp_to_key"))) or 0))
    re.sub("a", lambda _: keep(stack(), bytearray(size("re.sub"))) or "", "aa")
    json.loads("[{}]", object_hook=lambda _: keep(stack(), bytearray(size("a hook of json"))))
    next(iter(lambda: keep(stack(), bytearray(size("iter of a callable"))), 1))
    list(itertools.accumulate([1, 2], lambda a, b: keep(stack(), bytearray(size("accumulate")))))
    operator.methodcaller("method")(Methods())
    "ä".encode("ascii", "frames")


@case
def called_by_ctypes():
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    comparison = compare(lambda a, b: keep(stack(), bytearray(size("qsort"))) or 0)
    for library in ctypes.CDLL(None), ctypes.PyDLL(None):  # the second keeps the lock
        library.qsort((ctypes.c_int * 3)(3, 2, 1), 3, 4, comparison)


# Each greenlet lies on the thread's stack while it runs, elsewhere while it does not. One that begins
# or ends has no Python frames for a moment: these cases run only if they are chosen.
if greenlet and "in_greenlets" in chosen:

    @case
    def in_greenlets():
        def child():
            keep(stack(), bytearray(size("a greenlet")))
            parent.switch()
            keep(stack(), bytearray(size("a greenlet that another function resumes")))
            (lambda: parent.switch())()
            plain("a call in a greenlet")

        parent, other = greenlet.getcurrent(), greenlet.greenlet(child)
        other.switch()
        keep(stack(), bytearray(size("between two greenlets")))
        next(iter(map(lambda _: other.switch(), "a")))
        sorted("a", key=lambda _: plain("below a call, between two greenlets"))
        other.switch()


if gevent and "in_gevent" in chosen:

    @case
    def in_gevent():
        def job():
            gevent.sleep(0)
            keep(stack(), bytearray(size("a greenlet of gevent")))
            gevent.sleep(0)
            plain("a call in a greenlet of gevent")

        gevent.joinall([gevent.spawn(job) for _ in range(3)])


def mark(error):
    keep(stack(), bytearray(size("a codec's error handler")))
    return "", error.end


codecs.register_error("frames", mark)


# Code from strings.


@case
def strings():
    run('keep(stack(), bytearray(size("exec")))')
    code = compile('keep(stack(), bytearray(size("eval")))', "<eval>", "eval")
    blocks.append(code)
    eval(code)
    run('\n\n\nkeep(stack(), bytearray(size("compiled code")))', "/no/such/file.py")
    run("\n" * 70_000 + 'def far():\n keep(stack(), bytearray(size("a far line")))\nfar()', "<far>")
    code = compile('keep(stack(), bytearray(size("a first line of its own")))', "<moved>", "exec")
    code = code.replace(co_firstlineno=123_456_789)
    blocks.append(code)
    exec(code)
    table = {(3, 8): "co_lnotab", (3, 9): "co_lnotab"}.get(sys.version_info[:2], "co_linetable")
    code = compile('keep(stack(), bytearray(size("code without lines")))', "<no lines>", "exec")
    code = code.replace(**{table: b""})
    blocks.append(code)
    exec(code)
    long = "".join(f" if {line}: line = {line}\n" for line in range(1500))
    allocate = ' keep(stack(), bytearray(size("a long function")))\n'
    run(f"def long():\n{allocate}{long}{allocate}{long}{allocate} return (\n1,\n\n{allocate},)\nlong()", "<long>")


@case
def redefined():
    """Other code takes the place of this, perhaps before it could be read."""
    for i in range(60):
        call = f'def reused_{i}(): keep(stack(), bytearray(size("short-lived code {i}")))\nreused_{i}()'
        run(call, dies=True)
    for i in range(60):
        call = "\n" * i + f'def same(): keep(stack(), bytearray(size("short-lived code of one name {i}")))\nsame()'
        run(call, f"<cell {i}>", dies=True)


@case
def foreign_names():
    run('class Größe:\n def maß(self): keep(stack(), bytearray(size("latin-1")))\nGröße().maß()', "/tmp/größe.py")
    run('class Ключ:\n def имя(self): keep(stack(), bytearray(size("UCS-2")))\nКлюч().имя()', "/tmp/ключ.py")
    run('class 𐐷𠀀:\n def 𠀁(self): keep(stack(), bytearray(size("UCS-4")))\n𐐷𠀀().𠀁()', "/tmp/𐐷-😀.py")
    name = "n" * 300
    run(f'def {name}(): keep(stack(), bytearray(size("a long name")))\n{name}()', "/f" * 300)


MODULE = """
from __main__ import *
code = sys._getframe().f_code  # lives on
keep(stack(), bytearray(size("an imported module")))
plain("from a module")
"""


@case
def imports():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "frames_imported.py"), "w") as file:
            file.write(MODULE)
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        import frames_imported

        blocks.append(frames_imported)
        del sys.path[0], sys.modules["frames_imported"]


# Exceptions and context managers.


class Manager:
    def __enter__(self):
        keep(stack(), bytearray(size("__enter__")))

    def __exit__(self, *_):
        keep(stack(), bytearray(size("__exit__")))
        return True


@contextlib.contextmanager
def generated():
    keep(stack(), bytearray(size("a context manager, before")))
    try:
        yield
    finally:
        keep(stack(), bytearray(size("a context manager, after")))


@case
def exceptions():
    try:
        raise KeyError
    except KeyError:
        keep(stack(), bytearray(size("except")))
    else:
        raise AssertionError
    finally:
        keep(stack(), bytearray(size("finally")))
    with Manager(), generated():
        raise KeyError(keep(stack(), bytearray(size("with"))))
    with contextlib.ExitStack() as exits:
        exits.callback(plain, "an exit stack")


# Threads and signals.


@case
def threads():
    together = threading.Barrier(4)

    def body():
        together.wait()
        keep(stack(), bytearray(size("threads")))
        together.wait()

    running = [threading.Thread(target=body) for _ in range(3)]
    for thread in running:
        thread.start()
    body()
    for thread in running:
        thread.join()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(plain, ["a pool"] * 4))


@case
def foreign_thread():
    library, number = ctypes.CDLL(None), ctypes.c_ulong()
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    body = function(lambda _: keep(stack(), bytearray(size("a thread that C made"))))
    if library.pthread_create(ctypes.byref(number), None, body, None) or library.pthread_join(number, None):
        raise OSError("no thread")


def handler(number, frame):
    keep(stack(), bytearray(size("a handler of a signal")))
    handled.append(number)


handled = []


@case
def signals():
    before = signal.signal(signal.SIGALRM, handler)
    handled.clear()
    signal.raise_signal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    while len(handled) < 2:
        pass
    signal.signal(signal.SIGALRM, before)


# Tools that watch the program.


def victim(name):
    total = 0
    keep(stack(), bytearray(size(name)))
    return total + len(name)


@case
def traced():
    def trace(frame, event, argument):
        if frame.f_code is victim.__code__:
            keep(stack(), bytearray(size("a trace function")))
        return trace

    sys.settrace(trace)
    victim("a traced function")
    sys.settrace(None)


@case
def profiled():
    def profile(frame, event, argument):
        if frame.f_code is victim.__code__:
            keep(stack(), bytearray(size("a profile function")))

    sys.setprofile(profile)
    victim("a profiled function")
    sys.setprofile(None)


# What newer versions have.

SINCE = {
    (3, 10): """
class Point:
    __match_args__ = ("x",)

    @property
    def x(self):
        keep(stack(), bytearray(size("a property of a pattern")))

@case
def matching():
    match Point():
        case Point(x=1): pass
        case Point(y) if keep(stack(), bytearray(size("a guard of a pattern"))): pass
        case _: keep(stack(), bytearray(size("a pattern")))
""",
    (3, 11): """
@case
def exception_groups():
    try:
        raise ExceptionGroup("deliberate", [KeyError()])
    except* KeyError:
        keep(stack(), bytearray(size("except*")))
""",
    (3, 12): """
import sys

@case
def generic():
    def function[T](argument=keep(stack(), bytearray(size("a default of a generic function")))) -> \\
            keep(stack(), bytearray(size("an annotation of a generic function"))):
        keep(stack(), bytearray(size("a generic function")))
    function()
    class Generic[T]:
        keep(stack(), bytearray(size("the body of a generic class")))
    type Alias = keep(stack(), bytearray(size("a type alias")))
    Alias.__value__

def instrumented():
    return keep(stack(), bytearray(size("a monitored function")))

@case
def monitored():
    tool, events = 4, sys.monitoring.events.PY_START | sys.monitoring.events.LINE
    def event(code, _):
        keep(stack(), bytearray(size("a callback of monitoring")))
    sys.monitoring.use_tool_id(tool, "frames")
    for kind in sys.monitoring.events.PY_START, sys.monitoring.events.LINE:
        sys.monitoring.register_callback(tool, kind, event)
    sys.monitoring.set_local_events(tool, instrumented.__code__, events)
    instrumented()
    sys.monitoring.set_local_events(tool, instrumented.__code__, 0)
    sys.monitoring.free_tool_id(tool)
""",
    (3, 14): """
@case
def lazy():
    def function(argument: keep(stack(), bytearray(size("a lazy annotation")))): pass
    function.__annotations__
    t"{keep(stack(), bytearray(size('a template string')))}"
""",
}


# What can be done once.


def suspended():
    yield
    keep(stack(), bytearray(size("a generator older than the trace")))


def interpreters():
    """The interpreters module of this version, which is private in all."""
    return importlib.import_module("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")


SUB = """
import json, marshal, os, sys, types
stack = types.FunctionType(marshal.loads(bytes.fromhex("{stack}")), globals())
def {function}():
    return stack(), {block}({size})
alive = globals().get("alive", []) + [{function}(), sys._getframe().f_code]
os.write({pipe}, json.dumps(alive[-2][0]).encode())
"""


def in_sub_interpreter(identity, name):
    """Its frames do not know who runs it: those are found in the other interpreter."""
    receive, send = os.pipe()
    code = SUB.format(stack=marshal.dumps(stack.__code__).hex(), function=name, size=size(name), block=SUB_BLOCK, pipe=send)
    frames, error = stack(), interpreters().run_string(identity, code)
    if error:
        raise RuntimeError(error)
    os.close(send)
    with open(receive, "rb") as answer:
        records.append((size(name), json.load(answer) + frames))


def at_exit():
    keep(stack(), bytearray(size("atexit")))
    plain("a call at exit")


def report():
    names = {bytes: name for name, bytes in sizes.items()}
    for length, frames in records:
        print(json.dumps({"Case": names[length], "Size": length + HOOKS + HEAD, "Frames": frames}))
    print("done", flush=True)
    sys.stdin.read()
    os._exit(0)


def run_cases(effective):
    global armed
    armed = effective
    for function in cases:
        if not chosen or function.__name__ in chosen:
            function()


def await_order():
    run_cases(False)
    interpreters()  # now whatever is loaded late has been
    print("ready", flush=True)
    while sys.stdin.readline() == "again\n":
        run_cases(False)
        print("again", flush=True)


def allocate():
    for i in range(WARM_UP + 2):
        run_cases(i in (0, WARM_UP + 1))


def main():
    sys.dont_write_bytecode = True
    atexit.register(report)
    atexit.register(at_exit)
    for version, source in SINCE.items():
        if sys.version_info >= version:
            run(source, f"<since {version}>")
    order, old = threading.Event(), suspended()
    next(old)
    waiting = threading.Thread(target=lambda: order.wait() and plain("a thread older than the trace"), daemon=True)
    waiting.start()
    await_order()
    allocate()
    order.set()
    waiting.join()
    next(old, None)
    sub = interpreters().create()
    plain("before a sub-interpreter")
    in_sub_interpreter(sub, "sub_interpreter")
    plain("after a sub-interpreter")
    in_sub_interpreter(sub, "sub_interpreter_again")
    blocks.append(sub)  # it ends with the last reference


if __name__ == "__main__":
    main()
