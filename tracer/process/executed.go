package process

import (
	"errors"
)

// ErrExecuted ends a target whose process has executed another program: what was traced is gone with its memory.
var ErrExecuted = errors.New("executed another program")
