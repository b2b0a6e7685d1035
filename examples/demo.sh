#!/bin/sh
# Starts the leaking trainer, traces it for 20 seconds, and shows what leaks. So short a trace probes every call of the allocator
# (--overhead off); a longer one keeps within 3 % of the trainer's CPU time by itself.
set -eu
cd "$(dirname "$0")/.."

python=python3
for candidate in /usr/bin/python3 python3; do # the system's own, which has Pillow if any has
	if "$candidate" -c 'import PIL' 2>/dev/null; then
		python=$candidate
		break
	fi
done

"$python" examples/leaky_trainer.py &
trainer=$!
trap 'kill $trainer 2>/dev/null' EXIT
sleep 2

echo "Tracing for 20 seconds, with every call of the allocator probed (--overhead off): too short for windows."
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
output=allocscope-$trainer-demo
$sudo bin/allocscope trace --pid "$trainer" --duration 20s --overhead off --output "$output"

echo
echo "The same by pprof:"
go tool pprof -top "$output/growth.pb.gz"
