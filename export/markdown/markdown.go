// Package markdown writes the result of a trace as a text for an issue: Markdown, as GitHub reads it
// (https://github.github.com/gfm/).
//
// Nothing in a trace is trusted. Every text that may have a name of the traced process stands in a
// fenced code block: there Markdown has no meaning, and GitHub makes no link of @name or #123.
package markdown

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/export/report"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

const (
	maxLines  = 60 // of the text
	maxStacks = 3
	maxKinds  = 4 // of the table; the other kinds are one line
	maxGaps   = 4 // lines
)

// minShare is the share of the growth of all stacks from which on a further stack is worth its lines.
const minShare = 0.02

// maxFrames bounds the frames of a stack, and minFrames is the least where maxLines leaves no room.
const maxFrames, minFrames = 6, 4

// Write writes the text of a trace that report.ReadTables has read. The error comes from w.
func Write(w io.Writer, t *report.Trace) error {
	s := anonymous(&t.Summary)
	for frames := maxFrames; ; frames-- {
		text := textOf(s, t, frames)
		if frames == minFrames || strings.Count(text, "\n") <= maxLines {
			_, err := io.WriteString(w, text)
			return err
		}
	}
}

func textOf(s *summary.Summary, t *report.Trace, frames int) string {
	place := words.Place{Dir: filepath.Base(t.Dir), Sudo: true}
	about := subjectOf(s)
	parts := []string{
		fenced(words.ResultOf(s, place).Lines(words.ResultWidth, nil)),
		fenced(picture(about, t.Rows)),
		table(about),
		fenced(stackLines(s, about, frames)),
		fenced(endLines(s, t.Missing)),
	}

	var text strings.Builder
	for _, part := range parts {
		if part != "" && text.Len() > 0 {
			text.WriteString("\n")
		}
		text.WriteString(part)
	}
	return text.String()
}

// fenced is a code block of lines, whose fence is longer than any that the lines have
// (https://github.github.com/gfm/#fenced-code-blocks). It is empty without lines.
func fenced(lines []string) string {
	if len(lines) == 0 {
		return ""
	}

	text, fence := "", "```"
	for _, line := range lines {
		text += withoutFolders(line) + "\n"
	}

	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "text\n" + text + fence + "\n"
}

// table is the memory by kind. Its texts are allocscope's own.
func table(a subject) string {
	if len(a.kinds) == 0 {
		return ""
	}

	var text strings.Builder
	row := func(cells ...string) {
		text.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}

	row(a.title, "at the end", "growth"+a.since)
	row("---", "---:", "---:")
	for _, k := range append(a.kinds, a.sum) {
		row(plain(k.Label), units.Bytes(k.End), units.Signed(k.Delta))
	}
	return text.String()
}

// plain keeps the characters that have no meaning in Markdown, nor in links that GitHub makes by
// itself: a kind that another version has written may be any text.
func plain(text string) string {
	const kept = " ,'-()"

	return strings.Map(func(r rune) rune {
		isLetter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if isLetter || strings.ContainsRune(kept, r) {
			return r
		}
		return '?'
	}, text)
}

// stackLines are the stacks that grow most.
func stackLines(s *summary.Summary, a subject, frames int) (lines []string) {
	if len(a.stacks) == 0 {
		if a.isRSS {
			return []string{words.NothingAccumulated(s)}
		}
		return nil
	}

	if a.isRSS && s.Class.IsFlat() {
		lines = append(lines, words.StacksTitle(s)+":")
	}
	for i, stack := range a.stacks[:min(maxStacks, len(a.stacks))] {
		if i > 0 && stack.Share < minShare {
			break
		}
		lines = append(lines, fmt.Sprintf("%d. %s", i+1, words.StackHead(stack)))
		for _, site := range words.StackSites(stack.Stack, frames) {
			lines = append(lines, "   "+ansi.Truncate(site, words.ResultWidth-3, "…"))
		}
	}
	return lines
}

// endLines are the versions, the losses and the limits.
func endLines(s *summary.Summary, missing []string) []string {
	return append([]string{words.SoftwareLine(s)}, words.GapLines(s, missing, maxGaps)...)
}
