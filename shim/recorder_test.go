package shim

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
)

// A note is one of the library, as readelf shows it.
type note struct {
	provider, name       string
	address, semaphore   uint64
	arguments            string
	offset, semaphoreOff uint64 // in the file
}

var notePattern = regexp.MustCompile(`Provider: (\S+)\s+Name: (\S+)\s+` +
	`Location: 0x(\w+), Base: 0x(\w+), Semaphore: 0x(\w+)\s+Arguments:([^\n]*)`)

// notesOf reads the notes of a file with binutils.
func notesOf(t testing.TB, path string) (notes []note) {
	t.Helper()
	out, err := exec.Command("readelf", "--notes", "--wide", path).CombinedOutput()
	if err != nil {
		t.Fatalf("readelf: %v\n%s(apt-get install binutils)", err, out)
	}
	file := tracertest.Must(elf.Open(path))(t)
	defer file.Close()

	for _, m := range notePattern.FindAllStringSubmatch(string(out), -1) {
		n := note{provider: m[1], name: m[2], address: hex(t, m[3]), semaphore: hex(t, m[5])}
		n.arguments = string(bytes.TrimSpace([]byte(m[6])))
		if base := file.Section(".stapsdt.base"); base.Addr != hex(t, m[4]) {
			t.Fatalf("base %s of note %s: .stapsdt.base is at %#x", m[4], n.name, base.Addr)
		}
		n.offset = offsetOf(t, file, n.address, elf.PF_X)
		n.semaphoreOff = offsetOf(t, file, n.semaphore, elf.PF_W)
		notes = append(notes, n)
	}
	return notes
}

func hex(t testing.TB, digits string) uint64 {
	t.Helper()
	value := tracertest.Must(strconv.ParseUint(digits, 16, 64))(t)
	return value
}

// offsetOf returns where an address of a segment lies in the file.
func offsetOf(t testing.TB, file *elf.File, address uint64, flag elf.ProgFlag) uint64 {
	t.Helper()
	for _, p := range file.Progs {
		isIn := address >= p.Vaddr && address < p.Vaddr+p.Filesz
		if p.Type == elf.PT_LOAD && isIn && p.Flags&flag != 0 {
			return address - p.Vaddr + p.Off
		}
	}
	t.Fatalf("no segment %v of the file has %#x", flag, address)
	return 0
}

// kind is the probe of an event.
type kind uint32

const (
	allocated kind = iota + 1
	freed
	started
)

// An event is one hit of a probe. The BPF program fills it.
type event struct {
	Kind           kind
	PID            uint32
	Object         uint64
	Size, Weighted uint64
}

// A recorder has a copy of the library and records the hits of its probes, in every process.
type recorder struct {
	t       testing.TB
	path    string
	notes   map[string][]note
	binary  *link.Executable
	events  *ebpf.Map
	reader  *ringbuf.Reader
	nothing *ebpf.Program
}

// newRecorder attaches to the probes of a new copy of the library.
func newRecorder(t testing.TB) *recorder {
	t.Helper()
	r := newIdle(t)
	r.probe("alloc", r.program(allocated))
	r.probe("free", r.program(freed))
	r.probe("start", r.program(started))
	return r
}

// newIdle makes a copy of the library to which no probe is attached.
func newIdle(t testing.TB) *recorder {
	t.Helper()
	tracertest.NeedsRoot(t)
	folder := tracertest.Must(filepath.Abs(t.TempDir()))(t)
	library, err := Write(folder)
	tracertest.NoError(t, err)
	t.Cleanup(func() { library.Close() })
	path := library.Name()

	r := &recorder{t: t, path: path, notes: make(map[string][]note)}
	for _, n := range notesOf(t, path) {
		r.notes[n.name] = append(r.notes[n.name], n)
	}
	r.events, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 128 << 20})
	tracertest.NoError(t, err)
	t.Cleanup(func() { r.events.Close() })
	r.reader = tracertest.Must(ringbuf.NewReader(r.events))(t)
	t.Cleanup(func() { r.reader.Close() })
	r.binary = tracertest.Must(link.OpenExecutable(path))(t)
	r.nothing = r.load(asm.Mov.Imm(asm.R0, 0), asm.Return())
	return r
}

func (r *recorder) load(instructions ...asm.Instruction) *ebpf.Program {
	r.t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, Instructions: instructions, License: "GPL",
	})
	if err != nil {
		r.t.Fatalf("%+v", err)
	}
	r.t.Cleanup(func() { program.Close() })
	return program
}

// program returns a BPF program that puts an event into the ring buffer. A full ring buffer fails
// the test later: see read.
func (r *recorder) program(k kind) *ebpf.Program {
	registers := [3]int16{112, 104, 96} // rdi, rsi, rdx of struct pt_regs
	if runtime.GOARCH == "arm64" {
		registers = [3]int16{0, 8, 16}
	}

	var code asm.Instructions
	for i, register := range registers {
		code = append(code, asm.LoadMem(asm.R2, asm.R1, register, asm.DWord),
			asm.StoreMem(asm.RFP, int16(-24+8*i), asm.R2, asm.DWord))
	}
	code = append(code, asm.FnGetCurrentPidTgid.Call(), asm.RSh.Imm(asm.R0, 32),
		asm.StoreMem(asm.RFP, -28, asm.R0, asm.Word),
		asm.StoreImm(asm.RFP, -32, int64(k), asm.Word),
		asm.LoadMapPtr(asm.R1, r.events.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -32),
		asm.Mov.Imm(asm.R3, 32), asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return())
	return r.load(code...)
}

// probe attaches a program to the first note of a name. The result detaches it.
func (r *recorder) probe(name string, program *ebpf.Program) (detach func()) {
	r.t.Helper()
	return r.attach(r.notes[name][0], program)
}

func (r *recorder) attach(n note, program *ebpf.Program) (detach func()) {
	r.t.Helper()
	attached, err := r.binary.Uprobe(n.name, program, &link.UprobeOptions{
		Address: n.offset, RefCtrOffset: n.semaphoreOff,
	})
	if err != nil {
		r.t.Fatalf("attach %s: %v", n.name, err)
	}

	detach = func() { attached.Close() }
	r.t.Cleanup(detach)
	return detach
}

// mark sets the number of markers, and so the sampling interval. The result takes them away.
func (r *recorder) mark(count int) (detach func()) {
	r.t.Helper()
	var all []func()
	for _, n := range r.notes[IntervalProbe][:count] {
		all = append(all, r.attach(n, r.nothing))
	}
	detach = func() {
		var detaching sync.WaitGroup
		for _, detach := range all {
			detaching.Go(detach)
		}
		detaching.Wait()
	}
	r.t.Cleanup(detach)
	return detach
}

// read returns the events so far, in their order.
func (r *recorder) read() (events []event) {
	r.t.Helper()
	tracertest.NoError(r.t, r.reader.Flush())
	for {
		record, err := r.reader.Read()
		if errors.Is(err, ringbuf.ErrFlushed) {
			return events
		}
		if err != nil {
			r.t.Fatal(err)
		}
		if record.Remaining > r.reader.BufferSize()/2 {
			r.t.Fatal("the ring buffer is too small for this test")
		}

		var e event
		tracertest.Must(binary.Decode(record.RawSample, binary.NativeEndian, &e))(r.t)
		events = append(events, e)
	}
}

// command is a program with the library preloaded, and behind it other libraries.
func (r *recorder) command(behind, path string, arguments ...string) *exec.Cmd {
	command := exec.Command(path, arguments...)
	preload := r.path
	if behind != "" {
		preload += ":" + behind
	}
	command.Env = append(os.Environ(), "LD_PRELOAD="+preload)
	return command
}

// start starts such a program, which answers by lines.
func (r *recorder) start(behind, path string, arguments ...string) *tracertest.Target {
	r.t.Helper()
	return tracertest.StartCommand(r.t, r.command(behind, path, arguments...))
}

// live returns the sizes of the objects of a process that are alive after these events. Nothing is
// left of the program that it was before an exec.
func live(events []event, pid int) map[uint64]uint64 {
	objects := make(map[uint64]uint64)
	for _, e := range events {
		if int(e.PID) != pid {
			continue
		}
		switch e.Kind {
		case started:
			clear(objects)
		case allocated:
			objects[e.Object] = e.Size
		case freed:
			delete(objects, e.Object)
		}
	}
	return objects
}

// baseIn returns where a process has mapped the start of the library.
func (r *recorder) baseIn(pid int) (base uint64) {
	r.t.Helper()
	text := tracertest.Must(os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid)))(r.t)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, r.path) && strings.Contains(line, " 00000000 ") {
			return hex(r.t, strings.Split(line, "-")[0])
		}
	}
	r.t.Fatalf("process %d has not mapped %s", pid, r.path)
	return 0
}
