package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// A deviceMeasure is a curve of device memory: its key is that in the page's data.
type deviceMeasure struct {
	key, label string
	of         func(*growth.Row) int64
}

// deviceMeasures are those of a process, the one that says most first: each counts what the next one does, and more.
var deviceMeasures = []deviceMeasure{
	{"device_used", deviceLabel(export.DeviceUsed), func(r *growth.Row) int64 { return r.DeviceUsed }},
	{"device_reserved", deviceLabel(export.DeviceReserved), func(r *growth.Row) int64 { return r.CudaReserved }},
	{"device_driver", deviceLabel(export.DeviceDriver), func(r *growth.Row) int64 { return r.CudaDriver }},
	{"device_allocated", deviceLabel(export.DeviceAllocated), func(r *growth.Row) int64 { return r.CudaAllocated }},
}

func deviceLabel(name string) string { return "device memory (" + words.CurveText(name) + ")" }

var pinnedMeasure = deviceMeasure{"pinned", "pinned host memory", func(r *growth.Row) int64 { return r.Pinned }}

// known is at how many rows a measure is known; 0, too, where there was never any of it: the process does not use a GPU.
func (m deviceMeasure) known(rows []growth.Row) int {
	known, used := 0, false
	for i := range rows {
		if value := m.of(&rows[i]); value >= 0 {
			known++
			used = used || value > 0
		}
	}
	if !used {
		return 0
	}
	return known
}

// mainMeasure is the first that is known about as long as any: a driver that has vanished early is not the one to be shown.
func mainMeasure(rows []growth.Row) (main deviceMeasure, ok bool) {
	longest := 0
	for _, m := range deviceMeasures {
		longest = max(longest, m.known(rows))
	}
	for _, m := range deviceMeasures {
		if n := m.known(rows); n > 0 && 2*n >= longest {
			return m, true
		}
	}
	return main, false
}

// deviceCurvesOf are those of which anything is known, the main one shown; none where the process uses no GPU.
func deviceCurvesOf(rows []growth.Row) []curve {
	main, _ := mainMeasure(rows)
	var curves []curve
	for _, m := range append(deviceMeasures[:len(deviceMeasures):len(deviceMeasures)], pinnedMeasure) {
		if m.known(rows) > 0 {
			curves = append(curves, curve{Key: m.key, Label: m.label, Unit: "bytes", Shown: m.key == main.key, Values: values(rows, m.of)})
		}
	}
	return curves
}

// deviceOf is the device memory of the process that the verdict is about; nil: it has none, or nobody looked.
func deviceOf(s *export.Summary) *export.Device {
	for i := range s.Devices {
		if s.Devices[i].Process == s.Process.PID {
			return &s.Devices[i]
		}
	}
	return nil
}

// devicePhasesOf are those of the verdict on device memory; nil where there is none.
func devicePhasesOf(s *export.Summary) []phaseBand {
	d := deviceOf(s)
	if d == nil {
		return nil
	}
	bands := phasesOf(d.Verdict)
	for i := range bands {
		bands[i].Label = "device: " + bands[i].Label
	}
	return bands
}

// deviceText says the curve of device memory that is shown in two sentences; empty: there is none.
func deviceText(s *export.Summary, t *timelineData) string {
	text := ""
	for _, c := range t.Series {
		if c.Shown && isDevice(c.Key) {
			text = courseText(c, t.TimeS)
		}
	}
	if d := deviceOf(s); d != nil && text != "" {
		text += " " + words.Headline(d.Verdict) + "."
	}
	return text
}

func isDevice(key string) bool {
	for _, m := range deviceMeasures {
		if m.key == key {
			return true
		}
	}
	return false
}

// courseText says a curve of bytes in a sentence; empty: nothing is known of it.
func courseText(c curve, times []float64) string {
	var first, last, most *int64
	var mostAt float64
	for i, value := range c.Values {
		if value == nil {
			continue
		}
		if first == nil {
			first = value
		}
		if last = value; most == nil || *value > *most {
			most, mostAt = value, times[i]
		}
	}
	if first == nil {
		return ""
	}
	size := func(bytes *int64) string { return words.Bytes(float64(*bytes)) }
	over := strings.ToUpper(c.Label[:1]) + c.Label[1:] + " over " + words.Span(times[len(times)-1], false, math.Round) + ": "
	if size(first) == size(most) && size(last) == size(most) {
		return over + "never more than " + size(most) + "."
	}
	return over + fmt.Sprintf("%s at first, %s at last, at most %s after %s.", size(first), size(last), size(most), words.Span(mostAt, false, math.Round))
}
