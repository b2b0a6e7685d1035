package words

import (
	"testing"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

func TestRowsOfDeviceMemoryAreSaidInWords(t *testing.T) {
	row := func(kind growth.Kind, gpu, function string) export.DeviceRow {
		return export.DeviceRow{Kind: kind, GPU: gpu, Function: function}
	}
	for _, test := range []struct {
		row     export.DeviceRow
		several bool
		want    string
	}{
		{row(growth.KindCudaBlock, "0", "forward (/src/model.py:31)"), false, "torch's blocks: forward (model.py:31)"},
		{row(growth.KindCudaBlock, "1", "forward (/src/model.py:31)"), true, "torch's blocks: forward (model.py:31), GPU 1"},
		{row(growth.KindCudaBlock, "1", ""), true, "torch's blocks, holder not known, GPU 1"},
		{row(growth.KindCudaSegment, "", "ncclMemAlloc (/lib/libnccl.so.2)"), true, "other allocations by the driver: ncclMemAlloc"},
		{row(growth.KindCudaCached, "", ""), true, "cached by torch, in no block"},
		{row("of a later version", "", ""), false, "of a later version"},
	} {
		if got := DeviceRow(test.row, test.several); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestCurvesOfALaterVersionHaveTheirOwnNames(t *testing.T) {
	if got := CurveText(export.DeviceReserved) + ", " + CurveText("spilled"); got != "reserved by torch, spilled" {
		t.Error(got)
	}
}
