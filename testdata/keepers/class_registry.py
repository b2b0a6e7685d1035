"""A registry in a base class keeps the classes that are made from it."""
# KEPT BY: class_registry.Plugin.registry
# CONTAINER: list
import case


class Plugin:
    registry = []

    def __init_subclass__(cls):
        Plugin.registry.append(cls)


for step in case.steps():
    case.noted(type("Plugin%d" % step, (Plugin,), {"number": step}))
