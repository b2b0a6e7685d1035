package record

import (
	"errors"
	"io"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/rows"
	"github.com/allocscope/allocscope/growth"
)

// rowFiles are the files that grow with the trace: timeline.csv, processes.csv, gpus.csv where
// there are GPUs, and objects.csv where objects are counted.
type rowFiles struct {
	folder    *folder.Folder
	files     []io.Closer
	timeline  *rows.Writer[growth.Row]
	processes *rows.Writer[growth.ProcessSample]
	gpus      *rows.Writer[rows.GPURow]    // nil: no GPU was seen yet
	objects   *rows.Writer[rows.ObjectRow] // nil: no objects were counted yet
	failed    bool                         // nothing more is written after the first error
	last      func() error                 // writes the rows of the last sample; nil: they are written
}

func openRows(dir *folder.Folder) (f *rowFiles, err error) {
	f = &rowFiles{folder: dir}
	timeline, err := dir.Append(folder.TimelineFile)
	if err != nil {
		return nil, err
	}

	f.files = append(f.files, timeline)

	processes, err := dir.Append(folder.ProcessesFile)
	if err == nil {
		f.files = append(f.files, processes)
		if f.timeline, err = rows.NewTimelineWriter(timeline); err == nil {
			f.processes, err = rows.NewProcessesWriter(processes)
		}
	}

	if err != nil { // empty files would keep --force from replacing the folder
		return nil, errors.Join(err, f.close(), dir.Remove(folder.TimelineFile),
			dir.Remove(folder.ProcessesFile))
	}

	return f, nil
}

// write writes the row of a sample of the tree, and the rows of its processes and GPUs.
func (f *rowFiles) write(row growth.Row, tree growth.TreeSample) error {
	if f.failed {
		return nil
	}

	err := f.timeline.Write(row)
	if err == nil {
		err = f.processes.Write(tree.Processes...)
	}

	if err == nil {
		err = f.writeGPUs(rows.GPURowsOf(tree))
	}

	f.failed = err != nil
	return err
}

// writeLast writes the rows of the last sample, unless it has.
func (f *rowFiles) writeLast(files *Files) {
	if f.last == nil {
		return
	}
	if err := f.last(); err != nil {
		files.note(err)
	}
	f.last = nil
}

// writeGPUs opens gpus.csv when the first GPU is seen.
func (f *rowFiles) writeGPUs(all []rows.GPURow) error {
	if len(all) == 0 {
		return nil
	}

	if f.gpus == nil {
		file, err := f.folder.Append(folder.GPUsFile)
		if err != nil {
			return err
		}
		f.files = append(f.files, file)
		if f.gpus, err = rows.NewGPUsWriter(file); err != nil {
			return err
		}
	}

	return f.gpus.Write(all...)
}

// writeObjects opens objects.csv when objects are counted first.
func (f *rowFiles) writeObjects(all []rows.ObjectRow) error {
	if f.failed || len(all) == 0 {
		return nil
	}

	if f.objects == nil {
		file, err := f.folder.Append(folder.ObjectsFile)
		if err != nil {
			return err
		}
		f.files = append(f.files, file)
		if f.objects, err = rows.NewObjectsWriter(file); err != nil {
			return err
		}
	}

	return f.objects.Write(all...)
}

// writeEarlier writes the rows of the traces that a trace continues.
func (f *rowFiles) writeEarlier(h *growth.History) error {
	next := make([]int, len(h.Processes)) // index in the timeline of each
	for _, row := range h.Rows {
		tree := growth.TreeSample{Elapsed: row.Elapsed}
		for i, p := range h.Processes {
			if n := next[i]; n < len(p.Timeline) && p.Timeline[n].Elapsed <= row.Elapsed {
				next[i]++
				tree.Processes = append(tree.Processes,
					growth.ProcessSample{PID: int64(p.PID), Sample: p.Timeline[n]})
			}
		}
		if err := f.write(row, tree); err != nil {
			return err
		}
	}
	return nil
}

func (f *rowFiles) close() error {
	var errs []error
	for _, file := range f.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// names are the names of the folder's files, by their content.
func (f *rowFiles) names() map[string]string {
	files := map[string]string{
		"growth": folder.GrowthFile, "warmup": folder.WarmupFile, "plateau": folder.PlateauFile,
		"timeline": folder.TimelineFile, "processes": folder.ProcessesFile,
		"report": folder.ReportFile,
	}
	if f.gpus != nil {
		files["gpus"] = folder.GPUsFile
	}
	if f.objects != nil {
		files["objects"] = folder.ObjectsFile
	}
	return files
}
