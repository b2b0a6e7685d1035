package trace

import (
	"io"
	"log/slog"

	"github.com/allocscope/allocscope/export/folder"
)

// outputFiles are the files of the folder that are written at once. The trace goes on after an error;
// all errors together make the exit status non-zero.
type outputFiles struct {
	folder *folder.Folder
	errors []error
}

// write writes a file.
func (f *outputFiles) write(name string, content func(io.Writer) error) {
	if err := f.folder.WriteFile(name, content); err != nil {
		f.note(err)
	}
}

// remove removes a file.
func (f *outputFiles) remove(name string) {
	if err := f.folder.Remove(name); err != nil {
		f.note(err)
	}
}

// note keeps an error, and logs the first one.
func (f *outputFiles) note(err error) {
	if len(f.errors) == 0 {
		slog.Error(err.Error())
	}
	f.errors = append(f.errors, err)
}
