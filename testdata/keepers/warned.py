"""The registry of the warnings that a module has given keeps their texts."""
# KEPT BY: warned.__warningregistry__
# CONTAINER: dict
import warnings

import case

warnings.simplefilter("default")
warnings.showwarning = lambda *arguments: None
for step in case.steps():
    warnings.warn("step %d is slow" % step)
    case.noted(list(__warningregistry__)[-1])
