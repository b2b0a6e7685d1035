// Package snippet reads the code of Markdown pages, so that tests run the commands of the pages.
// Each fenced block of shell code has a comment on a line above it:
//
//	<!-- run: NAME -->        a test of that name runs it
//	<!-- not run: REASON -->  none can, and why
//
// Fill writes the output of the code into the pages.
package snippet

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A Snippet is one fenced block of shell code.
type Snippet struct {
	Path   string // of the page
	Line   int    // of the first line of code, from 1
	Code   string
	Run    string // name of the test that runs it; empty: none
	Reason string // why none does
}

// A Command is one call of allocscope in the code of a page.
type Command struct {
	Path      string
	Line      int
	Text      string
	Arguments []string // without "allocscope" itself

	// Abridged: the text may leave arguments out, as "..." or within a sentence.
	Abridged bool
}

// A Page is a Markdown file.
type Page struct{ Path, Text string }

// Pages reads the Markdown files of the project in a folder.
func Pages(root string) (pages []Page, err error) {
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}

		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return nil, err
			}
			pages = append(pages, Page{Path: name, Text: string(text)})
		}
	}
	if len(pages) == 0 {
		return nil, fmt.Errorf("no page in %s", root)
	}
	return pages, nil
}

var (
	fence    = regexp.MustCompile("^ *```([a-z]*)$")
	marker   = regexp.MustCompile(`^ *<!-- (run|not run): (.+) -->$`)
	indented = regexp.MustCompile(`^( {4}|\t)\s*\S`)
	inline   = regexp.MustCompile("`([^`\n]+)`")
)

// walk calls f for each line of a page with the language of its code: "sh" and the like in a fence,
// "indented" in an indented block, "" in prose. The comment is the fence's.
func (p Page) walk(f func(number int, line, language, comment string)) {
	language, comment, inFence := "", "", false
	for i, line := range strings.Split(p.Text, "\n") {
		if m := fence.FindStringSubmatch(line); m != nil {
			inFence = !inFence
			language = m[1]
			if inFence && language == "" {
				language = "text"
			}
			if !inFence {
				language, comment = "", ""
			}
			continue
		}

		switch {
		case inFence:
			f(i+1, line, language, comment)
		case indented.MatchString(line):
			f(i+1, line, "indented", "")
		default:
			f(i+1, line, "", "")
			if line != "" {
				comment = line
			}
		}
	}
}

// Snippets returns the fenced blocks of shell code.
func (p Page) Snippets() (snippets []Snippet) {
	last := -1 // number of the line before
	p.walk(func(number int, line, language, comment string) {
		if language != "sh" {
			return
		}
		if number != last+1 {
			s := Snippet{Path: p.Path, Line: number}
			if m := marker.FindStringSubmatch(comment); m != nil && m[1] == "run" {
				s.Run = m[2]
			} else if m != nil {
				s.Reason = m[2]
			}
			snippets = append(snippets, s)
		}

		last = number
		snippets[len(snippets)-1].Code += strings.TrimSpace(line) + "\n"
	})
	return snippets
}

var (
	call         = regexp.MustCompile(`(?:^|[\s(|])allocscope( [^|;&>#` + "`" + `]*)`)
	substitution = regexp.MustCompile(`"?\$\([^)]*\)"?`)
	placeholder  = regexp.MustCompile(`^(PID|N)$`)
)

// messagesPage quotes messages of allocscope in the first cells of its tables. They are no calls.
const messagesPage = "docs/troubleshooting.md"

// Commands returns the calls of allocscope in shell code, in indented code and between backticks.
func (p Page) Commands() (commands []Command) {
	begun := "" // a line that goes on in the next one
	p.walk(func(number int, line, language, _ string) {
		line = begun + strings.TrimSpace(line)
		begun = ""
		if before, goesOn := strings.CutSuffix(line, `\`); goesOn && language != "" {
			begun = before
			return
		}

		switch language {
		case "sh", "indented":
			commands = append(commands, p.commandsIn(number, line)...)
		case "":
			if p.Path == messagesPage && strings.HasPrefix(line, "| ") {
				_, line, _ = strings.Cut(line, " | ")
			}
			for _, m := range inline.FindAllStringSubmatch(line, -1) {
				named := p.commandsIn(number, m[1])
				for i := range named {
					named[i].Abridged = true
				}
				commands = append(commands, named...)
			}
		}
	})

	return commands
}

func (p Page) commandsIn(number int, line string) (commands []Command) {
	line = substitution.ReplaceAllString(line, "1")
	for _, m := range call.FindAllStringSubmatch(line, -1) {
		// Several spaces separate a command from its explanation.
		text, _, _ := strings.Cut(strings.TrimSpace(m[1]), "   ")
		c := Command{Path: p.Path, Line: number, Text: "allocscope " + text}
		for argument := range strings.FieldsSeq(text) {
			if argument == "..." {
				c.Abridged = true
				continue
			}
			argument = strings.Trim(argument, `"'`)
			c.Arguments = append(c.Arguments, placeholder.ReplaceAllString(argument, "4242"))
		}
		commands = append(commands, c)
	}
	return commands
}

var (
	duration   = regexp.MustCompile(`(--duration|-d) [0-9]+[smh]\b`)
	pid        = regexp.MustCompile(`(?m)(^|[\s"'.-])PID(["'\s/]|$)`)
	background = regexp.MustCompile(`(?m)^(.* )&$`)
)

// prelude ends the script at the first command that fails, and with it the programs that it has
// started.
const prelude = "set -eu\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"

// Script returns a shell script of snippets, in their order, which ends at the first command that
// fails. PID is replaced by the PID of the last program in the background, and the durations of
// traces by a short one; empty: they stay. It prints the place of each snippet before its output.
func Script(snippets []Snippet, short string) string {
	var script strings.Builder
	script.WriteString(prelude)
	for _, s := range snippets {
		code := s.Code
		if short != "" {
			code = duration.ReplaceAllString(code, "$1 "+short)
		}
		code = pid.ReplaceAllString(code, "$1$$PID$2")
		code = background.ReplaceAllString(code, "$1&\nPID=$$!\nsleep 2")
		fmt.Fprintf(&script, "echo '== %s:%d'\n%s", s.Path, s.Line, code)
	}
	return script.String()
}
