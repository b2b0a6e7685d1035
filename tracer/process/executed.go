package process

import (
	"errors"
)

// ErrExecuted ends a target whose process has executed another program: the traced memory is gone.
var ErrExecuted = errors.New("executed another program")
