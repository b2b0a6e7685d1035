package report

import (
	"reflect"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
)

func changes(list ...summary.OverheadChange) *summary.Overhead {
	return &summary.Overhead{Mode: list[len(list)-1].Mode, Changes: list}
}

func TestTheRibbonShowsWhenHeapWasNotProbedAllTheTime(t *testing.T) {
	band := func(from, to float64, kind, label string) phaseBand { return phaseBand{span{from, to}, kind, label} }
	for name, test := range map[string]struct {
		overhead *summary.Overhead
		want     []phaseBand
	}{
		"nothing is known":           {nil, []phaseBand{}},
		"all the time":               {&summary.Overhead{Mode: summary.HeapFull}, []phaseBand{}},
		"windows from the beginning": {&summary.Overhead{Mode: summary.HeapBursts}, []phaseBand{band(0, 300, "bursts", "heap sampled in bursts")}},
		"a storm": {
			changes(summary.OverheadChange{AtS: 60, Mode: summary.HeapBursts}, summary.OverheadChange{AtS: 70, Mode: summary.HeapBursts}, summary.OverheadChange{AtS: 80, Mode: summary.HeapOff}, summary.OverheadChange{AtS: 90, Mode: summary.HeapFull}),
			[]phaseBand{band(60, 80, "bursts", "heap sampled in bursts"), band(80, 90, "off", "heap not probed")},
		},
		"until the end": {changes(summary.OverheadChange{AtS: 250, Mode: summary.HeapOff}), []phaseBand{band(250, 300, "off", "heap not probed")}},
		"forged":        {changes(summary.OverheadChange{AtS: 90, Mode: summary.HeapOff}, summary.OverheadChange{AtS: 10, Mode: "<mode>"}), []phaseBand{}},
	} {
		s := leakingSummary()
		s.Overhead = test.overhead
		if got := probingOf(&s); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
		s.Sources = []summary.Source{{Name: "heap", State: summary.SourceOff}}
		if got := probingOf(&s); len(got) != 0 {
			t.Errorf("%s, where nobody asked for heap: %+v", name, got)
		}
	}
}

func TestChangesOfTheProbesStandBesideTheMarks(t *testing.T) {
	s := leakingSummary()
	d := timelineOf(&s, timelineRows(300))
	if want := []markLine{{20, "heap sampled in bursts"}, {90, "sampling interval 128 KiB"}}; !reflect.DeepEqual(d.Changes, want) {
		t.Errorf("%+v, want %+v", d.Changes, want)
	}
	if want := []markLine{{61.5, "epoch 1"}}; !reflect.DeepEqual(d.Marks, want) {
		t.Errorf("marks %+v, want %+v", d.Marks, want)
	}
}
