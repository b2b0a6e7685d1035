"""A queue of at most 20,000 messages of 50 kB that its consumer does not keep up with."""

import queue
import threading
import time

import pace

messages = queue.Queue(maxsize=20000)


def consume():
    while True:
        messages.get()
        time.sleep(1)


def produce(step):
    messages.put(bytes(50000 + step % 7))  # NAMED


def main():
    threading.Thread(target=consume, daemon=True).start()
    pace.ready()
    for step in pace.steps(20):
        produce(step)


main()
