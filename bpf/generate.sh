#!/bin/sh
# Compiles the BPF programs and emits the C types, enums, maps and programs to Go.
set -eu
cd "$(dirname "$0")"

# The C types that Go sees.
types="
	call_form probe_cookie probe_costs target_state counter allocation_kind
	address allocation fault
	gpu_space gpu_address gpu_memory gpu_mapping gpu_id gpu_total
	tally_key tally
	operand_kind operand producer_probe
	word_kind stack_end python_error stack
	rule_kind fp_rule leaf_register rule table_header
	mapping_kind mapping
	python_style code code_range python
	step_count
	thread_registers
	table share usage deletion
	event_kind event recent_mapping mapping_pair range release release_flags
	constant
"

# compile STEM IDENT SOURCE SUFFIX TYPE... runs bpf2go for both architectures.
compile() {
	stem=$1 ident=$2 source=$3 suffix=$4
	shift 4
	for type in "$@"; do
		set -- "$@" -type "$type"
		shift
	done
	go tool bpf2go -cc clang-14 -strip llvm-strip-14 -tags linux -target amd64,arm64 -no-global-types "$@" \
		-output-stem "$stem" -output-suffix "$suffix" "$ident" "$source" -- \
		-O2 -g -Wall -Werror -mcpu=v3 -I. -Iheaders -Iinclude
}

# shellcheck disable=SC2086 # a list of words
compile allocscope Kernel allocscope.c "" $types
compile selftest selftest selftest.c _test arithmetic

go run ./internal/shorten Kernel constant allocscope_*_bpfel.go
