package words

import (
	"path"
	"strings"
)

// FrameClass tells frames apart, as export.StackText writes them: "root" stands for memory without a holder, or for a stack that is
// cut; "python" and "native" are functions.
func FrameClass(frame string) string {
	if strings.HasPrefix(frame, "[") && strings.HasSuffix(frame, "]") {
		return "root"
	}
	if m := pythonFrame.FindStringSubmatch(frame); m != nil {
		if ext := path.Ext(m[2]); ext == ".py" || ext == ".pyx" || strings.HasPrefix(m[2], "<") {
			return "python"
		}
	}
	return "native"
}
