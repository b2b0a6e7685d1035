package export

import (
	"slices"

	"github.com/allocscope/allocscope/growth"
)

// A Resident is a process whose pages were looked at, as the kernel counted them at the boundary and the end.
type Resident struct {
	Process int `json:"process"`
	// Role is one of growth.Role….
	Role growth.Role `json:"role,omitempty"`
	// Traced: with all sources. HeapTraced: the holders of its heap memory are known.
	Traced     bool `json:"traced"`
	HeapTraced bool `json:"heap_traced"`
	// StartBytes and EndBytes are its RSS; absent where it was not there.
	StartBytes *int64 `json:"start_bytes,omitempty"`
	EndBytes   *int64 `json:"end_bytes,omitempty"`
	// Threads, and Arenas of malloc, when it was last looked at; absent where they are not known.
	Threads *int64 `json:"threads,omitempty"`
	Arenas  int    `json:"arenas,omitempty"`
	// Looked is the share of its pages that was looked at, up to 1.
	Looked float64 `json:"looked"`
}

// An Advice is something to try.
type Advice struct {
	// About is one of growth.About….
	About string `json:"about"`
	// Process is the PID that it is about; absent: the tree.
	Process int    `json:"process,omitempty"`
	Text    string `json:"text"`
}

// ResidentsOf joins what the kernel counted at two moments, in the order of the end; those that had ended come last.
func ResidentsOf(start, end []growth.Resident) []Resident {
	residents := []Resident{}
	at := make(map[int]int)
	for _, r := range slices.Concat(end, start) {
		if _, ok := at[r.PID]; ok {
			continue
		}
		at[r.PID] = len(residents)
		residents = append(residents, Resident{
			Process: r.PID, Role: r.Role, Traced: r.Traced, HeapTraced: r.HeapTraced, Threads: Known(r.Threads), Arenas: r.Arenas, Looked: r.Looked,
		})
	}
	for _, r := range start {
		residents[at[r.PID]].StartBytes = Known(r.RSS)
	}
	for _, r := range end {
		residents[at[r.PID]].EndBytes = Known(r.RSS)
	}
	return residents
}

// AdviceOf is advice in the form of the summary.
func AdviceOf(advice []growth.Advice) []Advice {
	out := []Advice{}
	for _, a := range advice {
		out = append(out, Advice{About: a.About, Process: a.PID, Text: a.Text})
	}
	return out
}
