package cli

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// plainError is the error of a wrong flag without words of Go's parsers.
func plainError(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	flag := invalid.GetFlag()
	return valueError("--"+flag.Name, flag, invalid.GetValue(), invalid.Unwrap())
}

// valueError is the error of a value that a flag or an environment variable cannot have.
func valueError(name string, flag *pflag.Flag, value string, cause error) error {
	_, isNumber := errors.AsType[*strconv.NumError](cause)
	switch {
	case isNumber && flag.Value.Type() == "bool":
		return fmt.Errorf("%s %q is neither true nor false", name, value)
	case errors.Is(cause, strconv.ErrRange):
		return fmt.Errorf("%s %q is out of range", name, value)
	case isNumber:
		return fmt.Errorf("%s %q is not a number", name, value)
	}
	return fmt.Errorf("%s: %w", name, cause)
}
