package doctor

import (
	"errors"
	"fmt"
	"time"

	"github.com/allocscope/allocscope/tracer/gpu/nvml"
)

// How often NVML is asked before it counts as one that does not answer: without a program that uses a GPU, its driver takes
// seconds to start.
const (
	nvmlTries = 20
	nvmlPause = 500 * time.Millisecond
)

// checkNVML asks NVML once. A machine without a GPU lacks nothing.
func checkNVML() Result {
	m, err := nvml.Open("")
	if err != nil {
		return nvmlAbsence(err)
	}
	defer m.Close()
	reading := m.Read()
	for tries := 1; reading.Driver == "" && tries < nvmlTries; tries++ {
		time.Sleep(nvmlPause)
		reading = m.Read()
	}
	return nvmlFinding(reading)
}

func nvmlAbsence(err error) Result {
	c := Result{Name: "NVML", Finding: err.Error(), Remedy: "see what nvidia-smi says"}
	if absence := (*nvml.UnavailableError)(nil); errors.As(err, &absence) {
		c.Finding, c.Remedy = absence.Err.Error(), absence.Remedy
	}
	if c.Remedy == "" {
		c.Finding += "; nothing is missing for the memory of processes"
	}
	return c
}

// nvmlFinding is what a reading shows: driver and GPUs, and what it lacks.
func nvmlFinding(reading nvml.Reading) Result {
	c := Result{Name: "NVML"}
	if reading.Driver == "" {
		c.Finding, c.Remedy = reading.Reason, "see what nvidia-smi and dmesg say; trace goes on without the memory that NVML counts"
		return c
	}
	whole := make(map[int]bool)
	instances := 0
	for _, g := range reading.GPUs {
		whole[g.Index] = true
		if g.Instance >= 0 {
			instances++
		}
	}
	c.Finding = fmt.Sprintf("driver %s, GPUs: %d", reading.Driver, len(whole))
	if instances > 0 {
		c.Finding += fmt.Sprintf(", MIG devices: %d", instances)
	}
	if reading.Reason != "" {
		c.Finding += "; " + reading.Reason
		c.Remedy = "trace goes on with what there is; see what nvidia-smi says"
	}
	return c
}
