"""Objects that are text, bytes, numbers or tuples have the items as attributes."""
# KEPT BY: in_subclasses.kept
# CONTAINER: list
import case


class Label(str):
    __slots__ = ("payload",)


class Name(str):
    pass


class Code(int):
    pass


class Blob(bytes):
    pass


class Ratio(float):
    pass


class Point(tuple):
    pass


makers = [
    lambda: Label("label"),
    lambda: Name("name"),
    lambda: Code(1 << 70),
    lambda: Code(-5),
    lambda: Blob(b"bytes"),
    lambda: Ratio(0.5),
    lambda: Point((1, 2, 3)),
]
kept = []
for step in case.steps():
    holder = makers[step % 7]()
    holder.payload = case.noted(case.Item())
    kept.append(holder)
    del holder
