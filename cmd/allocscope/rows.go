package main

import (
	"errors"
	"io"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// rowFiles are the files that grow with the trace: timeline.csv, processes.csv, and gpus.csv where there are GPUs.
type rowFiles struct {
	files     []io.Closer
	timeline  *export.RowWriter[growth.Row]
	processes *export.RowWriter[growth.ProcessSample]
	gpus      *export.RowWriter[export.GPURow] // nil: no GPU has been seen yet
	folder    *export.Folder
	failed    bool // nothing more is written after the first error
}

func openRows(folder *export.Folder) (f *rowFiles, err error) {
	f = &rowFiles{folder: folder}
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

// write writes the row of a moment and those of what it consists of.
func (f *rowFiles) write(row growth.Row, moment growth.Moment) error {
	if f.failed {
		return nil
	}
	err := f.timeline.Write(row)
	if err == nil {
		err = f.processes.Write(moment.Processes...)
	}
	if err == nil {
		err = f.writeGPUs(export.GPURows(moment))
	}
	f.failed = err != nil
	return err
}

// writeGPUs opens gpus.csv when the first GPU is seen.
func (f *rowFiles) writeGPUs(rows []export.GPURow) error {
	if len(rows) == 0 {
		return nil
	}
	if f.gpus == nil {
		file, err := f.folder.Append(export.GPUsFile)
		if err != nil {
			return err
		}
		f.files = append(f.files, file)
		if f.gpus, err = export.NewGPUsWriter(file); err != nil {
			return err
		}
	}
	return f.gpus.Write(rows...)
}

func (f *rowFiles) close() error {
	var errs []error
	for _, file := range f.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
