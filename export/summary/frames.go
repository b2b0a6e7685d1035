package summary

import (
	"path"
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

// UserFrame returns the frames of a suspect from the allocation site outwards, and where among them
// the user's frame is that most of its growth passes through; -1: there is none.
func (c *Suspect) UserFrame() (chain []string, at int) {
	inner := c.Path
	if len(inner) == 0 || inner[0] != c.Function {
		inner = append([]string{c.Function}, inner...)
	}

	chain = slices.Clone(inner)
	slices.Reverse(chain)
	function := len(chain) - 1
	chain = append(chain, c.Callers...)
	for i := function; i < len(chain); i++ {
		if IsUserCode(chain[i]) {
			return chain, i
		}
	}
	for i := function - 1; i >= 0; i-- {
		if IsUserCode(chain[i]) {
			return chain, i
		}
	}
	return chain, -1
}

// CalleeOf is the library's function that the user's code calls: the outermost of the frames within
// it that is not the user's. It is empty where there is none.
func CalleeOf(inner []string) string {
	for _, frame := range slices.Backward(inner) {
		if !IsUserCode(frame) {
			return frame
		}
	}
	return ""
}

// extension is the name of the native library that the user's code calls directly; empty: it calls
// none.
func (c *Suspect) extension() string {
	chain, at := c.UserFrame()
	if at < 0 {
		return ""
	}
	_, file, _ := strings.Cut(strings.TrimSuffix(CalleeOf(chain[:at]), ")"), " (/")
	library := path.Base(file)
	if !strings.HasSuffix(library, ".so") || strings.HasPrefix(library, "libc.") {
		return ""
	}
	return library
}
