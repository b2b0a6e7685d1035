package report

import (
	"strings"

	"github.com/google/pprof/profile"
)

// deviceFlamesOf are the trees of what grew on GPUs, those in which anything did: what is in use, and what holds the segments of which
// that is a part. A profile of a trace without device memory has not these sample types.
func deviceFlamesOf(p *profile.Profile) []deviceFlame {
	var flames []deviceFlame
	for _, of := range []struct{ label, name, bytes, objects string }{
		{"device, in use", "what grew on the device since the boundary", "device_space", "device_objects"},
		{"device, reserved", "what was reserved on the device since the boundary", "device_reserved_space", ""},
	} {
		bytes := sampleType(p, of.bytes)
		if bytes < 0 {
			continue
		}
		if flame := flameOf(p, of.name, bytes, sampleType(p, of.objects)); flame != nil {
			flames = append(flames, deviceFlame{of.label, *flame})
		}
	}
	return flames
}

func (d *pageData) hasFlame() bool { return d.Flame != nil || len(d.DeviceFlames) > 0 }

// flameNote says what the flame graphs leave out, each by its name where there are several.
func (d *pageData) flameNote() string {
	var notes []string
	switch {
	case d.Flame == nil || d.Flame.Note == "":
	case len(d.DeviceFlames) > 0:
		notes = append(notes, "Of host, resident: "+d.Flame.Note)
	default:
		notes = append(notes, d.Flame.Note)
	}
	for _, flame := range d.DeviceFlames {
		if flame.Note != "" {
			notes = append(notes, "Of "+flame.Label+": "+flame.Note)
		}
	}
	return strings.Join(notes, " ")
}
