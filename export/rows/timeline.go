package rows

import (
	"fmt"
	"io"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// sampleColumns are the columns of a growth.Sample, which is of one process or of several.
func sampleColumns[T any](of func(*T) *growth.Sample) []column[T] {
	at := func(name string, value func(*growth.Sample) *int64) column[T] {
		return column[T]{name: name, value: func(row *T) *int64 { return value(of(row)) }}
	}
	return []column[T]{
		at("rss_bytes", func(s *growth.Sample) *int64 { return &s.RSS }),
		at("anonymous_bytes", func(s *growth.Sample) *int64 { return &s.Anonymous }),
		at("file_bytes", func(s *growth.Sample) *int64 { return &s.File }),
		at("shared_bytes", func(s *growth.Sample) *int64 { return &s.Shared }),
		at("pss_bytes", func(s *growth.Sample) *int64 { return &s.PSS }),
		at("private_bytes", func(s *growth.Sample) *int64 { return &s.Private }),
		at("swap_bytes", func(s *growth.Sample) *int64 { return &s.Swap }),
		at("virtual_bytes", func(s *growth.Sample) *int64 { return &s.Virtual }),
		at("threads", func(s *growth.Sample) *int64 { return &s.Threads }),
		at("minor_faults", func(s *growth.Sample) *int64 { return &s.MinorFaults }),
		at("major_faults", func(s *growth.Sample) *int64 { return &s.MajorFaults }),
		at("steps", func(s *growth.Sample) *int64 { return &s.Steps }),
		at("tensors", func(s *growth.Sample) *int64 { return &s.Tensors }),
		at("tensor_bytes", func(s *growth.Sample) *int64 { return &s.TensorBytes }),
		at("gpu_used_bytes", func(s *growth.Sample) *int64 { return &s.GPUUsed }),
		at("gpu_allocated_bytes", func(s *growth.Sample) *int64 { return &s.CudaAllocated }),
		at("gpu_reserved_bytes", func(s *growth.Sample) *int64 { return &s.CudaReserved }),
		at("gpu_driver_bytes", func(s *growth.Sample) *int64 { return &s.CudaDriver }),
		at("pinned_bytes", func(s *growth.Sample) *int64 { return &s.Pinned }),
	}
}

var timelineLayout = layout[growth.Row]{
	elapsed: func(r *growth.Row) *time.Duration { return &r.Elapsed },
	columns: append(sampleColumns(func(r *growth.Row) *growth.Sample { return &r.Sample }), []column[growth.Row]{
		{name: "tree_processes", value: func(r *growth.Row) *int64 { return &r.Tree.Processes }},
		{name: "tree_rss_bytes", value: func(r *growth.Row) *int64 { return &r.Tree.RSS }},
		{name: "tree_pss_bytes", value: func(r *growth.Row) *int64 { return &r.Tree.PSS }},
		{name: "tree_private_bytes", value: func(r *growth.Row) *int64 { return &r.Tree.Private }},
		{name: "available_bytes", value: func(r *growth.Row) *int64 { return &r.System.Available }},
		{name: "swap_free_bytes", value: func(r *growth.Row) *int64 { return &r.System.SwapFree }},
		{
			name:  "cgroup_used_bytes",
			value: func(r *growth.Row) *int64 { return &r.System.CgroupUsed },
		},
		{
			name:  "cgroup_limit_bytes",
			value: func(r *growth.Row) *int64 { return &r.System.CgroupLimit },
		},
		{name: "slowdown_ppm", value: func(r *growth.Row) *int64 { return &r.Overhead.Slowdown }},
		{name: "own_core_ppm", value: func(r *growth.Row) *int64 { return &r.Overhead.Own }},
		{
			name:  "heap_probed_permille",
			value: func(r *growth.Row) *int64 { return &r.Overhead.ProbedShare },
		},
	}...),
}

var processesLayout = layout[growth.ProcessSample]{
	elapsed: func(p *growth.ProcessSample) *time.Duration { return &p.Elapsed },
	columns: append([]column[growth.ProcessSample]{
		{name: "pid", value: func(p *growth.ProcessSample) *int64 { return &p.PID }},
	},
		sampleColumns(func(p *growth.ProcessSample) *growth.Sample { return &p.Sample })...),
}

// NewTimelineWriter writes the header of timeline.csv. The error comes from w, unwrapped.
func NewTimelineWriter(w io.Writer) (*Writer[growth.Row], error) {
	return newRowWriter(w, &timelineLayout)
}

// NewProcessesWriter writes the header of processes.csv, which has one row for each process and
// second. The error comes from w, unwrapped.
func NewProcessesWriter(w io.Writer) (*Writer[growth.ProcessSample], error) {
	return newRowWriter(w, &processesLayout)
}

// ReadTimeline reads timeline.csv. The error names the line; the rows before it are returned, too.
func ReadTimeline(r io.Reader) ([]growth.Row, error) {
	rows, err := timelineLayout.readRows(r, nil)
	if err != nil {
		err = fmt.Errorf("read timeline: %w", err)
	}
	return rows, err
}

// ReadProcesses reads the rows of processes.csv that keep accepts, as ReadTimeline does; nil
// accepts all.
func ReadProcesses(r io.Reader,
	keep func(*growth.ProcessSample) bool,
) ([]growth.ProcessSample, error) {
	rows, err := processesLayout.readRows(r, keep)
	if err != nil {
		err = fmt.Errorf("read processes: %w", err)
	}
	return rows, err
}

// A GPURow is a row of gpus.csv: the state of one GPU, or of one instance of a partitioned GPU, at
// one time. The summary has their names.
type GPURow struct {
	// Elapsed since the start of the trace.
	Elapsed time.Duration
	// GPU is its NVML index, and Instance the index on it; growth.Unknown: it is a whole GPU.
	GPU, Instance int64
	// Used by all processes, and Total, in bytes; growth.Unknown where NVML does not report it.
	Used, Total int64
}

// GPURowsOf returns the rows of one point in time.
func GPURowsOf(m growth.TreeSample) []GPURow {
	var rows []GPURow
	for _, g := range m.GPUs {
		rows = append(rows, GPURow{
			Elapsed: m.Elapsed, GPU: int64(g.Index), Instance: int64(g.Instance), Used: g.Used,
			Total: g.Total,
		})
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

// NewGPUsWriter writes the header of gpus.csv. The error comes from w, unwrapped.
func NewGPUsWriter(w io.Writer) (*Writer[GPURow], error) { return newRowWriter(w, &gpusLayout) }
