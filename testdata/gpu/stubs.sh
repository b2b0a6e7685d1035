#!/bin/bash
# Builds the stand-ins for NVIDIA's libraries in a folder, for PyTorch's libraries that need them:
#
#     stubs.sh FOLDER LIBRARY...
#
# libcuda.so.1 and libcudart.so.12 have sources. Each function that the given libraries name and no
# source has is a stub: in cuBLAS and NVTX it succeeds and does nothing, elsewhere it returns an
# error. A symbol's version is the name of its library, as in NVIDIA's.
set -euo pipefail

here=$(realpath "$(dirname "$0")")
folder=$1
shift

# Prints "LIBRARY SYMBOL" for each undefined one. NCCL's and the driver's have no version.
undefined() {
	nm -D --undefined-only "$@" | awk '
		$2 ~ /@lib.*\.so\.[0-9]+$/ { split($2, part, "@"); print part[2], part[1] }
		$2 ~ /^nccl[A-Z]/ { print "libnccl.so.2", $2 }
		$2 ~ /^cu[A-Z][A-Za-z0-9_]*$/ { print "libcuda.so.1", $2 }' | sort -u
}

# Prints the names of NVIDIA's libraries that the given ones are linked to.
needed() {
	readelf -d "$@" | sed -n 's/.*(NEEDED).*\[\(lib\(cu\|nccl\|nv\)[^]]*\)\]/\1/p' | sort -u
}

# Prints a function: its declaration, which may be several words, and then its body.
stub() {
	echo "__attribute__((weak)) ${*:1:$#-1} { ${*: -1} }"
}

# Turns symbols into stubs in C, weak ones: a function of the same name in a source replaces them.
stubs() {
	local library=$1 result=1 symbol
	case $library in
	libcublas* | libnvToolsExt*) result=0 ;;
	libcud[an]* | libcudart*) result=801 ;; # not supported
	esac
	while read -r symbol; do
		case $symbol in
		cublasLtMatmulAlgoGetHeuristic) # PyTorch refuses to multiply without an algorithm
			stub "int $symbol(void *a, void *b, void *c, void *d, void *e, void *f, void *g," \
				"int wanted, void *results, int *count)" "*count = 1; return 0;"
			;;
		cudnnGetVersion) stub "unsigned long $symbol(void)" "return 90100;" ;;
		*GetErrorString | *GetErrorName | ncclGetLastError)
			stub "const char *$symbol(void)" 'return "an error of a stand-in";'
			;;
		__cuda* | cudaEvent* | cudaStream* | cudaLaunch* | cudaGraphLaunch | cudaMem[cs]* | \
			cudaDeviceSynchronize | cudaFuncSetAttribute | cudaProfiler*)
			stub "int $symbol(void)" "return 0;"
			;;
		*) stub "int $symbol(void)" "return $result;" ;;
		esac
	done
}

# Builds library $1 of its stubs and its source, if any.
build() {
	local library=$1 source=() version=()
	case $library in
	libcuda.so.*) source=("$here/../libcuda.c" "-DGPU_BYTES=(80ULL << 30)") ;;
	libcudart.so.*) source=("$here/cudart.c") ;;
	esac
	case $library in
	libcuda.so.* | libnccl.so.*) ;;
	*)
		echo "$library { global: *; };" >"$work/versions"
		version=("-Wl,--version-script=$work/versions")
		;;
	esac
	awk -v library="$library" '$1 == library { print $2 }' "$work/undefined" |
		stubs "$library" >"$work/stubs.c"
	gcc -g -O2 -fno-omit-frame-pointer -fno-builtin -shared -fPIC "-Wl,-soname,$library" \
		"${version[@]}" -o "$work/$library" "$work/stubs.c" "${source[@]}"
	mv "$work/$library" "$folder/" # another process may have mapped the old one
}

work=$(mktemp -d -p "$folder")
trap 'rm -rf "$work"' EXIT
undefined "$@" >"$work/undefined"
for library in $(needed "$@"); do
	build "$library"
done
