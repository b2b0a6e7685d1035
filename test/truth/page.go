package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	resultsFile = "results.json"
	pageFile    = "docs/reference/truth.md"
)

// introductions of the parts.
var introductions = map[string]string{
	"leaks": `Leaks that upstream has fixed, or knows of, in the versions that Debian ships. Each
program of ` + "`testdata/truth`" + ` makes the call that leaks, some hundred times a second, and beside it
(*clean*) the same call in a form that does not leak, or the fixed version. The rate is the kernel's
count of RSS. *Lost*: nothing in the process refers to the objects.`,
	"reachability": `The test programs of LeakSanitizer and Valgrind, from their source packages, stopped
where the checker would look. For each block that they allocate it is known which root holds it, or
that it is lost. A block is undecided where no root is named, and none is excluded.`,
	"false alarms": `Modules of CPython's regression tests, each in a loop in one process. Upstream
asserts that none leaks. Growth that is not called a leak is undecided.`,
	"kinds": `Stressors of stress-ng hold memory of a known kind and size. Their processes wait some
seconds after each fork, so that they are traced before they allocate. The rows of the
[RSS breakdown](../internals/measurement.md#the-rss-breakdown) must have the size within 2%, and sum
to RSS; a trace of two minutes or more must stay within its own limit.`,
	"jobs": `Programs of the project, each of a kind that users report: trainers, servers, caches. An
answer is right where it decides the case, names the line, and has the rate of the kernel: LEAK,
LEAK (proven), STABLE, FILLS UP, FRAGMENTATION, LEVELLING OFF. A leak that is only suspected is
undecided.`,
}

// writePages writes the page of the results in a folder, and the section of the newest runtimes, below
// the folder of the project.
func writePages(folder, project string) error {
	results, err := readResults(filepath.Join(folder, resultsFile))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(project, pageFile), []byte(pageOf(results)), 0o644); err != nil {
		return err
	}

	path := filepath.Join(project, newestFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(withNewest(string(text), results)), 0o644)
}

// ownParts are the parts on the page.
func ownParts() []part {
	return slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.name == newest })
}

// pageOf is the page of the results.
func pageOf(results Results) string {
	var text strings.Builder
	fmt.Fprint(&text, `# Compared with truths of others

Programs that were not written for allocscope, and whose truth others have established; and, as
[jobs](#jobs), programs of the project, one for each kind of job, with a truth that is made.
`+"`make test-truth`"+` runs them, with a default trace of each, and writes this page:
`+"`test/truth/results.json`"+` has its data. Nothing of others is part of the project: it comes from
Debian's packages when it is run.

- **right**: what it says is so, and it says all that is asked for.
- **undecided**: it does not say it, and says nothing that is wrong.
- **wrong**: it says what is not so.

| part | right | undecided | wrong | blocks: right | lost: proven | false proofs | measured |
|---|---|---|---|---|---|---|---|
`)
	for _, part := range ownParts() {
		t := tallyOf(results.Rows, part.name)
		measured := "not yet"
		if t.run() > 0 {
			measured = results.Parts[part.name].text()
		}
		fmt.Fprintf(&text, "| [%s](#%s) | %d of %d | %d | %d | %s | %d of %d | %d | %s |\n", part.name,
			strings.ReplaceAll(part.name, " ", "-"), t.right, t.run(), t.undecided, t.wrong,
			blocksText(t), t.proven, t.lost, t.falseProofs, measured)
	}

	for _, part := range ownParts() {
		fmt.Fprintf(&text, "\n## %s\n\n%s\n\n", upper(part.name), introductions[part.name])
		text.WriteString(shortOf(results.Rows, part.name))
		header := "\n| program | from | truth | said | outcome | s | CPU s |\n" +
			"|---|---|---|---|---|---|---|\n"
		for _, r := range results.Rows {
			if r.Part == part.name && shortKey(r) == "" {
				text.WriteString(header)
				header = ""
				fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s | %.0f | %.1f |\n", r.Name,
					r.Source, cell(r.Truth), cell(r.Said), r.Outcome, r.Seconds, r.CPU)
			}
		}
	}
	return strings.ReplaceAll(text.String(), "\n\n\n", "\n\n")
}

// partsInShort have a row only where an answer is not right.
var partsInShort = []string{"reachability", "false alarms", "kinds"}

// shortKey is the beginning of the item that has the program's name alone; empty: it has a
// row.
func shortKey(r Row) string {
	switch {
	case r.Part == "leaks" && r.Truth == "flat" && r.Outcome != Wrong:
		return "Flat, and called " + r.Said + ":"
	case r.Part == "jobs" && r.Outcome == Right:
		said, _, _ := strings.Cut(r.Said, ",")
		return "Right, called " + said + ":"
	case r.Outcome == Right && slices.Contains(partsInShort, r.Part):
		return "Right, of " + r.Source + ":"
	}
	return ""
}

// shortOf is the list of a part, an item for each beginning.
func shortOf(rows []Row, part string) string {
	var keys []string
	names := make(map[string][]string)
	for _, r := range rows {
		key := shortKey(r)
		if r.Part != part || key == "" {
			continue
		}
		if names[key] == nil {
			keys = append(keys, key)
		}
		names[key] = append(names[key], "`"+r.Name+"`")
	}

	var text strings.Builder
	for _, key := range keys {
		line := "- " + key
		for i, name := range names[key] {
			if i < len(names[key])-1 {
				name += ","
			}
			if len(line)+1+len(name) > 100 {
				text.WriteString(line + "\n")
				line = "  " + name
			} else {
				line += " " + name
			}
		}
		text.WriteString(line + ".\n")
	}
	return text.String()
}

// text is how and where a part was measured.
func (a About) text() string {
	text := fmt.Sprintf("%s, commit %.12s; %s", a.Date, a.Commit, a.Machine)
	if a.TraceS > 0 {
		text += fmt.Sprintf("; traces of %d s", a.TraceS)
	}
	if a.Note != "" {
		text += ", " + a.Note
	}
	return text
}

// blocksText is how many blocks are right; empty: the part has none.
func blocksText(t tally) string {
	if t.blocks == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d", t.blocksRight, t.blocks)
}

// tableOf is the table that the terminal shows, with the counts of each part.
func tableOf(rows []Row) string {
	var text strings.Builder
	for _, part := range parts {
		if t := tallyOf(rows, part.name); t.run()+t.notRun > 0 {
			fmt.Fprintf(&text, "%s: %d right, %d undecided, %d wrong, %d not run; blocks: %d of %d "+
				"right; lost: %d of %d proven, %d false proofs\n", part.name, t.right, t.undecided,
				t.wrong, t.notRun, t.blocksRight, t.blocks, t.proven, t.lost, t.falseProofs)
		}
	}
	return text.String()
}

func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// cell makes a text fit for a table.
func cell(text string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(text) }
