// Command docs prints the code of the documentation's pages that have a name, as a shell script, and
// writes the output of the script into a page:
//
//	docs NAME [DURATION [PAGE]]  without a duration, traces are as long as the pages say; of one
//	                             page alone where its path is given
//	docs fill PAGE MEASURED      reads the output from stdin; MEASURED says where and when it ran
//
// The script `run` beside it prepares the means that the code needs, and runs it.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/allocscope/allocscope/test/docs/snippet"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 3 && arguments[0] == "fill":
		return fill(arguments[1], arguments[2], os.Stdin)
	case len(arguments) >= 1 && len(arguments) <= 3:
		all := append(arguments, "", "")
		return printScript(all[0], all[1], all[2])
	}
	return errors.New("usage: docs NAME [DURATION [PAGE]] | docs fill PAGE MEASURED")
}

// printScript prints the script of the snippets of a name, of all pages where only is empty.
func printScript(name, duration, only string) error {
	pages, err := snippet.Pages(".")
	if err != nil {
		return err
	}

	var named []snippet.Snippet
	for _, page := range pages {
		for _, s := range page.Snippets() {
			if s.Run == name && (only == "" || s.Path == only) {
				named = append(named, s)
			}
		}
	}
	if len(named) == 0 {
		return fmt.Errorf("no page has <!-- run: %s -->", name)
	}
	fmt.Print("set -x\n" + snippet.Script(named, duration))
	return nil
}

// measured is the line of a page that says where and when its code ran.
var measured = regexp.MustCompile(`(?m)^Measured: .*$`)

// fill writes the output of the script into a page.
func fill(path, where string, output io.Reader) error {
	printed, err := io.ReadAll(output)
	if err != nil {
		return fmt.Errorf("read the output: %w", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}

	page, err := snippet.Page{Path: path, Text: string(text)}.Fill(string(printed))
	if err != nil {
		return err
	}
	if !measured.MatchString(page.Text) {
		return fmt.Errorf("%s has no line \"Measured: \"", path)
	}
	page.Text = measured.ReplaceAllLiteralString(page.Text, "Measured: "+where+".")
	return os.WriteFile(path, []byte(page.Text), 0o644)
}
