"""Prints, a JSON object a line, where code objects are and what they say of themselves; then "ready", and waits.

Texts are lists of code points: JSON has no lone surrogates. "file" is null where the file name is no plain str, "name"
likewise; "traceable" is the offset of RESUME, null where there is none. "lines" holds PyCode_Addr2Line's answers for the
offsets -1, 0, 2, 4 ... Runs on Python 3.8 and later.
"""
import argparse, asyncio, ctypes, decimal, dis, email.message, gc, json, sys, types, typing

NEW = sys.version_info >= (3, 11)
addr2line = ctypes.pythonapi.PyCode_Addr2Line
addr2line.argtypes = [ctypes.py_object, ctypes.c_int]


class Text(str):
    pass


TEXTS = [
    "plain", "", "café", "Größe.<locals>.méthode", "名前", "x\U0001f600y", "\U0010ffff", "\xff", "\x7f", "\u0100",
    "\udcff", "a\ud83d\ude00b", "\ud800\U0001f600", "a\nb\r\x1b[31m\x00\x85\u200b\u202e\ufffe", "\ufffd",
    "x" * 4096, "x" * 4097, "\n" * 4097, "a" + "é" * 2047, "a" + "é" * 2048, "名" * 1366, "\U0001f600" * 1025, "é" * 9000,
    "x" * 4095 + "é", Text("subclass"), Text("名前"),
]


def variants(code):
    """The code under each text, as a name and as a file name."""
    for text in TEXTS:
        names = {"co_name": text, "co_qualname": text} if NEW else {"co_name": text}
        yield code.replace(**names)
        yield code.replace(co_filename=text)
    if NEW:
        yield code.replace(co_name="short", co_qualname="Class.short")
    for first in (0, 1, 2**31 - 1):
        yield code.replace(co_firstlineno=first)


def with_nested(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from with_nested(constant)


def gather():
    def outer(x):
        def inner(y=[z for z in x]): return lambda: (x, y)
        async def waits(): await x
        def generates(): yield x
        return inner, waits, generates

    yield from with_nested(outer.__code__)
    yield from variants(outer.__code__)
    functions = [o for o in gc.get_objects() if isinstance(o, types.FunctionType)]
    for function in functions:
        yield from with_nested(function.__code__)


def points(text):
    return [ord(c) for c in text] if type(text) is str else None


def resume(code):
    return next((i.offset for i in dis.get_instructions(code) if i.opname == "RESUME"), None)


def show(code):
    name = code.co_qualname if NEW else code.co_name
    print(json.dumps({
        "address": id(code), "name": points(name), "file": points(code.co_filename), "first": code.co_firstlineno,
        "traceable": resume(code) if NEW else None,
        "lines": [addr2line(code, offset) for offset in [-1, *range(0, min(len(code.co_code), 2000), 2)]],
    }))


codes = list(gather())
for code in codes:
    show(code)
print("ready", flush=True)
sys.stdin.read()
