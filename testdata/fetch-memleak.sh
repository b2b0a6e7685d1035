#!/bin/sh
# Prints the path of a command that runs libbpf-tools' memleak, the peer that the benchmarks
# compare with.
#
# Debian 12's libbpf-tools has no memleak, Debian 13's has. Where the system has none, the Debian
# 13 package and the
# libraries it needs are fetched and unpacked into a folder of their own, once: nothing is
# installed, and apt's own
# configuration, lists and caches are not touched. Without a network it prints why and exits with 1.
set -eu

SUITE=trixie
PACKAGES="libbpf-tools libc6 libelf1t64 zlib1g libzstd1"
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/allocscope
DIR=$CACHE/memleak-$SUITE
PROGRAM=usr/sbin/memleak-libbpf
# shellcheck source=archives.sh
. "$(dirname "$0")/archives.sh"

die() {
	echo "fetch-memleak: $*" >&2
	exit 1
}

# Downloads from archive $2 and unpacks into $1/system.
fetch() {
	configure_apt "$1" "$2" "$DEBIAN_KEYS" "$SUITE" >&2 || die "cannot read the package lists of $SUITE"
	mkdir -p "$1/debs" "$1/system"
	# shellcheck disable=SC2086 # a list
	(cd "$1/debs" && apt-get -q download $PACKAGES >&2) || die "cannot download $PACKAGES"
	for package in "$1"/debs/*.deb; do
		dpkg -x "$package" "$1/system"
	done
	[ -x "$1/system/$PROGRAM" ] || die "libbpf-tools of $SUITE has no $PROGRAM"
}

# memleak must run with the C library it was built for.
write_wrapper() {
	loader=$(find "$1/system/usr" -name 'ld-linux-*.so.*' | head -n 1)
	libraries=$(dirname "$(find "$1/system/usr" -name libc.so.6 | head -n 1)")
	cat >"$1/memleak" <<-EOF
		#!/bin/sh
		exec "$DIR${loader#"$1"}" --library-path "$DIR${libraries#"$1"}" "$DIR/system/$PROGRAM" "\$@"
	EOF
	chmod +x "$1/memleak"
}

if command -v memleak-libbpf; then
	exit 0
fi
if [ ! -x "$DIR/memleak" ]; then
	[ -r "$DEBIAN_KEYS" ] || die "no $DEBIAN_KEYS to check packages of Debian $SUITE with"
	mkdir -p "$CACHE"
	uri=$(mirror debian)
	[ -n "$uri" ] || die "apt's sources name no Debian mirror"
	work=$(mktemp -d "$CACHE/fetch.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	fetch "$work" "$uri"
	write_wrapper "$work"
	rm -rf "$DIR"
	mkdir "$DIR"
	mv "$work/system" "$work/memleak" "$DIR/"
fi
echo "$DIR/memleak"
