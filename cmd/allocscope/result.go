package main

import (
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/allocscope/allocscope/export"
)

// printResult prints the table with which a trace ends.
func printResult(out io.Writer, s *export.Summary, folder string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "\n%s (PID %d), %s, %s\n", s.Process.Command, s.Process.PID, secondsText(s.DurationS), endText(s.Ended))
	if s.RSS.EndBytes != nil {
		fmt.Fprintf(out, "RSS %s at the start, %s at the boundary (%s), %s at the end", formatBytes(float64(*s.RSS.StartBytes)),
			formatBytes(float64(*s.RSS.BoundaryBytes)), secondsText(*s.BoundaryS), formatBytes(float64(*s.RSS.EndBytes)))
		if s.RSS.GrowthBytesPerMin != nil {
			fmt.Fprintf(out, ": %s/min since the boundary", formatSigned(float64(*s.RSS.GrowthBytesPerMin)))
		}
		fmt.Fprintln(out)
	}
	for _, warning := range s.Warnings {
		fmt.Fprintf(out, "warning: %s\n", warning)
	}
	if len(s.Accumulating) == 0 {
		fmt.Fprintf(out, "\nNothing that was traced accumulated since the boundary.\n")
	} else {
		fmt.Fprintf(out, "\nWhat accumulates since the boundary:\n\n")
		fmt.Fprint(w, "MiB/min\tshare\tbytes\tobjects\t  where\n")
	}
	for _, a := range s.Accumulating {
		rate := "-"
		if a.BytesPerMin != nil {
			rate = fmt.Sprintf("%.2f", float64(*a.BytesPerMin)/(1<<20))
		}
		fmt.Fprintf(w, "%s\t%.0f %%\t%s\t%s\t  %s\n", rate, 100*a.Share, formatBytes(float64(a.Bytes)), formatCount(float64(a.Objects)), whereText(a))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nFiles are in %s. Next:\n\n    go tool pprof -top %s\n", folder, shellQuote(filepath.Join(folder, export.GrowthFile)))
	return err
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
