#!/bin/sh
# Prints the folder with the headers of a Debian release's Python, internal ones included, or
# "missing: " and the reason why they
# cannot be had. $1 is the release, $2 the package: headers.sh forky libpython3.14-dev.
#
# apt downloads the package once, from the mirror that the system's apt uses, and checks its
# signature. It is unpacked beside the
# interpreters of interpreters.sh. Nothing is installed.
set -eu

CACHE=${XDG_CACHE_HOME:-/var/cache}/allocscope/headers
root=$CACHE/$1-$2 # a package each: the next version of Python is in another one
# shellcheck source=archives.sh
. "$(dirname "$0")/archives.sh"

# apt-get with lists and a cache of its own, in $root.part. Like debootstrap it takes a release
# whose signature is right, however
# old it is.
apt() {
	apt-get -qq -o "Dir::State::Lists=$root.part/lists" -o "Dir::Cache=$root.part/cache" \
		-o "Dir::Etc::SourceList=$root.part/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Acquire::Check-Valid-Until=false -o APT::Sandbox::User=root "$@"
}

# Unpacks package $2 of release $1 into $root, which gets its name only when it is complete.
set_up() {
	rm -rf "$root.part"
	mkdir -p "$root.part/lists/partial" "$root.part/cache/archives/partial" "$root.part/files"
	echo "deb [signed-by=$DEBIAN_KEYS] $(mirror debian) $1 main" >"$root.part/sources.list"
	apt update && (cd "$root.part" && apt download "$2") &&
		dpkg-deb -x "$root.part"/*.deb "$root.part/files" &&
		mv "$root.part/files" "$root" &&
		rm -rf "$root.part"
}

if [ ! -d "$root" ]; then
	if [ "$(id -u)" != 0 ]; then
		echo "missing: needs root to unpack $2 of Debian $1"
		exit
	elif [ ! -r "$DEBIAN_KEYS" ]; then
		echo "missing: no $DEBIAN_KEYS (apt-get install debian-archive-keyring)"
		exit
	elif [ -z "$(mirror debian)" ]; then
		echo "missing: apt's sources name no Debian mirror"
		exit
	fi
	mkdir -p "$CACHE"
	exec 9>"$root.lock"
	flock 9 # another test may be at it
	if [ ! -d "$root" ] && ! set_up "$1" "$2" >"$root.log" 2>&1; then
		echo "missing: $2 of Debian $1: $(tail -n 1 "$root.log") (see $root.log)"
		exit
	fi
fi
echo "$root/usr/include"
