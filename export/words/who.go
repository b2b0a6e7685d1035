package words

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/verdict"
)

// componentTexts are the names of components that people know by another one.
var componentTexts = map[string]string{
	"pil": "Pillow", "torch": "PyTorch", "numpy": "NumPy", "autograd": "PyTorch's autograd",
	"inductor-compile": "torch.compile's compiler", "inductor-run": "torch.compile's kernels",
	"dynamo": "torch.compile's Dynamo", "hf-arrow": "Hugging Face datasets",
	"dataloader": "DataLoader", "python": "Python", "libc": "the C library",
	"optimizer": "the optimizer", "nccl": "NCCL", "pinned": "pinned memory",
}

// Component names a component: "Pillow (pil)", "train.py".
func Component(name string) string {
	if text, ok := componentTexts[name]; ok {
		return text + " (" + name + ")"
	}
	return name
}

// whoLines name the component that grows, and how much of the growth it is.
func whoLines(s *summary.Summary) []string {
	if s.Class == verdict.ClassWrongProcess && s.Other != nil {
		return []string{fmt.Sprintf("PID %d (%s), which is not traced", s.Other.PID, s.Other.Command)}
	}
	if c := s.SpikeSuspect(); c != nil {
		return []string{"in spikes only: " + allocatesIn(*c, "a spike")}
	}
	switch {
	case s.WhyCode == verdict.ReasonWorkers:
		return workersWho(s)
	case s.WhyCode == verdict.ReasonOutside:
		return outsideWho(s.Outside)
	case s.WhyCode == verdict.ReasonReplaced:
		return replacedWho(s)
	case onlyFilesGrow(s):
		return []string{whoText(s)}
	case s.WhyCode == verdict.ReasonNoGrowth:
		return []string{"nothing grows: there is no line to look at"}
	case !grows(s):
		return nil
	}
	return []string{whoText(s), cmp.Or(groupText(s), OutlierLine(s.Outlier), otherCauses(s))}
}

// onlyFilesGrow reports whether RSS grows by pages of mapped files, and the verdict is about the other
// memory.
func onlyFilesGrow(s *summary.Summary) bool {
	cause := growingCause(s)
	return !grows(s) && cause != nil && cause.Cause == diagnosis.PageCache
}

// otherCauses accounts for the rest of the growth, where the main cause is not all of it.
func otherCauses(s *summary.Summary) string {
	main := growingCause(s)
	switch {
	case main == nil && len(s.Suspects) > 0 && undecidedShare(s) > 0.5:
		if rest := 1 - siteShare(s); rest >= minRestShare {
			return "the other " + sharePercent(rest) + " has no call site that grows for certain"
		}
		return ""
	case main == nil || main.Share > allShare:
		return ""
	}
	return causesText(s, main, ResultWidth-labelWidth)
}

// grows reports whether the verdict is about growth that has a cause.
func grows(s *summary.Summary) bool {
	return s.Class.Rises() || s.WhyCode == verdict.ReasonGrowthEnded
}

func whoText(s *summary.Summary) string {
	main := growingCause(s)
	known := causesText(s, nil, ResultWidth-labelWidth-len("no single cause: "))
	switch {
	case main == nil && undecidedShare(s) <= 0.5 && known != "":
		return "no single cause: " + known
	case main == nil && len(s.Suspects) == 0:
		if kind, share, ok := growingKind(s); ok {
			return Kind(kind, s.MainResident()) + ", " + sharePercent(share) + " of the growth"
		}
		return "not known: no traced call site accounts for the growth"
	case main == nil:
		return "growing most: " + allocates(s.Suspects[0])
	}

	share := ", " + sharePercent(main.Share) + " of the growth"
	if len(s.Suspects) > 0 && s.Suspects[0].NewCodePerMin > 0 {
		share += fmt.Sprintf("; recompiles %.1f kernels/min", s.Suspects[0].NewCodePerMin)
	}

	text := causes[main.Cause].what
	switch main.Cause {
	case diagnosis.PythonObjects:
		text = objectsText(s, ResultWidth-labelWidth-len(share))
	case diagnosis.Tensors:
		text = tensorsText(s.Objects, text)
	}
	if files := filesText(rowsOf(s, main.Cause)); files != "" && main.Cause != diagnosis.CopyOnWrite {
		kind, _, _ := strings.Cut(text, ",")
		text = kind + ": " + files
	}
	if main.Cause == diagnosis.OlderMemory {
		text = olderText(s, text)
	}
	if strings.Contains(text, "%s") {
		text = whoseText(s, text, main.Cause)
	}

	more := ""
	if n := otherComponents(s); n > 0 && main.Cause == diagnosis.HeapLeak {
		more = ", and " + units.Plural(n, "other component", "other components")
	}
	if len(text+more+share) > ResultWidth-labelWidth && main.Share <= allShare {
		more = "" // the next line has the other causes
	}
	if len(text+more+share) > ResultWidth-labelWidth {
		text = strings.Replace(text, " allocates and has not freed", " does not free", 1)
	}

	return text + more + share
}

// olderText adds to the text about older memory who touches it.
func olderText(s *summary.Summary, text string) string {
	if runtime, file := touchingRuntime(s, diagnosis.OlderMemory); runtime != "" {
		return heapText(runtime) + " (" + file + "), touched for the first time"
	}

	if site := firstSite(s, diagnosis.OlderMemory); site != "" {
		text += " by " + byFunction(site)
	}
	return text
}

// whoseText fills in whose memory it is: by the first suspect. Where there is none, and
// WHERE has the lines that touch the memory first, nothing is said of it.
func whoseText(s *summary.Summary, text string, cause diagnosis.Cause) string {
	switch {
	case len(s.Suspects) > 0:
		who, isPlural := holderText(suspectsOfNote(s.Suspects))
		if isPlural {
			text = strings.Replace(text, "allocates and has", "allocate and have", 1)
		}
		if runtime, file := s.Suspects[0].Runtime(); cause == diagnosis.MmapGrowth && runtime != "" {
			return heapText(runtime) + " (" + file + ")"
		}
		if cause == diagnosis.MmapGrowth && isGo(&s.Suspects[0]) {
			return "Go's heap, by " + who
		}
		return fmt.Sprintf(text, who)
	case len(touchLines(s, cause)) > 0:
		before, _, _ := strings.Cut(text, ", by %s")
		return strings.ReplaceAll(before, "%s", "this process")
	}
	return fmt.Sprintf(text, "code that is not known")
}

// byFunction names the function of a frame behind "by".
func byFunction(frame string) string {
	if f := functionOf(frame); f != moduleLevel {
		return f
	}
	return "code " + moduleLevel
}

func allocates(c summary.Suspect) string { return allocatesIn(c, "the growth") }

// allocatesIn names the component of a suspect, and its share of a whole.
func allocatesIn(c summary.Suspect, whole string) string {
	who, isPlural := holderText([]summary.Suspect{c})
	text := "memory that " + who + " allocates"
	if isPlural {
		text = strings.TrimSuffix(text, "s")
	}
	if c.Share != nil {
		text += ", " + sharePercent(*c.Share) + " of " + whole
	}
	return text
}

// minSuspectShare is the share of the largest suspect from which on another one is worth a line.
const minSuspectShare = 0.1

// suspectsOfNote are those that are worth a line, the largest first.
func suspectsOfNote(all []summary.Suspect) []summary.Suspect {
	for i, c := range all {
		if float64(c.BytesPerMin) < minSuspectShare*float64(all[0].BytesPerMin) {
			return all[:i]
		}
	}
	return all
}

// otherComponents is the number of components that grow beside the first.
func otherComponents(s *summary.Summary) int {
	names := make(map[string]bool)
	for _, c := range suspectsOfNote(s.Suspects) {
		names[c.Component] = true
	}
	return max(0, len(names)-1)
}

// ranksText is how many of several ranks grow. It is empty where there are not several.
func ranksText(s *summary.Summary) string {
	ranks, growing, own := 0, 0, ""
	for _, p := range s.Processes {
		if p.Role != growth.RoleRank || !p.Traced {
			continue
		}
		ranks++
		if p.Verdict.Grows() {
			growing++
		}
		if p.PID == s.Process.PID && p.Rank != nil {
			own = fmt.Sprintf(", this is rank %d", *p.Rank)
		}
	}
	if ranks < 2 {
		return ""
	}
	return fmt.Sprintf("; %d of %d ranks grow", growing, ranks) + own
}

// OutlierLine is which of several ranks grows unlike the others, and where: "rank 3 grows 6.2x as
// fast as the other 7, by the same call site". Several ranks may stand out: "rank 3 (and 1 more)".
// It is empty where there is none.
func OutlierLine(o *summary.Outlier) string {
	if o == nil {
		return ""
	}
	text := fmt.Sprintf("rank %d", o.Rank)
	if more := o.Ranks - 1 - o.Others; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	switch {
	case o.Ratio == nil:
		text += fmt.Sprintf(" grows, unlike the other %d", o.Others)
	case *o.Ratio < 9.5:
		text += fmt.Sprintf(" grows %sx as fast as the other %d", units.Fixed(*o.Ratio, 1), o.Others)
	default:
		text += fmt.Sprintf(" grows %sx as fast as the other %d", units.Count(*o.Ratio), o.Others)
	}
	switch o.Site {
	case conclude.SiteSame:
		return text + ", by the same call site"
	case conclude.SiteOnlyThere:
		return text + ", by a call site where they do not"
	}
	return text
}

// OutlierDetails are the numbers behind OutlierLine.
func OutlierDetails(o *summary.Outlier) []string {
	if o == nil {
		return nil
	}
	score := "the others do not differ"
	if o.Z != nil {
		score = "robust z-score " + units.Count(*o.Z)
	}
	chance := "below 0.1%"
	if o.Chance >= 0.001 {
		chance = units.Percent(o.Chance)
	}
	return []string{
		OutlierLine(o),
		fmt.Sprintf("rank %d: %s MiB/min, median of the other %d: %s MiB/min; %s, chance of noise %s",
			o.Rank, units.MiBPerMinute(&o.RateBytesPerMin), o.Others,
			units.MiBPerMinute(&o.OthersBytesPerMin), score, chance),
	}
}

// sharePercent is a share of the growth. The estimate of a part may exceed the whole.
func sharePercent(share float64) string { return units.WholePercent(min(share, 1)) }

// siteLines are the user's frame that is nearest to the allocations of a suspect, with the library
// that it calls, the user's own function in C within it, and the frame that calls it. missing is why
// Python's frames are missing; empty: they are not.
func siteLines(c summary.Suspect, missing string) []string {
	if hasNoSite(c) {
		return []string{c.Function}
	}
	chain, at := c.UserFrame()
	if at < 0 {
		site := siteText(c, c.Function)
		if !summary.HasName(c.Function) {
			site, _, _ = strings.Cut(c.Function, " (/")
		}
		return []string{site + "   <- " + noOwnFrame(c, missing)}
	}

	own, mark, isOwn := chain[at], "   <- your code", summary.IsUserCode
	inC := summary.OwnNative(chain[:at])
	if !summary.IsUserCode(own) {
		mark, isOwn, inC = "   <- the program's own code", summary.IsOwnNative, ""
	}
	line := siteText(c, own) + mark
	callee := libraryFrame(summary.CalleeOf(chain[:at]))
	if callee != "" && inC == "" && !strings.Contains(callee, "<locals>") { // a decorator's
		function, _, _ := strings.Cut(callee, " (")
		for _, callee := range []string{callee, function} {
			if more := line + "; calls " + callee; len(more) <= ResultWidth-labelWidth {
				line = more
				break
			}
		}
	}
	if c.Sites > 0 {
		return spreadLines(c, line)
	}

	lines := []string{line}
	if inC != "" {
		lines = append(lines, libraryFrame(inC)+"   <- your code in C")
	}
	if text := replacedObject(c.Replaced); text != "" {
		lines = append(lines, text)
	}

	for _, caller := range chain[at+1:] {
		if isOwn(caller) && siteText(summary.Suspect{}, caller) != siteText(summary.Suspect{}, own) {
			return append(lines, siteText(summary.Suspect{}, caller)+callerMark)
		}
	}
	return lines
}

// callerMark stands behind the caller of a call site.
const callerMark = "   <- caller"

// replacedObject is which objects are replaced by larger ones at a call site; empty: none are.
func replacedObject(r *summary.Replaced) string {
	switch {
	case r == nil:
		return ""
	case r.Objects == 1:
		return "one object, replaced by a larger one at this line: " +
			units.Bytes(float64(r.Bytes)) + " now"
	}
	return fmt.Sprintf("%d objects, replaced by larger ones at this line: %s now", r.Objects,
		units.Bytes(float64(r.Bytes)))
}

// libraryFrame is a frame with its file or library: "Image.resize (Image.py:2192)".
func libraryFrame(frame string) string {
	if profile.FrameWithLine.MatchString(frame) {
		return Frame(frame)
	}
	name, file, ok := strings.Cut(strings.TrimSuffix(frame, ")"), " (/")
	switch {
	case !ok && summary.HasName(strings.TrimSuffix(frame, generatedMark)):
		return strings.TrimSuffix(frame, generatedMark)
	case !ok:
		return frame
	case !summary.HasName(frame): // its address is worth no room
		return filepath.Base(file)
	}
	return name + " (" + filepath.Base(file) + ")"
}

// siteText is a frame with its place first: "train.py:47  augment()". Where the suspect's function
// grows by several lines, it has the share of each.
func siteText(c summary.Suspect, frame string) string {
	m := profile.FrameWithLine.FindStringSubmatch(frame)
	if m == nil {
		return libraryFrame(frame)
	}

	place := placeOf(frame)
	if frame == c.Function && len(c.Lines) > 1 {
		place = filepath.Base(m[2])
		for i, l := range c.Lines {
			more, whole := ", ", ""
			if i == 0 {
				more, whole = "", " of it"
			}
			place += fmt.Sprintf("%s:%d (%s%s)", more, l.Line, units.WholePercent(l.Share), whole)
		}
	}

	return place + "  " + functionText(m[1])
}

const moduleLevel = "at module level"

// functionText is a function as its user calls it. A comprehension or a lambda belongs to the
// function around it.
func functionText(name string) string {
	if strings.HasPrefix(name, "<module") {
		return moduleLevel
	}
	name, _, _ = strings.Cut(name, ".<locals>.<")
	return strings.ReplaceAll(name, "<locals>.", "") + "()"
}

// placeOf is the file and line of a frame: "train.py:47".
func placeOf(frame string) string {
	m := profile.FrameWithLine.FindStringSubmatch(frame)
	if m == nil {
		return ""
	}
	return filepath.Base(m[2]) + ":" + m[3]
}

// accountLine is how much of the growth the call sites of WHERE account for, and how much has no
// cause.
func accountLine(s *summary.Summary) string {
	main := s.MainCause()
	switch {
	case isElsewhere(s):
		return ""
	case s.WhyCode == verdict.ReasonBounded && main == nil: // its end is known, if not its cause
		return ""
	case !grows(s) || main == nil:
		return cmp.Or(freeUnknownLine(s), undecidedLine(s))
	case main.Cause == diagnosis.Fragmentation:
		return fmt.Sprintf("%s of the growth, %s confidence: %s", sharePercent(main.Share),
			main.Confidence, freeKnownBy(s, main))
	}

	all := suspectsOfNote(s.Suspects)
	suspects := slices.DeleteFunc(slices.Clone(all), hasNoSite)
	switch {
	case len(all) == 0:
		return ""
	case len(suspects) == 0:
		return "WHERE is not known: the stacks were lost"
	}
	sum := siteShare(s)
	what := sharePercent(sum) + " of the growth"
	if sum > allShare*main.Share {
		what = strings.Replace("all of the "+sharePercent(main.Share), "100%", "growth", 1)
	}
	return fmt.Sprintf("the code in WHERE explains %s (%s confidence)", what, main.Confidence) + restText(s)
}

// fragmentationLines are Certainty of a process whose growth is freed memory.
func fragmentationLines(s *summary.Summary) []string {
	lines := Certainty(s.Verdict)
	_, ok := claim.May(claim.NoLeak, s.Process.PID, s.Missing())

	pins, isPinned := s.Evidence.Pins()
	switch {
	case isPinned:
		lines = append(lines, facts([]conclude.Fact{pins}, s.Verdict)...)
	case ok && isAllFreed(s):
		lines[0] += ", and no leak of objects"
	}
	return lines
}

// isAllFreed reports whether hardly any growth is objects that are kept, and little of it has another
// cause than freed memory, or none.
func isAllFreed(s *summary.Summary) bool {
	isLarge := func(d summary.Diagnosis) bool {
		return d.Process == s.Process.PID && d.Cause != diagnosis.Fragmentation && d.Share >= minRestShare
	}
	return !slices.ContainsFunc(s.Diagnoses, isLarge) && keptShare(s) <= 1-allShare
}

// freeKnownBy is how it is known what malloc keeps of the memory that the program has freed.
func freeKnownBy(s *summary.Summary, d *summary.Diagnosis) string {
	loss, ok := claim.May(claim.EveryCall, s.Process.PID, s.Missing())
	switch {
	case d.Walked:
		return "malloc's heaps were walked near the baseline and near the end"
	case ok:
		return "every malloc and free was traced"
	case loss.Kind == claim.Sampled:
		return "malloc and free were sampled all the time"
	}
	return "from what was traced; " + countedLoss(loss)
}

// freeUnknownLine is why it is not known which memory of the heap is free; empty: it is known, or the
// heap was sampled in bursts.
func freeUnknownLine(s *summary.Summary) string {
	loss, ok := freeUnknown(s)
	if !ok {
		return ""
	}
	return "what is free is not known: " + countedLoss(loss)
}

// freeUnknown is the loss that keeps growth without a cause from being told apart from free memory.
func freeUnknown(s *summary.Summary) (loss growth.Loss, isUnknown bool) {
	loss, ok := claim.May(claim.FreeMemory, s.Process.PID, s.Missing())
	return loss, !ok && loss.Count > 0 && grows(s) && undecidedShare(s) >= minRestShare
}

// allShare is the share that counts as all.
const allShare = 0.95

// minRestShare is the share of the growth without a cause that is worth a word.
const minRestShare = 0.1

// restText is the part of the growth without a cause; empty: it is negligible.
func restText(s *summary.Summary) string {
	if share := undecidedShare(s); share >= minRestShare {
		return "; " + sharePercent(share) + " has no cause"
	}
	return ""
}

// undecidedShare is the share of the growth without a cause. Growth that call sites explain beyond
// the main cause is none of it.
func undecidedShare(s *summary.Summary) float64 {
	for _, d := range s.Diagnoses {
		if d.Process != s.Process.PID || d.Cause != diagnosis.Undecided {
			continue
		}

		if main := s.MainCause(); main != nil {
			return max(0, d.Share-max(0, siteShare(s)-main.Share))
		}
		return d.Share
	}
	return 0
}

// undecidedLine is the part of the growth without a cause, where that is worth a line. WHERE may name
// its call sites even so.
func undecidedLine(s *summary.Summary) string {
	share, sites := undecidedShare(s), siteShare(s)
	switch {
	case share < 0.5:
		return ""
	case sites >= 0.5:
		return "WHERE has " + sharePercent(sites) + " of the growth; what kind of memory it is, " +
			"is undecided"
	}
	return "the cause of " + sharePercent(share) + " of the growth is not known"
}

// hasNoSite reports whether the stacks of a suspect were lost: it grows, and explains nothing.
func hasNoSite(c summary.Suspect) bool { return growth.IsLostFrame(c.Function) }

// siteShare is the share of the growth that the call sites of WHERE explain.
func siteShare(s *summary.Summary) (share float64) {
	for _, c := range suspectsOfNote(s.Suspects) {
		if c.Share != nil && !hasNoSite(c) {
			share += *c.Share
		}
	}
	return share
}
