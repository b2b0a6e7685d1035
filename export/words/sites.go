package words

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/verdict"
)

// whereLines are the call sites that grow, the user's own frame first, and who keeps it.
func whereLines(s *summary.Summary, place Place) []string {
	if c := s.SpikeSuspect(); c != nil {
		return siteLines(*c, missingPython(s))
	}
	copies := summary.CopiesOf(s)
	switch {
	case copies != nil:
		return []string{fmt.Sprintf("no call site: %s is %s", sharePercent(copies.Share),
			causes[copies.Cause].long)}
	case s.WhyCode == verdict.ReasonWorkers:
		return workersWhere(s, s.GrowingGroup())
	case s.WhyCode == verdict.ReasonReplaced:
		return workersWhere(s, s.ReplacedGroup())
	case s.WhyCode == verdict.ReasonOutside:
		return outsideWhere(s)
	case !grows(s) && !onlyFilesGrow(s):
		return nil
	}

	main := growingCause(s)
	suspects := suspectsOfNote(s.Suspects)
	switch {
	case main == nil && len(suspects) == 0:
		if kind, _, ok := growingKind(s); ok {
			if lines := rowLines(rowsOfKinds(s, kind), "allocated or first touched here"); len(lines) > 0 {
				return withKeeper(lines, keptLines(s, place, ResultWidth-labelWidth))
			}
		}
	case main == nil:
	case main.Cause == diagnosis.Fragmentation:
		return freeLines(s, main, suspects, place)
	case main.Cause == diagnosis.Tensors: // call sites explain little beside them
		touched := rowLines(rowsOfKinds(s, growth.KindHeap), "allocated or first touched here")
		return withKeeper(touched, keptLines(s, place, ResultWidth-labelWidth))
	case siteShare(s) < main.Share/2:
		if lines := touchLines(s, main.Cause); len(lines) > 0 {
			return lines
		}
	}

	kept := keptLines(s, place, ResultWidth-labelWidth)

	heap, _ := heapSource(s) // a process that has ended early has no count with it
	switch {
	case len(suspects) == 0 && len(kept) > 0:
		return kept
	case len(suspects) == 0 && len(s.Residents) > 0 && !s.MainResident().HeapTraced &&
		heap.State != summary.SourceAttached:
		return []string{"not known: malloc was not traced"}
	case len(suspects) == 0:
		return nil
	case len(suspects) > 1:
		return sharedLines(s, suspects, place, maxBlockLines[LabelWhere])
	case !isPart(s, main, suspects[0]):
		return withKeeper(siteLines(suspects[0], missingPython(s)), kept)
	}

	kept = keptLines(s, place, ResultWidth-labelWidth-shareWidth)
	lines := withKeeper(siteLines(suspects[0], missingPython(s)), kept)
	for i := range lines[1:] {
		lines[1+i] = strings.Repeat(" ", shareWidth) + lines[1+i]
	}
	lines[0] = withShare(suspects[0], lines[0])
	return lines
}

// isPart reports whether the one call site that is known has to say of how much it is: WHO has
// another cause beside it.
func isPart(s *summary.Summary, main *summary.Diagnosis, c summary.Suspect) bool {
	return main != nil && main.Share <= 1-minKeptShare && c.Share != nil && c.Sites == 0 &&
		otherCauses(s) != ""
}

// freeLines are WHERE of memory that was freed, with the call sites of the objects kept beside it.
func freeLines(
	s *summary.Summary, main *summary.Diagnosis, suspects []summary.Suspect, place Place,
) []string {
	const text = "no call site: this memory is free"
	if len(suspects) == 0 || !isKeptBeside(s) {
		if _, isPinned := s.Evidence.Pins(); isPinned {
			return append([]string{text}, besideLines(s.MainKeeper(), ResultWidth-labelWidth)...)
		}
		return []string{text}
	}
	first := fmt.Sprintf("%4s  %s", sharePercent(main.Share), text)
	suspects = withinKept(s, suspects)
	return append([]string{first}, sharedLines(s, suspects, place, maxBlockLines[LabelWhere]-1)...)
}

// withinKept returns suspects with no larger shares than the memory that is kept has: where new objects
// take the place of older ones, RSS does not grow by them.
func withinKept(s *summary.Summary, suspects []summary.Suspect) []summary.Suspect {
	kept, sum := keptShare(s), siteShare(s)
	suspects = slices.Clone(suspects)
	for i := range suspects {
		if c := &suspects[i]; c.Share != nil && sum > kept {
			share := *c.Share * kept / sum
			c.Share = &share
		}
	}
	return suspects
}

// besideLines are who keeps objects beside the memory that grows, in so many columns.
func besideLines(k *summary.Keeper, width int) (lines []string) {
	const prefix = "objects beside it are "
	for _, line := range KeptBy(k, width-len(prefix)) {
		lines = append(lines, prefix+line)
	}
	return lines
}

// shareWidth is the width of a share before a call site.
const shareWidth = len("100%  ")

// withShare is the call site of a suspect with its share of the growth before it.
func withShare(c summary.Suspect, site string) string {
	share := "-"
	if c.Share != nil {
		share = sharePercent(*c.Share)
	}
	if len(site) > ResultWidth-labelWidth-shareWidth {
		site, _, _ = strings.Cut(site, "; calls ")
	}
	return fmt.Sprintf("%4s  %s", share, site)
}

// sharedLines are call sites with their shares of the growth, and who keeps the first, in so many
// lines.
func sharedLines(s *summary.Summary, suspects []summary.Suspect, place Place, room int) []string {
	var lines []string
	for _, c := range suspects[:min(len(suspects), room)] {
		lines = append(lines, withShare(c, siteLines(c, missingPython(s))[0]))
	}
	if n := len(suspects) - len(lines); n > 0 {
		lines[len(lines)-1] += fmt.Sprintf("; %d more: --details", n)
	}

	kept := keptLines(s, place, ResultWidth-labelWidth-shareWidth)
	if len(kept) > 0 && len(lines) < room {
		lines = slices.Insert(lines, 1, strings.Repeat(" ", shareWidth)+kept[0])
	}
	return lines
}

// keptLines are who keeps the growth, in so many columns: a variable, nobody, or not known.
func keptLines(s *summary.Summary, place Place, width int) []string {
	if s.Lost != nil { // then nothing keeps it
		return present(lostLine(s.Lost))
	}
	if kept := KeptBy(s.MainKeeper(), width); len(kept) > 0 {
		return kept
	}

	if lines := besideLines(summary.KeeperOfStep(s), width); len(lines) > 0 {
		return lines
	}
	return unkeptLine(s, place)
}

// isKeptBeside reports whether so many objects are kept beside the main cause that their call sites
// are of interest.
func isKeptBeside(s *summary.Summary) bool {
	for _, d := range s.Diagnoses {
		if d.Process == s.Process.PID && d.Cause.IsOfObjects() && d.Share >= minKeptShare {
			return true
		}
	}
	return false
}

// keptShare is the share of the growth that is objects that are kept.
func keptShare(s *summary.Summary) (share float64) {
	for _, d := range s.Diagnoses {
		if d.Process == s.Process.PID && d.Cause.IsOfObjects() {
			share += d.Share
		}
	}
	return share
}

// minKeptShare is the share of the growth from which on objects that are kept beside a larger cause
// are of interest.
const minKeptShare = 0.1

// maxFunctions bounds the names of several functions in WHO, in bytes.
const maxFunctions = 22

// holderText names whose memory the largest of some suspects holds: a library by its component, and
// the user's own code by its functions, as the name of a script says nothing.
func holderText(suspects []summary.Suspect) (text string, isPlural bool) {
	name, sites := suspects[0].Component, 0
	var functions []string
	for _, c := range suspects {
		chain, at := c.UserFrame()
		if c.Component != name || at < 0 || fileOf(chain[at]) != name {
			continue
		}
		sites += c.Sites
		if f := functionOf(chain[at]); f != moduleLevel && !slices.Contains(functions, f) {
			functions = append(functions, f)
		}
	}

	switch {
	case sites > 0:
		return fmt.Sprintf("%d call sites", sites), true
	case len(functions) == 0:
		return Component(name), false
	case len(functions) == 1:
		return functions[0], false
	}

	if both := strings.Join(functions, " and "); len(both) <= maxFunctions {
		return both, true
	}
	return fmt.Sprintf("%d functions", len(functions)), true // WHERE names them
}

// fileOf is the name of a frame's source file or library, without folders; of __init__.py and
// __main__.py it is the folder.
func fileOf(frame string) string {
	if m := profile.FrameWithLine.FindStringSubmatch(frame); m != nil {
		base, folder := filepath.Base(m[2]), filepath.Base(filepath.Dir(m[2]))
		if base == "__init__.py" || base == "__main__.py" {
			return folder
		}
		return base
	}
	_, file, _ := strings.Cut(strings.TrimSuffix(frame, ")"), " (/")
	return filepath.Base(file)
}

// generatedMark ends a frame of generated code whose source is not known.
const generatedMark = " (" + growth.ModuleAnonymous + ")"

// functionOf is the function of a frame, as its user calls it.
func functionOf(frame string) string {
	if m := profile.FrameWithLine.FindStringSubmatch(frame); m != nil {
		return functionText(m[1])
	}
	name, _, _ := strings.Cut(strings.TrimSuffix(frame, generatedMark), " (/")
	name = strings.TrimSuffix(name, " "+growth.ByFramePointer)
	if strings.HasSuffix(name, ")") {
		return name
	}
	return name + "()"
}

// spreadLines are the lines about growth that is spread over many call sites: how many, the largest
// of them, and their common caller.
func spreadLines(c summary.Suspect, largest string) []string {
	lines := []string{
		fmt.Sprintf("%d call sites, none with more than %s; the largest:", c.Sites,
			units.WholePercent(max(0.01, c.Explains))),
		largest,
	}

	if c.CommonCaller != "" {
		lines = append(lines, callerSite(c.CommonCaller)+"   <- common caller")
	}
	return lines
}

// callerSite is siteText of a caller, whose line may not be known.
func callerSite(frame string) string {
	if profile.FrameWithLine.MatchString(frame) {
		return siteText(summary.Suspect{}, frame)
	}
	return fileOf(frame) + "  " + functionOf(frame)
}

// noOwnFrame is why there is none of the user's code in WHERE, with a remedy. missing is why
// Python's frames are missing; empty: they are not.
func noOwnFrame(c summary.Suspect, missing string) string {
	runtime, _ := c.UnnamedLanguage()
	switch {
	case missing != "":
		return missing
	case isGoRuntime(c.Function):
		return "Go: its own heap profile (net/http/pprof) has every call site"
	case runtime != "" && summary.HasName(c.Function):
		return "no names of " + languages[runtime].name + " here"
	case isOfInterpreter(c.Function) && summary.HasName(c.Function):
		return "no names of " + fileOf(c.Function) + " scripts here"
	case summary.HasName(c.Function):
		return "no frame of your code is on these stacks"
	case strings.Contains(c.Function, "["):
		return "generated code: its runtime's own profiler has the names"
	}
	return "no symbols"
}

// isOfInterpreter reports whether a frame is of an interpreter whose functions allocscope does not
// read.
func isOfInterpreter(frame string) bool {
	file := fileOf(frame)
	return growth.IsInterpreter(file) && !strings.HasPrefix(file, "python")
}

// missingPython is why the stacks of the main process lack Python frames; empty: they do not.
func missingPython(s *summary.Summary) string {
	for _, l := range evidenceOf(s.Verdict).Limits {
		switch {
		case l.Code == summary.LimitedPython:
			return "no Python frames: allocscope cannot read this Python"
		case l.Code == summary.LimitedThreads && l.Cause == growth.TruncatedPythonThread:
			return "no Python frames: too many threads to find the one that allocates"
		case l.Code == summary.LimitedThreads:
			return "no Python frames: " + l.Cause.String()
		}
	}
	return ""
}
