package main

import (
	"fmt"
	"io"
	"os"

	"github.com/allocscope/allocscope/growth"
)

// ownersValue is the value of --owners: the rules of a file, and the built-in ones after them. The zero value stands for
// these alone.
type ownersValue struct {
	path  string
	rules *growth.Owners
}

// Set reads the file.
func (v *ownersValue) Set(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, growth.MaxOwnersBytes+1))
	if err != nil {
		return fmt.Errorf("read owners: %w", err)
	}
	v.path = path
	v.rules, err = growth.ParseOwners(path, text)
	return err
}

func (v *ownersValue) String() string { return v.path }

// Type is what the help calls the value.
func (v *ownersValue) Type() string { return "file" }
