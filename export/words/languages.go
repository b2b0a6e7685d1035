package words

import (
	"cmp"
	"path"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// A language is the language of a runtime, and the ways to show its functions.
type language struct {
	name, remedy string
	// more shows the functions that have no name although the runtime lists others.
	more string
	// heap names the memory that the runtime maps for objects, and step shows which of them become
	// more. Where they are empty, the name of the language is in their place.
	heap, step string
}

// languages are the runtimes' languages, and their ways to show functions, of the runtimes' own
// manuals. %d is the PID.
var languages = map[growth.Runtime]language{
	growth.RuntimeNode: {
		"JavaScript", "node --perf-basic-prof shows them",
		"--interpreted-frames-native-stack --no-turbo-inlining", "V8's heap",
		"compare two heap snapshots in Chrome's DevTools: node --heapsnapshot-signal=SIGUSR2",
	},
	growth.RuntimeDeno: {
		"JavaScript", "deno --v8-flags=--perf-basic-prof shows them", "", "V8's heap",
		"compare two heap snapshots in Chrome's DevTools: deno run --inspect",
	},
	growth.RuntimeJava: {
		"Java", "-XX:+PreserveFramePointer, then jcmd %d Compiler.perfmap",
		"jcmd %d Compiler.perfmap again, once compiled", "the JVM's heap or metaspace",
		"compare class histograms, minutes apart: jcmd %d GC.class_histogram",
	},
	growth.RuntimeDotnet: {
		"C#", "DOTNET_PerfMapEnabled=1 in its environment shows them", "", ".NET's heap",
		"compare two heap dumps, minutes apart: dotnet-gcdump collect -p %d",
	},
	growth.RuntimeErlang: {
		"Erlang", "erl +JPperf true shows them", "", "",
		"see which of its parts grows, some minutes apart: erlang:memory()",
	},
	growth.RuntimeJulia: {
		"Julia", "ENABLE_JITPROFILING=1 in its environment shows them", "", "",
		"compare two heap snapshots, some minutes apart: Profile.take_heap_snapshot()",
	},
	growth.RuntimeLua: {
		name: "Lua", remedy: "LuaJIT built with -DLUAJIT_USE_PERFTOOLS shows them",
	},
	growth.RuntimePerl: {name: "Perl", remedy: "its module Devel::MAT shows what its heap keeps"},
	growth.RuntimePHP:  {name: "PHP", remedy: "its extension memprof has the lines"},
	growth.RuntimeR:    {name: "R", remedy: "Rprofmem() has the calls"},
	growth.RuntimeRuby: {
		"Ruby", "ObjectSpace.trace_object_allocations has the lines", "", "",
		"compare two heap dumps, some minutes apart: ObjectSpace.dump_all",
	},
}

// heapText names the memory that a runtime maps for objects.
func heapText(r growth.Runtime) string {
	return cmp.Or(languages[r].heap, languages[r].name+"'s heap")
}

// languageStep is how a runtime shows what keeps its objects, in a process.
func languageStep(r growth.Runtime, pid int) string {
	text := cmp.Or(languages[r].step,
		"find the table or cache of its "+languages[r].name+" code that grows")

	return strings.ReplaceAll(text, "%d", strconv.Itoa(pid))
}

// symbolsText says which file has no symbols, and the way to get them.
func symbolsText(l summary.Limitation) string {
	text := "no symbols of " + path.Base(l.File) + ": "

	switch {
	case l.Package != "":
		return text + "the package " + l.Package + " has them"
	case l.Manager == growth.ManagerDnf:
		return text + "dnf debuginfo-install PACKAGE (rpm -qf names it)"
	case l.Manager == growth.ManagerZypper:
		return text + "zypper in PACKAGE-debuginfo (rpm -qf names it)"
	case growth.IsOwnModule(l.File):
		return text + "a build with -g that is not stripped has them"
	}

	return text + "its debug package, or a build with -g, has them"
}

// languageText says which functions have no names, and the way to see them.
func languageText(l summary.Limitation, pid int) string {
	language := languages[l.Runtime]

	text := "no names of " + language.name + ": " + language.remedy
	if l.IsListed && language.more != "" {
		text = "more names of " + language.name + ": " + language.more
	}

	return strings.ReplaceAll(text, "%d", strconv.Itoa(pid))
}
