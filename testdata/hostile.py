#!/usr/bin/env python3
"""Leaks under names that would like to be markup, reorder text, drive a terminal, or be no text at all: its own (comm), its
arguments, those of a thread, of functions and source files, and of a file that it maps.

It prints "ready", then for each line with a number N keeps N KiB more by each function, and prints "done".
"""

import ctypes
import mmap
import os
import sys
import tempfile
import threading

PR_SET_NAME = 15
MARKUP = "</script><img src=x onerror=window.__pwned=1>"
NAMES = {
    "markup": MARKUP,
    "quotes": "\"'`--><svg onload=window.__pwned=1>{{.}}${1}",
    "bidi": "\u202egpj.\u2066elif\u200b",
    "escapes": "\x1b[31mred\x1b]0;title\x07\r\n\t\x9b",
    "long": "long" * 2500,
    "surrogate": "half \ud800 pair",
}
prctl = ctypes.CDLL(None).prctl
kept = []


def rename(name):
    """Names the calling thread, by bytes that need not be text."""
    prctl(PR_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)


def keeper(name):
    """A function of that name, in a file of that name, which keeps memory."""
    scope = {"kept": kept}
    exec(compile("def keep(size):\n    kept.append(bytearray(b'x') * size)\n", "hostile.py", "exec"), scope)
    made = scope["keep"]
    code = made.__code__
    qualified = {"co_qualname": name} if hasattr(code, "co_qualname") else {}
    made.__code__ = code.replace(co_name=name, co_filename=f"/srv/{name}.py", **qualified)
    return made


class File:
    """A mapped file, of which one MiB after the other becomes resident."""

    def __init__(self, file):
        os.ftruncate(file, 64 << 20)
        self.pages, self.touched = mmap.mmap(file, 0), 0

    def touch(self):
        end = self.touched + (1 << 20)
        self.pages[self.touched : end] = bytes(b"x") * (1 << 20)
        self.touched = end % (64 << 20)


def execute_again():
    """Starts again with arguments that a shell would not give."""
    texts = [MARKUP, NAMES["escapes"], NAMES["bidi"], NAMES["long"]]
    arguments = [sys.executable.encode(), os.fsencode(__file__), b"\xff\xfe bad", *(text.encode() for text in texts)]
    os.execv(sys.executable, arguments)


def rest_under_a_name():
    rename(MARKUP.encode()[:15])
    threading.Event().wait()


def main():
    if len(sys.argv) == 1:
        execute_again()
    rename(b"<img src=\xff\x1b[1m")
    functions = [keeper(name) for name in NAMES.values()]
    threading.Thread(target=rest_under_a_name, daemon=True).start()
    with tempfile.NamedTemporaryFile(prefix="<img src=x onerror=window.__pwned=1>\u202e\x1b[2J") as file:
        mapped = File(file.fileno())
        print("ready", flush=True)
        for line in sys.stdin:
            for keep in functions:
                for _ in range(int(line) // 64):
                    keep(64 << 10)
            mapped.touch()
            print("done", flush=True)


if __name__ == "__main__":
    main()
