"""A server of TCP that answers 20 requests a second, and keeps nothing."""

import socket
import threading

import pace


def serve(listener):
    while True:
        connection, _ = listener.accept()
        with connection:
            request = connection.recv(1 << 16)
            connection.sendall(request * 4)


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    pace.ready()
    for step in pace.steps(20):
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(bytes(2000 + step % 1000))
            while client.recv(1 << 16):
                pass


main()
