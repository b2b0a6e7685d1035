package summary

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
)

// A Container is the memory that the cgroup of the job is charged with, when tracing began and when it
// was read last. The rows sum to the charge at both moments.
type Container struct {
	FirstS     float64 `json:"first_s"`
	LastS      float64 `json:"last_s"`
	StartBytes int64   `json:"start_bytes"`
	EndBytes   int64   `json:"end_bytes"`
	// LimitBytes where the kernel throttles or ends processes; absent: there is none.
	LimitBytes *int64         `json:"limit_bytes,omitempty"`
	Rows       []ContainerRow `json:"rows"`
	// Beside are the kinds of memory outside of the traced processes that are a fifth of the charge,
	// or grow much: the sum of each, with the names of its largest row.
	Beside []ContainerRow `json:"beside,omitempty"`
}

// A ContainerRow is a part of the memory of a container.
type ContainerRow struct {
	// Kind is one of growth.Container….
	Kind growth.ContainerKind `json:"kind"`
	// PID and Name of a process; of a file, the process that holds it. Absent: there is none, or the
	// row is the rest of its kind.
	PID  int    `json:"pid,omitempty"`
	Name string `json:"name,omitempty"`
	File string `json:"file,omitempty"`
	// Count of the small processes or files that the row sums.
	Count int `json:"count,omitempty"`
	// InJob: a traced process has the memory, or holds the file.
	InJob      bool  `json:"in_job,omitempty"`
	StartBytes int64 `json:"start_bytes"`
	EndBytes   int64 `json:"end_bytes"`
}

// ContainerOf converts the memory of a container; nil: there is none.
func ContainerOf(c *conclude.Container) *Container {
	if c == nil {
		return nil
	}
	return &Container{
		FirstS: Seconds(c.First.Elapsed), LastS: Seconds(c.Last.Elapsed),
		StartBytes: c.First.Charged, EndBytes: c.Last.Charged, LimitBytes: Known(c.Last.Limit),
		Rows: containerRows(c.Rows), Beside: containerRows(c.Beside()),
	}
}

func containerRows(all []conclude.ContainerRow) []ContainerRow {
	var rows []ContainerRow
	for i := range all {
		r := &all[i]
		rows = append(rows, ContainerRow{
			Kind: r.Kind, PID: r.PID, Name: r.Name, File: r.File, Count: r.Count, InJob: r.InJob,
			StartBytes: r.Start, EndBytes: r.End,
		})
	}
	return rows
}
