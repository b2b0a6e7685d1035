package summary

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/growth"
)

// IsUserCode reports whether a frame, as profile.FrameText writes it, is in a source file that is
// neither installed nor generated.
func IsUserCode(frame string) bool {
	m := profile.FrameWithLine.FindStringSubmatch(frame)
	return m != nil && growth.IsUserFile(m[2])
}

// IsOwnNative reports whether a frame is native code of the program itself, with a name, and does
// more than to allocate for its caller.
func IsOwnNative(frame string) bool {
	f, ok := nativeFrame(frame)
	return ok && f.HasName() && f.IsOwnNative() && !growth.IsAllocationWrapper(f.Function)
}

// nativeFrame reads a frame of native code without a source line: "grow (/app/libx.so)", or of
// generated code: "put ([anonymous])".
func nativeFrame(frame string) (f growth.Frame, ok bool) {
	if name, isGenerated := strings.CutSuffix(frame, " ("+growth.ModuleAnonymous+")"); isGenerated {
		module := &growth.Module{Path: growth.ModuleAnonymous}
		return growth.Frame{Function: name, Module: module}, true
	}
	name, file, ok := strings.Cut(strings.TrimSuffix(frame, ")"), " (/")
	if !ok || profile.FrameWithLine.MatchString(frame) {
		return growth.Frame{}, false
	}
	return growth.Frame{Function: name, Module: &growth.Module{Path: "/" + file}}, true
}

// HasName is false of a frame without a symbol, which reads "lib.so+0x1234".
func HasName(frame string) bool {
	name, _, _ := strings.Cut(frame, " (/")
	f := growth.Frame{Function: name}
	return f.HasName()
}

// UserFrame returns the frames of a suspect from the allocation site outwards, and where among them
// the user's frame is that most of its growth passes through: of Python, else of the program's own
// native code; -1: there is none.
func (c *Suspect) UserFrame() (chain []string, at int) {
	inner := c.Path
	if len(inner) == 0 || inner[0] != c.Function {
		inner = append([]string{c.Function}, inner...)
	}

	chain = slices.Clone(inner)
	slices.Reverse(chain)
	function := len(chain) - 1
	chain = append(chain, c.Callers...)

	for _, isOwn := range []func(string) bool{IsUserCode, IsOwnNative} {
		if i := slices.IndexFunc(chain[function:], isOwn); i >= 0 {
			return chain, function + i
		}
		for i := function - 1; i >= 0; i-- {
			if isOwn(chain[i]) {
				return chain, i
			}
		}
	}
	return chain, -1
}

// Runtime is the runtime whose code allocates the memory of a suspect: for the user's frame, or
// where there is none. file is its program or library. It is empty where the user's own native code
// or Python allocates.
func (c *Suspect) Runtime() (runtime growth.Runtime, file string) {
	chain, at := c.UserFrame()
	if at >= 0 && IsUserCode(chain[at]) {
		return "", ""
	}
	if at < 0 {
		at = len(chain)
	}
	for _, frame := range chain[:at] {
		f, isNative := nativeFrame(frame)
		if !isNative {
			continue
		}
		if runtime = growth.RuntimeOf(f.Module.Path); runtime != "" {
			return runtime, path.Base(f.Module.Path)
		}
	}
	return "", ""
}

// UnnamedLanguage is the runtime whose code allocates the memory of a suspect, if none of its
// stacks have a function of a user in its language; empty: they have one, or lead through none.
// isListed: other generated code of the runtime has names.
func (c *Suspect) UnnamedLanguage() (runtime growth.Runtime, isListed bool) {
	chain, at := c.UserFrame()
	if at >= 0 && isGenerated(chain[at]) {
		return "", false
	}
	for _, frame := range chain {
		f, isNative := nativeFrame(frame)
		switch {
		case !isNative:
			isListed = isListed || strings.Contains(frame, " (node:")
		case f.Module.Path == growth.ModuleAnonymous:
			isListed = isListed || f.HasName()
		}
	}
	runtime, _ = c.Runtime()
	return runtime, isListed
}

// UnnamedFile is the file without symbols in which a function would have a name in place of an
// address: the user's own native code, else the library that it calls, or that allocates where
// there is no frame of the user. It is empty where there is none.
func (c *Suspect) UnnamedFile() string {
	chain, at := c.UserFrame()
	shown := c.Function
	if at >= 0 {
		chain = chain[:at]
		shown = CalleeOf(chain)
	}

	if OwnNative(chain) == "" {
		isOwn := func(frame string) bool {
			file := unnamedFileOf(frame)
			return file != "" && growth.IsOwnModule(file)
		}
		if i := slices.IndexFunc(chain, isOwn); i >= 0 {
			return unnamedFileOf(chain[i])
		}
	}
	return unnamedFileOf(shown)
}

// unnamedFileOf is the file of a frame that has no name; empty: it has one, or is in no file.
func unnamedFileOf(frame string) string {
	f, isNative := nativeFrame(frame)
	if !isNative || f.HasName() || !strings.HasPrefix(f.Module.Path, "/") ||
		growth.IsAllocatorFunction(f.Function) {
		return ""
	}
	return f.Module.Path
}

// generatedSource matches source files of languages whose code a runtime generates.
var generatedSource = regexp.MustCompile(`\.([cm]?[jt]sx?|java|kt|scala|cs|fs|exs?|erl|jl|lua)$`)

// isGenerated reports whether a frame is of generated code.
func isGenerated(frame string) bool {
	f, isNative := nativeFrame(frame)
	return isNative && (f.Module.Path == growth.ModuleAnonymous ||
		generatedSource.MatchString(f.Module.Path))
}

// OwnNative is the program's own native function nearest to the allocation site, among the frames
// within one of Python; empty: there is none.
func OwnNative(inner []string) string {
	if i := slices.IndexFunc(inner, IsOwnNative); i >= 0 {
		return inner[i]
	}
	return ""
}

// CalleeOf is the library's function that the user's code calls: the outermost of the frames within
// it that is not the program's own and has a name, else the outermost. It is empty where there is
// none.
func CalleeOf(inner []string) string {
	first := ""
	for _, frame := range slices.Backward(inner) {
		native, ok := nativeFrame(frame)
		switch {
		case IsUserCode(frame), ok && growth.IsOwnModule(native.Module.Path):
		case HasName(frame):
			return frame
		case first == "":
			first = frame
		}
	}
	return first
}

// isMost reports whether a suspect explains half of the growth or more.
func (c *Suspect) isMost() bool { return c.Share != nil && *c.Share >= 0.5 }

// extension is the name of the native library that allocates for the user's Python code: the user's
// own, else the one that it calls directly; empty: there is none.
func (c *Suspect) extension() string {
	chain, at := c.UserFrame()
	if at < 0 {
		return ""
	}
	outermost := OwnNative(chain[:at])
	for _, frame := range slices.Backward(chain[:at]) {
		if outermost == "" && !IsUserCode(frame) {
			outermost = frame
		}
	}

	f, ok := nativeFrame(outermost)
	if !ok {
		return ""
	}
	library := path.Base(f.Module.Path)
	if !strings.HasSuffix(library, ".so") || strings.HasPrefix(library, "libc.") {
		return ""
	}
	return library
}
