"""Caches each page for ever in a dict of a module. A leak of 1 MiB a second, without packages."""

import pace

pages = {}


def render(number):
    return bytearray(26000 + number % 100)  # NAMED


def page(number):
    if number not in pages:
        pages[number] = render(number)
    return pages[number]


def main():
    pace.ready()
    for step in pace.steps(40):
        page(step)
        page(step // 2)


main()
