"""The interpreter keeps freed objects for the next ones, with what they had; the references are lost."""
# KEPT BY: nothing
import contextvars

import case


def generate(thing):
    yield thing


def fail(thing):
    raise ValueError(thing)


for step in case.steps():
    thing = case.lost(case.item())
    for size in range(20):
        tuples = [(thing,) * size for again in range(30)]
        lists = [[thing] * size for again in range(30)]
    dicts = [{"thing": thing, thing: 1} for again in range(90)]
    slices = [slice(thing, thing) for again in range(3)]
    bound = [thing.__init__ for again in range(300)]
    running = [generate(thing) for again in range(20)]
    for each in running:
        next(each)
    contexts = [contextvars.copy_context() for again in range(300)]
    try:
        fail(thing)
    except ValueError:
        pass
    del tuples, lists, dicts, slices, bound, running, each, contexts, thing
