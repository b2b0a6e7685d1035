#!/bin/bash
# Prints the folder of a Debian 13 in which the benchmark against other tools runs its trainers: PyTorch that compiles,
# Pillow, a compiler, and the tools themselves. release.sh unpacks it once, in two minutes, to 2 GB.
#
# ALLOCSCOPE_PEERS is where it is kept (default: /var/cache/allocscope/peers); remove that folder for newer packages.
set -euo pipefail

ROOT=${ALLOCSCOPE_PEERS:-/var/cache/allocscope/peers}/trixie

"$(dirname "$0")/../release.sh" trixie "$ROOT" \
	python3-torch libtorch-dev libopenblas0-pthread python3-pil python3-numpy python3-setuptools \
	g++ libpython3-dev heaptrack python3-memray lldb libjemalloc2 libjemalloc-dev
echo "$ROOT"
