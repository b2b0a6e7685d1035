"""A program that puts a secret wherever a process can put text, and leaks.

Every name of its own contains okapi, quagga or zebu. TestSecrets looks for them in a bundle.
"""

import ctypes
import mmap
import os
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
native = ctypes.CDLL(os.path.join(HERE, "libquagga.so"))
native.quagga_native_leak.restype = None


class OkapiRecord:
    def __init__(self, n):
        self.zebu_payload = {f"quagga-key-{n}": bytearray(3000)}


class OkapiTrainer:
    def __init__(self):
        self.zebu_records = []

    def zebu_step(self, n):
        for i in range(20):
            self.zebu_records.append(OkapiRecord(n * 20 + i))
        native.quagga_native_leak(20000)
        import json

        self.zebu_records.append(json.loads('[{"okapi-json": "%s"}]' % ("x" * 4000)))


def quagga_background():
    rows = []
    while True:
        rows.append("zebu" * 2000)
        time.sleep(0.05)


def main():
    okapi_trainer = OkapiTrainer()
    with open(os.path.join(HERE, "okapi data set.bin"), "wb") as f:
        f.write(bytes(8 << 20))
    file = open(os.path.join(HERE, "okapi data set.bin"), "rb")
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    hidden = os.memfd_create("zebu-memfd")
    os.ftruncate(hidden, 4 << 20)
    shared = mmap.mmap(hidden, 4 << 20)
    worker = threading.Thread(target=quagga_background, name="okapi-thread", daemon=True)
    worker.start()
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"quagga trainer", 0, 0, 0)  # PR_SET_NAME: a name with a blank
    anonymous = mmap.mmap(-1, 2 << 20)
    address = ctypes.addressof(ctypes.c_char.from_buffer(anonymous))
    libc.prctl(0x53564D41, 0, ctypes.c_ulong(address), ctypes.c_ulong(2 << 20), b"okapi-vma")
    kept = []
    print("ready", flush=True)
    n = 0
    while True:
        n += 1
        okapi_trainer.zebu_step(n)
        kept.append(mapped[(n % 8) << 20 : ((n % 8) << 20) + 4096])
        shared[(n % 1024) * 4096] = 1
        anonymous[(n % 512) * 4096] = 1
        time.sleep(0.05)


if __name__ == "__main__":
    main()
