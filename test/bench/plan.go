package main

import (
	"fmt"
	"path/filepath"
)

// A program is traced by all tools. It speaks as testdata/peers/peer.py says.
type program struct {
	name    string
	command []string // in the folder of the run
	source  string   // the file with the line that leaks
	// function has the line that leaks, and cache fills the cache. They are set for a C program,
	// of which tools report no lines.
	function, cache string
	about           string
	// peers: tools of others trace it, too.
	peers bool
	// ends: the program does nothing but end. It is measured as a whole.
	ends bool
	bounds
}

// bounds are the most that allocscope may cost, and by how much its rate of the leak may be wrong;
// 0: there is no bound.
type bounds struct {
	slowed    float64 // CPU time added, as a share of the elapsed time; the noise comes on top
	cores     float64
	rateError float64 // as a share; the leak must be named first, too
}

// The storms leak so many bytes a second, beside so many rounds at most.
const (
	stormLeak   = "1048576"
	stormRounds = "20000"
)

// Storms and others of testdata that are compiled in the folder of the run.
const (
	loopProgram  = "./loop"
	stormProgram = "./storms"
	stormPlugin  = "./plugin.so"
)

var (
	stormBounds   = bounds{slowed: 0.03, cores: 0.02, rateError: 0.2}
	trainerBounds = bounds{slowed: 0.03, cores: 0.03} // 3% of one core that works all the time
)

// programs are in the order in which they are measured: short ones come first, for the time that one
// leaves is shared by the next ones.
var programs = []program{
	{name: "true", command: []string{"true"}, ends: true, about: "from its start to its end"},
	storm("start", "starts `true`", bounds{}),
	storm("map", "maps and unmaps 1 MiB", stormBounds),
	storm("brk", "moves the end of the heap", stormBounds),
	storm("fork", "writes to a page that a child shares", stormBounds),
	storm("dlopen", "loads and unloads a library", stormBounds),
	storm("threads", "starts and ends a thread", stormBounds),
	{
		name: "loop", command: []string{loopProgram}, source: "loop.c", peers: true,
		function: "keep_block", cache: "remember_block",
		about: "50,000 pairs of malloc and free", bounds: trainerBounds,
	},
	pytorch("dispatch", "dispatch.py", "a small net: small operators", true),
	pytorch("images", "images.py", "Pillow decodes", true),
	pytorch("compile", "compiled.py", "torch.compile", true),
	pytorch("recompile", "recompiled.py", "torch.compile, again for each size", false),
}

// pytorch is a trainer in testdata/peers.
func pytorch(name, source, about string, peers bool) program {
	return program{
		name: name, command: []string{"python3", source}, source: source, about: about,
		peers: peers, bounds: trainerBounds,
	}
}

// storm is a kind of call that testdata/storms.c makes all the time, beside a leak.
func storm(kind, about string, b bounds) program {
	return program{
		name: kind, command: []string{stormProgram, kind, stormRounds, stormLeak, stormPlugin},
		source: "storms.c", function: "keep_block", about: about, bounds: b,
	}
}

func (p program) python() bool { return p.command[0] == "python3" }

// A tool traces a program: it attaches to it, or it starts it.
type tool struct {
	name, label string
	// own: it is a build of allocscope. old: not the build that is measured, but the one that it is
	// compared with.
	own, old bool
	// extra: it is measured only where it is named.
	extra bool
	// attach returns the command that traces a process for some seconds and writes to a folder. The
	// program begins when the command has printed ready.
	attach func(b binaries, pid, seconds int, folder string) []string
	ready  string
	// inside: the command of attach enters the Debian folder, and has its paths.
	inside bool
	// apart: it attaches to a process of its own, for it may end it or leave traces in it.
	apart bool
	// busy: it can only attach to a program that works.
	busy bool
	// wrap returns the command that starts a program with the tool, in the Debian folder.
	wrap func(command []string, folder string) []string
	// python: the tool is only for Python programs.
	python bool
	// returns: the program must return to the tool at its end.
	returns bool
	// read returns the tool's report.
	read func(r reporter) (report, error)
	// missing says why the tool cannot be had.
	missing string
}

// binaries are the paths of commands. old is empty where there is none to compare with.
type binaries struct{ allocscope, old, memleak string }

// native is the name of the row of a program without a tool.
const native = "native"

var tools = []tool{
	attached("attached", "attached", false),
	launched("launched", "launched", programFile, false),
	attached("attached-old", "attached, old", true),
	launched("launched-old", "launched, old", oldFile, true),
	{
		name: "memleak", label: "memleak", attach: memleak, apart: true,
		ready: "Tracing outstanding", read: readMemleak,
	},
	{name: "heaptrack", label: "heaptrack", wrap: heaptrack, read: readHeaptrack},
	{
		name: "memray", label: "memray run", wrap: memray(), python: true, returns: true,
		read: readMemray,
	},
	{
		name: "memray-attach", label: "memray attach", attach: attachMemray, ready: memrayReady,
		inside: true, apart: true, busy: true, python: true, returns: true, read: readMemray,
	},
	{
		name: "systing", label: "systing",
		missing: "it is not in Debian, nor at a registry that the machine reaches",
	},

	with("full", "`--overhead off`", "--overhead", "off"),
	with("kernel", "`--sources mapping,fault,step`", "--sources", "mapping,fault,step"),
	{
		name: "memray-native", label: "memray `--native`", wrap: memray("--native"), extra: true,
		python: true, returns: true, read: readMemray,
	},
	{
		name: "jemalloc", label: "jemalloc's profiler, 512 KiB", wrap: jemalloc, extra: true,
		read: readJemalloc,
	},
}

// attached is allocscope attached to a program, with the defaults or other flags.
func attached(name, label string, old bool, flags ...string) tool {
	attach := func(b binaries, pid, seconds int, folder string) []string {
		program := b.allocscope
		if old {
			program = b.old
		}
		return append([]string{
			program, "trace", "--pid", fmt.Sprint(pid), "--duration", fmt.Sprintf("%ds", seconds),
			"--no-tui", "--output", filepath.Join(folder, traceFolder),
		}, flags...)
	}
	return tool{
		name: name, label: label, own: true, old: old,
		attach: attach, ready: "Tracing ", read: readAllocscope,
	}
}

// with is allocscope attached with other flags than the defaults.
func with(name, label string, flags ...string) tool {
	t := attached(name, label, false, flags...)
	t.extra = true
	return t
}

// launched runs a build of allocscope that has been copied to the folder of this run, which is the
// current one.
func launched(name, label, file string, old bool) tool {
	wrap := func(command []string, folder string) []string {
		return append([]string{
			"./" + file, "run", "--output", filepath.Join(folder, traceFolder), "--",
		}, command...)
	}
	return tool{name: name, label: label, own: true, old: old, wrap: wrap, read: readAllocscope}
}

// memleak prints once, at the end. It accepts paths of 31 characters, so that the folder has a link
// to the program's C library.
func memleak(b binaries, pid, seconds int, _ string) []string {
	return []string{
		"stdbuf", "-oL", b.memleak, "-p", fmt.Sprint(pid), "-T", "20", "-O", "./" + libcLink,
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

// memrayReady is printed when lldb has made the program load memray.
const memrayReady = "memray is attached"

// attachMemray records until the program ends. lldb finds the program's files in its own mount
// namespace alone.
func attachMemray(_ binaries, pid, seconds int, folder string) []string {
	return []string{
		"nsenter", "--target", fmt.Sprint(pid), "--mount", "--root", "--wd=/",
		"env", "-i", "HOME=/root", "PATH=/usr/bin:/bin", "sh", "-c",
		`python3 -m memray attach --method lldb -f -o "$0" "$1" && echo ` + memrayReady +
			` && exec sleep "$2"`,
		filepath.Join(folder, memrayFile), fmt.Sprint(pid), fmt.Sprint(seconds),
	}
}

func jemalloc(command []string, folder string) []string {
	return append([]string{
		"env", "LD_PRELOAD=libjemalloc.so.2",
		"MALLOC_CONF=prof:true,prof_active:true,lg_prof_sample:19,prof_final:true,prof_prefix:" +
			filepath.Join(folder, "jemalloc"),
	}, command...)
}
