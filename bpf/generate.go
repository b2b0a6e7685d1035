// Package bpf holds the kernel side of allocscope: the C sources of the BPF programs, the objects
// compiled from them, and their types, constants, maps and programs in Go. bpf2go emits the Go
// files, and internal/shorten shortens their names: EVENT_STACK of C's enum event_kind is
// EventStack of type EventKind. `make generate` regenerates all of it; the results are committed,
// so that a build needs no clang.
package bpf

//go:generate ./generate.sh
