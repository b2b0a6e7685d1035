package flagvalue

import (
	"fmt"
	"io"
	"os"

	"github.com/allocscope/allocscope/growth/component"
)

// Components is the value of --components: the rules of a file, followed by the built-in ones. The
// zero value has the built-in rules alone.
type Components struct {
	path  string
	Rules *component.Rules
}

// Set implements pflag.Value. It reads the file.
func (v *Components) Set(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, component.MaxRulesBytes+1))
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}

	v.path = path
	v.Rules, err = component.ParseRules(path, text)
	return err
}

// String implements pflag.Value.
func (v *Components) String() string { return v.path }

// Type implements pflag.Value.
func (v *Components) Type() string { return "file" }
