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
	"github.com/allocscope/allocscope/growth/breakdown"
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/growth/diagnosis"
)

// A BreakdownRow is the resident memory of one stack, file or arena in one kind, at the baseline
// and the end. The rows of a process sum to its RSS, except for rows of kind swapped.
type BreakdownRow struct {
	// Process is the PID; 0: the process tree, where shared memory counts once.
	Process int         `json:"pid"`
	Kind    growth.Kind `json:"kind"`
	// Name of the stack, file or arena, as BreakdownOf writes it.
	Name       string `json:"name"`
	StartBytes int64  `json:"start_bytes"`
	EndBytes   int64  `json:"end_bytes"`
	DeltaBytes int64  `json:"delta_bytes"`
	// ErrorBytes is half the width of the 95% interval of DeltaBytes; 0: it is exact.
	ErrorBytes int64 `json:"error_bytes"`
	// Lost is the loss for which these bytes are incomplete, one of growth.Loss…; absent: none.
	Lost growth.LossKind `json:"lost,omitempty"`
	// File is the path of the mapped file or of the shared memory; absent: it has none. Site is the
	// frame that has allocated the memory, or touched it first where that was not seen: the user's
	// own where there is one; absent: it is not known.
	File string `json:"file,omitempty"`
	Site string `json:"site,omitempty"`
}

// BreakdownOf names the rows of breakdown.RSS, and sums rows with the same name. A name is the
// allocation site, the caller of the allocator with its nearest Python callers. Memory without a
// stack has the name of its file or of its root, and the frame below it: "free but resident: main
// heap".
//
// For each process and kind it keeps up to limit rows: half of them changed most, and half hold
// most at the end. One more row has all others, so that all sums stay. The result is sorted by
// process, the tree first, then by the largest change, then by the largest EndBytes. losses are the
// losses of the trace, which mark rows.
func BreakdownOf(rows []breakdown.Row, limit int, losses growth.Losses) []BreakdownRow {
	type part struct {
		process int
		kind    growth.Kind
	}
	parts := make(map[part][]BreakdownRow)
	for _, row := range namedRows(rows) {
		key := part{row.Process, row.Kind}
		parts[key] = append(parts[key], row)
	}

	breakdown := []BreakdownRow{}
	for _, rows := range parts {
		breakdown = append(breakdown, limitRows(rows, limit, otherRows)...)
	}

	slices.SortFunc(breakdown, func(a, b BreakdownRow) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), byChange(a, b))
	})

	for i := range breakdown {
		r := &breakdown[i]
		if loss, ok := claim.MayRow(r.Kind, r.Process, losses); !ok {
			r.Lost = loss.Kind
		}
	}

	return breakdown
}

// A rankedRow is a row of a breakdown of RSS or of GPU memory.
type rankedRow[T any] interface {
	// sizes returns the change and the end, in bytes.
	sizes() (delta, end int64)
	compareName(other T) int
}

// byChange orders rows by their change, up or down, the largest first.
func byChange[T rankedRow[T]](a, b T) int {
	deltaA, _ := a.sizes()
	deltaB, _ := b.sizes()
	return cmp.Or(cmp.Compare(magnitude(deltaB), magnitude(deltaA)), byEnd(a, b))
}

// byEnd orders rows by their bytes at the end, the largest first.
func byEnd[T rankedRow[T]](a, b T) int {
	_, endA := a.sizes()
	_, endB := b.sizes()
	return cmp.Or(cmp.Compare(endB, endA), a.compareName(b))
}

func (r BreakdownRow) sizes() (delta, end int64) { return r.DeltaBytes, r.EndBytes }

func (r BreakdownRow) compareName(other BreakdownRow) int {
	return cmp.Or(cmp.Compare(r.Kind, other.Kind), cmp.Compare(r.Name, other.Name))
}

func magnitude(bytes int64) int64 { return max(bytes, -bytes) }

// namedRows names rows, and sums rows with the same name.
func namedRows(rows []breakdown.Row) []BreakdownRow {
	type rowKey struct {
		process int
		kind    growth.Kind
		name    string
	}
	at := make(map[rowKey]int)
	var sums []BreakdownRow
	for _, r := range rows {
		key := rowKey{r.PID, r.Kind, rowName(r.Stack, r.Kind)}
		i, ok := at[key]
		if !ok {
			i = len(sums)
			at[key] = i
			sums = append(sums, BreakdownRow{
				Process: r.PID, Kind: r.Kind, Name: key.name, File: fileOf(r.Stack, r.Kind),
				Site: siteOf(r.Stack),
			})
		}

		sums[i].add(BreakdownRow{
			StartBytes: r.Start, EndBytes: r.End, ErrorBytes: units.Round(math.Ceil(r.Error)),
		})
	}

	return sums
}

// add sums everything but the name.
func (r *BreakdownRow) add(more BreakdownRow) {
	r.StartBytes += more.StartBytes
	r.EndBytes += more.EndBytes
	r.DeltaBytes = r.EndBytes - r.StartBytes
	r.ErrorBytes = units.Round(math.Hypot(float64(r.ErrorBytes), float64(more.ErrorBytes)))
}

// limitRows keeps half of the limit for the rows that changed most, and the rest for those that
// hold most at the end. sum makes one row of all others.
func limitRows[T rankedRow[T]](rows []T, limit int, sum func([]T) T) []T {
	if len(rows) <= limit {
		return rows
	}

	changed := (limit + 1) / 2
	slices.SortFunc(rows, byChange[T])
	slices.SortFunc(rows[changed:], byEnd[T])

	return append(rows[:limit:limit], sum(rows[limit:]))
}

func otherRows(rows []BreakdownRow) BreakdownRow {
	sum := BreakdownRow{Process: rows[0].Process, Kind: rows[0].Kind, Name: restName(rows[0].Kind)}
	for _, r := range rows {
		sum.add(r)
	}
	return sum
}

func restName(kind growth.Kind) string {
	switch kind {
	case growth.KindFile:
		return "other files"
	case growth.KindRetained, growth.KindUnclassified, growth.KindMetadata:
		return "other arenas"
	}
	return "other stacks"
}

// rowName names the owner of a row's memory, in printable characters.
func rowName(s *growth.Stack, kind growth.Kind) string {
	name := rootText(s.Root)
	switch {
	case s.Root == "":
		name = placeText(s)
	case len(s.Frames) > 0:
		name += ": " + placeText(s)
	}

	return units.Name(cmp.Or(name, string(kind)))
}

// fileOf is the path of a mapped file or of shared memory; empty: it has none.
func fileOf(s *growth.Stack, kind growth.Kind) string {
	if kind != growth.KindFile && kind != growth.KindShmem || s.Root == "" {
		return ""
	}
	return units.Name(rootText(s.Root))
}

// siteOf is the frame that has allocated memory, or touched it first.
func siteOf(s *growth.Stack) string {
	if len(s.Frames) == 0 {
		return ""
	}
	unrooted := *s
	unrooted.Root = ""
	frames := growth.WithoutAllocator(profile.Frames(&unrooted))
	for _, f := range frames {
		if text := profile.FrameText(f); IsUserCode(text) {
			return text
		}
	}
	for _, f := range frames { // a class of memory has a name, but no file
		isLibc := f.Module != nil && strings.HasPrefix(path.Base(f.Module.Path), "libc.so")
		if (f.Module != nil || f.File != "") && !isLibc && !growth.IsOwnFrame(f.Function) {
			return profile.FrameText(f)
		}
	}
	return ""
}

// rootText is a root without its brackets and the kind before the colon: "free but resident" for
// "[heap: free but resident]", and "/data/x" for "[file: /data/x]".
func rootText(root string) string {
	text := strings.TrimSuffix(strings.TrimPrefix(root, "["), "]")
	if _, name, ok := strings.Cut(text, ": "); ok {
		return name
	}
	return text
}

// maxRowCallers is the number of callers in the name of a row.
const maxRowCallers = 2

// placeText writes the caller of the allocator and its nearest callers, those in Python if there
// are any: "resize (Image.py:2192) < augment (train.py:47)".
func placeText(s *growth.Stack) string {
	unrooted := *s
	unrooted.Root = ""
	frames := growth.WithoutAllocator(profile.Frames(&unrooted))

	text, callers := shortFrameText(frames[0]), frames[1:]
	if slices.ContainsFunc(callers, func(f growth.Frame) bool { return f.Python }) {
		callers = slices.DeleteFunc(slices.Clone(callers),
			func(f growth.Frame) bool { return !f.Python })
	}

	for _, f := range callers[:min(maxRowCallers, len(callers))] {
		text += " < " + shortFrameText(f)
	}

	return text
}

// userPlaceText writes the innermost frame of the user's code and its nearest caller there; placeText
// if there is none.
func userPlaceText(s *growth.Stack) string {
	var texts []string
	for _, f := range profile.Frames(s) {
		if f.IsUserCode() && len(texts) <= 1 {
			texts = append(texts, shortFrameText(f))
		}
	}

	if texts == nil {
		return placeText(s)
	}
	return strings.Join(texts, " < ")
}

// shortFrameText is profile.FrameText without directories.
func shortFrameText(f growth.Frame) string {
	switch {
	case f.File != "" && f.Line > 0:
		return f.Function + " (" + path.Base(f.File) + ":" + strconv.Itoa(f.Line) + ")"
	case f.Module != nil && !strings.Contains(f.Function, "+0x"):
		return f.Function + " (" + path.Base(f.Module.Path) + ")"
	}
	return f.Function
}

// A Resident is a process whose pages were scanned, with the kernel's counts at the baseline and
// the end.
type Resident struct {
	Process int `json:"pid"`
	// Role is one of growth.Role….
	Role growth.Role `json:"role,omitempty"`
	// Traced: with all sources. HeapTraced: the allocation sites of its heap are known.
	Traced     bool `json:"traced"`
	HeapTraced bool `json:"heap_traced"`
	// StartBytes and EndBytes are its RSS; absent when it was not there.
	StartBytes *int64 `json:"start_bytes,omitempty"`
	EndBytes   *int64 `json:"end_bytes,omitempty"`
	// Threads, and Arenas of malloc, at its last scan; absent if unknown.
	Threads *int64 `json:"threads,omitempty"`
	Arenas  int    `json:"arenas,omitempty"`
	// Scanned is the share of its pages that was scanned, up to 1.
	Scanned float64 `json:"scanned_share"`
}

// A Diagnosis is a part of the growth of RSS with its cause. The parts of a process sum to the
// growth of its RSS between the baseline and the end.
type Diagnosis struct {
	// Process is the PID; 0: the process tree, where shared memory counts once.
	Process int             `json:"pid"`
	Cause   diagnosis.Cause `json:"cause"`
	// Bytes of growth, negative only where the cause is undecided. ErrorBytes is half the width of
	// their 95% interval; 0: they are exact.
	Bytes       int64 `json:"bytes"`
	ErrorBytes  int64 `json:"error_bytes"`
	BytesPerMin int64 `json:"bytes_per_min"`
	// Share of the growth of RSS, 1 being all.
	Share float64 `json:"share"`
	// Confidence is low, medium or high; absent where the cause is undecided.
	Confidence diagnosis.Confidence `json:"confidence,omitempty"`
	// Walked: free memory was found by walking malloc's heaps; absent: it was not.
	Walked bool `json:"walked,omitempty"`
}

// ResidentsOf joins the kernel's counts at two snapshots, in the order of the second. Processes
// that had ended by then come last.
func ResidentsOf(start, end []growth.Resident) []Resident {
	residents := []Resident{}
	at := make(map[int]int)
	for _, r := range slices.Concat(end, start) {
		if _, ok := at[r.PID]; ok {
			continue
		}

		at[r.PID] = len(residents)
		residents = append(residents, Resident{
			Process: r.PID, Role: r.Role, Traced: r.Traced, HeapTraced: r.HeapTraced,
			Threads: Known(r.Threads), Arenas: r.Arenas, Scanned: r.Scanned,
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

// DiagnosesOf converts the diagnoses of a process, or of the tree as process 0.
func DiagnosesOf(process int, diagnoses []diagnosis.Diagnosis) []Diagnosis {
	var out []Diagnosis
	for _, d := range diagnoses {
		out = append(out, Diagnosis{
			Process: process, Cause: d.Cause, Bytes: d.Bytes,
			ErrorBytes: units.Round(math.Ceil(d.Error)), BytesPerMin: units.Round(60 * d.Rate), Share: d.Share,
			Confidence: d.Confidence, Walked: d.Free != 0,
		})
	}
	return out
}

// isOf reports whether a diagnosis has a cause; nil has none.
func (d *Diagnosis) isOf(cause diagnosis.Cause) bool { return d != nil && d.Cause == cause }

// MainCause is the cause of most of the growth of the main process; nil: there is none. Pages of
// files are no cause of growth that lasts: then it is the cause of most of the rest.
func (s *Summary) MainCause() *Diagnosis {
	rest := 1.0
	for _, d := range s.Diagnoses {
		if d.Process == s.Process.PID && d.Cause == diagnosis.PageCache {
			rest -= d.Share
		}
	}
	for i, d := range s.Diagnoses {
		isCause := d.Cause != diagnosis.Undecided && d.Cause != diagnosis.PageCache
		if d.Process == s.Process.PID && isCause && d.Share >= max(0, rest)/2 {
			return &s.Diagnoses[i]
		}
	}
	return nil
}

// MainResident is the kernel's count for the main process of the trace.
func (s *Summary) MainResident() Resident {
	isMain := func(p Resident) bool { return p.Process == s.Process.PID }
	i := slices.IndexFunc(s.Residents, isMain)
	if i < 0 {
		return Resident{}
	}
	return s.Residents[i]
}
