package uprobe

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/reexec"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

const userName = "allocscope-test-probes"

// The task of a process that attaches, says so, and detaches when its input is closed.
func init() {
	reexec.Register(userName, func(arguments []string) (status int) {
		pid, _ := strconv.Atoi(arguments[1])
		mode, _ := strconv.Atoi(arguments[2])
		links, err := attachEntry(Mode(mode), pid)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Printf("%d\nattached\n", current.h.pid)
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		closeAll(links)
		fmt.Println("detached")
		return 0
	})
}

// sleeper is a program of which nothing but its end is called again once it sleeps.
const sleeper = "/bin/sleep"

// attachEntry attaches to the first instruction of a sleeping program.
func attachEntry(mode Mode, pid int) ([]link.Link, error) {
	opened, err := os.Open(sleeper)
	if err != nil {
		return nil, err
	}
	file, err := hostile.Own(opened)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	offset, _, err := entryPoint()
	if err != nil {
		return nil, err
	}

	spec := ebpf.ProgramSpec{
		Type: ebpf.Kprobe, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	}
	if mode == Multi {
		spec.AttachType = ebpf.AttachTraceUprobeMulti
	}
	program, err := ebpf.NewProgram(&spec)
	if err != nil {
		return nil, err
	}
	defer program.Close()

	points := []Point{{Name: "entry", Offset: offset}}
	return Attach(Order{Mode: mode, Kind: Entry, PID: pid, Points: points}, file.Path(), program)
}

// entryPoint returns where the entry point is in the file, and the bytes from there.
func entryPoint() (offset uint64, code []byte, err error) {
	file, err := elf.Open(sleeper)
	if err != nil {
		return 0, nil, err
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && p.Vaddr <= file.Entry && file.Entry < p.Vaddr+p.Filesz {
			code = make([]byte, 16)
			_, err = p.ReadAt(code, int64(file.Entry-p.Vaddr))
			return file.Entry - p.Vaddr + p.Off, code, err
		}
	}
	return 0, nil, errors.New("no segment has the entry point")
}

// isProbed reports whether the code in memory differs from the file's.
func isProbed(t *testing.T, pid int) bool {
	t.Helper()
	offset, want, err := entryPoint()
	tracertest.NoError(t, err)
	maps := tracertest.Must(os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid)))(t)
	for line := range strings.Lines(string(maps)) {
		var start, end, from uint64
		var rights string
		_, _ = fmt.Sscanf(line, "%x-%x %s %x", &start, &end, &rights, &from)
		isFile := strings.HasSuffix(strings.TrimSpace(line), "/sleep")
		if !isFile || offset < from || offset >= from+end-start {
			continue
		}

		memory := tracertest.Must(os.Open(fmt.Sprintf("/proc/%d/mem", pid)))(t)
		defer memory.Close()
		got := make([]byte, len(want))
		tracertest.Must(memory.ReadAt(got, int64(start+offset-from)))(t)
		return !bytes.Equal(got, want)
	}
	t.Fatalf("no mapping of %s has its entry point:\n%s", sleeper, maps)
	return false
}

// TestAttach ends each of the two processes that have the links open.
func TestAttach(t *testing.T) {
	tracertest.NeedsRoot(t)
	for _, mode := range []Mode{Single, Multi} {
		t.Run(mode.String(), func(t *testing.T) {
			for name, test := range map[string]func(t *testing.T, u *user){
				"closed":                       testClosed,
				"user is killed":               testUserKilled,
				"holder is killed":             testHolderKilled,
				"signals of a service manager": testHolderSignalled,
			} {
				t.Run(name, func(t *testing.T) { test(t, startUser(t, mode)) })
			}
		})
	}
}

// user is a process that has attached to a sleeper by its holder.
type user struct {
	*tracertest.Target
	holder, sleeper int
}

func startUser(t *testing.T, mode Mode) *user {
	t.Helper()
	u := &user{sleeper: tracertest.Start(t, sleeper, "1000").PID()}
	for !bytes.Contains(stat(u.sleeper), []byte("(sleep) S ")) { // it is mapped, and sleeps
		time.Sleep(time.Millisecond)
	}
	if isProbed(t, u.sleeper) {
		t.Fatal("the sleeper has a breakpoint from its start")
	}

	u.Target = tracertest.StartCommand(t, &exec.Cmd{
		Path: reexec.Executable,
		Args: []string{userName, strconv.Itoa(u.sleeper), strconv.Itoa(int(mode))},
	})
	holder := u.Await("attached")

	u.holder = tracertest.Must(strconv.Atoi(holder[0]))(t)
	if !isProbed(t, u.sleeper) {
		t.Fatal("the sleeper has no breakpoint")
	}
	return u
}

// mustDetach waits until the sleeper has no breakpoint, and the holder has ended.
func (u *user) mustDetach(t *testing.T) {
	t.Helper()
	for isProbed(t, u.sleeper) || !hasEnded(u.holder) {
		time.Sleep(time.Millisecond)
	}
}

// hasEnded reports whether a process has ended, reaped or not.
func hasEnded(pid int) bool {
	said := stat(pid)
	return said == nil || bytes.Contains(said, []byte(") Z "))
}

func stat(pid int) []byte {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // nil: there is no such process
	return text
}

func testClosed(t *testing.T, u *user) {
	u.Say("close")
	u.Await("detached")
	if isProbed(t, u.sleeper) {
		t.Error("detached, and the sleeper has a breakpoint")
	}
	u.mustDetach(t)
}

func testUserKilled(t *testing.T, u *user) {
	tracertest.NoError(t, u.Process.Kill())
	u.mustDetach(t)
}

// The probes outlive their holder.
func testHolderKilled(t *testing.T, u *user) {
	tracertest.NoError(t, unix.Kill(u.holder, unix.SIGKILL))
	for !hasEnded(u.holder) {
		time.Sleep(time.Millisecond)
	}
	if !isProbed(t, u.sleeper) {
		t.Error("the sleeper has no breakpoint once the holder is killed")
	}
	u.Say("close")
	u.Await("detached")
	u.mustDetach(t) // another thread of the holder may end later
}

func testHolderSignalled(t *testing.T, u *user) {
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
		tracertest.NoError(t, unix.Kill(u.holder, signal))
	}
	testClosed(t, u)
}
