#!/bin/bash
# Unpacks a release of Debian or Ubuntu into a folder, once, with packages:
#
#     release.sh SUITE[+SUITE] FOLDER [PACKAGE...]
#
# The second suite is only a source of packages that the first one lacks, as experimental is for
# sid.
# A package that is a path is a .deb of this machine. DEBIAN_COMPONENTS of Debian's archive are
# separated by commas (default: main).
#
# Debian comes from the mirror that this machine's apt uses, Ubuntu from UBUNTU_ARCHIVE (default:
# archive.ubuntu.com). Signatures are checked, with Ubuntu's keys from a package of Debian's.
# Nothing is installed on this machine, and its apt is not changed. FOLDER gets its name when it is
# complete; FOLDER.log says what went on. Remove FOLDER for newer packages.
set -euo pipefail

here=$(realpath "$(dirname "$0")")
inside=$here/peers/inside.sh
# shellcheck source=archives.sh
. "$here/archives.sh"
PATH=$PATH:/usr/sbin:/sbin # of debootstrap and chroot

die() {
	echo "testdata/release.sh: $*" >&2
	exit 1
}

# Puts Ubuntu's keys into the file $1.
keep_ubuntu_keys() {
	[ ! -e "$1" ] || return 0
	local work
	work=$(mktemp -d)
	fetch_ubuntu_keys "$work"
	mv "$work/keys.gpg" "$1"
	rm -rf "$work"
}

# Runs apt-get in folder $1, which needs this system's names of hosts.
apt_get() {
	local root=$1
	shift
	cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
	"$inside" "$root" env DEBIAN_FRONTEND=noninteractive ${http_proxy:+"http_proxy=$http_proxy"} \
		apt-get -qq -y "$@"
}

# Installs packages in folder $1. A mirror may have the second suite's list of some weeks ago.
install_packages() {
	local root=$1
	shift
	if [ -n "$second" ]; then
		echo "deb $(mirror debian) $second main" >"$root/etc/apt/sources.list.d/$second.list"
		apt_get "$root" -o Acquire::Check-Valid-Until=false update
	fi
	# shellcheck disable=SC2046 # one word a package
	apt_get "$root" install --no-install-recommends $(carry_in "$root" "$@")
}

# Copies the packages that are paths into folder $1, and prints how apt calls each package there.
carry_in() {
	local root=$1 package
	shift
	for package in "$@"; do
		case $package in
		*/*) cp "$package" "$root/tmp/" && package=/tmp/$(basename "$package") ;;
		esac
		echo "$package"
	done
}

# Unpacks into $1. debootstrap knows releases newer than itself by the way of older ones.
unpack() {
	local archive keys way components=${DEBIAN_COMPONENTS:-main}
	case $suite in
	jammy | noble)
		archive=$UBUNTU_ARCHIVE
		keys=$folder.gpg way=gutsy components=main,universe
		keep_ubuntu_keys "$keys"
		;;
	*)
		archive=$(mirror debian) keys=$DEBIAN_KEYS way=sid
		[ -r "$keys" ] || die "no $keys (apt-get install debian-archive-keyring)"
		[ -n "$archive" ] || die "apt's sources name no Debian mirror"
		;;
	esac
	[ ! -e "/usr/share/debootstrap/scripts/$suite" ] || way=$suite

	debootstrap --variant=minbase --components="$components" --keyring="$keys" "$suite" "$1" \
		"$archive" "/usr/share/debootstrap/scripts/$way"
}

# Unpacks into $1, with packages; it gets the folder's name only when it is complete.
set_up() {
	rm -rf --one-file-system "$1"
	unpack "$1"
	[ $# = 1 ] || install_packages "$@"
	rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/* "$1"/tmp/*.deb
	mv "$1" "$folder"
}

# Says on the terminal why it failed, whatever failed.
report() {
	local status=$?
	[ $status = 0 ] || die "unpack $suite: $(tail -n 1 "$folder.log") (see $folder.log)" 2>&3
}

suite=${1%%+*} second=${1#"${1%%+*}"} folder=$2
second=${second#+}
shift 2
[ ! -d "$folder" ] || exit 0
[ "$(id -u)" = 0 ] || die "needs root to unpack $suite"
command -v debootstrap >/dev/null || die "no debootstrap (apt-get install debootstrap)"

mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9 # another may be at it
[ ! -d "$folder" ] || exit 0
exec 3>&2 >"$folder.log" 2>&1
trap report EXIT
use_proxy
set_up "$folder.part" "$@"
