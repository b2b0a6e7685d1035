package flagvalue

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/verdict"
)

func TestFailOn(t *testing.T) {
	const other = verdict.ClassPlateau
	for _, test := range []struct {
		on     FailOn
		class  verdict.Class
		second verdict.Class
		want   exit.Status
	}{
		{"", verdict.ClassLeak, other, exit.Done},
		{"", verdict.ClassTooShort, other, exit.Done},
		{"leak", verdict.ClassLeak, other, exit.Found},
		{"leak", verdict.ClassSuspected, other, exit.Inconclusive},
		{"leak", verdict.ClassGrowing, other, exit.Inconclusive},
		{"leak", verdict.ClassTooShort, other, exit.Inconclusive},
		{"leak", verdict.ClassWrongProcess, other, exit.Inconclusive},
		{"leak", verdict.ClassSaturating, other, exit.Inconclusive},
		{"leak", verdict.ClassSpikyPlateau, other, exit.Done},
		{"leak", verdict.ClassTooShort, verdict.ClassLeak, exit.Found},
		{"leak", verdict.ClassSuspected, verdict.ClassTooShort, exit.Inconclusive},
		{"suspected", verdict.ClassLeak, other, exit.Found},
		{"suspected", verdict.ClassSuspected, other, exit.Found},
		{"suspected", verdict.ClassGrowing, other, exit.Inconclusive},
		{"suspected", verdict.ClassGrowing, verdict.ClassSuspected, exit.Found},
	} {
		err := test.on.Check(Outcome{"the verdict", test.class}, Outcome{"another", test.second})
		if got := exit.StatusOf(err); got != test.want {
			t.Errorf("--fail-on %q, %s and %s: %d, %v; want %d", test.on, test.class, test.second,
				got, err, test.want)
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
