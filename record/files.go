package record

import (
	"fmt"
	"io"

	"github.com/allocscope/allocscope/export/folder"
)

// Files are the files of the folder that are written at once. The trace goes on after an error; all
// errors together make the exit status non-zero.
type Files struct {
	*folder.Folder
	report func(Event)
	errors []error
}

// Err returns the errors so far.
func (f *Files) Err() error {
	if len(f.errors) == 0 {
		return nil
	}
	return fmt.Errorf("%d files could not be written, first: %w", len(f.errors), f.errors[0])
}

// Write writes a file.
func (f *Files) Write(name string, content func(io.Writer) error) {
	if err := f.WriteFile(name, content); err != nil {
		f.note(err)
	}
}

// remove removes a file.
func (f *Files) remove(name string) {
	if err := f.Remove(name); err != nil {
		f.note(err)
	}
}

// note keeps an error, and reports the first one.
func (f *Files) note(err error) {
	if len(f.errors) == 0 {
		f.report(FileFailed{err})
	}
	f.errors = append(f.errors, err)
}
