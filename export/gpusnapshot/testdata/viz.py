"""Runs the functions of a _memory_viz.py of PyTorch on a pickle, without PyTorch, and prints their
results as JSON: viz.py _memory_viz.py gpu-snapshot.pickle. Without the first argument it takes the
file of the installed PyTorch, whose functions expect the segments alone."""

import contextlib
import importlib.util
import io
import json
import pickle
import sys


def load(path):
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same(lines):
    return lines


def compared(viz, before, after):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        lines = viz.compare(before, after, same)
    return said.getvalue() + lines


path, file = sys.argv[1:]
isOld = not path
if isOld:
    path = importlib.util.find_spec("torch").submodule_search_locations[0] + "/cuda/_memory_viz.py"
viz = load(path)
with open(file, "rb") as f:
    snapshot = pickle.load(f)
segments = snapshot["segments"]
data = segments if isOld else snapshot
results = {
    "memory": viz.memory(data, same),
    "segments": viz.segments(data, same),
    "compare": compared(viz, segments[1:], segments),
}
if isOld:
    results["stats"] = repr(viz.stats(segments))
else:
    results["segsum"] = viz.segsum(data)
    results["trace"] = viz.trace(data)
    results["trace_plot"] = viz.trace_plot(data)
    results["segment_plot"] = viz.segment_plot(data)
print(json.dumps(results))
