package words

import (
	"slices"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
)

// TestSiteLines has the lines of WHERE about one suspect.
func TestSiteLines(t *testing.T) {
	const add, run = "Meter.add (/app/train.py:12)", "main (/app/train.py:25)"
	for name, c := range map[string]struct {
		suspect summary.Suspect
		want    []string
	}{
		"one object": {
			summary.Suspect{
				Function: add, Path: []string{add}, Callers: []string{run},
				Replaced: &summary.Replaced{Objects: 1, Bytes: 42 << 20},
			},
			[]string{
				"train.py:12  Meter.add()   <- your code",
				"one object, replaced by a larger one at this line: 42.0 MiB now",
				"train.py:25  main()   <- caller",
			},
		},
		"several objects": {
			summary.Suspect{
				Function: add, Path: []string{add},
				Replaced: &summary.Replaced{Objects: 3, Bytes: 42 << 20},
			},
			[]string{
				"train.py:12  Meter.add()   <- your code",
				"3 objects, replaced by larger ones at this line: 42.0 MiB now",
			},
		},
	} {
		if got := siteLines(c.suspect, ""); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", name, got, c.want)
		}
	}
}
