#!/bin/bash
# Prints the folder of the newest runtimes: Debian sid, with experimental for packages that it
# lacks.
# release.sh unpacks it once, in four minutes, to 3 GB. No torch is built for CPython 3.15 there
# yet.
#
# ALLOCSCOPE_NEWEST is where it is kept (default: /var/cache/allocscope/sid); remove that folder for
# newer packages.
set -euo pipefail

ROOT=${ALLOCSCOPE_NEWEST:-/var/cache/allocscope/sid}

"$(dirname "$0")/release.sh" sid+experimental "$ROOT" \
	python3.15 python3.15-dev python3.15-dbg libpython3.15-testsuite \
	python3 python3-torch python3-pil python3-numpy python3-setuptools libtorch-dev g++ \
	libjemalloc2 libmimalloc3 libtcmalloc-minimal4t64 ca-certificates
echo "$ROOT"
