// Package compare compares two traces or two profiles: before and after a fix, or two runs.
package compare

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/allocscope/allocscope/export/page"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// WriteJSON writes the result, indented. The error comes from w, unwrapped.
func (r *Result) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// Per is the unit of time or steps: "/min", "/step", or nothing.
func (r *Result) Per() string { return strings.TrimPrefix(r.Unit, UnitBytes) }

// Where is the stack in a line, with its kind, unless that is heap or the function names it.
func (s *StackRow) Where() string {
	if s.Kind == "" || strings.HasPrefix(s.Function, "[") {
		return s.place(growth.KindHeap)
	}
	return s.place(growth.Kind(s.Kind))
}

// CallSite is the function that allocates, with its line where that is known.
func (s *StackRow) CallSite() string { return words.CallSite(s.accumulation(growth.KindHeap)) }

func (s *StackRow) place(kind growth.Kind) string { return words.Where(s.accumulation(kind)) }

func (s *StackRow) accumulation(kind growth.Kind) summary.Accumulation {
	return summary.Accumulation{Function: s.Function, Module: s.Module, Kind: kind, Stack: s.Stack}
}

// Text describes a side in a line.
func (s *Side) Text() string { return strings.Join(append([]string{s.Name}, s.Details()...), ", ") }

// Details are the facts of a side besides its name.
func (s *Side) Details() []string {
	var parts []string
	if s.PID != 0 {
		parts = append(parts, fmt.Sprintf("%s (PID %d)", s.Command, s.PID))
	}

	if s.DurationS > 0 {
		parts = append(parts, units.Seconds(s.DurationS))
	}

	if s.GrowthS > 0 {
		parts = append(parts, units.Seconds(s.GrowthS)+" since the baseline")
	}

	switch {
	case s.IntervalBytes == 1:
		parts = append(parts, "every allocation")
	case s.IntervalBytes > 1:
		parts = append(parts, "a sample each "+units.Bytes(float64(s.IntervalBytes)))
	}

	if s.Verdict != "" {
		parts = append(parts, words.ClassText(verdict.Class(s.Verdict)))
	}

	return parts
}

//go:embed diff.html
var bodyText string

var body = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("diff").Parse(bodyText))
})

// A view is the data of the template.
type view struct {
	*Result
	// Class of the verdict in whose colour the heading is.
	Class string
	// All is the sum of all stacks.
	All    tableRow
	Tables []table
	// BeforeTitle and AfterTitle are the titles of the columns of the two sides.
	BeforeTitle, AfterTitle string
}

// A table has a row for each component, or for each stack.
type table struct {
	ID, Title, What string
	Stacks          bool
	Note            string
	Rows            []tableRow
}

// A tableRow is a row of a table for people.
type tableRow struct {
	Difference
	Component, Kind, Where string
	Stack                  []frameLine
	Before, After, Change  string
	Interval               string
	Pair                   pair
}

type frameLine struct{ Class, Text string }

// A pair of bars lies in 1000 by 20 units. Both begin at zero.
type pair struct{ BeforeX, BeforeWidth, AfterX, AfterWidth float64 }

// maxShownStacks bounds the stacks of a page. The JSON has all.
const maxShownStacks = 1000

// WriteHTML writes the result as a page. The error comes from w.
func (r *Result) WriteHTML(w io.Writer) error {
	var text strings.Builder
	if err := body().ExecuteTemplate(&text, "body", r.view("Before", "After")); err != nil {
		return err
	}

	return page.Write(w, page.Page{
		Title: "allocscope diff: " + r.Before.Name + ", " + r.After.Name,
		Body:  template.HTML(text.String()),
	})
}

// WriteTables writes the sections of a page with the components and the stacks. The titles head the
// columns of the two sides. The error comes from w.
func (r *Result) WriteTables(w io.Writer, beforeTitle, afterTitle string) error {
	return body().ExecuteTemplate(w, "tables", r.view(beforeTitle, afterTitle))
}

// view is the data of the templates.
func (r *Result) view(beforeTitle, afterTitle string) view {
	v := view{
		Result: r, Class: string(classOf[r.Outcome]), All: r.line("", r.Total),
		BeforeTitle: beforeTitle, AfterTitle: afterTitle,
	}
	components, stacks := table{ID: "components", Title: "By component", What: "Component"},
		table{ID: "stacks", Title: "By stack", What: "Where; opens the stack", Stacks: true}
	for i := range r.Components {
		components.Rows = append(components.Rows,
			r.line(r.Components[i].Component, r.Components[i].Difference))
	}

	for i := range r.Stacks[:min(maxShownStacks, len(r.Stacks))] {
		s := &r.Stacks[i]
		l := r.line(s.Component, s.Difference)
		l.Kind, l.Where, l.Stack = s.Kind, s.place(growth.KindHeap), frameLines(s.Stack)
		stacks.Rows = append(stacks.Rows, l)
	}

	if more := len(r.Stacks) - maxShownStacks; more > 0 {
		stacks.Note = fmt.Sprintf("%s with smaller changes: see --json.",
			units.Plural(more, "more stack", "more stacks"))
	}

	v.Tables = []table{components, stacks}

	for i := range v.Tables {
		v.Tables[i].draw()
	}

	return v
}

// classOf has the verdicts in whose colours the outcomes are shown.
var classOf = map[Outcome]verdict.Class{
	OutcomeGone: verdict.ClassPlateau, OutcomeNoGrowth: verdict.ClassPlateau,
	OutcomeLess: verdict.ClassPlateau, OutcomeSame: verdict.ClassPlateau,
	OutcomeSlower: verdict.ClassSaturating, OutcomeAsBefore: verdict.ClassSuspected,
	OutcomeFaster: verdict.ClassLeak, OutcomeNew: verdict.ClassLeak,
	OutcomeMore: verdict.ClassGrowing, OutcomeUnknown: verdict.ClassTooShort,
}

func (r *Result) line(component string, d Difference) tableRow {
	return tableRow{
		Difference: d, Component: component, Before: units.Bytes(float64(d.Before.Bytes)),
		After:  units.Bytes(float64(d.After.Bytes)),
		Change: units.Signed(float64(d.Change.Bytes)), Interval: d.Interval(),
	}
}

func frameLines(stack []string) []frameLine {
	var lines []frameLine
	for _, text := range stack {
		lines = append(lines, frameLine{words.FrameClass(text), text})
	}
	return lines
}

// draw gives each row its bars, all to one scale.
func (t *table) draw() {
	var low, high float64
	for _, l := range t.Rows {
		low = min(low, float64(l.Difference.Before.Bytes), float64(l.Difference.After.Bytes))
		high = max(high, float64(l.Difference.Before.Bytes), float64(l.Difference.After.Bytes))
	}

	scale := 1000 / max(high-low, 1)

	bar := func(bytes int64) (x, width float64) {
		from, to := min(0, float64(bytes)), max(0, float64(bytes))
		return tenths((from - low) * scale), tenths((to - from) * scale)
	}
	for i := range t.Rows {
		l := &t.Rows[i]
		l.Pair.BeforeX, l.Pair.BeforeWidth = bar(l.Difference.Before.Bytes)
		l.Pair.AfterX, l.Pair.AfterWidth = bar(l.Difference.After.Bytes)
	}
}

func tenths(x float64) float64 { return math.Round(10*x) / 10 }

// Schema is the version of the form of `allocscope diff --json`. It changes when a field goes or
// changes its meaning; fields may be added at any time.
const Schema = "allocscope-diff/1"

// A Result is the difference between before and after. Sizes are whole bytes, or bytes by Unit.
type Result struct {
	Schema string `json:"schema"`
	// Outcome is one of the constants Outcome…, Name its words, and Sentence the details.
	Outcome  Outcome `json:"outcome"`
	Name     string  `json:"name"`
	Sentence string  `json:"sentence"`
	// SampleType that was compared.
	SampleType string `json:"sample_type"`
	// Unit of Total, Components and Stacks, one of the constants Unit….
	Unit   string `json:"unit"`
	Before Side   `json:"before"`
	After  Side   `json:"after"`
	// RSS is the rate by the verdicts, of GPU memory where that is compared; nil: of profiles, or
	// unknown.
	RSS *Difference `json:"rss,omitempty"`
	// Total is the sum of all stacks.
	Total Difference `json:"total"`
	// Components and Stacks, the largest proven change first, then the largest.
	Components []ComponentRow `json:"components"`
	Stacks     []StackRow     `json:"stacks"`
	// Notes on the limits of the comparison, a sentence each.
	Notes []string `json:"notes"`
}

// The units.
const (
	UnitBytes   = "bytes"
	UnitPerMin  = "bytes/min"
	UnitPerStep = "bytes/step"
)

// A Side is one of the two that are compared. Unknown values are absent.
type Side struct {
	// Name of the folder or file.
	Name string `json:"name"`
	// Time when it began, and its length in seconds.
	Time      *time.Time `json:"started,omitempty"`
	DurationS float64    `json:"duration_s,omitempty"`
	// IntervalBytes is the mean number of bytes between samples; 1: every allocation; absent:
	// unknown.
	IntervalBytes int64 `json:"interval_bytes,omitempty"`
	// GrowthS is the time in seconds from the baseline to the end. It is there for folders only, as
	// are all fields below.
	GrowthS float64 `json:"growth_s,omitempty"`
	// PID and Command of the process, Verdict on its RSS, or on its GPU memory where that is
	// compared, and Why.
	PID     int    `json:"pid,omitempty"`
	Command string `json:"command,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	Why     string `json:"why,omitempty"`
	// StepsPerMin of training since the baseline.
	StepsPerMin float64 `json:"steps_per_min,omitempty"`
}

// An Estimate is a number of bytes, or a rate, with its 95% interval. Result.Unit is its unit.
type Estimate struct {
	Bytes int64 `json:"value"`
	Low   int64 `json:"low"`
	High  int64 `json:"high"`
}

// A Difference is one thing before and after.
type Difference struct {
	Before Estimate `json:"before"`
	After  Estimate `json:"after"`
	Change Estimate `json:"change"`
	// State is one of the constants State….
	State State `json:"state"`
	// Incomplete: a trace has lost calls that count here, so that no interval is exact; absent:
	// not.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Interval is the interval of the change, for people.
func (d Difference) Interval() string {
	if d.Incomplete && d.Change.Low == d.Change.High {
		return "incomplete"
	}

	return d.Change.Interval()
}

// A State is the kind of a change.
type State string

// The states.
const (
	StateAppeared State = "appeared" // nothing is proven before
	StateVanished State = "vanished" // nothing is proven after
	StateGrew     State = "grew"
	StateShrank   State = "shrank"
	StateSame     State = "same" // no change is proven, or below 5% between two runs
)

// A ComponentRow is all memory of one component.
type ComponentRow struct {
	Component string `json:"component"`
	Difference
}

// A StackRow is all stacks of one component and kind with the same functions and files.
type StackRow struct {
	Component string `json:"component"`
	// Kind of memory; absent if the profile does not label it.
	Kind string `json:"kind,omitempty"`
	// Function that called the allocator, and the Module that it is in; absent if unknown.
	Function string `json:"function"`
	Module   string `json:"module,omitempty"`
	// Stack, leaf first, with the lines of the side that holds more.
	Stack []string `json:"stack"`
	Difference
}
