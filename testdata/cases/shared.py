"""Each step makes a buffer that workers could share, and keeps it. What mmap.mmap(-1) maps is shared memory, as that of tensors in queues."""

import mmap

import case

BUFFER = 256 << 10  # bytes

kept = []


def step():
    buffer = mmap.mmap(-1, BUFFER)  # NAMED
    buffer.write(bytes(BUFFER))
    kept.append(buffer)


if __name__ == "__main__":
    case.run(step, 8)
