package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// printResult prints what a trace has found, the answer first.
func printResult(out io.Writer, s *export.Summary, folder string) error {
	fmt.Fprintf(out, "\n%s (PID %d), %s, %s\n\n", s.Process.Command, s.Process.PID, secondsText(s.DurationS), endText(s.Ended))
	for _, line := range verdictLines(s.Verdict, atLimit) {
		fmt.Fprintln(out, line)
	}
	printSizes(out, s)
	if err := printLedger(out, s); err != nil {
		return err
	}
	for _, warning := range s.Warnings {
		fmt.Fprintf(out, "warning: %s\n", warning)
	}
	if err := printCulprits(out, s.Culprits); err != nil {
		return err
	}
	if err := printStacks(out, s.Accumulating); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nFiles are in %s. Next:\n\n    go tool pprof -top %s\n", folder, shellQuote(filepath.Join(folder, export.GrowthFile)))
	return err
}

// printSizes prints what the process and the others of its tree hold.
func printSizes(out io.Writer, s *export.Summary) {
	if s.RSS.EndBytes != nil && s.RSS.StartBytes != nil && s.RSS.BoundaryBytes != nil {
		fmt.Fprintf(out, "\nRSS %s at the start, %s at the boundary (%s), %s at the end", formatBytes(float64(*s.RSS.StartBytes)),
			formatBytes(float64(*s.RSS.BoundaryBytes)), secondsText(*s.BoundaryS), formatBytes(float64(*s.RSS.EndBytes)))
		if s.RSS.GrowthBytesPerMin != nil {
			fmt.Fprintf(out, ": %s/min since the boundary", formatSigned(float64(*s.RSS.GrowthBytesPerMin)))
		}
		fmt.Fprintln(out)
	}
	if s.Steps != nil {
		fmt.Fprintf(out, "%s training steps since the boundary, %s/min", formatCount(float64(s.Steps.Count)), formatCount(s.Steps.PerMin))
		if s.Steps.GrowthBytesPerStep != nil {
			fmt.Fprintf(out, ": %s a step", formatSigned(float64(*s.Steps.GrowthBytesPerStep)))
		}
		fmt.Fprintln(out)
	}
	for _, p := range s.Processes {
		if p.PID != s.Process.PID && p.EndBytes != nil {
			fmt.Fprintln(out, processText(p))
		}
	}
	for _, g := range s.Groups {
		fmt.Fprintln(out, groupText(g))
	}
}

// processText is one line about a process of the tree.
func processText(p export.TreeProcess) string {
	role := string(p.Role)
	if p.Rank != nil {
		role = fmt.Sprintf("rank %d", *p.Rank)
	}
	text := fmt.Sprintf("PID %d, %s (%s): %s", p.PID, role, p.Command, formatBytes(float64(*p.EndBytes)))
	if p.Verdict != "" {
		text += ", " + strings.ReplaceAll(string(p.Verdict), "-", " ")
	}
	return text
}

// groupText is one line about workers: "20 compile workers: 400 MiB RSS each, 1.10 GiB together (900 MiB private), stable".
func groupText(g export.Group) string {
	text := fmt.Sprintf("%d %s", g.Processes, g.Role)
	switch {
	case g.Role == growth.RoleOther && g.Processes == 1:
		text = "1 other process"
	case g.Role == growth.RoleOther:
		text += " processes"
	case g.Processes != 1:
		text += "s"
	}
	if g.EachBytes != nil {
		text += fmt.Sprintf(": %s RSS each", formatBytes(float64(*g.EachBytes)))
	}
	if g.PrivateBytes != nil && g.PSSBytes != nil {
		text += fmt.Sprintf(", %s together (%s private)", formatBytes(float64(*g.PSSBytes)), formatBytes(float64(*g.PrivateBytes)))
	}
	switch g.Verdict {
	case growth.ClassPlateau, growth.ClassSpikyPlateau:
		text += ", stable"
	case growth.ClassLeak, growth.ClassGrowing, growth.ClassSaturating:
		text += fmt.Sprintf(", %s by %s/min private", growthWord[g.Verdict], formatBytes(*g.RateBytesPerMin))
	}
	return text
}

// growthWord says that something grows.
var growthWord = map[growth.Class]string{
	growth.ClassLeak: "LEAKING", growth.ClassGrowing: "growing", growth.ClassSaturating: "growing less and less,",
}

// printCulprits prints the code that accumulates, by whose memory it is.
func printCulprits(out io.Writer, culprits []export.Culprit) error {
	if len(culprits) == 0 {
		return nil
	}
	fmt.Fprintf(out, "\nWho accumulates, and where its stacks meet:\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "MiB/min\tof RSS growth\tstacks\t  whose\n")
	for _, c := range culprits {
		share := "-"
		if c.Share != nil {
			share = fmt.Sprintf("%.0f %%", 100**c.Share)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t  %s: %s\n", perMinute(&c.BytesPerMin), share, c.Stacks, c.Owner, culpritText(c))
	}
	return w.Flush()
}

// culpritText is where the stacks of an owner meet, with its nearest callers.
func culpritText(c export.Culprit) string {
	const around = 2
	text := shortFrame(c.Function)
	for _, f := range c.Callers[:min(around, len(c.Callers))] {
		text += " < " + shortFrame(f)
	}
	if c.Explains < 0.995 {
		text += fmt.Sprintf(" (%.0f %% of it)", 100*c.Explains)
	}
	return text
}

// printStacks prints the stacks that hold more than before.
func printStacks(out io.Writer, stacks []export.Accumulation) error {
	if len(stacks) == 0 {
		_, err := fmt.Fprintf(out, "\nNothing that was traced accumulated since the boundary.\n")
		return err
	}
	fmt.Fprintf(out, "\nWhat holds more than at the boundary:\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "MiB/min\tshare\tbytes\tobjects\ttrend\t  where\n")
	for _, a := range stacks {
		fmt.Fprintf(w, "%s\t%.0f %%\t%s\t%s\t%s\t  %s\n", perMinute(a.BytesPerMin), 100*a.Share, formatBytes(float64(a.Bytes)),
			formatCount(float64(a.Objects)), cmp.Or(string(a.Trend), "-"), whereText(a))
	}
	return w.Flush()
}

// perMinute is a rate in MiB a minute; "-" where there is none.
func perMinute(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(*bytes)/(1<<20))
}

// whereText is the function that holds, the file it is in, and its nearest callers: those of Python, if there are any, with
// their lines.
func whereText(a export.Accumulation) string {
	const natives, pythons = 3, 3
	text := a.Function
	switch {
	case len(a.Stack) > 0 && pythonFrame.MatchString(a.Stack[0]):
		text = shortFrame(a.Stack[0])
	case a.Module != "" && !strings.Contains(text, "+0x"):
		text += " (" + filepath.Base(a.Module) + ")"
	}
	if a.Kind != "heap" {
		text = fmt.Sprintf("[%s] %s", a.Kind, text)
	}
	callers := a.Stack[min(1, len(a.Stack)):]
	first := slices.IndexFunc(callers, pythonFrame.MatchString)
	if first < 0 {
		return text + callersText(callers[:min(natives, len(callers))])
	}
	if first > 1 {
		text += callersText(callers[:1]) + " < ..."
	} else {
		text += callersText(callers[:first])
	}
	return text + callersText(callers[first:min(first+pythons, len(callers))])
}

func callersText(frames []string) (text string) {
	for _, f := range frames {
		text += " < " + shortFrame(f)
	}
	return text
}

var pythonFrame = regexp.MustCompile(`^(.*) \((.*):(\d+)\)$`) // as export.StackText writes it

// shortFrame is a frame without the folders of its file; of a library no name at all.
func shortFrame(frame string) string {
	if m := pythonFrame.FindStringSubmatch(frame); m != nil {
		return fmt.Sprintf("%s (%s:%s)", m[1], filepath.Base(m[2]), m[3])
	}
	name, _, _ := strings.Cut(frame, " (/")
	return name
}

func endText(ended string) string {
	switch ended {
	case export.EndedDuration:
		return "as long as asked for"
	case export.EndedInterrupt:
		return "interrupted"
	}
	return ended
}

func secondsText(seconds float64) string { return fmt.Sprintf("%.1f s", seconds) }

var plainPath = regexp.MustCompile(`^[0-9A-Za-z/._+-]+$`)

// shellQuote makes a path safe to paste.
func shellQuote(path string) string {
	if plainPath.MatchString(path) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
