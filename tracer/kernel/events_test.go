package kernel

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// Flags of bpf_ringbuf_output.
const noWakeup, forceWakeup = 1, 2

// A sender sends events that are numbers, into the ring buffer of a kernel.
type sender struct {
	t *testing.T
	*Kernel
}

func (s sender) send(number, flags int32) {
	s.t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SocketFilter, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R1, number),
			asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
			asm.LoadMapPtr(asm.R1, s.Events.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -8),
			asm.Mov.Imm(asm.R3, 8),
			asm.Mov.Imm(asm.R4, flags),
			asm.FnRingbufOutput.Call(),
			asm.Return(),
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	defer program.Close()
	result, err := program.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
	if err != nil || result != 0 {
		s.t.Fatalf("send %d: result %d, %v", number, result, err)
	}
}

// handled are the numbers that have been handled, in their order.
type handled struct {
	mu      sync.Mutex
	numbers []int32
}

func (h *handled) add(raw []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.numbers = append(h.numbers, int32(binary.NativeEndian.Uint64(raw)))
}

// are reports whether the numbers from 0 to n-1 have been handled, and no other.
func (h *handled) are(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, number := range h.numbers {
		if number != int32(i) {
			return false
		}
	}
	return len(h.numbers) == n
}

func TestEventReader(t *testing.T) {
	tracertest.NeedsRoot(t)
	k := tracertest.Must(Load(Config{MaxLive: 1 << 10, MaxStacks: 1 << 10, MaxFaults: 1 << 10}))(t)
	defer k.Close()
	for _, c := range []struct {
		name    string
		flags   []int32
		flushes bool
	}{
		{"an urgent event wakes it", []int32{forceWakeup}, false},
		{"it looks again", []int32{forceWakeup, noWakeup}, false},
		{"it is woken again", []int32{noWakeup, forceWakeup, noWakeup, forceWakeup}, false},
		{"a flush takes events that wake nobody", []int32{noWakeup, noWakeup}, true},
		{"a flush after a wakeup", []int32{forceWakeup, noWakeup}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got handled
			r := tracertest.Must(k.ReadEvents(got.add))(t)
			for i, flags := range c.flags {
				sender{t, k}.send(int32(i), flags)
			}

			if c.flushes {
				r.Flush()
				if !got.are(len(c.flags)) {
					t.Errorf("after the flush: %v", got.numbers)
				}
			} else {
				tracertest.Eventually(t, "all are handled", func() bool {
					return got.are(len(c.flags))
				})
			}
			tracertest.NoError(t, r.Close())
			r.Flush() // returns
		})
	}
}
