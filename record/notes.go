package record

import (
	"path"
	"slices"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

// maxNotes bounds the notes of a trace whose processes are started repeatedly.
const maxNotes = 32

// notes are the notes of a summary.
type notes []summary.Note

// once reports a note, and adds it, unless it is there.
func (n *notes) once(note summary.Note, report func(Event)) {
	if len(*n) < maxNotes && !slices.Contains(*n, note) {
		report(Warning{note})
		*n = append(*n, note)
	}
}

// AllocatorNotes are where mallocs limit the findings of the trace. Without a limit of the overhead
// there are no bursts.
func AllocatorNotes(found []tracer.Allocator, hasBudget bool) (notes []summary.Note) {
	if !hasBudget {
		return nil
	}
	for _, f := range found {
		if f.Limit != growth.HeapUnlimited {
			notes = append(notes, summary.Note{Code: summary.NoteAllocator, Allocator: summary.Allocator{
				PID: f.PID, Name: f.Name, File: units.Name(path.Base(f.Path)), Limit: f.Limit,
			}})
		}
	}
	return notes
}

// ChangeNotes has a note where a change of the process tree is which process is traced, and why.
func ChangeNotes(c tracer.Change) (notes []summary.Note) {
	if c.Err == nil && c.Event == growth.TreeSelected && c.Selection.Processes > 0 {
		notes = append(notes, summary.ProcessNote(c.Selection))
	}
	return notes
}
