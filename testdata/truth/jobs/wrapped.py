"""Keeps each answer in a dict of its module. A shell starts it. A leak of 1 MiB a second."""

import pace

answers = {}


def serve(request):
    answers[request] = bytearray(52000 + request % 7)  # NAMED


def main():
    pace.ready()
    for request in pace.steps(20):
        serve(request)


main()
