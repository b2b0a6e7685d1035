// Package exit has the exit status of allocscope: the one table of it, the errors that carry one,
// and the text of the help.
package exit

import (
	"errors"
	"fmt"
	"strings"
)

// A Status is an exit status.
type Status int

// The statuses. A signal that ends allocscope is no status: the shell reports 128 and its number.
const (
	Done         Status = 0
	Failed       Status = 1
	Refused      Status = 2
	Found        Status = 3
	Inconclusive Status = 4
)

// Meanings explain the statuses, by their number.
var Meanings = []string{
	Done:         "done",
	Failed:       "an error, such as a file that could not be written",
	Refused:      "refused before the start: wrong usage, no such process, no privilege, no folder",
	Found:        "a leak, or a rank that stands out, was found (--fail-on)",
	Inconclusive: "inconclusive (--fail-on): too little data, maybe warm-up, or another process grows",
}

// Help is the section of a command's help, of the statuses that the command has.
func Help(statuses ...Status) string {
	var lines []string
	for _, s := range statuses {
		lines = append(lines, fmt.Sprintf("  %d  %s", s, Meanings[s]))
	}
	return strings.Join(lines, "\n")
}

// An Error is an error with its status.
type Error struct {
	Status  Status
	IsUsage bool // the call was wrong, and the help of the command shows how to write it
	Err     error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Usage makes an error one of a call that was wrong; nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Status: Refused, IsUsage: true, Err: err}
}

// Refuse makes an error one of a call that was refused before the start; nil stays nil, and an error
// that has a status keeps it.
func Refuse(err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &Error{Status: Refused, Err: err}
}

// StatusOf returns the status of an error; nil is Done, and an error without a status Failed.
func StatusOf(err error) Status {
	var known *Error
	switch {
	case err == nil:
		return Done
	case errors.As(err, &known):
		return known.Status
	}
	return Failed
}

// IsUsage reports whether an error is of a call that was wrong.
func IsUsage(err error) bool {
	var known *Error
	return errors.As(err, &known) && known.IsUsage
}
