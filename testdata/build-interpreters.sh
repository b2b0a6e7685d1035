#!/bin/bash
# Builds Pythons that no package has, from the source packages of Debian and Ubuntu: about five
# minutes of CPU each, once. interpreters.sh prints them as "unusual". With arguments: only those.
#
#   free-threaded-3.13, free-threaded-3.14   without the GIL (--disable-gil)
#   standalone-3.14   as uv's python-build-standalone is: clang, tail calls from one instruction to
#                     the next, libpython within the program, frame pointers, no symbols but the
#                     exported ones
#
# They are for tests: with few optimisations, and without the modules that need other libraries than
# libc and libffi.
set -euo pipefail

CACHE=${XDG_CACHE_HOME:-/var/cache}/allocscope/interpreters/built
DISABLED="_ssl _hashlib _sqlite3 _tkinter _decimal _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp
_codecs_kr _codecs_tw _multibytecodec readline _curses _curses_panel _dbm _gdbm _elementtree pyexpat
_lzma _bz2 _zstd _uuid xxlimited xxlimited_35"
# shellcheck source=archives.sh
. "$(dirname "$0")/archives.sh"

# Downloads the sources of python$1, which apt verifies, and prints the name of the file. Debian has
# 3.14 in rolling suites alone, whose sources mirrors may lack; Ubuntu 26.04 has it.
fetch() {
	local folder=$work/python$1
	if [ "$1" = 3.13 ]; then
		types="deb deb-src" configure_apt "$folder" "$(archive debian)" "$DEBIAN_KEYS" trixie
	else
		fetch_ubuntu_keys "$work/keys" >&2
		types="deb deb-src" configure_apt "$folder" "$UBUNTU_ARCHIVE" "$work/keys/keys.gpg" resolute
	fi
	(
		cd "$folder"
		apt-get -qq source --download-only --tar-only "python$1" >&2
	)
	ls "$folder"/python*.orig.tar.xz
}

# Builds $1 of version $2, installed as python$3, with the arguments of configure that follow.
build() {
	local name=$1 version=$2 program=$3 prefix=$CACHE/$1 source=$work/$1
	shift 3
	[ ! -x "$prefix/bin/python3" ] || return 0
	echo "building $name (log in $CACHE/$name.log)"
	mkdir -p "$source"
	tar xf "$(fetch "$version")" -C "$source" --strip-components=1
	rm -rf --one-file-system "$prefix"
	(
		cd "$source"
		printf '*disabled*\n%s\n' "$DISABLED" >Modules/Setup.local
		nice ./configure -q --prefix="$prefix" --disable-test-modules --without-ensurepip \
			OPT="-O1 -DNDEBUG -g0" "$@"
		nice make -s
		make -s altbininstall sharedinstall
		rm -r Lib/test
		cp -a Lib/. build/lib*/_sysconfig* "$prefix/lib/python$program/"
	) >"$CACHE/$name.log" 2>&1
	[ "$name" != standalone-3.14 ] || strip "$prefix/bin/python$program"
	ln -s "python$program" "$prefix/bin/python3" # now it is complete
}

if [ "$(id -u)" != 0 ]; then
	echo "needs root to write $CACHE" >&2
	exit 1
fi
mkdir -p "$CACHE"
exec 9>"$CACHE.lock"
flock 9
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in ${*:-free-threaded-3.14 standalone-3.14 free-threaded-3.13}; do
	case $name in
	free-threaded-*) build "$name" "${name##*-}" "${name##*-}t" --disable-gil ;;
	standalone-3.14)
		build "$name" 3.14 3.14 CC=clang-19 --with-tail-call-interp \
			CFLAGS="-fno-omit-frame-pointer -mno-omit-leaf-frame-pointer"
		;;
	esac
done
