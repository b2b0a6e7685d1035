// Command docs prints the code of the documentation's pages that have a name, as a shell script, of
// one page alone where its path is given:
//
//	docs NAME DURATION [PAGE]
//
// The script `run` beside it prepares the means that the code needs, and runs it.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/allocscope/allocscope/test/docs/snippet"
)

func main() {
	if len(os.Args) < 3 || len(os.Args) > 4 {
		fmt.Fprintln(os.Stderr, "usage: docs NAME DURATION [PAGE]")
		os.Exit(2)
	}
	only := strings.Join(os.Args[3:], "")
	pages, err := snippet.Pages(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}

	var named []snippet.Snippet
	for _, page := range pages {
		for _, s := range page.Snippets() {
			if s.Run == os.Args[1] && (only == "" || s.Path == only) {
				named = append(named, s)
			}
		}
	}
	if len(named) == 0 {
		fmt.Fprintf(os.Stderr, "error: no page has <!-- run: %s -->\n", os.Args[1])
		os.Exit(1)
	}
	fmt.Print("set -x\n" + snippet.Script(named, os.Args[2]))
}
