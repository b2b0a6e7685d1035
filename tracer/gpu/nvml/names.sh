#!/bin/sh
# Lists the functions of NVML that go-nvml calls, for calls.S.
set -eu
cd "$(dirname "$0")"
{
	echo "/* Made by names.sh. DO NOT EDIT. */"
	cat "$(go list -m -f '{{.Dir}}' github.com/NVIDIA/go-nvml)"/pkg/nvml/*.go |
		grep -o 'C\.nvml[A-Za-z0-9_]*(' | sed 's/^C\.\(.*\)($/NVML(\1)/' | LC_ALL=C sort -u
} >calls.inc
