package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

var (
	codeFence = regexp.MustCompile("^ *```")
	heading   = regexp.MustCompile(`^#{1,6} +(.+?) *#*$`)
	htmlName  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	codeSpan  = regexp.MustCompile("`[^`]*`")

	// link matches [text](target), ![text](target), [name]: target and src="target".
	link = regexp.MustCompile(`\]\(([^)\s]+)\)|^\[[^\]]+\]: +(\S+)|(?:src|href)="([^"]+)"`)

	// pagePath matches a page that code or a message names.
	pagePath = regexp.MustCompile(`(?:^|[^\w/.-])((?:\.\./)*docs/[\w/-]+\.md)\b`)
)

// linkFaults returns a line for each link of a page to a file of the project, or to a heading in
// one, that is not there, and for each page that code names and that is not there.
func linkFaults(folder string, sources []source) (faults []string, err error) {
	pages := make(map[string]map[string]bool) // anchors by path
	anchors := func(name string) (map[string]bool, error) {
		if pages[name] == nil {
			text, err := os.ReadFile(filepath.Join(folder, name))
			if err != nil {
				return nil, err
			}
			pages[name] = anchorsOf(string(text))
		}
		return pages[name], nil
	}

	for _, s := range sources {
		for _, target := range targetsIn(s) {
			name, anchor, _ := strings.Cut(target.path, "#")
			if name == "" {
				name = s.path
			} else if !target.fromRoot {
				name = path.Join(path.Dir(s.path), name)
			}

			if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
				faults = append(faults, fmt.Sprintf("%s:%d: there is no %s", s.path, target.line, name))
				continue
			}
			if anchor == "" || path.Ext(name) != ".md" {
				continue
			}

			headings, err := anchors(name)
			if err != nil {
				return nil, err
			}
			if !headings[anchor] {
				faults = append(faults,
					fmt.Sprintf("%s:%d: %s has no heading #%s", s.path, target.line, name, anchor))
			}
		}
	}
	return faults, nil
}

// A target is the destination of a link, with its anchor.
type target struct {
	path     string
	line     int
	fromRoot bool // the path is that from the project's folder
}

func targetsIn(s source) (targets []target) {
	isPage := s.extension() == ".md"
	prose := proseOf(s.text, isPage)
	for _, number := range slices.Sorted(maps.Keys(prose)) {
		text := prose[number]
		if !isPage {
			for _, m := range pagePath.FindAllStringSubmatch(text, -1) {
				name := strings.TrimLeft(m[1], "./")
				targets = append(targets, target{path: name, line: number, fromRoot: true})
			}
			continue
		}

		for _, m := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(text, "``"), -1) {
			path := m[1] + m[2] + m[3]
			if !strings.Contains(path, ":") { // a URL
				targets = append(targets, target{path: path, line: number})
			}
		}
	}
	return targets
}

// proseOf returns the lines of a text by their numbers; of a page without those in code fences.
func proseOf(text string, isPage bool) map[int]string {
	lines := make(map[int]string)
	inFence := false
	for i, line := range strings.Split(text, "\n") {
		if isPage && codeFence.MatchString(line) {
			inFence = !inFence
			continue
		}
		if !inFence {
			lines[i+1] = line
		}
	}
	return lines
}

// anchorsOf returns the anchors of a page as GitHub makes them of its headings.
func anchorsOf(text string) map[string]bool {
	anchors := make(map[string]bool)
	prose := proseOf(text, true)
	for _, number := range slices.Sorted(maps.Keys(prose)) {
		line := prose[number]
		for _, m := range htmlName.FindAllStringSubmatch(line, -1) {
			anchors[m[1]] = true
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			name := anchorOf(m[1])
			base := name
			for n := 1; anchors[name]; n++ {
				name = fmt.Sprintf("%s-%d", base, n)
			}
			anchors[name] = true
		}
	}
	return anchors
}

// anchorOf returns the text of a heading in lower case, without punctuation, with hyphens for
// spaces.
func anchorOf(text string) string {
	text = linkText.ReplaceAllString(text, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, text)
}
