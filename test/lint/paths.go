package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// handbook is the page whose paths must exist: recipes name the files that they touch.
const handbook = "CONTRIBUTING.md"

// codePath is a path in code: with a slash, or with the suffix of a file of ours.
var codePath = regexp.MustCompile("`(\\.?[A-Za-z][\\w.-]*(?:/[\\w.-]+)*/?)`")

// pathFaults returns a line for each path that the handbook names in code and that is not there. A
// word is a path if it has a slash or a dot, and no function has its name.
func pathFaults(folder string, sources []source) (faults []string) {
	for _, s := range sources {
		if s.path != handbook {
			continue
		}

		for number, line := range strings.Split(s.text, "\n") {
			for _, m := range codePath.FindAllStringSubmatch(line, -1) {
				name := m[1]
				if !strings.ContainsAny(name, "/.") || isProse[name] {
					continue
				}

				if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
					faults = append(
						faults,
						fmt.Sprintf("%s:%d: there is no %s", s.path, number+1, name),
					)
				}
			}
		}
	}

	return faults
}

// isProse has words in code that look like a path of the project and are none.
var isProse = map[string]bool{"summary.json": true}
