package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestSampleType(t *testing.T) {
	t.Run("chosen", func(t *testing.T) {
		a, b := mixed(t, 1)
		for asked, want := range map[string]string{
			"": "resident_space", "inuse_space": "inuse_space", "alloc_space": "alloc_space",
		} {
			if r := compared(t, Options{Sample: asked}, a, b); r.SampleType != want {
				t.Errorf("%q: %v", asked, r)
			}
		}
		for _, asked := range []string{"inuse_objects", "cpu", "\x1b"} {
			_, err := Profiles(Profile{"a", a}, Profile{"b", b}, Options{Sample: asked})
			exporttest.WantError(t, err, "--sample")
		}
	})

	t.Run("live bytes without resident ones", func(t *testing.T) {
		held := heap(stack(1, "leak", "main"), 10, 100)
		held.ResidentBytes = 0
		p := profileOf(t, 1, held)
		r := profiles(t, p, p.Copy())
		if r.SampleType != "inuse_space" || r.Total.Before.Bytes != 1000 {
			t.Errorf("%s %+v", r.SampleType, r.Total)
		}
	})

	t.Run("none in common", func(t *testing.T) {
		memory := profileOf(t, 1, heap(stack(1, "leak", "main"), 10, 100))
		cpu := &pprof.Profile{
			SampleType: []*pprof.ValueType{{Type: "cpu\x1b", Unit: "nanoseconds"}},
		}
		_, err := Profiles(Profile{"a", memory}, Profile{"b", cpu}, Options{})
		if err == nil || !strings.Contains(err.Error(), "cpu?/nanoseconds") ||
			!strings.Contains(err.Error(), "inuse_space/bytes") {
			t.Errorf("%v", err)
		}
		same := Profile{"a", memory}
		if _, err = Profiles(same, same, Options{PerStep: true}); err == nil {
			t.Error("profiles have a rate by step")
		}
	})
}

// hostile is a profile whose names are meant to do harm.
func hostile(t testing.TB) *pprof.Profile {
	s := stack(1, "</script><script>alert(1)</script>\x1b[31m:7", "\u202eevil\u2066",
		strings.Repeat("x", 10_000))
	s.Frames = append(s.Frames, growth.Frame{Function: "\xff\xfe'\"><img src=x onerror=alert(1)>"})
	p := profileOf(t, interval, heap(s, 1000, 1<<16))
	p.Sample[0].Label["component"] = []string{`"><b onclick=x>` + "\x07"}
	p.Sample[0].Label["kind"] = []string{"heap\x1b]0;x\x07"}
	return p
}

// mustBeSafe checks conditions that every result must meet, whatever the profiles are.
func mustBeSafe(t testing.TB, r *Result) {
	t.Helper()
	var text, html bytes.Buffer
	tracertest.NoError(t, r.WriteJSON(&text))
	tracertest.NoError(t, r.WriteHTML(&html))
	var again Result
	if err := json.Unmarshal(text.Bytes(), &again); err != nil || !reflect.DeepEqual(&again, r) {
		t.Errorf("read again: %v, %+v; written: %+v", err, again, *r)
	}
	for _, o := range r.Components {
		mustBeOrdered(t, o.Component, o.Difference)
	}
	for i := range r.Stacks {
		s := &r.Stacks[i]
		mustBeOrdered(t, s.Where()+s.Component+s.Kind+strings.Join(s.Stack, ""), s.Difference)
	}
	for _, harm := range []string{"<script>alert", "<img", "<b ", " style="} {
		if strings.Contains(html.String(), harm) {
			t.Errorf("the page holds %s", html.String())
		}
	}
}

func mustBeOrdered(t testing.TB, said string, d Difference) {
	t.Helper()
	if !d.Before.ordered() || !d.After.ordered() || !d.Change.ordered() {
		t.Errorf("%q: %+v", said, d)
	}
	for _, r := range said {
		if !strconv.IsPrint(r) {
			t.Errorf("says %q", said)
		}
	}
}

func TestWriteHTML(t *testing.T) {
	t.Run("hostile names", func(t *testing.T) {
		p := hostile(t)
		r := profiles(t, p, profileOf(t, interval))
		r.Before.Name, r.Notes = "<i>a</i>", []string{"<u>"}
		mustBeSafe(t, r)
		var html bytes.Buffer
		tracertest.NoError(t, r.WriteHTML(&html))
		for _, word := range []string{
			"&lt;/script&gt;&lt;script&gt;alert(1)", "&lt;i&gt;a", "&lt;u&gt;",
			`data-component="&#34;&gt;&lt;b onclick=x&gt;?"`, `<tr class="vanished">`,
			`<rect class="before" x="0"`,
		} {
			if !strings.Contains(html.String(), word) {
				t.Errorf("the page does not hold %q", word)
			}
		}
	})

	t.Run("more stacks", func(t *testing.T) {
		var held []growth.Holding
		for i := range int64(maxShownStacks + 5) {
			held = append(held, heap(stack(1, fmt.Sprintf("f%d", i)), i+1, 64))
		}
		r := profiles(t, profileOf(t, 1, held...), profileOf(t, 1))
		var html bytes.Buffer
		tracertest.NoError(t, r.WriteHTML(&html))
		if n := strings.Count(html.String(), "<details><summary>"); n != maxShownStacks ||
			!strings.Contains(html.String(), "5 more stacks with smaller changes") ||
			len(r.Stacks) != maxShownStacks+5 {
			t.Errorf("%d stacks in the page, %d in all", n, len(r.Stacks))
		}
	})
}

func TestWriteJSON(t *testing.T) {
	doc := tracertest.Must(os.ReadFile("../../docs/reference/diff.md"))(t)
	p := hostile(t)
	p.TimeNanos = 1
	trace := traceWith(t, verdictOf(verdict.ClassLeak, 1, 0, 2), 3)
	trace.Summary.Process = summary.Process{PID: 1, Command: "x"}
	trace.Summary.DurationS, trace.Summary.Started = 60, began
	r := traces(t, trace, trace, Options{})
	r.Stacks = append(r.Stacks, profiles(t, p, p.Copy()).Stacks...)
	r.Stacks[0].Module = "x"
	var text bytes.Buffer
	tracertest.NoError(t, r.WriteJSON(&text))
	keys := make(map[string]bool)
	for _, key := range regexp.MustCompile(`(?m)^ *"([a-z_]+)":`).FindAllStringSubmatch(text.String(),
		-1) {
		keys[key[1]] = true
		if !strings.Contains(string(doc), "`"+key[1]) {
			t.Errorf("docs/reference/diff.md does not name %s", key[1])
		}
	}
	if len(keys) < 30 {
		t.Errorf("only %d keys were seen: %v", len(keys), keys)
	}
}

func FuzzProfilesOfAnyFormAreComparedSafely(f *testing.F) {
	a, b := mixed(f, interval)
	for _, p := range []*pprof.Profile{a, b, hostile(f)} {
		var packed, data bytes.Buffer
		tracertest.NoError(f, p.WriteUncompressed(&data))
		tracertest.NoError(f, p.Write(&packed))
		f.Add(data.Bytes(), packed.Bytes())
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		p, err := ParseProfile(bytes.NewReader(first))
		if err != nil {
			return
		}
		q, err := ParseProfile(bytes.NewReader(second))
		if err != nil {
			q = p.Copy()
		}
		if r, err := Profiles(Profile{"a", p}, Profile{"b", q}, Options{}); err == nil {
			mustBeSafe(t, r)
		}
		s := &summary.Summary{Schema: summary.Schema, IntervalBytes: interval}
		trace := &Trace{Name: "t", Summary: s, Growth: p, Warmup: q, Plateau: p}
		if r, err := Traces(trace, trace, Options{}); err == nil {
			mustBeSafe(t, r)
		}
	})
}

func FuzzSummariesOfAnyFormAreComparedSafely(f *testing.F) {
	trace := traceWith(f, verdictOf(verdict.ClassLeak, 100, 98, 102), 10)
	trace.Summary.Breakdown = []summary.BreakdownRow{
		{Process: 1, Kind: growth.KindHeap, ErrorBytes: 1000},
	}
	trace.Summary.Process = summary.Process{PID: 7, Command: "\x1b\u202e"}
	trace.Summary.Residents = []summary.Resident{{Process: 7, Scanned: 0.5}}
	var text bytes.Buffer
	tracertest.NoError(f, trace.Summary.Write(&text))
	f.Add(text.Bytes())
	f.Add([]byte(`{"schema": "allocscope/1", "verdict": "leak", "rate_bytes": 1e308, "rate_low_bytes": -1e308, "rate_high_bytes": 1e308, "steps": {"per_min": 5e-324}, "duration_s": 1e308}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		summary, err := summary.Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		other := *trace
		other.Summary = summary
		for _, step := range []bool{false, true} {
			for _, pair := range [][2]*Trace{{trace, &other}, {&other, trace}, {&other, &other}} {
				r, err := Traces(pair[0], pair[1], Options{PerStep: step})
				if err != nil {
					continue
				}
				mustBeSafe(t, r)
				mustBeOrdered(t,
					r.Name+r.Sentence+r.Before.Text()+r.After.Text()+strings.Join(r.Notes, ""),
					r.Total)
				if r.RSS != nil {
					mustBeOrdered(t, "", *r.RSS)
				}
			}
		}
	})
}
