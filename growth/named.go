package growth

import (
	"hash/fnv"
	"slices"
	"strconv"
)

// NamedStack is a stack that stands for memory without a holder: names, innermost first, under a root such as
// "[heap: free but resident]". Equal ones have equal IDs.
func NamedStack(pid int, root string, names ...string) *Stack {
	s := &Stack{PID: pid, Root: root}
	hash := fnv.New64a()
	_, _ = hash.Write(strconv.AppendInt(nil, int64(pid), 10)) // never fails, nor do the others
	for _, name := range append(slices.Clip(names), root) {
		_, _ = hash.Write([]byte("\x00" + name))
	}
	for _, name := range names {
		s.Frames = append(s.Frames, Frame{Function: name})
	}
	s.ID = hash.Sum64()
	return s
}

// Under is the stack shown below a root.
func (s *Stack) Under(root string) *Stack {
	moved := *s
	moved.Root = root
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(root))
	moved.ID = s.ID ^ hash.Sum64()
	return &moved
}
