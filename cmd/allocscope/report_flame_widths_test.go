package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/page/pagetest"
	"github.com/allocscope/allocscope/export/units"
)

// A cumulated is a line of `go tool pprof -top -cum`.
type cumulated struct {
	function string
	value    float64
}

// grown is growth.pb.gz without the stacks of which a sample type shrank: the flame graph cannot show them, and says so. Stacks that
// differ in addresses alone are one.
func grown(t *testing.T, dir, sampleType string) (p *pprof.Profile, total float64) {
	t.Helper()
	p = readProfile(t, dir, folder.GrowthFile)
	for _, s := range p.Sample {
		s.Label, s.NumLabel = map[string][]string{"pid": s.Label["pid"]}, nil // those of a stack become one
	}
	err := p.RemoveUninteresting()
	if err == nil {
		p, err = pprof.Merge([]*pprof.Profile{p})
	}
	if err != nil {
		t.Fatal(err)
	}
	index := slices.IndexFunc(p.SampleType, func(s *pprof.ValueType) bool { return s.Type == sampleType })
	sums := make(map[string]int64)
	for _, s := range p.Sample {
		sums[stackOf(s)] += s.Value[index]
	}
	p.Sample = slices.DeleteFunc(p.Sample, func(s *pprof.Sample) bool { return sums[stackOf(s)] < 0 })
	for _, s := range p.Sample {
		total += float64(s.Value[index])
	}
	return p, total
}

// stackOf is the functions and lines of a sample.
func stackOf(s *pprof.Sample) string {
	text := strings.Join(s.Label["pid"], ",")
	for _, l := range s.Location {
		for _, line := range l.Line {
			text += fmt.Sprintf("\n%s %s:%d", line.Function.Name, line.Function.Filename, line.Line)
		}
	}
	return text
}

// topByPprof asks pprof for the functions with most of a sample type, and gives the sum of all.
func topByPprof(t *testing.T, dir, sampleType string, n int) (top []cumulated, total float64) {
	t.Helper()
	p, total := grown(t, dir, sampleType)
	path := filepath.Join(t.TempDir(), folder.GrowthFile)
	file, err := os.Create(path)
	if err == nil {
		err = errors.Join(p.Write(file), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "tool", "pprof", "-top", "-cum", "-unit=B", "-nodecount="+strconv.Itoa(n), "-sample_index="+sampleType, path).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(out), "cum%\n")
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		value, err := strconv.ParseFloat(strings.TrimSuffix(fields[3], "B"), 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		top = append(top, cumulated{strings.TrimSuffix(strings.Join(fields[5:], " "), " (inline)"), value})
	}
	if len(top) < 5 {
		t.Fatalf("pprof says\n%s", out)
	}
	return top, total
}

// outermost are the frames of a function that do not stand below another one of it.
func outermost(frames []frame, function string) []frame {
	var found []frame
	for _, f := range frames {
		if f.function() == function && !slices.ContainsFunc(found, func(above frame) bool {
			return above.Y < f.Y && f.X > above.X-1 && f.X+f.Width < above.X+above.Width+1
		}) {
			found = append(found, f)
		}
	}
	return found
}

// mustBeAsWide wants the widths that pprof counts, but for what is too small to be drawn.
func mustBeAsWide(t *testing.T, top []cumulated, total float64, frames []frame) {
	t.Helper()
	whole := frames[0].Width
	for _, c := range top {
		width := 0.0
		for _, f := range outermost(frames, c.function) {
			width += f.Width
		}
		if want := c.value / total * whole; math.Abs(width-want) > 0.01*whole {
			t.Errorf("%s is %.1f of %.1f px wide, want %.1f: %.0f of %.0f", c.function, width, whole, want, c.value, total)
		}
	}
}

func checkFlameWidths(t *testing.T, report readable) {
	r := report.open(t, pagetest.View{})
	frames := r.frames()
	top, total := topByPprof(t, report.folder, "resident_space", 60)
	mustBeAsWide(t, top, total, frames)
	told := 0
	for _, c := range top {
		drawn, said, pointed := 0.0, 0.0, 0
		for _, f := range outermost(frames, c.function) {
			size := f.Width / frames[0].Width * total
			drawn += size
			if f.Width > 3 { // the mouse can be moved to it
				size = sizeUnderTheMouse(t, r, f)
				pointed++
			}
			said += size
		}
		// mustBeAsWide says how much may be too small to be drawn
		if want := min(c.value, drawn); math.Abs(said-want) > 0.01*want {
			t.Errorf("over the frames of %s there are %s, want %s of %s", c.function, units.Bytes(said), units.Bytes(want), units.Bytes(c.value))
		}
		told += min(pointed, 1)
	}
	if told < 5 {
		t.Errorf("%d functions can be pointed at: the test is wrong", told)
	}
	r.mustBeSound()
}

// sizeUnderTheMouse is what the flame graph tells of a frame that the mouse is moved to, in bytes.
func sizeUnderTheMouse(t *testing.T, r reader, f frame) float64 {
	t.Helper()
	r.must(r.Move(f.middle()))
	got := r.text("#flame-chart .details")
	if !strings.HasPrefix(got, f.function()) {
		t.Errorf("over %s there is %q", f.function(), got)
	}
	return sizeIn(t, strings.TrimPrefix(got, f.function()))
}
