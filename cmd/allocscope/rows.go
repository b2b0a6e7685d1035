package main

import (
	"errors"
	"io"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// rowFiles are the files that grow with the trace: timeline.csv and processes.csv.
type rowFiles struct {
	files     []io.Closer
	timeline  *export.RowWriter[growth.Row]
	processes *export.RowWriter[growth.ProcessSample]
	failed    bool // nothing more is written after the first error
}

func openRows(folder *export.Folder) (f *rowFiles, err error) {
	f = &rowFiles{}
	timeline, err := folder.Append(export.TimelineFile)
	if err != nil {
		return nil, err
	}
	f.files = append(f.files, timeline)
	processes, err := folder.Append(export.ProcessesFile)
	if err == nil {
		f.files = append(f.files, processes)
		if f.timeline, err = export.NewTimelineWriter(timeline); err == nil {
			f.processes, err = export.NewProcessesWriter(processes)
		}
	}
	if err != nil { // empty files would keep --force from taking the folder over
		return nil, errors.Join(err, f.close(), folder.Remove(export.TimelineFile), folder.Remove(export.ProcessesFile))
	}
	return f, nil
}

func (f *rowFiles) write(row growth.Row, processes []growth.ProcessSample) error {
	if f.failed {
		return nil
	}
	err := f.timeline.Write(row)
	if err == nil {
		err = f.processes.Write(processes...)
	}
	f.failed = err != nil
	return err
}

func (f *rowFiles) close() error {
	var errs []error
	for _, file := range f.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
