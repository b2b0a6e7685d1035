package words

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

func TestGPURow(t *testing.T) {
	const forward, nccl = "forward (/src/model.py:31)", "ncclMemAlloc (/lib/libnccl.so.2)"
	for _, test := range []struct {
		kind          growth.Kind
		gpu, function string
		several       bool
		want          string
	}{
		{growth.KindCudaBlock, "0", forward, false, "torch's blocks: forward (model.py:31)"},
		{growth.KindCudaBlock, "1", forward, true, "torch's blocks: forward (model.py:31), GPU 1"},
		{growth.KindCudaBlock, "1", "", true, "torch's blocks, allocation site unknown, GPU 1"},
		{
			growth.KindCudaSegment, "", nccl, true,
			"other allocations of the driver API: ncclMemAlloc",
		},
		{growth.KindCudaCached, "", "", true, "reserved by PyTorch, not allocated"},
		{"of a later version", "", "", false, "of a later version"},
	} {
		row := summary.GPUBreakdownRow{Kind: test.kind, GPU: test.gpu, Function: test.function}
		mustBe(t, GPURow(row, test.several), test.want)
	}
}

func gpuRow(kind growth.Kind, gpu string, start, end int64) summary.GPUBreakdownRow {
	return summary.GPUBreakdownRow{
		Kind: kind, GPU: gpu, Function: "f", StartBytes: start, EndBytes: end,
	}
}

func TestGPULines(t *testing.T) {
	start, end := int64(8<<30), int64(9<<30)
	d := summary.GPUMemory{
		Verdict: summary.Verdict{
			Class: verdict.ClassLeak, WhyCode: verdict.ReasonAfterWarmup,
			Rate: new(5.0 * (1 << 20)), RateLow: new(4.9 * (1 << 20)),
			RateHigh: new(5.1 * (1 << 20)), ToLimit: new(3600.0),
		},
		Judged: summary.GPUAllocated, Diagnosis: "retained-tensors",
		GPUUnknown: growth.GPUUnknown{Reason: growth.GPUNotListed},
		Curves: []summary.GPUCurve{
			{Name: "reserved", EndBytes: &end},
			{
				Name: "allocated", StartBytes: &start, EndBytes: &end,
				BytesPerMin: new(int64(5 << 20)), Class: verdict.ClassSpikyPlateau,
			},
		},
	}
	want := []string{
		"LEAK: +5.00 MiB/min (95% CI 4.90-5.10; 7.03 GiB/day) (allocated by torch, between steps)",
		"out of GPU memory in 60 min",
		"confirmed: steady growth after the warm-up",
		"allocated 8.00 GiB → 9.00 GiB (+5.00 MiB/min, stable with spikes)",
		GPUAdvice(&d),
		"NVML's count is unknown: NVML does not list the process",
	}
	mustBe(t, GPULines(d), want)
	d.Reason, d.Curves = "", nil
	if got := GPULines(d); len(got) != 4 || strings.Contains(strings.Join(got, ""), "→") {
		t.Errorf("without curves: %q", got)
	}
}

// Each reason has its sentence, and a remedy where there is one.
func TestGPUCountUnknown(t *testing.T) {
	for want, why := range map[string]growth.GPUUnknown{
		"no NVIDIA GPU on this machine: there is no libnvidia-ml.so.1": {Reason: growth.GPUNoLibrary},
		"there is no libnvidia-ml.so.1 (there is an NVIDIA GPU: install its driver)": {
			Reason: growth.GPUNoLibrary, NVIDIA: growth.NVIDIAGPU,
		},
		"there is no libnvidia-ml.so.1 (install the library of the driver's version, such as " +
			"Debian's libnvidia-ml1; in a container: NVIDIA_DRIVER_CAPABILITIES=utility,compute)": {
			Reason: growth.GPUNoLibrary, NVIDIA: growth.NVIDIADriver,
		},
		"libnvidia-ml.so.1 cannot be used: bad ELF (see what nvidia-smi reports)": {
			Reason: growth.GPUBadLibrary, Detail: "bad ELF",
		},
		"NVML has not answered within 500ms": {Reason: growth.GPUNoAnswer, Waited: 0.5},
		"NVML does not list the process":     {Reason: growth.GPUNotListed},
		"GPU 0: memory: no permission":       {Reason: growth.GPUOther, Detail: "GPU 0: memory: no permission"},
	} {
		got := GPUCountUnknown(summary.GPUMemory{GPUUnknown: why})
		if got != "NVML's count is unknown: "+want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	mustBe(t, GPUCountUnknown(summary.GPUMemory{}), "")
}

func TestGPUSums(t *testing.T) {
	d := summary.GPUMemory{Breakdown: []summary.GPUBreakdownRow{
		gpuRow(growth.KindNotAttributed, "", 0, 900),
		gpuRow(growth.KindCudaBlock, "0", 10, 30), gpuRow(growth.KindCudaBlock, "0", 1, 2),
		gpuRow(growth.KindCudaCached, "", 50, 20),
	}}
	sums, all := GPUSums(d)
	want := []GPUSum{
		{growth.KindCudaCached, "", 50, 20},
		{growth.KindCudaBlock, "", 11, 32},
		{growth.KindNotAttributed, "", 0, 900},
	}
	if !slices.Equal(sums, want) || all.Start != 61 || all.End != 952 || all.Delta() != 891 {
		t.Errorf("%v, %v", sums, all)
	}
	d.Breakdown = append(d.Breakdown, gpuRow(growth.KindCudaBlock, "1", 5, 5))
	if sums, _ = GPUSums(d); len(sums) != 4 || sums[1].Label() != "torch's blocks, GPU 0" ||
		sums[2].Label() != "torch's blocks, GPU 1" {
		t.Errorf("%v", sums)
	}

	t.Run("nothing is lost", func(t *testing.T) {
		kinds := []growth.Kind{
			growth.KindCudaBlock, growth.KindCudaSegment, growth.KindCudaBeforeTracing,
			growth.KindNotAttributed, "kind of a later version",
		}
		for seed := range uint64(200) {
			random := rand.New(rand.NewPCG(seed, 3))
			var d summary.GPUMemory
			var start, end int64
			for range random.IntN(30) {
				r := gpuRow(kinds[random.IntN(len(kinds))], []string{"", "0", "1"}[random.IntN(3)],
					random.Int64N(1<<40), random.Int64N(1<<40)-1<<39)
				d.Breakdown = append(d.Breakdown, r)
				start, end = start+r.StartBytes, end+r.EndBytes
			}
			sums, all := GPUSums(d)
			for _, s := range sums {
				start, end = start-int64(s.Start), end-int64(s.End)
				if s.Label() == "" {
					t.Errorf("no words for %v", s)
				}
			}
			if start != 0 || end != 0 || len(d.Breakdown) == 0 && all != (GPUSum{}) {
				t.Fatalf("seed %d: %d and %d bytes are lost", seed, start, end)
			}
		}
	})

	t.Run("label of the total", func(t *testing.T) {
		for curve, want := range map[string]string{
			summary.GPUUsed: "used, as NVML counts", summary.GPUReserved: "all that is known",
		} {
			d := summary.GPUMemory{Curves: []summary.GPUCurve{{Name: curve}}}
			mustBe(t, GPUTotalLabel(d), want, curve)
		}
	})
}
