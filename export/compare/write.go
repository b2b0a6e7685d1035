package compare

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/page"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// WriteJSON writes the result, indented. The error is that of w, not wrapped.
func (r *Result) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// Per is what sizes are by: "/min", "/step", or nothing.
func (r *Result) Per() string { return strings.TrimPrefix(r.Unit, UnitBytes) }

// Where is the stack in a line, with its kind where it is not heap and the name does not say it.
func (s *StackRow) Where() string {
	if s.Kind == "" || strings.HasPrefix(s.Function, "[") {
		return s.place(growth.KindHeap)
	}
	return s.place(growth.Kind(s.Kind))
}

func (s *StackRow) place(kind growth.Kind) string {
	return words.Where(export.Accumulation{Function: s.Function, Module: s.Module, Kind: kind, Stack: s.Stack})
}

// Text is what a side was, in a line.
func (s *Side) Text() string { return strings.Join(append([]string{s.Name}, s.Details()...), ", ") }

// Details are what is known of a side besides its name.
func (s *Side) Details() []string {
	var parts []string
	if s.PID != 0 {
		parts = append(parts, fmt.Sprintf("%s (PID %d)", s.Command, s.PID))
	}
	if s.DurationS > 0 {
		parts = append(parts, words.Seconds(s.DurationS))
	}
	if s.GrowthS > 0 {
		parts = append(parts, words.Seconds(s.GrowthS)+" since the boundary")
	}
	switch {
	case s.IntervalBytes == 1:
		parts = append(parts, "every allocation")
	case s.IntervalBytes > 1:
		parts = append(parts, "a sample each "+words.Bytes(float64(s.IntervalBytes)))
	}
	if s.Verdict != "" {
		parts = append(parts, "verdict "+s.Verdict)
	}
	return parts
}

//go:embed diff.html
var bodyText string

var body = template.Must(template.New("diff").Parse(bodyText))

// A view is what the template shows.
type view struct {
	*Result
	// Class that colours the heading: that of a verdict.
	Class string
	// All is the sum of all stacks.
	All    line
	Tables []table
}

// A table has a row for each owner, or each stack.
type table struct {
	ID, Title, What string
	Stacks          bool
	Note            string
	Rows            []line
}

// A line is a row of a table for people.
type line struct {
	Difference
	Owner, Kind, Where    string
	Stack                 []frameLine
	Before, After, Change string
	Interval              string
	Pair                  pair
}

type frameLine struct{ Class, Text string }

// A pair of bars lies in 1000 by 20 units, both from Zero.
type pair struct{ BeforeX, BeforeWidth, AfterX, AfterWidth float64 }

// mostShown bounds the stacks of a page: all are in the JSON.
const mostShown = 1000

// WriteHTML writes the result as a page of its own. The error is that of w.
func (r *Result) WriteHTML(w io.Writer) error {
	v := view{Result: r, Class: string(classOf[r.Outcome]), All: r.line("", r.Total)}
	owners, stacks := table{ID: "owners", Title: "By owner", What: "Owner"}, table{ID: "stacks", Title: "By stack", What: "Where; opens the stack", Stacks: true}
	for i := range r.Owners {
		owners.Rows = append(owners.Rows, r.line(r.Owners[i].Owner, r.Owners[i].Difference))
	}
	for i := range r.Stacks[:min(mostShown, len(r.Stacks))] {
		s := &r.Stacks[i]
		l := r.line(s.Owner, s.Difference)
		l.Kind, l.Where, l.Stack = s.Kind, s.place(growth.KindHeap), frameLines(s.Stack)
		stacks.Rows = append(stacks.Rows, l)
	}
	if more := len(r.Stacks) - mostShown; more > 0 {
		stacks.Note = fmt.Sprintf("%s, whose change is smaller, are in what --json prints.", words.Plural(more, "stack more", "stacks more"))
	}
	v.Tables = []table{owners, stacks}
	for i := range v.Tables {
		v.Tables[i].draw()
	}
	var text strings.Builder
	if err := body.ExecuteTemplate(&text, "body", v); err != nil {
		return err
	}
	return page.Write(w, page.Page{Title: "allocscope diff: " + r.Before.Name + ", " + r.After.Name, Body: template.HTML(text.String())})
}

// classOf are the verdicts in whose colours the outcomes are shown.
var classOf = map[Outcome]growth.Class{
	OutcomeGone: growth.ClassPlateau, OutcomeNoGrowth: growth.ClassPlateau, OutcomeLess: growth.ClassPlateau, OutcomeSame: growth.ClassPlateau,
	OutcomeSlower: growth.ClassSaturating, OutcomeAsBefore: growth.ClassSuspected, OutcomeFaster: growth.ClassLeak, OutcomeNew: growth.ClassLeak,
	OutcomeMore: growth.ClassGrowing, OutcomeUnknown: growth.ClassTooShort,
}

func (r *Result) line(owner string, d Difference) line {
	return line{
		Difference: d, Owner: owner, Before: words.Bytes(float64(d.Before.Bytes)), After: words.Bytes(float64(d.After.Bytes)),
		Change: words.Signed(float64(d.Change.Bytes)), Interval: d.Change.Interval(),
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
