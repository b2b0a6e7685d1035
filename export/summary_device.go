package export

import "github.com/allocscope/allocscope/growth"

// A Device is the memory of one traced process on its GPUs together: the verdict on it, what speaks for it, and a ledger.
type Device struct {
	Process int    `json:"process"`
	Command string `json:"command,omitempty"`
	// Verdict on the curve that is named in Judged; of several curves that grow, of the one whose growth weighs most.
	Verdict
	// BoundaryS is the moment from where on growth is counted here.
	BoundaryS float64 `json:"boundary_s"`
	// Judged is one of the constants Device….
	Judged string `json:"judged"`
	// Diagnosis is one of growth.Diagnosis…, and Advice says in a sentence what it means.
	Diagnosis string `json:"diagnosis"`
	Advice    string `json:"advice"`
	// Curves at the boundary and the end: of each only what is known.
	Curves []DeviceCurve `json:"curves"`
	// RoomBytes is what the GPU that has least has left; absent where NVML does not tell.
	RoomBytes *int64 `json:"room_bytes,omitempty"`
	// Reason why what the driver counts is not known; absent if it is.
	Reason string `json:"reason,omitempty"`
	// Ledger accounts for what the driver counts, or for what is known where it does not tell: its rows sum to it at both moments.
	Ledger []DeviceRow `json:"ledger"`
	// Culprits are the code that accumulates on the GPU, and Accumulating the stacks that hold more at the end than at the boundary.
	Culprits     []Culprit      `json:"culprits"`
	Accumulating []Accumulation `json:"accumulating"`
}

// Curves of device memory.
const (
	DeviceUsed      = string(growth.CurveUsed)      // what the driver counts for the process (NVML)
	DeviceReserved  = string(growth.CurveReserved)  // segments of torch's caching allocator
	DeviceAllocated = string(growth.CurveAllocated) // its blocks
	DeviceDriver    = string(growth.CurveDriver)    // what was allocated through the driver's API since the attach, by anybody
)

// A DeviceCurve is one measure of device memory at the boundary and the end, with a verdict of its own.
type DeviceCurve struct {
	// Name is one of the constants Device….
	Name       string       `json:"name"`
	StartBytes *int64       `json:"start_bytes,omitempty"`
	EndBytes   *int64       `json:"end_bytes,omitempty"`
	Class      growth.Class `json:"verdict"`
	// BytesPerMin of its last regime; absent where it is not known.
	BytesPerMin *int64 `json:"bytes_per_min,omitempty"`
}

// A DeviceRow is one row of the ledger of device memory, in bytes at the boundary and the end.
type DeviceRow struct {
	Kind growth.Kind `json:"kind"`
	// GPU as CUDA counts in the process; absent: not known which, or all.
	GPU string `json:"gpu,omitempty"`
	// Function and Owner are absent in rows that no stack holds.
	Function   string `json:"function,omitempty"`
	Owner      string `json:"owner,omitempty"`
	StartBytes int64  `json:"start_bytes"`
	EndBytes   int64  `json:"end_bytes"`
}

// A GPU is one GPU of the machine, or one instance of a GPU that is partitioned. Rows of gpus.csv have its Index and Instance.
type GPU struct {
	Index int `json:"index"`
	// Instance on the GPU; absent: it is the whole one.
	Instance *int   `json:"instance,omitempty"`
	UUID     string `json:"uuid,omitempty"`
	Name     string `json:"name,omitempty"`
	// UsedBytes by all processes at the end, and TotalBytes; absent where NVML does not tell.
	UsedBytes  *int64 `json:"used_bytes,omitempty"`
	TotalBytes *int64 `json:"total_bytes,omitempty"`
}

// GPUsOf are GPUs in the form of the summary, as they were seen last.
func GPUsOf(samples []growth.GPUSample) []GPU {
	gpus := []GPU{}
	for _, s := range samples {
		g := GPU{Index: s.Index, UUID: Printable(s.UUID), Name: Printable(s.Name), UsedBytes: Known(s.Used), TotalBytes: Known(s.Total)}
		if s.Instance >= 0 {
			g.Instance = &s.Instance
		}
		gpus = append(gpus, g)
	}
	return gpus
}

// listedDevices are devices without a list that JSON would write as null.
func listedDevices(devices []Device) []Device {
	out := make([]Device, len(devices))
	for i, d := range devices {
		d.Phases, d.Curves, d.Ledger = list(d.Phases), list(d.Curves), list(d.Ledger)
		d.Culprits, d.Accumulating = list(d.Culprits), list(d.Accumulating)
		out[i] = d
	}
	return out
}
