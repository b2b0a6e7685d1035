package tracer

import (
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/unwind"
)

// AwaitTables waits until the files that are mapped now have their unwind tables.
func (s *Session) AwaitTables() { s.tables.Wait(time.Minute) }

// Tables says what the unwind tables hold.
func (s *Session) Tables() unwind.Stats { return s.tables.Stats() }

// Maps are the BPF maps by name.
func (s *Session) Maps() map[string]*ebpf.Map { return s.kernel.Maps }

// Stack gives what is known of a stack ID, once all that the kernel side has told has been read.
func (s *Session) Stack(id uint64) *growth.Stack {
	s.notices.flush()
	return s.list()[0].stacks.get(id)
}

// Programs are the BPF programs by name.
func (s *Session) Programs() map[string]*ebpf.Program { return s.kernel.Programs }

// RereadCodes reads the code objects that the kernel side has told once more, from the process, and tells how many are
// still there by their fingerprints.
func (s *Session) RereadCodes() (there, told int) {
	stacks := s.list()[0].stacks
	stacks.mu.Lock()
	defer stacks.mu.Unlock()
	codes := stacks.namer.codes
	for key, code := range codes.known {
		if code == nil {
			continue
		}
		told++
		if again := codes.read(key); again != nil && again.Function == code.Function {
			there++
		}
	}
	return there, told
}
