"""Prints what an interpreter says about itself, a JSON object a line; then "ready", and waits for a line.

Each object has a "kind", and the addresses that id() returns. Texts are lists of code points: JSON has no lone surrogates. After
a line of input it collects garbage and prints its state again, and "collected". Runs on Python 3.8 and later.
"""
import _thread, collections, ctypes, functools, gc, inspect, json, sys, threading, types

NEW = sys.version_info >= (3, 11)


def show(kind, **what):
    print(json.dumps(dict(what, kind=kind)))


def points(text):
    return [ord(c) for c in text]


# Keys of dicts.

class Text(str):
    pass


class Number(int):
    pass


TEXTS = [
    "", "plain", "it's", '"', "'\"", "back\\slash", "a\nb\tc\rd", "\x00\x1f\x7f\x85\xa0\xad", "café", "名前", "x\U0001f600y",
    "\udcff\ud800", "\u200b\u202e\ufffe", "\U0010ffff", "x" * 200, "é" * 200, "名" * 200, "\U0001f600" * 200,
]
LONG = ["x" * 201, "é" * 1000, "名" * 201, "\U0001f600" * 5000]
KEYS = [
    *TEXTS, 0, 1, -1, 255, 2**30 - 1, 2**30, -2**30, 2**62, -2**63, 2**64, -2**200, 10**80, True, False, None, b"", b"ab'c", b"\x00\xff\n",
    b"x" * 40, (), (1,), ("a", 2, None), ((1, (2,)), "b"),
]
NO_KEYS = [
    *LONG, 2**301, -2**400, b"x" * 41, 1.5, frozenset([1]), (1.5,), tuple(range(9)), ((((1,),),),), Text("a"), Number(1), object(), len,
]

# Containers.


class Instance:
    def __init__(self, count, first="a"):
        setattr(self, first, object())
        for i in range(count):
            setattr(self, "x%d" % i, object())


def dicts():
    yield {}
    yield dict.fromkeys("abc", object())
    for size in (1, 5, 6, 100, 171, 10000, 50000):
        yield {i: object() for i in range(size)}
        yield {"k%d" % i: object() for i in range(size)}
        changed = {(i, "mixed") if i % 2 else "s%d" % i: object() for i in range(size)}
        for i in range(0, size, 3):
            changed.pop((i, "mixed") if i % 2 else "s%d" % i)
        yield changed
        yield changed.copy()
    popped = {i: object() for i in range(10)}
    popped.popitem()
    yield popped
    yield collections.defaultdict(list, a=object())
    yield collections.OrderedDict(a=object(), b=object())
    for count in (0, 3, 28, 40):
        for _ in range(3):
            yield Instance(count).__dict__
    less = Instance(6)
    del less.x2
    yield less.__dict__
    yield globals()
    yield sys.modules
    yield sys.__dict__


INSTANCES = [Instance(count) for count in (0, 3, 3, 9, 20, 28)]
LESS = Instance(3)
del LESS.x1
INSTANCES.append(LESS)
DICTS = list(dicts())


def show_containers():
    for d in DICTS:
        entries = [(id(k), id(v)) for k, v in dict.items(d)]
        for at in range(0, max(len(entries), 1), 1000):
            show("dict", id=id(d), first=at, len=len(entries), ids=[i for e in entries[at:at + 1000] for i in e])
    for size in (0, 1, 5, 100):
        objects = [object() for _ in range(size)]
        for container in (objects, tuple(objects), set(objects), frozenset(objects), collections.deque(objects)):
            keep.append(container)
            show("container", id=id(container), type=type(container).__name__, ids=[id(o) for o in container])
    turned = collections.deque((object() for _ in range(300)), maxlen=200)
    turned.rotate(70)
    keep.append(turned)
    show("container", id=id(turned), type="deque", ids=[id(o) for o in turned])


keep = []


def show_instances():
    # Addresses of values, without a look at __dict__, which would make one.
    for instance in INSTANCES:
        names = ["a"] + ["x%d" % i for i in range(28)]
        values = [(n, id(getattr(instance, n))) for n in names if hasattr(instance, n)]
        show("instance", id=id(instance), names=[n for n, _ in values], ids=[i for _, i in values], flags=type(instance).__flags__)


# Structures that no header has, found by what lies in them.

def words(o, count):
    return list((ctypes.c_uint64 * count).from_address(o if isinstance(o, int) else id(o)))


def show_offsets():
    def at(name, owner, *members):
        memory = words(owner, (type(owner).__basicsize__ if not isinstance(owner, int) else 528) // 8)
        found = [i * 8 for i, word in enumerate(memory) if word in [m if isinstance(m, int) else id(m) for m in members]]
        show("offset", name=name, found=found)
        return found

    def function(x): return x
    cached = functools.lru_cache(maxsize=3)(function)
    at("LRUFunc", cached, function)

    module = types.ModuleType("name of a module")
    at("ModuleDict", module, module.__dict__)

    objects = [object() for _ in range(130)]
    deque = collections.deque(objects)
    left, right = words(deque, 5)[3:5]
    middle = words(left, 66)[65]
    at("BlockLeftlink", middle, left)
    at("BlockRightlink", middle, right)
    show("offset", name="DequeLeftblock", found=[24 if id(objects[0]) in words(left, 66) else 0])
    show("offset", name="DequeRightblock", found=[32 if id(objects[-1]) in words(right, 66) else 0])
    index = words(left, 66).index(id(objects[0]))
    found = [i * 8 for i, word in enumerate(words(deque, 8)[5:7], 5) if 8 + word * 8 == index * 8]
    show("offset", name="DequeLeftindex", found=found)
    index = words(right, 66).index(id(objects[-1]))
    found = [i * 8 for i, word in enumerate(words(deque, 8)[5:7], 5) if 8 + word * 8 == index * 8]
    show("offset", name="DequeRightindex", found=found)
    keep.append((cached, module, deque))


def show_pools():
    """A pool says how large its blocks are, and where the last can begin."""
    class Plain:
        pass

    def blocks(size, address):
        header = (ctypes.c_uint32 * 12).from_address(address // size * size)
        block = (header[9] + 1) * 16  # szidx
        return block if header[9] < 32 and header[11] == size - block else 0  # maxnextoffset

    objects, instances = [object() for _ in range(5000)], [Plain() for _ in range(5000)]
    found = [size for size in (1 << 12, 1 << 13, 1 << 14, 1 << 15) if all(blocks(size, id(o)) == 16 for o in objects)]
    show("offset", name="PoolSize", found=found)

    def begins(instance, before):
        pool, block = id(instance) // found[0] * found[0], blocks(found[0], id(instance))
        return block and (id(instance) - before - pool - 48) % block == 0

    heads = [before for before in range(0, 64, 16) if all(begins(i, before) for i in instances)]
    show("offset", name="GCHead", found=[16] if min(heads) >= 16 else [])
    show("offset", name="PreHeader", found=[min(heads) - 16])


# Functions.

def shapes():
    free, other = object(), object()

    def plain(): pass
    def arguments(a, b=1, /, c=object(), *rest, d, e=5, **others): local = a
    def closure(x=3): return free, (lambda: (x, other))
    async def coroutine(a, *, b): pass
    class Class:
        def method(self): return __class__
        @staticmethod
        def static(*, größe=1): pass
    nameless = types.FunctionType(plain.__code__, {})
    nameless.__module__ = 5
    renamed = types.FunctionType(plain.__code__, globals(), "other")
    renamed.__qualname__ = "Other.name"
    wide = eval("lambda %s: 0" % ", ".join("a%d=None" % i for i in range(300)))
    return [plain, arguments, closure, closure(), closure()[1], coroutine, Class.method, Class.static, nameless, renamed, wide]


def show_functions():
    functions = [f for f in shapes() if isinstance(f, types.FunctionType)]
    functions += [o for o in gc.get_objects() if isinstance(o, types.FunctionType)][:700]
    keep.append(functions)
    for f in functions:
        code, module = f.__code__, f.__module__
        names = code.co_varnames
        count = code.co_argcount
        show("function", id=id(f), qualname=points(f.__qualname__), module=module if type(module) is str else "", file=code.co_filename,
             line=code.co_firstlineno, args=names[:count], keywordonly=names[count:count + code.co_kwonlyargcount],
             freevars=code.co_freevars, defaults=len(f.__defaults__ or ()),
             ids=[id(o) if o is not None else 0 for o in (f.__closure__, f.__defaults__, f.__kwdefaults__, f.__globals__)])


# Frames.

def describe(frame):
    code = frame.f_code
    module = frame.f_globals.get("__name__")
    names = code.co_varnames + tuple(n for n in code.co_cellvars if not NEW or n not in code.co_varnames) + code.co_freevars
    optimized = code.co_flags & inspect.CO_OPTIMIZED
    values = {n: id(v) for n, v in (frame.f_locals.items() if optimized else ())}
    return dict(function=code.co_qualname if NEW else code.co_name, module=module if type(module) is str else "", file=code.co_filename,
                line=frame.f_lineno, names=names, values=values)


def stack(frame):
    while frame:
        yield describe(frame)
        frame = frame.f_back


def show_frames(own):
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame = own if thread is threading.current_thread() else frames[thread.ident]
        show("thread", id=thread.native_id, frames=len(list(stack(frame))))
        for f in stack(frame):
            show("frame", **f)


def generator(of):
    for item in of:
        local = [item]
        yield local


async def coroutine(awaited):
    mine = object()
    await awaited


async def asynchronous(awaited):
    mine = object()
    yield await awaited


@types.coroutine
def suspend():
    yield


def raising():
    local = object()
    raise ValueError(local)


def show_suspended():
    iterator = iter([object()] * 3)
    suspended = generator(iterator)
    next(suspended)
    new = generator([])
    ended = generator([])
    list(ended)
    coro = coroutine(suspend())
    coro.send(None)
    asyncgen = asynchronous(suspend())
    asyncgen.asend(None).send(None)
    try:
        raising()
    except ValueError as error:
        failed = error.__traceback__.tb_next.tb_frame
    keep.append((iterator, suspended, new, ended, coro, asyncgen, failed))
    for o, frame, stacked in (
        (suspended, suspended.gi_frame, iterator), (new, new.gi_frame, None), (coro, coro.cr_frame, coro.cr_await),
        (asyncgen, asyncgen.ag_frame, asyncgen.ag_await), (failed, failed, None), (suspended.gi_frame, suspended.gi_frame, iterator),
    ):
        show("suspended", id=id(o), type=type(o).__name__, stacked=id(stacked) if stacked is not None else 0, frame=describe(frame))
    show("ended", id=id(ended), type="generator")
    show("ended", id=id(keep), type="generator")
    show("ended", id=id(suspended), type="frame")


entered, never = threading.Semaphore(0), _thread.allocate_lock()
never.acquire()


def worker(value, key=object()):
    def inner(): return value
    while True: entered.release(); never.acquire()


def deeper(depth, function):
    here = [depth]
    for item in iter(here):
        return deeper(depth - 1, function) if depth else function(item)


def start_threads():
    for target in (worker, functools.partial(deeper, 50, worker)):
        threading.Thread(target=target, args=(object(),) if target is worker else (), daemon=True).start()
    for _ in range(2):
        entered.acquire()
    for thread in threading.enumerate():
        while thread is not threading.current_thread() and sys._current_frames()[thread.ident].f_code is not worker.__code__:
            pass


def wait():
    # All on one line, so that the frame is where it says.
    finish(sys._getframe()); sys.stdin.readline()


def finish(own):
    show_frames(own)
    show_collector()
    print("ready", flush=True)


def show_collector():
    gc.collect()
    lived = len(gc.get_objects(generation=2))
    keep.append([[i] for i in range(1000)])
    gc.collect(1)
    pending = [Instance(3), gc.freeze(), Instance(3)]
    keep.append(pending)
    show("collector", count=gc.get_stats()[2]["collections"], enabled=gc.isenabled(), thresholds=gc.get_threshold(),
         counts=gc.get_count(), lived=lived, ids=[id(pending[0]), id(pending[2])])


class Waiting:
    cell = object()

    def __call__(self, _):
        free = self

        def enclosed(größe=object()):
            return free, größe, wait()
        return enclosed()


def running():
    mine = object()
    for item in iter([1]):
        exec("yes = call(0)", {"call": Waiting()})
        yield mine


def walked():
    held = iter([object()])
    show("stacked", id=id(held))
    for item in held:
        for _ in running():
            pass


def main(first):
    cell = object()

    def uses(): return cell
    by_key = sorted([0], key=lambda _: walked() or 0)


show("version", hex=sys.hexversion)
for text in TEXTS + LONG:
    show("text", id=id(text), points=points(text))
for key in KEYS:
    show("key", id=id(key), repr=points(repr(key)))
for key in NO_KEYS:
    show("no key", id=id(key))
for name, module in sys.modules.items():
    file = getattr(module, "__file__", None)
    if isinstance(module, types.ModuleType):
        show("module", name=name, file=file or "", ids=[id(module), id(module.__dict__)])
show_instances()
show_containers()
show_offsets()
show_pools()
gc.disable()
show_functions()
show_suspended()
start_threads()
main(1)
gc.enable()
gc.set_threshold(1 << 30, 20, 30)
gc.unfreeze()
for _ in range(3):
    gc.collect()
show_collector()
print("collected", flush=True)
sys.stdin.readline()
