#!/bin/sh
# Starts the leaking trainer, traces it for 20 seconds, and shows what leaks. A trace that short
# probes every call of the allocator (--overhead off). By default allocscope keeps to 3% of the
# trainer's CPU time.
set -eu
cd "$(dirname "$0")/.."

# Prints a Python that has Pillow. The system's own comes first, for which apt installs it.
find_python() {
	for candidate in /usr/bin/python3 python3; do
		if "$candidate" -c 'import PIL' 2>/dev/null; then
			echo "$candidate"
			return
		fi
	done
	return 1
}

if ! python=$(find_python); then
	.ci/packages python3 python3-pil # it says what is missing where there is no apt
	python=$(find_python) || {
		echo "make demo: no python3 has Pillow: python3 -m pip install Pillow" >&2
		exit 1
	}
fi

"$python" examples/leaky_trainer.py &
trainer=$!
trap 'kill $trainer 2>/dev/null' EXIT
sleep 2

echo "Tracing for 20 seconds, too short for bursts: every call is probed (--overhead off)."
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
output=allocscope-$trainer-demo
$sudo bin/allocscope trace --pid "$trainer" --duration 20s --overhead off --output "$output"

echo
echo "The same by pprof:"
go tool pprof -top "$output/growth.pb.gz"
