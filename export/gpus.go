package export

import (
	"fmt"
	"io"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// A GPURow is the state of one GPU, or of one instance of a GPU that is partitioned, at one moment: a row of gpus.csv. Names are in the
// summary.
type GPURow struct {
	// Elapsed since the start of the trace.
	Elapsed time.Duration
	// GPU is its index as NVML counts, and Instance that on it; growth.Unknown: it is the whole GPU.
	GPU, Instance int64
	// Used by all processes, and Total, in bytes; growth.Unknown where NVML does not tell.
	Used, Total int64
}

// GPURows are the rows of a moment.
func GPURows(m growth.Moment) []GPURow {
	var rows []GPURow
	for _, g := range m.GPUs {
		rows = append(rows, GPURow{Elapsed: m.Elapsed, GPU: int64(g.Index), Instance: int64(g.Instance), Used: g.Used, Total: g.Total})
	}
	return rows
}

var gpusLayout = layout[GPURow]{
	elapsed: func(r *GPURow) *time.Duration { return &r.Elapsed },
	columns: []column[GPURow]{
		{name: "gpu", value: func(r *GPURow) *int64 { return &r.GPU }},
		{name: "instance", value: func(r *GPURow) *int64 { return &r.Instance }},
		{name: "used_bytes", value: func(r *GPURow) *int64 { return &r.Used }},
		{name: "total_bytes", value: func(r *GPURow) *int64 { return &r.Total }},
	},
}

// NewGPUsWriter writes the header of gpus.csv: one row for each GPU and moment. The error is that of w, not wrapped.
func NewGPUsWriter(w io.Writer) (*RowWriter[GPURow], error) { return newRowWriter(w, &gpusLayout) }

// ReadGPUs reads gpus.csv, as ReadTimeline does.
func ReadGPUs(r io.Reader) ([]GPURow, error) {
	rows, err := gpusLayout.readRows(r, nil)
	if err != nil {
		err = fmt.Errorf("read GPUs: %w", err)
	}
	return rows, err
}
