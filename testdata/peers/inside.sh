#!/bin/sh
# Runs a command inside the folder that debian.sh prints, with this system's /proc, /sys and /dev, which no other process sees there.
#
#     inside.sh FOLDER COMMAND...
set -eu
PATH=$PATH:/usr/sbin:/sbin # of chroot
# shellcheck disable=SC2016 # the inner shell's variables
exec unshare --mount --propagation private sh -euc '
	for folder in proc sys dev; do
		mount --rbind "/$folder" "$0/$folder"
	done
	exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"' "$@"
