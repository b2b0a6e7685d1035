// Command lint makes the checks that no other linter makes: that no retired word is used and no
// placeholder is left, that comments name things, that lines are short and functions have
// paragraphs, that no type has too many methods, that packages import only packages below them,
// that probes are attached to files that allocscope holds, that the links of pages lead somewhere,
// that the paths in CONTRIBUTING.md and the messages that the docs quote exist, that workflows pin
// the code that they run and sign apart from it, and that the modules of tests compile. `make lint`
// runs it in the project's folder. It prints the faults and exits with 1 if there is one.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	faults, err := check(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}

	for _, fault := range faults {
		fmt.Println(fault)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

// check runs all checks over the project in a folder, and returns a line for each fault.
func check(folder string) (faults []string, err error) {
	sources, err := readSources(folder)
	if err != nil {
		return nil, err
	}
	list, err := os.ReadFile(filepath.Join(folder, wordList))
	if err != nil {
		return nil, err
	}
	words, err := parseWords(string(list))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", wordList, err)
	}

	var shape shape
	imports, methods := importsOf{}, methodsOf{}
	var quoted messages
	for _, s := range sources {
		faults = append(faults, words.faultsIn(s)...)
		faults = append(faults, grammarFaults(s)...)
		err := errors.Join(shape.add(s), imports.add(s), methods.add(s), quoted.add(s))
		if err != nil {
			return nil, err
		}
	}

	broken, err := linkFaults(folder, sources)
	if err != nil {
		return nil, err
	}

	unheld, err := heldFaults(sources)
	if err != nil {
		return nil, err
	}
	loose, err := workflowFaults(sources)
	if err != nil {
		return nil, err
	}

	var mistyped []string
	for _, module := range testModules {
		found, err := typeFaults(filepath.Join(folder, module))
		if err != nil {
			return nil, err
		}
		mistyped = append(mistyped, found...)
	}

	fmt.Println(shape)
	return slices.Concat(faults, mistyped, unheld, loose, shape.faults(), imports.faults(),
		methods.faults(), broken, pathFaults(folder, sources), quoted.faults()), nil
}

// A source is a text file that people write and read.
type source struct{ path, text string }

// unread matches files that the checks skip: generated ones, copies of others' work, recordings,
// and the list of retired words.
var unread = regexp.MustCompile(`(^|/)(LICENSE[^/]*|(go|tools)\.(mod|sum)|package-lock\.json)$|` +
	`_bpfel(_test)?\.(go|o)$|^bpf/headers/|^export/page/assets/|(^|/)testdata/series/|/testdata/|\.(png|svg|gz|o|so)$|` +
	`^docs/retired-words\.txt$|^test/lint/.*_test\.go$`)

// generated is the line that Go tools put above generated code (go.dev/s/generatedcode).
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// readSources reads the files in a folder that git tracks or would track.
func readSources(folder string) (sources []source, err error) {
	git := exec.Command("git", "-C", folder, "ls-files", "-z", "-co", "--exclude-standard")
	out, err := git.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of %s: %w", folder, err)
	}

	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if unread.MatchString(name) {
			continue
		}

		text, err := os.ReadFile(filepath.Join(folder, name))
		if errors.Is(err, os.ErrNotExist) { // deleted, and not yet committed
			continue
		}
		if err != nil {
			return nil, err
		}

		isText := !strings.Contains(string(text), "\x00")
		if isText && !generated.Match(text) {
			sources = append(sources, source{name, string(text)})
		}
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("no source in %s", folder)
	}
	return sources, nil
}

func (s source) extension() string { return path.Ext(s.path) }
