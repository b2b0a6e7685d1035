"""Reads pickles from standard input, each after its length in 8 bytes, with Python's own pickle
module, and prints each as a line of JSON. Tuples become {"tuple": [...]}."""

import json
import pickle
import sys


def plain(value):
    match value:
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case tuple():
            return {"tuple": [plain(item) for item in value]}
    return value


while length := sys.stdin.buffer.read(8):
    value = pickle.loads(sys.stdin.buffer.read(int.from_bytes(length, "little")))
    print(json.dumps(plain(value)), flush=True)
