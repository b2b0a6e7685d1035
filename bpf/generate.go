// Package bpf holds the kernel side of allocscope: C sources by subject, and the objects and Go types that bpf2go makes
// of them. `make generate` runs it; the results are committed, so that a build needs no clang.
package bpf

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -tags linux -target amd64,arm64 -no-global-types -type call_form -type probe_cookie -type target_state -type counter -type allocation_kind -type address -type allocation -type fault -type tally_key -type tally -type word_kind -type stack_end -type python_error -type stack -type rule_kind -type fp_rule -type leaf_register -type rule -type table_header -type mapping_kind -type mapping -type python_style -type code -type code_range -type python -type step_count -type notice_kind -type notice -output-stem allocscope Kernel allocscope.c -- -O2 -g -Wall -Werror -mcpu=v3 -Iheaders
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -tags linux -target amd64,arm64 -no-global-types -type arithmetic -output-stem selftest -output-suffix _test selftest selftest.c -- -O2 -g -Wall -Werror -mcpu=v3 -Iheaders
