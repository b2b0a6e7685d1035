"""pinned.py with expandable segments: the allocator maps memory of SEGMENT bytes at a time into one
segment, which grows.

Truth: as that of pinned.py. A mapping in which one tensor is alive cannot be undone. _snapshot()
has one segment, and memory_stats() counts none.
"""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import pinned  # noqa: E402, F401 it runs
