package stack

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

// TestNamerEndedProcess names a stack when its process is gone, by a debug file in the process's own
// root directory.
func TestNamerEndedProcess(t *testing.T) {
	tracertest.NeedsRoot(t) // chroot(2)
	root := t.TempDir()
	program := filepath.Join(root, "program")
	tracertest.Run(t, "cp", tracertest.Build(t, "leak.c", "-pthread", "-static", "-no-pie",
		"-Wl,--build-id=0x0123456789"), program)
	function := tracertest.Symbols(t, program, "")["leak_here"]

	folder := filepath.Join(root, "usr/lib/debug/.build-id/01")
	tracertest.NoError(t, os.MkdirAll(folder, 0o755))
	tracertest.Run(t, "objcopy", "--only-keep-debug", program, filepath.Join(folder, "23456789.debug"))
	tracertest.Run(t, "strip", program)

	command := exec.Command("/program")
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	target := tracertest.StartCommand(t, command)
	target.Await("ready")
	p := tracertest.Must(process.Open(target.PID()))(t)
	defer p.Close()
	maps := tracertest.Must(p.Maps())(t)

	n := NewNamer(p, symbol.NewDebugFiles(), false, nil)
	defer n.close()
	n.setMappings(maps, 0)
	target.Process.Kill()
	target.Wait()

	if got := names(n, wordOf(bpf.WordNative, function)); len(got) != 1 || got[0] != "leak_here" {
		t.Errorf("%q at %#x, which nm calls leak_here", got, function)
	}
}
