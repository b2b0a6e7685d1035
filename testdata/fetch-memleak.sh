#!/bin/sh
# Prints the path of a command that runs libbpf-tools' memleak, the peer that the benchmarks compare with.
#
# Debian 12's libbpf-tools has no memleak, Debian 13's has. Where the system has none, the Debian 13 package and the
# libraries it needs are fetched and unpacked into a folder of their own, once: nothing is installed, and apt's own
# configuration, lists and caches are not touched. Without a network it prints why and exits with 1.
set -eu

SUITE=trixie
PACKAGES="libbpf-tools libc6 libelf1t64 zlib1g libzstd1"
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/allocscope
DIR=$CACHE/memleak-$SUITE
PROGRAM=usr/sbin/memleak-libbpf

die() {
	echo "fetch-memleak: $*" >&2
	exit 1
}

# The Debian mirror that this system uses.
mirror() {
	sources=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null || true)
	set -- $sources
	[ $# -gt 0 ] || die "apt's sources name no Debian mirror"
	echo "$1"
}

# An apt of its own in folder $1, with nothing of the system's but how to reach the network.
configure_apt() {
	mkdir -p "$1/etc/preferences.d" "$1/state/lists/partial" "$1/cache/archives/partial"
	: >"$1/status"
	echo "deb [signed-by=$KEYRING] $(mirror) $SUITE main" >"$1/etc/sources.list"
	{
		apt-config dump | grep '^Acquire::' | grep -v IndexTargets || true
		cat <<-EOF
			APT::Sandbox::User "root";
			Acquire::Languages "none";
			Acquire::Retries "1";
			Acquire::http::Timeout "20";
			Acquire::https::Timeout "20";
			Dir::Etc "$1/etc";
			Dir::Etc::main "/dev/null";
			Dir::Etc::parts "/dev/null";
			Dir::Etc::sourcelist "$1/etc/sources.list";
			Dir::Etc::sourceparts "/dev/null";
			Dir::State "$1/state";
			Dir::State::status "$1/status";
			Dir::Cache "$1/cache";
		EOF
	} >"$1/apt.conf"
}

# Downloads and unpacks into $1/system.
fetch() {
	export APT_CONFIG="$1/apt.conf"
	apt-get -q update >&2 || die "cannot read the package lists of $SUITE"
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
	[ -r "$KEYRING" ] || die "no $KEYRING to check packages of Debian $SUITE with"
	mkdir -p "$CACHE"
	work=$(mktemp -d "$CACHE/fetch.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	configure_apt "$work"
	fetch "$work"
	write_wrapper "$work"
	rm -rf "$DIR"
	mkdir "$DIR"
	mv "$work/system" "$work/memleak" "$DIR/"
fi
echo "$DIR/memleak"
