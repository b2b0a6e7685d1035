package words

import (
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
}

// languages are the runtimes' languages, and their ways to show functions, of the runtimes' own
// manuals. %d is the PID.
var languages = map[growth.Runtime]language{
	growth.RuntimeNode: {
		"JavaScript", "node --perf-basic-prof shows them",
		"--interpreted-frames-native-stack --no-turbo-inlining",
	},
	growth.RuntimeDeno: {"JavaScript", "deno --v8-flags=--perf-basic-prof shows them", ""},
	growth.RuntimeJava: {
		"Java", "-XX:+PreserveFramePointer, then jcmd %d Compiler.perfmap",
		"jcmd %d Compiler.perfmap again, once compiled",
	},
	growth.RuntimeDotnet: {".NET", "DOTNET_PerfMapEnabled=1 in its environment shows them", ""},
	growth.RuntimeErlang: {"Erlang", "erl +JPperf true shows them", ""},
	growth.RuntimeJulia:  {"Julia", "ENABLE_JITPROFILING=1 in its environment shows them", ""},
	growth.RuntimeLua:    {"Lua", "LuaJIT built with -DLUAJIT_USE_PERFTOOLS shows them", ""},
	growth.RuntimePerl:   {"Perl", "its module Devel::MAT shows what its heap keeps", ""},
	growth.RuntimePHP:    {"PHP", "its extension memprof has the lines", ""},
	growth.RuntimeR:      {"R", "Rprofmem() has the calls", ""},
	growth.RuntimeRuby:   {"Ruby", "ObjectSpace.trace_object_allocations has the lines", ""},
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
