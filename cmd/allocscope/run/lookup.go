package run

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/run/child"
)

// defaultPath is searched where PATH is not set, as execvp(3) does.
const defaultPath = "/bin:/usr/bin"

// findProgram finds the file of a command, as execvp(3) does. The error has the status of a shell.
func findProgram(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, notExecutable(name, isExecutable(name))
	}

	found := fmt.Errorf("run %s: command not found", name)
	status := child.StatusNotFound
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		err := isExecutable(file)
		if err == nil {
			return file, nil
		}
		if errors.Is(err, os.ErrPermission) {
			found, status = notExecutable(file, err), child.StatusNotExecutable
		}
	}
	return "", &exit.Error{Status: exit.Status(status), Err: found}
}

// isExecutable returns why the user cannot execute a file; nil: they can.
func isExecutable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return &os.PathError{Op: "run", Path: path, Err: unix.EISDIR}
	}
	return os.NewSyscallError("access", unix.Access(path, unix.X_OK))
}

func notExecutable(path string, err error) error {
	status := child.StatusNotExecutable
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrNotExist):
		status = child.StatusNotFound
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner // the message of the system
	}
	return &exit.Error{Status: exit.Status(status), Err: fmt.Errorf("run %s: %w", path, err)}
}

// machines are the architectures for which there is a shim.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// maxInterpreters bounds how many scripts interpret each other, as the kernel does (BINPRM).
const maxInterpreters = 5

// shimObstacle returns why the dynamic linker will not load the shim into a program; empty: it
// will, or the file cannot be read.
func shimObstacle(path string) string {
	for range maxInterpreters {
		interpreter := interpreterOf(path)
		if interpreter == "" {
			break
		}
		path = interpreter
	}

	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	if info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 && os.Geteuid() != 0 {
		return path + " is setuid or setgid: its own allocations are not traced"
	}

	file, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	if file.Machine != machines[runtime.GOARCH] || file.Class != elf.ELFCLASS64 {
		return fmt.Sprintf("%s is a program for %s: its own allocations are not traced", path,
			file.Machine)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return ""
		}
	}
	return path + " is statically linked: its own allocations are not traced (trace it with " +
		"allocscope trace PID)"
}

// interpreterOf returns the program that a script names in its first line; empty: it names none.
func interpreterOf(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()

	const maxLine = 256 // BINPRM_BUF_SIZE
	line, _ := bufio.NewReader(io.LimitReader(file, maxLine)).ReadString('\n')
	rest, ok := strings.CutPrefix(line, "#!")
	if fields := strings.Fields(rest); ok && len(fields) > 0 {
		return fields[0]
	}
	return ""
}
