"""The frames of exceptions in a list keep the items."""
# KEPT BY: tracebacks.errors
# CONTAINER: list
import case


def fail():
    batch = case.item()
    raise ValueError("no such file")


errors = []
for step in case.steps():
    try:
        fail()
    except ValueError as error:
        errors.append(error)
