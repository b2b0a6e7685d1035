package summary

import (
	"cmp"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// A LedgerRow is the resident memory of one stack, file or arena in one kind, at the boundary and the end. The rows of a process
// but those of kind swapped sum to its RSS, as the kernel counts.
type BreakdownRow struct {
	// Process is the PID; 0: the tree, where what several processes share counts once.
	Process int         `json:"process"`
	Kind    growth.Kind `json:"kind"`
	// Name of what holds it: see LedgerOf.
	Name       string `json:"name"`
	StartBytes int64  `json:"start_bytes"`
	EndBytes   int64  `json:"end_bytes"`
	DeltaBytes int64  `json:"delta_bytes"`
	// ErrorBytes is half the width of the 95 % interval of DeltaBytes; 0: it is exact.
	ErrorBytes int64 `json:"error_bytes"`
}

// LedgerOf names the rows of growth.Ledger, and sums those that read alike. The name is where memory was allocated, the caller of
// the allocator first, with its nearest callers in Python; for what has no holder, the name under which it stands, or of its
// file, and what is below it: "free but resident: main heap".
//
// Of each process and kind no more than limit rows are kept: half of them those that changed most, half those that hold most at
// the end. The others are one more row, so that all sums stay. The result is sorted by process, the tree first, and within one
// the largest change first, then the largest EndBytes.
func BreakdownOf(rows []growth.LedgerRow, limit int) []BreakdownRow {
	type part struct {
		process int
		kind    growth.Kind
	}
	parts := make(map[part][]BreakdownRow)
	for _, row := range namedRows(rows) {
		key := part{row.Process, row.Kind}
		parts[key] = append(parts[key], row)
	}
	ledger := []BreakdownRow{}
	for _, rows := range parts {
		ledger = append(ledger, limitRows(rows, limit)...)
	}
	slices.SortFunc(ledger, func(a, b BreakdownRow) int { return cmp.Or(cmp.Compare(a.Process, b.Process), byChange(a, b)) })
	return ledger
}

func byChange(a, b BreakdownRow) int {
	return cmp.Or(cmp.Compare(magnitude(b.DeltaBytes), magnitude(a.DeltaBytes)), cmp.Compare(b.EndBytes, a.EndBytes), byName(a, b))
}

func byEnd(a, b BreakdownRow) int {
	return cmp.Or(cmp.Compare(b.EndBytes, a.EndBytes), byName(a, b))
}

func byName(a, b BreakdownRow) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

func magnitude(bytes int64) int64 { return max(bytes, -bytes) }

// named rows, those that read alike summed.
func namedRows(rows []growth.LedgerRow) []BreakdownRow {
	type look struct {
		process int
		kind    growth.Kind
		name    string
	}
	at := make(map[look]int)
	var sums []BreakdownRow
	for _, r := range rows {
		key := look{r.PID, r.Kind, rowName(r.Stack, r.Kind)}
		i, ok := at[key]
		if !ok {
			i = len(sums)
			at[key] = i
			sums = append(sums, BreakdownRow{Process: r.PID, Kind: r.Kind, Name: key.name})
		}
		sums[i].add(BreakdownRow{StartBytes: r.Start, EndBytes: r.End, ErrorBytes: units.Round(math.Ceil(r.Error))})
	}
	return sums
}

// add sums all but the name.
func (r *BreakdownRow) add(more BreakdownRow) {
	r.StartBytes += more.StartBytes
	r.EndBytes += more.EndBytes
	r.DeltaBytes = r.EndBytes - r.StartBytes
	r.ErrorBytes = units.Round(math.Hypot(float64(r.ErrorBytes), float64(more.ErrorBytes)))
}

// shortened makes one row of those that are too many.
func limitRows(rows []BreakdownRow, limit int) []BreakdownRow {
	if len(rows) <= limit {
		return rows
	}
	changed := (limit + 1) / 2
	slices.SortFunc(rows, byChange)
	slices.SortFunc(rows[changed:], byEnd)
	rest := BreakdownRow{Process: rows[0].Process, Kind: rows[0].Kind, Name: restName(rows[0].Kind)}
	for _, r := range rows[limit:] {
		rest.add(r)
	}
	return append(rows[:limit:limit], rest)
}

func restName(kind growth.Kind) string {
	switch kind {
	case growth.KindFile:
		return "other files"
	case growth.KindRetained, growth.KindUntold, growth.KindMetadata:
		return "other arenas"
	}
	return "other stacks"
}

// ledgerName is what holds the memory of a row, in printable characters.
func rowName(s *growth.Stack, kind growth.Kind) string {
	name := rootText(s.Root)
	switch {
	case s.Root == "":
		name = PlaceText(s)
	case len(s.Frames) > 0:
		name += ": " + PlaceText(s)
	}
	return units.Printable(cmp.Or(name, string(kind)))
}

// rootText is a root without brackets and without the kind before it: "[heap: free but resident]" is "free but resident", and
// "[file: /data/x]" is "/data/x".
func rootText(root string) string {
	text := strings.TrimSuffix(strings.TrimPrefix(root, "["), "]")
	if _, name, ok := strings.Cut(text, ": "); ok {
		return name
	}
	return text
}

// placeText is the caller of the allocator and its nearest callers: those of Python if there are any, else native ones:
// "resize (Image.py:2192) < augment (train.py:47)".
func PlaceText(s *growth.Stack) string {
	const natives, pythons = 2, 2
	unrooted := *s
	unrooted.Root = ""
	frames := growth.WithoutAllocator(profile.Frames(&unrooted))
	text, callers := shortFrameText(frames[0]), frames[1:]
	most := natives
	if slices.ContainsFunc(callers, func(f growth.Frame) bool { return f.Python }) {
		callers = slices.DeleteFunc(slices.Clone(callers), func(f growth.Frame) bool { return !f.Python })
		most = pythons
	}
	for _, f := range callers[:min(most, len(callers))] {
		text += " < " + shortFrameText(f)
	}
	return text
}

// shortFrameText is frameText without folders.
func shortFrameText(f growth.Frame) string {
	switch {
	case f.File != "" && f.Line > 0:
		return f.Function + " (" + path.Base(f.File) + ":" + strconv.Itoa(f.Line) + ")"
	case f.Module != nil && !strings.Contains(f.Function, "+0x"):
		return f.Function + " (" + path.Base(f.Module.Path) + ")"
	}
	return f.Function
}

// A Resident is a process whose pages were looked at, as the kernel counted them at the boundary and the end.
type Resident struct {
	Process int `json:"process"`
	// Role is one of growth.Role….
	Role growth.Role `json:"role,omitempty"`
	// Traced: with all sources. HeapTraced: the holders of its heap memory are known.
	Traced     bool `json:"traced"`
	HeapTraced bool `json:"heap_traced"`
	// StartBytes and EndBytes are its RSS; absent where it was not there.
	StartBytes *int64 `json:"start_bytes,omitempty"`
	EndBytes   *int64 `json:"end_bytes,omitempty"`
	// Threads, and Arenas of malloc, when it was last looked at; absent where they are not known.
	Threads *int64 `json:"threads,omitempty"`
	Arenas  int    `json:"arenas,omitempty"`
	// Looked is the share of its pages that was looked at, up to 1.
	Scanned float64 `json:"scanned"`
}

// An Advice is something to try.
type Advice struct {
	// About is one of growth.About….
	About string `json:"about"`
	// Process is the PID that it is about; absent: the tree.
	Process int    `json:"process,omitempty"`
	Text    string `json:"text"`
}

// ResidentsOf joins what the kernel counted at two moments, in the order of the end; those that had ended come last.
func ResidentsOf(start, end []growth.Resident) []Resident {
	residents := []Resident{}
	at := make(map[int]int)
	for _, r := range slices.Concat(end, start) {
		if _, ok := at[r.PID]; ok {
			continue
		}
		at[r.PID] = len(residents)
		residents = append(residents, Resident{
			Process: r.PID, Role: r.Role, Traced: r.Traced, HeapTraced: r.HeapTraced, Threads: Known(r.Threads), Arenas: r.Arenas, Scanned: r.Looked,
		})
	}
	for _, r := range start {
		residents[at[r.PID]].StartBytes = Known(r.RSS)
	}
	for _, r := range end {
		residents[at[r.PID]].EndBytes = Known(r.RSS)
	}
	return residents
}

// AdviceOf is advice in the form of the summary.
func AdviceOf(advice []growth.Advice) []Advice {
	out := []Advice{}
	for _, a := range advice {
		out = append(out, Advice{About: a.About, Process: a.PID, Text: a.Text})
	}
	return out
}
