#!/bin/bash
# Prints the folder of a Debian 13 with PyTorch 2.6 for CUDA, on stand-ins for NVIDIA's libraries:
# its caching allocator is the real one, no GPU is needed, and no kernel computes anything. The
# folder is unpacked once, in five minutes on two busy cores, to 2.3 GB.
#
# Programs run in it by ../peers/inside.sh, and have to lie in it:
#
#     folder=$(testdata/gpu/debian.sh)
#     cp -r testdata/gpu/cases "$folder/root/"
#     testdata/peers/inside.sh "$folder" python3 /root/cases/pinned.py
#
# ALLOCSCOPE_CUDA is where it is kept (default: /var/cache/allocscope/cuda); remove that folder for
# newer packages. The stand-ins are built again when their sources are newer.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin # of ldconfig

here=$(realpath "$(dirname "$0")")
ROOT=${ALLOCSCOPE_CUDA:-/var/cache/allocscope/cuda}/trixie

# Builds in folder $1 an empty package with the names of NVIDIA's packages, which are not free.
# PyTorch's packages depend on them.
build_stand_in_package() {
	mkdir -p "$1/tree/DEBIAN"
	cat >"$1/tree/DEBIAN/control" <<-'EOF'
		Package: cuda-stand-in
		Version: 999
		Architecture: all
		Maintainer: allocscope
		Description: names of NVIDIA's packages
		Provides: libcuda1 (= 999), libcudart12 (= 999), libcublas12 (= 999),
		 libcublaslt12 (= 999), libcufft11 (= 999), libcurand10 (= 999), libcusolver11 (= 999),
		 libcusparse12 (= 999), libnccl2 (= 999), libnvrtc12 (= 999), libnvtoolsext1 (= 999),
		 nvidia-cudnn (= 999)
	EOF
	dpkg-deb --root-owner-group --build "$1/tree" "$1/cuda-stand-in.deb" >/dev/null
}

# Builds NVIDIA's libraries where the folder's loader looks first, unless they are newer than their
# sources.
build_stand_ins() {
	local libraries=$ROOT/usr/lib/x86_64-linux-gnu built=$ROOT/usr/local/lib/libcudart.so.12
	[ -n "$(find "$here/stubs.sh" "$here/cudart.c" "$here/../libcuda.c" -newer "$built" 2>&1)" ] ||
		return 0
	"$here/stubs.sh" "$ROOT/usr/local/lib" "$ROOT/usr/lib/libgloo_cuda.so.0" \
		"$libraries"/lib{c10_cuda,torch_cuda,torch_cuda_linalg,torch_python,caffe2_nvrtc}.so.2.6
	ldconfig -r "$ROOT"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build_stand_in_package "$work"
DEBIAN_COMPONENTS=main,contrib "$here/../release.sh" trixie "$ROOT" "$work/cuda-stand-in.deb" \
	python3-torch-cuda
build_stand_ins
echo "$ROOT"
