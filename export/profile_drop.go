package export

import (
	"fmt"
	"regexp/syntax"

	"github.com/google/pprof/profile"
)

// mostCompared bounds the work of dropping frames, which is bytes of names times instructions of expressions: a second of it.
const mostCompared = 1 << 33

// DropFrames takes out the frames that a profile wants left out, as pprof does. It is an error if its expressions are not well
// formed, or are too long for so many names.
func DropFrames(p *profile.Profile) error {
	var names, instructions int
	for _, f := range p.Function {
		names += len(f.Name)
	}
	for _, expression := range []string{p.DropFrames, p.KeepFrames} {
		n, err := instructionsOf(expression)
		if err != nil {
			return fmt.Errorf("read its drop_frames or keep_frames: %w", err)
		}
		instructions += n
	}
	if instructions > mostCompared/max(names, 1) {
		return fmt.Errorf("its drop_frames or keep_frames are too long for %d bytes of names", names)
	}
	return p.RemoveUninteresting()
}

// instructionsOf is how long an expression is once its repetitions are written out.
func instructionsOf(expression string) (int, error) {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return 0, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, err
	}
	return len(program.Inst), nil
}
