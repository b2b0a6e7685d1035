package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/gpu/nvml"
)

func TestNVMLUnavailable(t *testing.T) {
	cause := errors.New("cause")
	for name, c := range map[string]struct {
		err             error
		finding, remedy string
	}{
		"with remedy": {&nvml.UnavailableError{Err: cause, Remedy: "remedy"}, "cause", "remedy"},
		"no GPU": {
			&nvml.UnavailableError{Err: cause}, "cause; not needed for the memory of processes", "",
		},
		"other error": {cause, "cause", "check the output of nvidia-smi"},
	} {
		t.Run(name, func(t *testing.T) {
			want := Result{Name: "NVML", Finding: c.finding, Remedy: c.remedy}
			if got := nvmlUnavailable(c.err); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

func TestNVMLFinding(t *testing.T) {
	gpus := []nvml.GPU{{Index: 0, Instance: -1}, {Index: 1, Instance: 0}, {Index: 1, Instance: 2}}
	for name, c := range map[string]struct {
		reading nvml.Reading
		finding string
		remedy  string // begins with it
	}{
		"GPUs and MIG devices": {
			nvml.Reading{Driver: "575.57", GPUs: gpus},
			"driver 575.57, GPUs: 2, MIG devices: 2", "",
		},
		"parts are missing": {
			nvml.Reading{Driver: "575.57", GPUs: gpus[:1], Reason: "no permission"},
			"driver 575.57, GPUs: 1; no permission", "trace goes on",
		},
		"no answer": {nvml.Reading{Reason: "silent"}, "silent", "check nvidia-smi and dmesg"},
	} {
		t.Run(name, func(t *testing.T) {
			got := nvmlFinding(c.reading)
			if got.Finding != c.finding || !strings.HasPrefix(got.Remedy, c.remedy) {
				t.Errorf("%+v", got)
			}
			if (got.Remedy == "") != (c.remedy == "") {
				t.Errorf("remedy %q", got.Remedy)
			}
		})
	}
}
