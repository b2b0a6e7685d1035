package words

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/verdict"
)

// RelatedText is how a process outside the tree has grown: "PID 8 (python3 eval.py) of the same job
// grew by 420 MiB in 5m".
func RelatedText(s *summary.Summary, o summary.Related) string {
	whose := " of the same job"
	switch o.Relation {
	case growth.RelationStarted:
		whose = ", which it has started,"
	case growth.RelationMachine:
		whose = ", not of this job,"
	}
	return fmt.Sprintf("PID %d (%s)%s grew by %s in %s", o.PID, o.Command, whose,
		units.Bytes(float64(o.GrowthBytes)), clockText(s.DurationS-o.SinceS))
}

// relatedNotes are the processes outside the tree, with the trace of each that may be of interest.
func relatedNotes(s *summary.Summary, place Place) (notes []string) {
	for _, o := range s.Related {
		note := RelatedText(s, o)
		if o.Relation != growth.RelationMachine {
			note += fmt.Sprintf(": %strace %d", place.sudo(), o.PID)
		}
		notes = append(notes, note)
	}
	return notes
}

// groupNotes are the groups of workers that grow, or were replaced, beside the main process.
func groupNotes(s *summary.Summary) (notes []string) {
	said := s.GrowingGroup()
	for i := range s.Groups {
		g := &s.Groups[i]
		if g != said && g.Verdict.Grows() && g.RateBytesPerMin != nil {
			notes = append(notes, Group(*g))
		}
	}
	if g := s.ReplacedGroup(); g != nil && grows(s) {
		notes = append(notes, replacedText(g))
	}
	return notes
}

// workersText is a number of workers of a group: "12 worker processes of gunicorn", "2 DataLoader
// workers".
func workersText(g *summary.Group, n int) string {
	text := rolesText(g.Role, n)
	if g.Service != "" {
		text += " of " + g.Service
	}
	return text
}

// replacedText is how the workers of a group have grown until they were replaced.
func replacedText(g *summary.Group) string {
	return fmt.Sprintf("%s: each grew by %s, and was replaced after %s", workersText(g, g.Replaced),
		units.Bytes(float64(g.ReplacedGrowthBytes)), units.Span(g.ReplacedLifeS, false, math.Round))
}

// replacedWho are workers that grow until they are replaced, and whether all of them together grow.
func replacedWho(s *summary.Summary) []string {
	g := s.ReplacedGroup()
	if g == nil {
		return nil
	}

	together := "whether all of them together grow as well is not known yet"
	if g.Verdict.IsFlat() {
		together = "all of them together do not grow, nor does the process that starts them"
	}
	return []string{replacedText(g), together}
}

// replacedPace is how fast a worker grows while it lives.
func replacedPace(g *summary.Group) string {
	perMinute := float64(g.ReplacedGrowthBytes) / max(g.ReplacedLifeS, 1) * 60
	text := "+" + units.Bytes(perMinute) + "/min by each worker, until its memory goes with it"
	if g.PrivateBytes != nil && g.Processes > 0 {
		text += fmt.Sprintf("; now %d of %s", g.Processes, units.Bytes(float64(*g.PrivateBytes)))
	}
	return text
}

// replacedSure are the proof that workers grow until they are replaced, and its gap.
func replacedSure(s *summary.Summary) []string {
	g := s.ReplacedGroup()
	if g == nil {
		return nil
	}

	text := fmt.Sprintf("%d of %d workers grew until they were replaced",
		g.ReplacedGrowing, g.Replaced)
	if g.ReplacedTraced > 0 {
		text += fmt.Sprintf("; WHERE is of %d of them, which were traced", g.ReplacedTraced)
	}
	return []string{text, "not known: whether a worker that lives longer would level off"}
}

// workersWhere are the call sites of workers that do not live any more.
func workersWhere(s *summary.Summary, g *summary.Group) []string {
	if g == nil || g.ReplacedTraced == 0 {
		return []string{"not known: none of these workers was traced"}
	}

	var lines []string
	for _, c := range suspectsOfNote(g.ReplacedSuspects) {
		if c.Share == nil || *c.Share >= minSuspectShare {
			lines = append(lines, withShare(c, siteLines(c, missingPython(s))[0]))
		}
	}
	if len(lines) == 0 {
		return []string{"not known: no call site holds what the traced workers gained"}
	}
	return lines
}

// workerStep is what to do about the memory that each worker gains.
func workerStep(g *summary.Group) string {
	if g == nil || len(g.ReplacedSuspects) == 0 {
		return ""
	}

	c := g.ReplacedSuspects[0]
	if place := userPlace(c); place != "" {
		return "find the list, dict or cache that keeps what " + place + " allocates"
	}
	if chain, at := c.UserFrame(); at >= 0 && summary.HasName(chain[at]) {
		return "find what keeps what " + functionOf(chain[at]) + " allocates, or what should free it"
	}
	return "find what keeps what these workers allocate, or what should free it"
}

// groupText is how a group grows that the main process is of: "one of 2 worker processes, which grow
// by 143 MiB/min together".
func groupText(s *summary.Summary) string {
	g := s.GrowingGroup()
	if g == nil || g.Processes < 2 {
		return ""
	}
	return fmt.Sprintf("one of %s, which grow by %s/min together", workersText(g, g.Processes),
		units.Bytes(*g.RateBytesPerMin))
}

// workersWho names the workers that grow, none of which is traced.
func workersWho(s *summary.Summary) []string {
	g := s.GrowingGroup()
	if g == nil {
		return nil
	}
	text := workersText(g, g.Processes) + fmt.Sprintf(" of PID %d", s.Process.PID)
	if g.Service != "" {
		text = workersText(g, g.Processes) + fmt.Sprintf(" (PID %d)", s.Process.PID)
	}
	if g.Processes == 1 {
		text += fmt.Sprintf(": PID %d", g.LargestPID)
	}
	return []string{text, "the process itself does not grow"}
}

// outsideNames name kinds of memory outside of the traced processes.
var outsideNames = map[conclude.OutsideKind]string{
	conclude.OutsideFiles:     "files in RAM",
	conclude.OutsideKernel:    "memory of the kernel",
	conclude.OutsideProcesses: "other processes of the container",
	conclude.OutsideUnknown:   "other memory of the container",
}

// otherProcessesWho names the processes of the container outside of the tree that grow.
func otherProcessesWho(o *summary.Outside) []string {
	grown := units.Signed(float64(o.GrowthBytes))
	own := o.Process.EndBytes - o.Process.StartBytes
	text := processName(*o.Process) + ", another process of the container, " + grown
	if float64(own) < conclude.MinOneShare*float64(o.GrowthBytes) {
		text = outsideNames[o.Kind] + ", " + grown + ", most of it " + processName(*o.Process)
	}
	return []string{text, "it is not traced: the code that allocates is not known"}
}

// outsideWho names memory that no process of the tree holds.
func outsideWho(o *summary.Outside) []string {
	switch {
	case o == nil:
		return nil
	case o.Process != nil:
		return otherProcessesWho(o)
	case o.Kind == conclude.OutsideKernel:
		return []string{"memory that the kernel keeps for the container, not the processes' own memory"}
	case o.Kind == conclude.OutsideUnknown:
		return []string{"memory of the container that its processes do not hold"}
	case o.Path == "":
		return []string{"shared memory or files in RAM of the container, not the processes' own memory"}
	}
	return []string{fmt.Sprintf("files in RAM below %s, +%s, not the processes' own memory", o.Path,
		units.Bytes(float64(o.GrowthBytes)))}
}

// outsideWhere names the files in RAM.
func outsideWhere(s *summary.Summary) []string {
	o := s.Outside
	switch {
	case o == nil:
		return nil
	case o.Largest == "" && o.Kind == conclude.OutsideFiles:
		return grownFiles(s.Container)
	case o.Kind == conclude.OutsideKernel:
		return grownKernel(s.Container)
	case o.Largest == "":
		return nil
	}
	text := o.Largest
	if o.NewFiles > 1 {
		text += fmt.Sprintf(" and %s of its user, written during the trace",
			units.Plural(o.NewFiles-1, "more file", "more files"))
	}
	return []string{text, units.Bytes(float64(o.NewBytes)) + " in all, which stay until they are unlinked"}
}

// isElsewhere is true of a verdict on memory that the main process does not hold.
func isElsewhere(s *summary.Summary) bool {
	return s.WhyCode == verdict.ReasonWorkers || s.WhyCode == verdict.ReasonOutside
}

// togetherText is when memory runs out by all that grows in it, and by the main process alone: "out of
// memory in 14 min with PIDs 5 and 6, in 2.2 h alone". It is empty where it is the only one.
func togetherText(s *summary.Summary) string {
	t := s.Together
	if t == nil || s.HasEnded() {
		return ""
	}

	with, alone := " by ", "; not by this process"
	if s.Class.Grows() {
		with, alone = " with ", ""
		if when, _ := TimeToLimit(s.Verdict); when != "" {
			alone = "; " + when + " alone"
		}
	}
	text := AtLimit
	if clock := clockAt(s, t.ToLimitS); clock != "" {
		text += " " + clock + ","
	}
	text += " in " + units.Span(t.ToLimitS, false, math.Round) + with + othersText(t) + alone

	whole := text + inParentheses(LimitName(t.Limit))
	if len(whole) <= ResultWidth-labelWidth {
		return whole
	}
	return text
}

// maxPIDs bounds the PIDs in a sentence.
const maxPIDs = 3

// othersText names the others that fill a memory: "PIDs 5, 6 and 2 other workers".
func othersText(t *summary.Together) string {
	var parts []string
	for _, pid := range t.PIDs[:min(len(t.PIDs), maxPIDs)] {
		parts = append(parts, strconv.Itoa(pid))
	}
	if len(parts) > 0 {
		parts[0] = "PID " + parts[0]
		if len(parts) > 1 {
			parts[0] = strings.Replace(parts[0], "PID", "PIDs", 1)
		}
	}
	if more := len(t.PIDs) - maxPIDs; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	if t.Workers > 0 {
		parts = append(parts, units.Plural(t.Workers, "other worker", "other workers"))
	}
	if t.Outside != "" {
		parts = append(parts, outsideNames[t.Outside])
	}

	last := len(parts) - 1
	if last < 1 {
		return strings.Join(parts, "")
	}
	return strings.Join(slices.Clone(parts[:last]), ", ") + " and " + parts[last]
}

// saveStep is what to do first where memory ends soon.
func saveStep(s *summary.Summary) string {
	limit := ""
	if s.Limit != nil {
		limit = s.Limit.Of
	}
	if s.Together != nil && s.Together.ToLimitS <= s.EndsIn() {
		limit = s.Together.Limit.Of
	}

	text := "save a checkpoint"
	if limit != growth.LimitMachine {
		text += ", or raise the memory limit"
	}
	if t := s.Together; t != nil && len(t.PIDs) > 0 && !s.Class.Grows() {
		text += fmt.Sprintf(", or stop PID %d", t.PIDs[0])
	}
	return text + ": " + units.Span(s.EndsIn(), false, math.Round) + " left"
}

// unlinkStep is what to do about files in RAM.
func unlinkStep(s *summary.Summary) string {
	where := "/dev/shm"
	switch {
	case s.Outside != nil && s.Outside.Path != "":
		where = s.Outside.Path
	case s.Container != nil:
		return "close or unlink the files in RAM when done: they stay while a process holds them"
	}
	return "unlink what is written below " + where + " when done: SharedMemory.unlink(), os.unlink()"
}
