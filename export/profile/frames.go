package profile

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/allocscope/allocscope/growth"
)

// Frames returns the frames of a stack, leaf first, and then its root. A frame in brackets represents
// the missing part of a truncated or unknown stack.
func Frames(s *growth.Stack) []growth.Frame {
	frames := slices.Clip(s.Frames)
	switch {
	case s.Truncated != "" && len(frames) > 0:
		frames = append(frames, s.TruncatedFrame())
	case s.Truncated != "", s.Root == "" && len(frames) == 0:
		frames = append(frames, s.LostFrame())
	}

	if s.Root != "" {
		frames = append(frames, growth.Frame{Function: s.Root})
	}

	return frames
}

// FrameText writes a frame: "leak (leak.c:12)", with its module where the source is unknown, or
// only the name.
func FrameText(f growth.Frame) string {
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

// FrameWithLine matches a frame with a source line, as FrameText writes it: its function, file and
// line.
var FrameWithLine = regexp.MustCompile(`^(.*) \((.*):(\d+)\)$`)

// StackText writes a stack, leaf first, one line per frame, without the frames of the allocator.
func StackText(s *growth.Stack) []string {
	frames := growth.WithoutAllocator(Frames(s))
	lines := make([]string, len(frames))
	for i, f := range frames {
		lines[i] = FrameText(f)
	}
	return lines
}
