#!/bin/sh
# Prints the Python interpreters that the tests trace, a line for each: its name, a tab, and the command that runs it, or
# "missing: " and the reason why it cannot be had.
#
# They are the system's, those of pyenv (3.8 to 3.14), and those of other Debian releases, which debootstrap unpacks into
# folders of their own, once, all at a time, from the mirror that the system's apt uses: about a minute and 300 MB each. Their
# signatures are checked. Nothing is installed. With arguments: only those releases are set up, and no others printed.
set -eu

SUITES="bullseye trixie forky" # Python 3.9, 3.13, 3.14
VERSIONS='3\.(8|9|1[0-4])'
CACHE=${XDG_CACHE_HOME:-/var/cache}/allocscope/interpreters
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
SYSTEM=/usr/bin/python3
PATH=$PATH:/usr/sbin:/sbin # of debootstrap and chroot

tab=$(printf '\t')

found() { # NAME COMMAND
	echo "$1$tab$2"
}

missing() { # NAME REASON
	echo "$1${tab}missing: $2"
}

# The Debian mirror that this system uses; nothing if it uses none.
mirror() {
	grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -n 1 | tr -d ' '
}

# The way to the network that apt is configured to take is debootstrap's, too.
use_proxy() {
	if command -v apt-config >/dev/null; then
		eval "$(apt-config shell http_proxy Acquire::http::Proxy)"
	fi
	[ -z "${http_proxy:-}" ] || export http_proxy
}

# Unpacks suite $1 into $2. debootstrap knows suites newer than itself by the way of the oldest rolling one.
unpack() {
	how=$1
	[ -e "/usr/share/debootstrap/scripts/$1" ] || how=sid
	debootstrap --variant=minbase --include=python3 --keyring="$KEYRING" "$1" "$2" "$(mirror)" \
		"/usr/share/debootstrap/scripts/$how" >"$2.log" 2>&1
}

# Why suite $1 cannot be set up; nothing if it can.
obstacle() {
	if [ "$(id -u)" != 0 ]; then
		echo "needs root to unpack Debian $1"
	elif ! command -v debootstrap >/dev/null; then
		echo "no debootstrap (apt-get install debootstrap)"
	elif [ ! -r "$KEYRING" ]; then
		echo "no $KEYRING (apt-get install debian-archive-keyring)"
	elif [ -z "$(mirror)" ]; then
		echo "apt's sources name no Debian mirror"
	elif ! wget -q -O /dev/null --timeout=20 --tries=2 "$(mirror)/dists/$1/InRelease"; then
		echo "cannot reach Debian $1 at $(mirror)"
	fi
}

# Unpacks suite $1 into $2, which gets its name only when it is complete.
set_up() {
	mkdir -p "$CACHE"
	exec 9>"$2.lock"
	flock 9 # another test may be at it
	[ ! -x "$2$SYSTEM" ] || return 0
	rm -rf --one-file-system "$2" "$2.part"
	unpack "$1" "$2.part" || return 1
	rm -rf "$2.part/var/cache/apt" "$2.part/var/lib/apt/lists" "$2.part.log"
	mv "$2.part" "$2"
}

# Prints the interpreter of suite $1, which is set up unless it is.
provide() {
	root=$CACHE/$1
	reason=
	if [ ! -x "$root$SYSTEM" ]; then
		reason=$(obstacle "$1")
		if [ -z "$reason" ] && ! set_up "$1" "$root"; then
			reason="debootstrap of Debian $1: $(tail -n 1 "$root.part.log") (see $root.part.log)"
		fi
	fi
	if [ -n "$reason" ]; then
		missing "debian-$1" "$reason"
	else
		found "debian-$1" "$(command -v chroot) $root $SYSTEM"
	fi
}

# Those of this system.
installed() {
	if [ -x "$SYSTEM" ]; then
		found system "$SYSTEM"
	else
		missing system "no $SYSTEM (apt-get install python3)"
	fi
	printf '%s\n' "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3 | sort -V | while read -r program; do
		version=$(basename "${program%/bin/python3}")
		if [ -x "$program" ] && echo "$version" | grep -qE "^$VERSIONS\.[0-9]+\$"; then
			found "pyenv-$version" "$program"
		fi
	done
}

[ $# -gt 0 ] || installed
use_proxy
lines=$(mktemp -d)
trap 'rm -rf "$lines"' EXIT
jobs=
for suite in ${*:-$SUITES}; do
	provide "$suite" >"$lines/$suite" &
	jobs="$jobs $!"
done
for job in $jobs; do
	wait "$job"
done
for suite in ${*:-$SUITES}; do
	cat "$lines/$suite"
done
