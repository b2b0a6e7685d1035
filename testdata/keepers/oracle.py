"""Who keeps objects, by the account of the interpreter itself: gc.get_referrers, and frames.

It goes from the objects to all that refers to them, and ends each way at a variable with a name. What has no
variable on any way is not kept by one.
"""

import ctypes
import functools
import gc
import inspect
import os
import sys
import types

MINE = {__file__, inspect.getsourcefile(sys.modules["case"])}

SUSPENDED = (
    (types.GeneratorType, "gi_frame"),
    (types.CoroutineType, "cr_frame"),
    (types.AsyncGeneratorType, "ag_frame"),
)


def is_a(thing, kinds):
    """isinstance asks the thing for its class; some things answer with a warning."""
    return issubclass(type(thing), kinds)


def stem(file):
    return os.path.splitext(os.path.basename(file))[0]


def main():
    """The name of the program: __main__ is that of any."""
    return stem(sys.modules["__main__"].__file__)


def modules_by_dict():
    names = {}
    for name, module in list(sys.modules.items()):
        if is_a(module, types.ModuleType):
            names[id(module.__dict__)] = main() if module.__name__ == "__main__" else name
    return names


def running_frames():
    """The frames of all threads but those of the programs' helpers."""
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_code.co_filename not in MINE and frame.f_code.co_name != "<module>":
                yield frame
            frame = frame.f_back


def local_text(frame, name, generator=""):
    code = frame.f_code
    return "local %s of %s%s() (%s)" % (name, generator, code.co_name, os.path.basename(code.co_filename))


def locals_by_value():
    """Names of local variables of running functions, by the address of what they refer to. Those that an
    inner function uses are named by that."""
    found = {}
    for frame in running_frames():
        for name, value in list(frame.f_locals.items()):
            found.setdefault(id(value), set()).add(local_text(frame, name))
    return found


def referrers():
    """All references that gc knows, backwards: what refers to the object at an address."""
    found = {}
    for holder in gc.get_objects():
        if not is_mine(holder):
            for thing in gc.get_referents(holder):
                found.setdefault(id(thing), []).append(holder)
    return found


def is_mine(holder):
    """Whether it is a frame or generator of the helpers, or a frame that only an account of them has made."""
    frame = holder.gi_frame if is_a(holder, types.GeneratorType) else holder
    return is_a(frame, types.FrameType) and (
        frame.f_code.co_filename in MINE or frame in list(running_frames()) or frame.f_code.co_name == "<module>"
    )


def variables(holder, thing, below):
    """The names of the variables of a class, function or generator by which it refers to a thing. Below is
    what the thing refers to on this way: such variables are in a dict, tuple or cell."""
    if is_a(holder, type) and is_a(thing, dict):
        module = main() if holder.__module__ == "__main__" else holder.__module__
        prefix = module + "." + holder.__qualname__ + "."
        return [prefix + key for key, value in thing.items() if value is below]
    if is_a(holder, types.FunctionType):
        return of_function(holder, thing, below)
    if is_a(holder, functools._lru_cache_wrapper):
        return ["lru_cache of %s()" % holder.__qualname__]
    for kind, attribute in SUSPENDED:
        frame = getattr(holder, attribute) if is_a(holder, kind) else None
        if frame is not None:
            return [
                local_text(frame, name, "coroutine " if inspect.iscoroutine(referrer) else "generator ")
                for name, value in frame.f_locals.items()
                if value is (below if thing is frame else thing)  # before 3.11 the frame is an object between
            ]
    return []


def of_function(function, thing, below):
    if thing is function.__closure__:
        cells = zip(function.__code__.co_freevars, thing)
        return ["closure variable %s of %s()" % (name, function.__qualname__) for name, cell in cells if cell is below]
    names, defaults = inspect.getfullargspec(function).args, function.__defaults__ or ()
    pairs = zip(names[len(names) - len(defaults) :], defaults) if thing is defaults else ()
    if thing is function.__kwdefaults__:
        pairs = thing.items()
    return ["default argument %s of %s()" % (name, function.__qualname__) for name, value in pairs if value is below]


def roots_of(targets):
    """The names of all variables on ways that begin at a module or at a running function. Each round goes a
    step back from all that the one before has found."""
    holders, modules, local = referrers(), modules_by_dict(), locals_by_value()
    roots, seen = set(), set()
    ways = [(thing, None, ()) for thing in targets]
    while ways:
        before, ways = ways, []
        for thing, below, names in before:
            if id(thing) in local:
                roots.update(names, local[id(thing)])
            for holder in holders.get(id(thing), ()):
                if id(holder) in modules:
                    module = modules[id(holder)]
                    roots.update(names, (module + "." + key for key, value in holder.items() if value is thing))
                    continue
                further = names or tuple(variables(holder, thing, below))  # the nearest to the object
                key = (id(holder), further, id(thing) if is_a(holder, (dict, tuple)) else 0)
                if key not in seen:
                    seen.add(key)
                    ways.append((holder, thing, further))
    return roots


def things_at(addresses):
    """The objects at addresses: those that are alive, and known to gc or kept elsewhere."""
    known = {id(thing): thing for thing in gc.get_objects()}
    return [
        known[address] if address in known else ctypes.cast(address, ctypes.py_object).value for address in addresses
    ]


def report(addresses):
    """Prints the variables that keep the objects at addresses, a line each, and ends the program."""
    source = open(sys.modules["__main__"].__file__).read()
    if "# FREED" in source:
        kind = sys.modules["case"].kind
        alive = sum(type(thing) is kind and id(thing) in addresses for thing in gc.get_objects())
        print("alive: %d" % alive if alive else "nothing")
    elif "# UNSEEN BY GC" in source:
        print("unseen")
    else:
        print("\n".join(sorted(roots_of(things_at(addresses)))) or "nothing")
    print("done", flush=True)
    os._exit(0)
