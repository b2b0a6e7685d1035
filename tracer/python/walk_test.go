package python

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/bpf"
)

// A walker follows an interpreter's structures by what Find says of them, as the kernel side does.
type walker struct {
	t      *testing.T
	memory Memory
	kernel bpf.KernelPython
}

// limit bounds each list.
const limit = 1000

func (w walker) pointer(address uint64) uint64 {
	w.t.Helper()
	value, err := readPointer(w.memory, address)
	if err != nil {
		w.t.Fatal(err)
	}
	return value
}

// threads gives the frames of all threads of all interpreters.
func (w walker) threads() (threads []shownThread) {
	k := w.kernel
	for i, interpreter := 0, w.pointer(k.Interpreters); interpreter != 0; i++ {
		thread := w.pointer(interpreter + uint64(k.InterpreterThreads))
		for ; thread != 0; i++ {
			threads = append(threads, shownThread{w.pointer(thread + uint64(k.ThreadKey)), w.frames(thread)})
			thread = w.pointer(thread + uint64(k.ThreadNext))
		}
		if i > limit {
			w.t.Fatal("no end of threads")
		}
		interpreter = w.pointer(interpreter + uint64(k.InterpreterNext))
	}
	return threads
}

// frames gives the frames of a thread state, innermost first, without those that the interpreter makes for itself.
func (w walker) frames(thread uint64) (frames []shownFrame) {
	k := w.kernel
	frame := w.pointer(thread + uint64(k.ThreadFrame))
	if k.ThreadFrameIndirect != noIndirection && frame != 0 {
		frame = w.pointer(frame + uint64(k.ThreadFrameIndirect))
	}
	ended := true // the last frame looked at ends a run of the loop
	for ; frame != 0; frame = w.pointer(frame + uint64(k.FrameBack)) {
		var entry [1]byte
		if err := w.memory.ReadMemory(frame+uint64(k.FrameEntry), entry[:]); err != nil {
			w.t.Fatal(err)
		}
		ended = k.Style == bpf.KernelPythonStylePYTHON_OBJECTS || entry[0] == 1
		if k.Style == bpf.KernelPythonStylePYTHON_ENTRY_FRAME {
			if ended = entry[0] >= k.FirstEntryOwner; ended {
				continue
			}
		}
		const tags = 7 // of 3.14's _PyStackRef
		code := w.pointer(frame+uint64(k.FrameCode)) &^ tags
		frames = append(frames, shownFrame{Code: code, Instruction: w.instruction(frame, code)})
		if len(frames) > limit {
			w.t.Fatal("no end of frames")
		}
	}
	if !ended {
		w.t.Error("the outermost frame does not end a run of the evaluation loop")
	}
	return frames
}

// instruction is the offset in the bytecode at which a frame stands.
func (w walker) instruction(frame, code uint64) int {
	k := w.kernel
	at := w.pointer(frame + uint64(k.FrameInstruction))
	if k.Style == bpf.KernelPythonStylePYTHON_OBJECTS {
		return int(int32(at)) * int(k.InstructionScale)
	}
	return int(at - code - uint64(k.CodeBytes))
}

// mustShow compares what is found with what the interpreter shows.
func (w walker) mustShow(r report) {
	w.t.Helper()
	found := w.threads()
	for _, thread := range append(r.Threads, shownThread{Frames: r.Sub}) {
		if !slices.ContainsFunc(found, func(f shownThread) bool { return sameThread(f, thread) }) {
			w.t.Errorf("no thread %#x with frames %v among\n%s", thread.Key, thread.Frames, list(found))
		}
	}
}

func sameThread(found, shown shownThread) bool {
	return (found.Key == shown.Key || shown.Key == 0) && slices.EqualFunc(found.Frames, shown.Frames, func(f, s shownFrame) bool {
		return f.Code == s.Code && (f.Instruction == s.Instruction || s.Instruction < 0)
	})
}

func list(threads []shownThread) (text string) {
	for _, t := range threads {
		text += fmt.Sprintf("%#x %v\n", t.Key, t.Frames)
	}
	return text
}

// mustName reads every code object that the interpreter shows.
func (w walker) mustName(r report, layout CodeLayout) {
	w.t.Helper()
	for _, thread := range append(r.Threads, shownThread{Frames: r.Sub}) {
		for _, frame := range thread.Frames {
			code, err := ReadCode(w.memory, frame.Code, layout)
			if err != nil {
				w.t.Errorf("%s: %v", frame.Name, err)
				continue
			}
			qualified := code.Function
			if layout.QualifiedName != 0 {
				plain := layout
				plain.QualifiedName = 0
				if code, err = ReadCode(w.memory, frame.Code, plain); err != nil {
					w.t.Error(err)
					continue
				}
			}
			if code.Function != frame.Name || len(qualified) < len(frame.Name) {
				w.t.Errorf("%s is called %s, %s", frame.Name, code.Function, qualified)
			}
		}
	}
}

// mustTrace finds the interpreter of a process and follows it.
func mustTrace(t *testing.T, memory Memory, found *Interpreter, r report) {
	t.Helper()
	if found.Version != r.Version {
		t.Errorf("version %s, want %s", found.Version, r.Version)
	}
	if len(r.Threads) != 9 || len(r.Sub) < 3 {
		t.Fatalf("the program shows %d threads and %d frames of a sub-interpreter", len(r.Threads), len(r.Sub))
	}
	w := walker{t, memory, found.Kernel}
	w.mustShow(r)
	w.mustName(r, found.Code)
}

// A fakeMemory is some memory from an address on.
type fakeMemory struct {
	start uint64
	bytes []byte
}

func (m fakeMemory) ReadMemory(address uint64, buffer []byte) error {
	if address < m.start || address-m.start > uint64(len(m.bytes)) || copy(buffer, m.bytes[address-m.start:]) < len(buffer) {
		return fmt.Errorf("no memory at %#x", address)
	}
	return nil
}

func (m fakeMemory) put(address, value uint64) {
	binary.LittleEndian.PutUint64(m.bytes[address-m.start:], value)
}
