package words

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/keeper"
)

// KeptBy are lines about who keeps something, in so many characters each: "kept by train.cache
// (dict, 10,512 entries, +461/min) -> Image, in 6 of 8 samples". A second path is there where it
// explains most samples, too. There are none where no keeper is known.
func KeptBy(k *summary.Keeper, width int) []string {
	if k == nil {
		return nil
	}

	var lines, heads []string
	for i, path := range k.Paths[:min(2, len(k.Paths))] {
		if path.Share < summary.MinKeeperShare {
			break
		}
		text, share := earlierText(k)+"kept by ", ""
		if i > 0 {
			text = "also kept by "
		}
		if path.Samples < k.Samples {
			share = fmt.Sprintf(", in %d of %d samples", path.Samples, k.Samples)
		}
		head := KeeperHead(path, width-len(text)-len(share))
		if !slices.Contains(heads, head) { // another way to the same variable
			lines, heads = append(lines, text+head+share), append(heads, head)
		}
	}
	if len(lines) == 0 && k.IsGarbage() {
		lines = []string{earlierText(k) + garbageText(k)}
	}
	return lines
}

// earlierText says when an answer was found that the end neither confirms nor refutes.
func earlierText(k *summary.Keeper) string {
	if !k.Earlier {
		return ""
	}
	return "at " + clockText(math.Round(k.AtS)) + ": "
}

// garbageText is about objects that wait for the garbage collector.
func garbageText(k *summary.Keeper) string {
	text := "garbage: " + waitText(k)
	ofTracing := clockText(math.Round(k.CollectionsS)) + " of tracing"
	switch {
	case k.Collections == nil:
	case *k.Collections == 0:
		text += "; generation 2 has not run in " + ofTracing
	default:
		text += "; generation 2 has run " + units.Plural(*k.Collections, "time", "times") +
			" in " + ofTracing
	}
	return text
}

// withKeeper adds who keeps a suspect's memory to the lines about its call site.
func withKeeper(site, kept []string) []string {
	room := max(1, maxBlockLines[LabelWhere]-len(kept))
	return append(site[:min(room, len(site))], kept...)
}

// maxGrownTypes is the number of types that are named in a line.
const maxGrownTypes = 3

// GrownTypes are the types whose objects become more, in so many characters: "PIL.Image.Image
// +461/min, dict +922/min". It is empty where none are known.
func GrownTypes(o *summary.Objects, width int) string {
	text := ""
	if o == nil {
		return ""
	}
	for _, t := range o.Types[:min(maxGrownTypes, len(o.Types))] {
		more := t.Type + " " + units.PerMinute(t.PerMin)
		if text != "" {
			more = text + ", " + more
		}
		if utf8.RuneCountInString(more) > width {
			break
		}
		text = more
	}
	return text
}

// objectsText is the growth of small Python objects: by type, where types are known.
func objectsText(s *summary.Summary, room int) string {
	const text = "small Python objects"
	if types := GrownTypes(s.Objects, room-len(text+": ")); types != "" {
		return text + ": " + types
	}
	switch k := s.MainKeeper(); {
	case s.Lost != nil:
		return text + " that nothing refers to"
	case k != nil && k.IsGarbage() && len(k.Paths) == 0:
		return text + " that wait for the garbage collector"
	}
	return causes[diagnosis.PythonObjects].what
}

// tensorsText names the tensors whose storages grow most: "CPU tensors that are kept, float32 [128,
// 100]".
func tensorsText(o *summary.Objects, text string) string {
	if o == nil {
		return text
	}
	i := slices.IndexFunc(o.Tensors, func(g summary.TensorGroup) bool { return g.Device == "cpu" })
	if i < 0 {
		return text
	}

	first := o.Tensors[i]
	first.WithGradFn = 0
	return text + ", " + strings.TrimSuffix(Tensor(first), " cpu")
}

// keeperReasons are why no keeper is known.
var keeperReasons = map[keeper.Reason]string{
	keeper.ReasonFreed:        "they were freed meanwhile",
	keeper.ReasonMany:         "each is kept by another variable",
	keeper.ReasonAllocator:    "the blocks of their malloc are not known",
	keeper.ReasonGarbage:      "they are in cycles of objects that wait for the garbage collector",
	keeper.ReasonNative:       "memory of native code refers to them, which no symbol names",
	keeper.ReasonUnreferenced: "nothing that was searched refers to them",
	keeper.ReasonRuntime:      "the references of another runtime in the process cannot be read",
	keeper.ReasonBudget:       "the search has used up its CPU time",
	keeper.ReasonUnsupported:  "the objects of their CPython cannot be read",
	keeper.ReasonChanging:     "what was found did not hold when it was checked again",
}

// shortReasons are why no keeper is known, in a few words.
var shortReasons = map[keeper.Reason]string{
	keeper.ReasonMany:         "each by another variable",
	keeper.ReasonAllocator:    "the blocks of this malloc are not known",
	keeper.ReasonNative:       "by memory of native code without a name",
	keeper.ReasonUnreferenced: "no reference was found",
	keeper.ReasonBudget:       "no CPU time was left",
	keeper.ReasonUnsupported:  "the objects of this Python cannot be read",
	keeper.ReasonChanging:     "it changed meanwhile",
	keeper.ReasonNone:         "not searched for",
}

// unkeptLine is why the keeper of Python objects that grow is not known, and the command that looks
// for it; nil: it makes no sense to look for one.
func unkeptLine(s *summary.Summary, place Place) []string {
	main := s.MainCause()
	isOfObjects := main != nil && main.Cause.IsOfObjects()
	if k := s.UnansweredKeeper(); isOfObjects && grows(s) && k != nil &&
		k.Reason == keeper.ReasonRuntime && k.Runtime != "" && k.Lost == 0 {
		return []string{"kept by: not known, as the references of " + k.Runtime + "'s heap cannot be read"}
	}
	isReplaced := len(s.Suspects) > 0 && s.Suspects[0].Replaced != nil // nothing keeps it for long
	if !isOfObjects || !grows(s) || isReplaced && s.UnansweredKeeper() == nil {
		return nil
	}

	why, k := keeper.ReasonNone, s.UnansweredKeeper()
	isOfPython := s.Objects != nil && len(s.Objects.Types) > 0
	switch {
	case k != nil && k.Lost > 0:
		const text = "kept by nothing that one search has found, in %d of %d samples"
		return []string{fmt.Sprintf(text, k.Lost, max(k.Lost, k.Samples))}
	case k != nil:
		why = k.Reason
	case !isOfPython:
		return nil
	}
	reason, isSaid := shortReasons[why]
	if !isSaid {
		return nil
	}
	text := "kept by: not found (" + reason + ")"
	switch {
	case isOfPython && !s.HasEnded() && isOfGrowth(s, main, s.Objects.Nearest()):
		text += fmt.Sprintf("; %sobjects %d --keepers %s", place.sudo(), s.Process.PID,
			ShellQuote(s.Objects.Nearest()))
	case why == keeper.ReasonBudget:
		text += "; " + timeRemedy(s, k)
	}
	return []string{text}
}

// timeRemedy names the way to more CPU time for a search. The last one of a trace has 10 s, and one before it
// has a part of what --overhead leaves to allocscope.
func timeRemedy(s *summary.Summary, k *summary.Keeper) string {
	isLimited := s.Overhead == nil || s.Overhead.Limit > 0
	switch {
	case k.Earlier && isLimited:
		return "--overhead off gives a search 10 s"
	case s.Ended == summary.EndedInterrupt:
		return "--duration gives the last search more than Ctrl-C"
	}
	return "it had 10 s at most: trace a smaller run"
}

// isOfGrowth reports whether objects of a type that become more may be of the memory that grows.
// Objects of a package are, where the package allocates it, or where they are a part of it.
func isOfGrowth(s *summary.Summary, main *summary.Diagnosis, typeName string) bool {
	module, _, isQualified := strings.Cut(typeName, ".")
	if !isQualified || module == "__main__" || main.Cause == diagnosis.PythonObjects ||
		main.Cause == diagnosis.Tensors && census.IsTensor(typeName) {
		return true
	}
	for _, t := range s.Objects.Types {
		if t.Type == typeName && float64(t.Bytes) >= minRestShare*float64(main.Bytes) {
			return true
		}
	}

	isOfPackage := func(frame string) bool {
		return strings.Contains(frame, "/"+module+"/") || strings.Contains(frame, "/"+module+".")
	}
	return slices.ContainsFunc(s.Suspects, func(c summary.Suspect) bool {
		chain, _ := c.UserFrame()
		return slices.ContainsFunc(chain, isOfPackage)
	})
}

// KeeperTitle names the subject of a search: the objects of a stack, or of a type.
func KeeperTitle(s *summary.Summary, k summary.Keeper) string {
	what := "memory of stack " + k.StackID
	if k.StackID == "" {
		what = "objects of type " + k.Type
	} else if where := WhereStack(s, k.StackID); where != "" {
		what = where
	}
	return fmt.Sprintf("%s (%s, at %s)", what, units.Plural(k.Samples, "sample", "samples"),
		units.Seconds(k.AtS))
}

// WhereStack is the allocation site of a stack by its ID; empty: it is not known.
func WhereStack(s *summary.Summary, id string) string {
	for _, a := range s.Accumulating {
		if slices.Contains(a.StackIDs, id) {
			return WhereShort(a)
		}
	}
	for _, c := range s.Suspects {
		if slices.Contains(c.StackIDs, id) {
			return Suspect(c)
		}
	}
	return ""
}

// KeeperLines are all that a search has found: each path with its share, whether it is complete,
// and why no more is known.
func KeeperLines(k summary.Keeper) []string {
	var lines []string
	for _, path := range k.Paths {
		about := "" // of other references nothing is known
		if path.Complete {
			about = "; no other reference"
		}
		lines = append(lines, fmt.Sprintf("%d of %d: %s%s", path.Samples, k.Samples, KeeperPath(path),
			about))
	}
	if line := sweepLine(&k); line != "" {
		return append(lines, line)
	}
	if k.Garbage > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d: %s", k.Garbage, k.Samples, garbageText(&k)))
	}
	reason, missing := keeperReasons[k.Reason], "not found: "
	if k.Reason == keeper.ReasonMany {
		missing = "no common keeper: "
	}
	switch {
	case k.Reason == keeper.ReasonNone, k.Reason == keeper.ReasonGarbage && k.Garbage > 0:
	case len(lines) == 0:
		lines = append(lines, missing+reason)
	default:
		lines = append(lines, "of the others "+missing+reason)
	}
	return lines
}

// ObjectsNotes are sentences about the limits of a census, and its cost.
func ObjectsNotes(o *summary.Objects) []string {
	var notes []string
	say := func(applies bool, format string, values ...any) {
		if applies {
			notes = append(notes, fmt.Sprintf(format, values...))
		}
	}
	say(o.Share < 1, "%s of the memory of small objects was read: the counts are estimates",
		units.Percent(o.Share))
	say(o.Missing != "", "not counted: %s", cmp.Or(missingObjects[o.Missing], string(o.Missing)))
	say(o.Inconsistent > 0, "not counted: %s of small objects that changed meanwhile",
		units.Plural(o.Inconsistent, "pool", "pools"))
	isUnknown := o.TensorsUnknown != "" && o.TensorsUnknown != census.NoTorch
	say(isUnknown, "tensors are not known: %s", tensorsUnknown(o))
	return notes
}

var missingObjects = map[census.Missing]string{
	census.MissingForTime: "objects in memory for which there was no time",
	census.MissingLarge:   "objects above 512 bytes: malloc is not glibc's, or its heap cannot be read",
}

// tensorsUnknown is why the tensors are not known.
func tensorsUnknown(o *summary.Objects) string {
	switch o.TensorsUnknown {
	case census.PartRead:
		return "only a part of the memory of small objects was read"
	case census.TooMany:
		return fmt.Sprintf("there are more than %d", o.Most)
	case census.UnknownLayout:
		return fmt.Sprintf("PyTorch of a layout that is not known: the likeliest one fits %d of %d tensors",
			o.Fitting, o.Checked)
	}

	return string(o.TensorsUnknown)
}

// TypeInterval is the 95% interval of the growth of a type, in objects a minute; "exact" where all
// was read, and "not sampled" where only the objects of this type were all counted.
func TypeInterval(o *summary.Objects, t summary.TypeGrowth) string {
	switch {
	case t.LowPerMin != t.HighPerMin:
	case o.Share < 1:
		return "not sampled"
	default:
		return "exact"
	}
	return units.Interval(units.Thousands(units.Round(t.LowPerMin)),
		units.Thousands(units.Round(t.HighPerMin)))
}

// TypeCount is the number of objects of a type: "1,022", "12,340 ± 120".
func TypeCount(t summary.TypeCount) string {
	text := units.Thousands(t.Count)
	if t.Margin > 0 {
		text += " ± " + units.Thousands(t.Margin)
	}
	return text
}

// A TensorRow is a row of the table of tensors: a group of them, or the memory that C++ alone
// holds.
type TensorRow struct {
	Group *summary.TensorGroup // nil: C++ alone
	What  string
	// StackID is the stack that allocated most of the memory; empty: it is not known.
	StackID string
	// Storages and Tensors are numbers, and Gained is the growth of Tensors with its sign; "-": they
	// are not known.
	Storages, Tensors, Gained string
	// Bytes, and their growth since the first census. HasGrowth: there was one.
	Bytes, Growth int64
	HasGrowth     bool
}

// GrowthText is the growth in bytes; "-": it is not known.
func (r TensorRow) GrowthText() string {
	if !r.HasGrowth {
		return "-"
	}
	return units.Signed(float64(r.Growth))
}

// TensorRows are the tensors of a process, most gained bytes first, then most bytes.
func TensorRows(o *summary.Objects) []TensorRow {
	var rows []TensorRow
	for _, g := range o.Tensors {
		row := TensorRow{
			Group: &g, What: Tensor(g), StackID: g.StackID, Bytes: g.Bytes, Gained: "-",
			Storages: units.Thousands(int64(g.Storages)),
			Tensors:  units.Thousands(int64(g.Tensors)),
		}
		if g.GrowthBytes != nil && g.GrowthTensors != nil {
			row.Growth, row.HasGrowth = *g.GrowthBytes, true
			row.Gained = signedCount(*g.GrowthTensors)
		}
		rows = append(rows, row)
	}

	inCPPOnly := TensorRow{
		What:     "held by C++ alone, such as what autograd has saved",
		Storages: "-", Tensors: "-", Gained: "-",
	}
	if o.InCPPOnlyBytes != nil {
		inCPPOnly.Bytes = *o.InCPPOnlyBytes
	}
	if o.InCPPOnlyGrowthBytes != nil {
		inCPPOnly.Growth, inCPPOnly.HasGrowth = *o.InCPPOnlyGrowthBytes, true
	}
	if inCPPOnly.Bytes > 0 {
		rows = append(rows, inCPPOnly)
	}
	slices.SortStableFunc(rows, func(a, b TensorRow) int {
		return cmp.Or(cmp.Compare(max(0, b.Growth), max(0, a.Growth)), cmp.Compare(b.Bytes, a.Bytes))
	})
	return rows
}

// signedCount is a number with its sign: "+1,022".
func signedCount(n int) string {
	if n > 0 {
		return "+" + units.Thousands(int64(n))
	}
	return units.Thousands(int64(n))
}

// Tensor names a group of tensors: "float32 [64, 3, 224, 224] cpu". Where it is so, it adds how
// many keep the graph that computed them.
func Tensor(g summary.TensorGroup) string {
	shape := strings.ReplaceAll(fmt.Sprint(g.Shape), " ", ", ")
	text := fmt.Sprintf("%s %s %s", g.DType, shape, g.Device)
	if g.WithGradFn > 0 {
		text += fmt.Sprintf(", %d with their graph", g.WithGradFn)
	}
	return text
}
