package words

import (
	"slices"

	"github.com/allocscope/allocscope/export"
)

// WhereShort is Where for little room: the nearest callers of Python, if there are any; else without the file that the function is in.
func WhereShort(a export.Accumulation) string {
	const most = 3
	if first := slices.IndexFunc(a.Stack, pythonFrame.MatchString); first >= 0 {
		return join(a.Stack[first:min(first+most, len(a.Stack))])
	}
	a.Module = ""
	return Where(a)
}

func join(frames []string) string {
	return Frame(frames[0]) + callersText(frames[1:])
}
