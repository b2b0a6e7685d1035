package main

import (
	"fmt"
	"path/filepath"
)

// A workload is a trainer, or a program in place of one; see testdata/peers/peer.py.
type workload struct {
	name    string
	command []string // in the folder of testdata/peers
	source  string   // the file with the line that leaks
	// function has the line that leaks, and cache fills the cache. They are set for a C program,
	// of which tools report no lines.
	function, cache string
	about           string
}

var workloads = []workload{
	{
		name: "dispatch", command: []string{"python3", "dispatch.py"}, source: "dispatch.py",
		about: "a small net whose time goes into dispatching operators",
	},
	{
		name: "images", command: []string{"python3", "images.py"}, source: "images.py",
		about: "pictures that Pillow decodes and augments",
	},
	{
		name: "compile", command: []string{"python3", "compiled.py"}, source: "compiled.py",
		about: "a net compiled by torch.compile",
	},
	{
		name: "recompile", command: []string{"python3", "recompiled.py"}, source: "recompiled.py",
		about: "a net that torch.compile compiles again for each size of its batches",
	},
	{
		name: "loop", command: []string{"./loop"}, source: "loop.c",
		function: "keep_block", cache: "remember_block",
		about: "a C program that does nothing but allocate and free",
	},
}

func (w workload) python() bool { return w.function == "" }

// A way to trace a workload is a tool that attaches to it, or a tool that starts it.
type way struct {
	name, label string
	// long: stretches are longer, because allocscope's defaults sample the heap in bursts.
	long bool
	// attach returns the command that traces a process for some seconds and writes to a folder. The
	// workload begins when the command has printed ready.
	attach func(t tools, pid, seconds int, folder string) []string
	ready  string
	// wrap returns the command that starts a workload with the tool, in the Debian folder.
	wrap func(command []string, folder string) []string
	// python: the tool is only for Python programs.
	python bool
	// returns: the workload must return to the tool at its end.
	returns bool
	// read returns the tool's report.
	read func(r reporter) (report, error)
}

// tools are the paths of commands.
type tools struct{ allocscope, memleak string }

var ways = []way{
	allocscope("default", "**allocscope, the defaults**", true),
	allocscope("every", "allocscope `--interval 1 --overhead off`", false,
		"--interval", "1", "--overhead", "off"),
	allocscope("full", "allocscope `--overhead off`", false, "--overhead", "off"),
	allocscope("kernel", "allocscope `--sources mapping,fault,step`", false,
		"--sources", "mapping,fault,step"),
	{
		name: "run", label: "**allocscope run, the defaults**", long: true,
		wrap: allocscopeRun, read: readAllocscope,
	},
	{
		name: "memleak", label: "libbpf-tools memleak", attach: memleak,
		ready: "Tracing outstanding", read: readMemleak,
	},
	{name: "heaptrack", label: "heaptrack", wrap: heaptrack, read: readHeaptrack},
	{
		name: "memray", label: "memray", wrap: memray(),
		python: true, returns: true, read: readMemray,
	},
	{
		name: "memray-native", label: "memray `--native`", wrap: memray("--native"),
		python: true, returns: true, read: readMemray,
	},
	{
		name: "jemalloc", label: "jemalloc and its profiler instead of glibc, 512 KiB",
		wrap: jemalloc, read: readJemalloc,
	},
}

func allocscope(name, label string, long bool, flags ...string) way {
	attach := func(t tools, pid, seconds int, folder string) []string {
		command := []string{
			t.allocscope, "trace", "--pid", fmt.Sprint(pid),
			"--duration", fmt.Sprintf("%ds", seconds),
			"--output", filepath.Join(folder, traceFolder), "--force",
		}
		return append(command, flags...)
	}
	return way{
		name: name, label: label, long: long, attach: attach,
		ready: "Tracing ", read: readAllocscope,
	}
}

// allocscopeRun runs the copy of the program in the folder of this run, which is the current one.
func allocscopeRun(command []string, folder string) []string {
	return append([]string{
		"./" + programFile, "run", "--output", filepath.Join(folder, traceFolder), "--",
	}, command...)
}

// memleak prints once, at the end. It accepts paths of 31 characters, so that the folder has a link
// to the workload's C library.
func memleak(t tools, pid, seconds int, _ string) []string {
	return []string{
		"stdbuf", "-oL", t.memleak, "-p", fmt.Sprint(pid), "-T", "20", "-O", "./" + libcLink,
		fmt.Sprint(seconds), "1",
	}
}

func heaptrack(command []string, folder string) []string {
	recording := filepath.Join(folder, "heaptrack")
	return append([]string{"heaptrack", "--record-only", "-o", recording}, command...)
}

func memray(flags ...string) func([]string, string) []string {
	return func(command []string, folder string) []string {
		run := []string{
			"python3", "-m", "memray", "run", "-q", "-f", "-o", filepath.Join(folder, memrayFile),
		}
		run = append(run, flags...)
		return append(run, command[1:]...)
	}
}

func jemalloc(command []string, folder string) []string {
	return append([]string{
		"env", "LD_PRELOAD=libjemalloc.so.2",
		"MALLOC_CONF=prof:true,prof_active:true,lg_prof_sample:19,prof_final:true,prof_prefix:" +
			filepath.Join(folder, "jemalloc"),
	}, command...)
}
