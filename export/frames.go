package export

import (
	"fmt"
	"slices"

	"github.com/allocscope/allocscope/growth"
)

// framesOf is the frames of a stack, leaf first, with a made-up one where the stack is cut or was not kept.
func framesOf(s *growth.Stack) []growth.Frame {
	switch {
	case len(s.Frames) == 0 && s.Truncated == "":
		return []growth.Frame{{Function: "[stack unknown]"}}
	case len(s.Frames) == 0:
		return []growth.Frame{{Function: fmt.Sprintf("[stack not kept: %s]", s.Truncated)}}
	case s.Truncated == "":
		return s.Frames
	}
	cut := growth.Frame{Function: fmt.Sprintf("[truncated: %s]", s.Truncated)}
	return append(slices.Clip(s.Frames), cut)
}

// frameText is a frame in words: "leak (leak.c:12)", or the module where the source is unknown, or no more than the name.
func frameText(f growth.Frame) string {
	switch {
	case f.File != "" && f.Line > 0:
		return fmt.Sprintf("%s (%s:%d)", f.Function, f.File, f.Line)
	case f.File != "":
		return fmt.Sprintf("%s (%s)", f.Function, f.File)
	case f.Module != nil:
		return fmt.Sprintf("%s (%s)", f.Function, f.Module.Path)
	}
	return f.Function
}

// StackText is a stack in words, leaf first, one line a frame, without the frames of the allocator itself.
func StackText(s *growth.Stack) []string {
	frames := growth.WithoutAllocator(framesOf(s))
	lines := make([]string, len(frames))
	for i, f := range frames {
		lines[i] = frameText(f)
	}
	return lines
}
