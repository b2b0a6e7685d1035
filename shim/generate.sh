#!/bin/sh
# Compiles the shim for both architectures. The libraries are committed: they have no path, time or
# build ID in them, so that the same compiler makes the same bytes.
#
# Each page of the file is mapped once: no RELRO, and segments on pages of their own. The linker's
# layout maps the semaphores' page a second time, where the kernel would raise them. If it maps code a
# second time, the kernel probes it there, too: a semaphore rises by two, and a probe never goes.
set -eu
cd "$(dirname "$0")"

for target in amd64:x86_64 arm64:aarch64; do
	case $target in
	amd64:*) flags="-mno-red-zone -fcf-protection=none" ;;
	arm64:*) flags="-mno-outline-atomics -mbranch-protection=none" ;;
	esac
	library=allocscope_shim_${target%%:*}.so

	# shellcheck disable=SC2086 # a list of words
	clang-14 --target="${target#*:}-linux-gnu" -std=gnu11 -O2 $flags \
		-Wall -Wextra -Wno-unused-parameter -Werror \
		-ffreestanding -fno-builtin -fno-stack-protector -fno-plt -fPIC -fvisibility=hidden \
		-ftls-model=initial-exec -fasynchronous-unwind-tables -fno-ident \
		-nostdlib -shared -fuse-ld=lld-14 -Wl,--build-id=none,--eh-frame-hdr \
		-Wl,-z,noexecstack,-z,now,-z,norelro,-z,separate-loadable-segments \
		-o "$library" shim.c
	llvm-objcopy-14 --remove-section=.comment "$library"
	chmod 644 "$library"
done
