"""A slot of an object keeps the items, which have slots themselves."""
# KEPT BY: slots.tracker
import case


class Tracker:
    __slots__ = ("name", "points")


class Point:
    __slots__ = ("x", "y")


tracker = Tracker()
tracker.name, tracker.points = "points", []
for step in case.steps():
    tracker.points.append(case.noted(Point()))
