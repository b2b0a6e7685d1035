"""Keeps the rows of each request in a list of a report. A leak of 1 MiB a second, without packages."""

import pace


class Report:
    def __init__(self):
        self.rows = []

    def add(self, number):
        self.rows.append({"number": number, "text": str(number[0] % 10) * 3000})  # NAMED


report = Report()


def main():
    pace.ready()
    for step in pace.steps(10):
        for number in range(32):
            report.add((step, number))


main()
