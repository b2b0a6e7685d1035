package doctor

import (
	"errors"
	"fmt"
	"time"

	"github.com/allocscope/allocscope/tracer/gpu/nvml"
)

// The driver takes seconds to start while no program uses a GPU. NVML is read this often before it
// counts as one that does not answer.
const (
	nvmlReadings       = 20
	nvmlReadingSpacing = 500 * time.Millisecond
)

// checkNVML reads NVML once. A machine without a GPU needs no remedy.
func checkNVML() Result {
	m, err := nvml.Open("")
	if err != nil {
		return nvmlUnavailable(err)
	}
	defer m.Close()

	reading := m.Read()
	for n := 1; reading.Driver == "" && n < nvmlReadings; n++ {
		time.Sleep(nvmlReadingSpacing)
		reading = m.Read()
	}

	return nvmlFinding(reading)
}

// nvmlUnavailable returns the result for an error of nvml.Open.
func nvmlUnavailable(err error) Result {
	r := Result{Name: "NVML", Finding: err.Error(), Remedy: "check the output of nvidia-smi"}
	if unavailable := (*nvml.UnavailableError)(nil); errors.As(err, &unavailable) {
		r.Finding, r.Remedy = unavailable.Err.Error(), unavailable.Remedy
	}
	if r.Remedy == "" {
		r.Finding += "; not needed for the memory of processes"
	}
	return r
}

// nvmlFinding returns the driver and the GPUs of a reading, and the values that it lacks.
func nvmlFinding(reading nvml.Reading) Result {
	r := Result{Name: "NVML"}
	if reading.Driver == "" {
		r.Finding = reading.Reason
		r.Remedy = "check nvidia-smi and dmesg; trace goes on without the memory that NVML counts"
		return r
	}

	gpus, migDevices := make(map[int]bool), 0
	for _, g := range reading.GPUs {
		gpus[g.Index] = true
		if g.Instance >= 0 {
			migDevices++
		}
	}

	r.Finding = fmt.Sprintf("driver %s, GPUs: %d", reading.Driver, len(gpus))
	if migDevices > 0 {
		r.Finding += fmt.Sprintf(", MIG devices: %d", migDevices)
	}

	if reading.Reason != "" {
		r.Finding += "; " + reading.Reason
		r.Remedy = "trace goes on with what there is; check the output of nvidia-smi"
	}
	return r
}
