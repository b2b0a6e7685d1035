package tracer

import (
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/tracer/unwind"
)

// AwaitTables waits until the files that are mapped now have their unwind tables.
func (s *Session) AwaitTables() { s.unwinder.tables.Wait(time.Minute) }

// Tables says what the unwind tables hold.
func (s *Session) Tables() unwind.Stats { return s.unwinder.tables.Stats() }

// Programs are the BPF programs by name.
func (s *Session) Programs() map[string]*ebpf.Program { return s.kernel.Programs }
