#!/bin/bash
# Prints the folder of a Debian 13 in which the benchmark against other tools runs its trainers: PyTorch that compiles,
# Pillow, a compiler, and the tools themselves. debootstrap unpacks it once, from the mirror that the system's apt uses: two
# minutes and 2 GB. Signatures are checked; nothing is installed on the system.
#
# ALLOCSCOPE_PEERS is where it is kept (default: /var/cache/allocscope/peers); remove that folder for newer packages.
set -euo pipefail

SUITE=trixie
PACKAGES="python3-torch libtorch-dev libopenblas0-pthread python3-pil python3-numpy python3-setuptools
	g++ libpython3-dev heaptrack python3-memray libjemalloc2 libjemalloc-dev"
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
CACHE=${ALLOCSCOPE_PEERS:-/var/cache/allocscope/peers}
ROOT=$CACHE/$SUITE
PATH=$PATH:/usr/sbin:/sbin # of debootstrap and chroot

die() {
	echo "testdata/peers/debian.sh: $*" >&2
	exit 1
}

# The Debian mirror that this system uses; nothing if it uses none.
mirror() {
	grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -n 1 | tr -d ' '
}

# The way to the network that apt is configured to take is debootstrap's, too.
use_proxy() {
	eval "$(apt-config shell http_proxy Acquire::http::Proxy)"
	[ -z "${http_proxy:-}" ] || export http_proxy
}

# Installs the packages in folder $1, whose apt needs the system's names of hosts.
install_packages() {
	cp -L /etc/resolv.conf /etc/hosts "$1/etc/"
	# shellcheck disable=SC2086 # a list
	"$(dirname "$0")/inside.sh" "$1" env DEBIAN_FRONTEND=noninteractive ${http_proxy:+"http_proxy=$http_proxy"} \
		apt-get -qq -y install --no-install-recommends $PACKAGES
}

# Unpacks into $1, which gets the name $2 only when it is complete.
set_up() {
	rm -rf --one-file-system "$1" &&
		debootstrap --variant=minbase --keyring="$KEYRING" "$SUITE" "$1" "$(mirror)" &&
		install_packages "$1" &&
		rm -rf "$1"/var/cache/apt "$1"/var/lib/apt/lists &&
		mv "$1" "$2"
}

if [ ! -d "$ROOT" ]; then
	[ "$(id -u)" = 0 ] || die "needs root to unpack Debian $SUITE"
	command -v debootstrap >/dev/null || die "no debootstrap (apt-get install debootstrap)"
	[ -r "$KEYRING" ] || die "no $KEYRING (apt-get install debian-archive-keyring)"
	[ -n "$(mirror)" ] || die "apt's sources name no Debian mirror"
	mkdir -p "$CACHE"
	exec 9>"$ROOT.lock"
	flock 9 # another may be at it
	use_proxy
	[ -d "$ROOT" ] || set_up "$ROOT.part" "$ROOT" >"$ROOT.log" 2>&1 9>&- ||
		die "set up Debian $SUITE: $(tail -n 1 "$ROOT.log") (see $ROOT.log)"
fi
echo "$ROOT"
