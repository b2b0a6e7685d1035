package snippet

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// place is the line that a script prints before the output of a snippet.
var place = regexp.MustCompile(`(?m)^== (\S+):([0-9]+)\n`)

// Fill returns the page with the output of a script of its snippets: the output of each replaces
// the fenced block "text" below it. Output of other pages is left out.
func (p Page) Fill(output string) (Page, error) {
	lines := strings.Split(p.Text, "\n")
	places := place.FindAllStringSubmatchIndex(output, -1)
	if len(places) == 0 {
		return p, fmt.Errorf("%s: there is no output of snippets", p.Path)
	}

	// From the last to the first, so that the numbers of the lines above stay true.
	for i, at := range slices.Backward(places) {
		if output[at[2]:at[3]] != p.Path {
			continue
		}
		number, err := strconv.Atoi(output[at[4]:at[5]])
		if err != nil {
			return p, fmt.Errorf("read the place of an output: %w", err)
		}

		end := len(output)
		if i+1 < len(places) {
			end = places[i+1][0]
		}
		printed := strings.Trim(output[at[1]:end], "\n")
		if strings.Contains(printed, "```") {
			return p, fmt.Errorf("%s:%d: the output has a fence", p.Path, number)
		}

		from, to, err := p.blockBelow(lines, number)
		if err != nil {
			return p, err
		}
		lines = slices.Replace(lines, from, to, strings.Split(printed, "\n")...)
	}
	return Page{Path: p.Path, Text: strings.Join(lines, "\n")}, nil
}

// blockBelow returns the lines of the block "text" below the snippet that begins at a line: the
// index of its first one, and of the fence that ends it.
func (p Page) blockBelow(lines []string, number int) (from, to int, err error) {
	isSnippet := func(s Snippet) bool { return s.Line == number }
	if !slices.ContainsFunc(p.Snippets(), isSnippet) {
		return 0, 0, fmt.Errorf("%s:%d: no snippet begins here", p.Path, number)
	}

	code := slices.Index(lines[number-1:], "```") + number
	for from = code; from < len(lines); from++ {
		if strings.HasPrefix(lines[from], "```") {
			break
		}
	}
	if from == len(lines) || lines[from] != "```text" {
		return 0, 0, fmt.Errorf("%s:%d: no block \"text\" below the snippet", p.Path, number)
	}

	length := slices.Index(lines[from+1:], "```")
	if length < 0 {
		return 0, 0, fmt.Errorf("%s:%d: the block has no end", p.Path, from+1)
	}
	return from + 1, from + 1 + length, nil
}
