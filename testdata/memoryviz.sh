#!/bin/bash
# Prints a folder with PyTorch's own viewer of memory snapshots, torch/utils/viz and
# torch/cuda/_memory_viz.py, from the source package of a Debian release: memoryviz.sh trixie. It
# fetches the package once, 30 to 45 MB, and keeps these files alone. Nothing is installed.
#
# ALLOCSCOPE_MEMORYVIZ is where they are kept (default: /var/cache/allocscope/memoryviz).
set -euo pipefail
# shellcheck source=archives.sh
. "$(dirname "$0")/archives.sh"

suite=$1
folder=${ALLOCSCOPE_MEMORYVIZ:-/var/cache/allocscope/memoryviz}/$suite

if [ ! -d "$folder" ]; then
	mkdir -p "${folder%/*}"
	exec 9>"$folder.lock"
	flock 9 # another test may be at it
fi
if [ ! -d "$folder" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work" "$folder.part"' EXIT
	use_proxy
	types=deb-src configure_apt "$work" "$(archive debian)" "$DEBIAN_KEYS" "$suite"
	(cd "$work" && apt-get -qq source --download-only pytorch >&2)
	mkdir -p "$folder.part"
	tar xf "$work"/pytorch_*.orig.tar.* --directory "$folder.part" --strip-components 1 \
		--wildcards '*/torch/utils/viz/*.js' '*/torch/cuda/_memory_viz.py'
	mv "$folder.part" "$folder"
fi
echo "$folder"
