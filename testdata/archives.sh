# shellcheck shell=sh Code of scripts that fetch from the archives of Debian and Ubuntu; they source
# it.
#
# Nothing is installed. This machine's apt is asked how it reaches archives, and is not changed: for
# packages, apt gets a configuration, lists and a cache in a folder. Signatures are checked.
#
# UBUNTU_ARCHIVE is a mirror of Ubuntu's archive. For Debian, it is the one that this machine uses.

DEBIAN_KEYS=/usr/share/keyrings/debian-archive-keyring.gpg
UBUNTU_ARCHIVE=${UBUNTU_ARCHIVE:-http://archive.ubuntu.com/ubuntu}

# Prints the mirror of archive $1, debian or debian-security, that this machine's apt uses; nothing
# if it uses none.
mirror() {
	# shellcheck disable=SC2016 # apt's variable
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
		grep -m 1 -E "/$1/?\$" | sed 's|/$||' || true
}

# Prints that mirror, or Debian's own.
archive() {
	local uri
	uri=$(mirror "$1")
	echo "${uri:-http://deb.debian.org/$1}"
}

# The way to the network that apt is configured to take is debootstrap's, too.
use_proxy() {
	if command -v apt-config >/dev/null; then
		eval "$(apt-config shell http_proxy Acquire::http::Proxy)"
	fi
	[ -z "${http_proxy:-}" ] || export http_proxy
}

# Makes apt work in a folder, with some suites of an archive. From this machine's configuration it
# takes only how to reach archives, such as proxies. The pin makes apt choose the newest version of
# several suites, which the default for backports does not. $architecture chooses packages of
# another architecture; $types is "deb deb-src" for sources, too.
configure_apt() { # FOLDER URI KEYS SUITE...
	local home="$1" uri="$2" keys="$3" suite type
	shift 3
	mkdir -p "$home/lists/partial" "$home/archives/partial" "$home/none"
	: >"$home/status"
	for suite in "$@"; do
		for type in ${types:-deb}; do
			echo "$type [signed-by=$keys] $uri $suite main"
		done
	done >"$home/sources.list"
	printf 'Package: *\nPin: release *\nPin-Priority: 500\n' >"$home/preferences"
	set -- "${architecture:-$(dpkg --print-architecture)}"
	{
		apt-config dump Acquire | grep -v -e IndexTargets -e '^Acquire "";'
		printf '%s;\n' "Dir::State \"$home\"" "Dir::State::status \"$home/status\"" \
			"Dir::Cache \"$home\"" "Dir::Cache::pkgcache \"\"" "Dir::Cache::srcpkgcache \"\"" \
			"Dir::Etc::sourcelist \"$home/sources.list\"" "Dir::Etc::preferences \"$home/preferences\"" \
			"Dir::Etc::parts \"$home/none\"" "Dir::Etc::sourceparts \"$home/none\"" \
			"Dir::Etc::preferencesparts \"$home/none\"" "APT::Architecture \"$1\"" \
			"APT::Architectures \"$1\"" 'APT::Sandbox::User ""' \
			'Acquire::Languages "none"' 'Acquire::Retries "2"'
	} >"$home/apt.conf"
	export APT_CONFIG="$home/apt.conf"
	apt-get -qq update -o APT::Update::Error-Mode=any
}

# Fetches the keys of Ubuntu's archive, which are in a package of Debian's, into FOLDER/keys.gpg.
fetch_ubuntu_keys() ( # FOLDER
	set -e
	configure_apt "$1" "$(archive debian)" "$DEBIAN_KEYS" trixie
	cd "$1"
	rm -rf tree ./*.deb
	apt-get -qq download ubuntu-keyring
	dpkg -x ./*.deb tree
	mv tree/usr/share/keyrings/ubuntu-archive-keyring.gpg keys.gpg
	rm -rf tree lists archives ./*.deb
)
