#!/bin/sh
# Prints the Python interpreters that the tests trace, a line for each: its name, a tab, and the
# command that runs it, or
# "missing: " and the reason why it cannot be had.
#
# They are the system's, the ones of pyenv (3.8 to 3.15), and the ones of other Debian releases,
# which debootstrap unpacks into folders of their own, once, all at a time, from the mirror that the
# system's apt uses: about a minute and 300 MB each. Their signatures are checked. Nothing is
# installed.
#
# With the argument "minors" pyenv's are only of minor versions that neither the system nor
# Debian has. With the argument "unusual" it prints others instead: debug builds, PyPy, and the ones
# that build-interpreters.sh has built.
#
# Where ALLOCSCOPE_ROOT is the folder of a system, it prints the Pythons of that one alone:
# debian-NAME-3.15 for
# /usr/bin/python3.15, and debug-NAME-3.15 for python3.15d, which is unusual.
set -eu

SUITES="bullseye trixie forky"
OF_SUITES="3.9 3.13 3.14 3.15" # their minor versions
VERSIONS='3\.(8|9|1[0-5])'
# Packages that a suite has beside python3.
MORE="trixie:python3.13-dbg,pypy3,python3-greenlet,python3-gevent forky:python3.15"
CACHE=${XDG_CACHE_HOME:-/var/cache}/allocscope/interpreters
SYSTEM=/usr/bin/python3
PATH=$PATH:/usr/sbin:/sbin # of debootstrap and chroot
# shellcheck source=archives.sh
. "$(dirname "$0")/archives.sh"

tab=$(printf '\t')

found() { # NAME COMMAND
	echo "$1$tab$2"
}

missing() { # NAME REASON
	echo "$1${tab}missing: $2"
}

# The packages of suite $1 beside python3, each after a comma.
more() {
	for of_suite in $MORE; do
		case $of_suite in
		"$1":*) echo ",${of_suite#*:}" ;;
		esac
	done
}

# Whether folder $2 has suite $1 with all packages.
is_set_up() {
	[ -x "$2$SYSTEM" ] || return 1
	for package in $(more "$1" | tr , ' '); do
		[ -e "$2/var/lib/dpkg/info/$package.list" ] || [ -e "$2/var/lib/dpkg/info/$package:amd64.list" ] || return 1
	done
}

# Unpacks suite $1 into $2. debootstrap knows suites newer than itself by the way of the oldest
# rolling one.
unpack() {
	how=$1
	[ -e "/usr/share/debootstrap/scripts/$1" ] || how=sid
	debootstrap --variant=minbase --include="python3$(more "$1")" --keyring="$DEBIAN_KEYS" \
		"$1" "$2" "$(mirror debian)" "/usr/share/debootstrap/scripts/$how" >"$2.log" 2>&1
}

# Why suite $1 cannot be set up; nothing if it can.
obstacle() {
	if [ "$(id -u)" != 0 ]; then
		echo "needs root to unpack Debian $1"
	elif ! command -v debootstrap >/dev/null; then
		echo "no debootstrap (apt-get install debootstrap)"
	elif [ ! -r "$DEBIAN_KEYS" ]; then
		echo "no $DEBIAN_KEYS (apt-get install debian-archive-keyring)"
	elif [ -z "$(mirror debian)" ]; then
		echo "apt's sources name no Debian mirror"
	elif ! wget -q -O /dev/null --timeout=20 --tries=2 "$(mirror debian)/dists/$1/InRelease"; then
		echo "cannot reach Debian $1 at $(mirror debian)"
	fi
}

# Unpacks suite $1 into $2, which gets its name only when it is complete. A program may run in the
# folder that was there: it stays in $CACHE/replaced until the next time.
set_up() {
	mkdir -p "$CACHE/replaced"
	exec 9>"$2.lock"
	flock 9 # another test may be at it
	! is_set_up "$1" "$2" || return 0
	rm -rf --one-file-system "$2.part" "$CACHE/replaced/$1"
	unpack "$1" "$2.part" || return 1
	rm -rf "$2.part/var/cache/apt" "$2.part/var/lib/apt/lists" "$2.part.log"
	[ ! -e "$2" ] || mv "$2" "$CACHE/replaced/$1"
	mv "$2.part" "$2"
}

# Prints as $2 the program $3 of suite $1, which is set up unless it is.
provide() {
	root=$CACHE/$1
	reason=
	if ! is_set_up "$1" "$root"; then
		reason=$(obstacle "$1")
		if [ -z "$reason" ] && ! set_up "$1" "$root"; then
			reason="debootstrap of Debian $1: $(tail -n 1 "$root.part.log") (see $root.part.log)"
		fi
	fi
	if [ -n "$reason" ]; then
		missing "$2" "$reason"
	else
		found "$2" "$(command -v chroot) $root $3"
	fi
}

# The minor versions of which no pyenv is wanted.
covered() {
	[ "$1" = minors ] || return 0
	echo "$OF_SUITES"
	[ ! -x "$SYSTEM" ] || "$SYSTEM" -c 'import sys; print("%d.%d" % sys.version_info[:2])'
}

# The interpreters of this system, but for pyenv's of the minor versions $1.
installed() {
	if [ -x "$SYSTEM" ]; then
		found system "$SYSTEM"
	else
		missing system "no $SYSTEM (apt-get install python3)"
	fi
	printf '%s\n' "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3 | sort -V | while read -r program; do
		version=$(basename "${program%/bin/python3}")
		case " $1 " in
		*" ${version%.*} "*) continue ;;
		esac
		if [ -x "$program" ] && echo "$version" | grep -qE "^$VERSIONS\.[0-9]+\$"; then
			found "pyenv-$version" "$program"
		fi
	done
}

# Prints those that build-interpreters.sh builds.
built() {
	for name in free-threaded-3.13 free-threaded-3.14 standalone-3.14; do
		if [ -x "$CACHE/built/$name/bin/python3" ]; then
			found "$name" "$CACHE/built/$name/bin/python3"
		else
			missing "$name" "testdata/build-interpreters.sh has not built it"
		fi
	done
}

# Prints the Pythons in folder $1: the debug builds, if $2 is "unusual".
in_folder() {
	of=debian-$(basename "$1")
	programs=$1/usr/bin/python3.*[0-9]
	if [ "$2" = unusual ]; then
		of=debug-$(basename "$1")
		programs=$1/usr/bin/python3.*[0-9]d
	fi
	for program in $programs; do
		version=${program##*/python}
		[ ! -x "$program" ] || found "$of-${version%d}" "$(command -v chroot) $1 /usr/bin/${program##*/}"
	done
}

if [ -n "${ALLOCSCOPE_ROOT:-}" ]; then
	in_folder "$ALLOCSCOPE_ROOT" "${1:-}"
	exit
fi
use_proxy
if [ "${1:-}" = unusual ]; then
	provide trixie debug-3.13 /usr/bin/python3.13d
	provide trixie pypy-3.11 /usr/bin/pypy3
	built
	exit
fi

installed "$(covered "${1:-}" | tr '\n' ' ')"
lines=$(mktemp -d)
trap 'rm -rf "$lines"' EXIT
jobs=
for suite in $SUITES; do
	{
		provide "$suite" "debian-$suite" "$SYSTEM"
		[ "$suite" != forky ] || provide forky debian-forky-3.15 /usr/bin/python3.15
	} >"$lines/$suite" &
	jobs="$jobs $!"
done
for job in $jobs; do
	wait "$job"
done
for suite in $SUITES; do
	cat "$lines/$suite"
done
