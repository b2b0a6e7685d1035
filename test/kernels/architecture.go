package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// An architecture is how qemu emulates a machine of it.
type architecture struct {
	qemu       string
	arguments  []string // beside the common ones; the port of the character device "log"
	parameters string   // of the kernel
	resultPort string   // that port in the machine; gets the output of the jobs
}

// architectures has those that allocscope supports, by Go's names.
//
// One thread emulates everything: /dev/kvm may open and not work, and emulation with more threads
// hangs.
var architectures = map[string]architecture{
	// The processor has no cmpxchg16b, because qemu 7.2 can spoil the flags behind it, and then the
	// kernel panics. Newer kernels allocate the memory of BPF programs with that instruction alone
	// (kmalloc_nolock), unless their allocator is debugged (slab_debug). Kernels do not test the
	// timer (no_timer_check): on a busy machine its ticks come too late, and the test panics.
	amd64: {
		qemu:      "qemu-system-x86_64",
		arguments: []string{"-M", "q35", "-cpu", "max,-cx16", "-serial", "chardev:log"},
		parameters: "console=ttyS0 nokaslr mitigations=off no_timer_check " +
			"slab_debug=F,kmalloc-*",
		resultPort: "/dev/ttyS1",
	},
	// The machine has one serial port of its own. Pointers are signed by qemu's own algorithm: the
	// architecture's takes most of the time.
	arm64: {
		qemu: "qemu-system-aarch64",
		arguments: []string{
			"-M", "virt", "-cpu", "max,pauth-impdef=on", "-device", "pci-serial,chardev=log",
		},
		parameters: "console=ttyAMA0 nokaslr mitigations=off",
		resultPort: "/dev/ttyS0",
	},
}

// Go's names of the architectures.
const (
	amd64 = "amd64"
	arm64 = "arm64"
)

// crossCompilers are Debian's names of the compilers that build for arm64.
var crossCompilers = map[string]string{
	"gcc": "aarch64-linux-gnu-gcc",
	"g++": "aarch64-linux-gnu-g++",
}

// crossBuild builds the programs in a folder for arm64, by the recipes that tracertest.Build has
// left there. The files of the folder are in the one that it returns: some recipes name files that
// others have built, by their paths. Programs that the architecture cannot have, such as 32-bit
// programs of x86, stay away: a test that needs it fails.
func crossBuild(folder string) (before string, err error) {
	before = folder + ".native"
	if err := os.Rename(folder, before); err != nil {
		return "", err
	}

	recipes, err := recipesOf(before)
	if err != nil {
		return "", err
	}
	for _, command := range recipes {
		output := command[slices.Index(command, "-o")+1]
		if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
			return "", err
		}
		out, err := exec.Command(crossCompilers[command[0]], command[1:]...).CombinedOutput()
		if err != nil {
			fmt.Printf("not built for arm64: %s: %v\n%s", strings.Join(command, " "), err, out)
		}
	}
	return before, nil
}

// recipesOf returns the commands that built a folder's programs, in that order.
func recipesOf(folder string) ([][]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*", tracertest.Recipe))
	if err != nil {
		return nil, err
	}
	modified := make(map[string]time.Time)
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		modified[file] = info.ModTime()
	}
	slices.SortFunc(files, func(a, b string) int { return modified[a].Compare(modified[b]) })

	var commands [][]string
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var command []string
		if err := json.Unmarshal(raw, &command); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		commands = append(commands, command)
	}
	return commands, nil
}
