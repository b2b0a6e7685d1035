package flagvalue

import (
	"errors"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/verdict"
)

func TestFailOn(t *testing.T) {
	var wanted *FailOnError
	for _, test := range []struct {
		on    FailOn
		class verdict.Class
		fails bool
	}{
		{"", verdict.ClassLeak, false},
		{"leak", verdict.ClassLeak, true},
		{"leak", verdict.ClassSuspected, false},
		{"leak", verdict.ClassGrowing, false},
		{"suspected", verdict.ClassLeak, true},
		{"suspected", verdict.ClassSuspected, true},
		{"suspected", verdict.ClassGrowing, false},
	} {
		if err := test.on.Check(Outcome{"the verdict", test.class}); errors.As(err,
			&wanted) != test.fails || (err != nil) != test.fails {
			t.Errorf("--fail-on %q, %s: %v", test.on, test.class, err)
		}
	}
}

// A step lasts half a second on the axis in seconds.
func TestAxis(t *testing.T) {
	steps := Axis{Unit: summary.AxisSteps}
	seconds := Axis{Unit: summary.AxisSeconds, StepSeconds: 0.5}
	for _, c := range []struct {
		text string
		axis Axis
		want float64 // 0: refused
	}{
		{"60MB/min", seconds, 1e6},
		{"7.2GB/h", seconds, 2e6},
		{"3MB/step", seconds, 6e6},
		{"3MB/step", steps, 3e6},
		{"60MB/min", steps, 0},
		{"3MB/step", Axis{Unit: summary.AxisSeconds}, 0},
		{"90", seconds, 45},
		{"90", steps, 90},
		{"90", Axis{Unit: summary.AxisSeconds}, 90},
		{"90s", seconds, 90},
		{"90s", steps, 0},
	} {
		var rate Rate
		var point Point
		value := func() (float64, error) { return c.axis.Position("--flag", point) }
		if strings.Contains(c.text, "/") {
			value = func() (float64, error) { return c.axis.Rate("--flag", rate) }
		}

		_, _ = rate.Set(c.text), point.Set(c.text)
		if got, err := value(); got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%s on %+v: %g, %v, want %g", c.text, c.axis, got, err, c.want)
		}
	}
}
