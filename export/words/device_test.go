package words

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

func deviceRow(kind growth.Kind, gpu string, start, end int64) export.DeviceRow {
	return export.DeviceRow{Kind: kind, GPU: gpu, Function: "f", StartBytes: start, EndBytes: end}
}

func TestDeviceMemoryIsSaidByItsVerdictItsCurvesAndWhatTheyMean(t *testing.T) {
	rate, low, high, room := 5.0*(1<<20), 4.9*(1<<20), 5.1*(1<<20), 3600.0
	start, end, pace := int64(8<<30), int64(9<<30), int64(5<<20)
	d := export.Device{
		Verdict: export.Verdict{Class: growth.ClassLeak, Why: "steady growth after warm-up", RateBytesPerMin: &rate, RateLow: &low, RateHigh: &high, SecondsToLimit: &room},
		Judged:  export.DeviceAllocated, Diagnosis: "retained-tensors", Advice: "tensors are kept", Reason: "libnvidia-ml.so.1 is not there",
		Curves: []export.DeviceCurve{{Name: "reserved", EndBytes: &end}, {Name: "allocated", StartBytes: &start, EndBytes: &end, BytesPerMin: &pace, Class: growth.ClassSpikyPlateau}},
	}
	want := []string{
		"LEAK: grows by 5.00 MiB/min (95 %: 4.90 to 5.10), steady growth after warm-up (allocated by torch, between steps)",
		"the GPU is full in 60 min",
		"allocated 8.00 GiB → 9.00 GiB (+5.00 MiB/min, spiky plateau)",
		"tensors are kept",
		"what the driver counts is not known: libnvidia-ml.so.1 is not there",
	}
	if got := DeviceLines(d); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	d.Reason, d.Curves = "", nil
	if got := DeviceLines(d); len(got) != 3 || strings.Contains(strings.Join(got, ""), "→") {
		t.Errorf("without curves: %q", got)
	}
}

func TestTheLedgerOfDeviceMemoryIsByKindAndByGPUWhereThereAreSeveral(t *testing.T) {
	d := export.Device{Ledger: []export.DeviceRow{
		deviceRow(growth.KindNotAttributed, "", 0, 900), deviceRow(growth.KindCudaBlock, "0", 10, 30), deviceRow(growth.KindCudaBlock, "0", 1, 2),
		deviceRow(growth.KindCudaCached, "", 50, 20),
	}}
	sums, all := DeviceSums(d)
	want := []DeviceSum{{growth.KindCudaCached, "", 50, 20}, {growth.KindCudaBlock, "", 11, 32}, {growth.KindNotAttributed, "", 0, 900}}
	if !slices.Equal(sums, want) || all.Start != 61 || all.End != 952 || all.Delta() != 891 {
		t.Errorf("%v, %v", sums, all)
	}
	d.Ledger = append(d.Ledger, deviceRow(growth.KindCudaBlock, "1", 5, 5))
	if sums, _ = DeviceSums(d); len(sums) != 4 || sums[1].What() != "torch's blocks, GPU 0" || sums[2].What() != "torch's blocks, GPU 1" {
		t.Errorf("%v", sums)
	}
}

func TestNothingOfADeviceLedgerIsLostInItsSums(t *testing.T) {
	kinds := []growth.Kind{growth.KindCudaBlock, growth.KindCudaSegment, growth.KindCudaBefore, growth.KindNotAttributed, "kind of a later version"}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 3))
		var d export.Device
		var start, end int64
		for range random.IntN(30) {
			r := deviceRow(kinds[random.IntN(len(kinds))], []string{"", "0", "1"}[random.IntN(3)], random.Int64N(1<<40), random.Int64N(1<<40)-1<<39)
			d.Ledger = append(d.Ledger, r)
			start, end = start+r.StartBytes, end+r.EndBytes
		}
		sums, all := DeviceSums(d)
		for _, s := range sums {
			start, end = start-int64(s.Start), end-int64(s.End)
			if s.What() == "" {
				t.Errorf("no words for %v", s)
			}
		}
		if start != 0 || end != 0 || len(d.Ledger) == 0 && all != (DeviceSum{}) {
			t.Fatalf("seed %d: %d and %d bytes are lost", seed, start, end)
		}
	}
}

func TestTheSumOfADeviceLedgerIsTheDriversCountOnlyWhereThatIsKnown(t *testing.T) {
	if got := DeviceWhole(export.Device{Curves: []export.DeviceCurve{{Name: export.DeviceUsed}}}); !strings.Contains(got, "driver counts") {
		t.Error(got)
	}
	if got := DeviceWhole(export.Device{Curves: []export.DeviceCurve{{Name: export.DeviceReserved}}}); got != "all that is known" {
		t.Error(got)
	}
}
