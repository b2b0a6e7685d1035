package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// quotesPage explains messages. The first cells of its tables quote them, in backticks.
const quotesPage = "docs/troubleshooting.md"

// messages compares the quotes of quotesPage with the texts in Go, so that none is out of date.
type messages struct {
	texts  []string // constant strings
	quotes []quote
}

// A quote is a part of a message, in a line of quotesPage.
type quote struct {
	text string
	line int
}

var quotePattern = regexp.MustCompile("`([^`]+)`")

// add takes the texts of a Go file of the program, or the quotes of quotesPage.
func (m *messages) add(s source) error {
	if s.path == quotesPage {
		for i, line := range strings.Split(s.text, "\n") {
			row, isRow := strings.CutPrefix(line, "| ")
			if !isRow {
				continue
			}
			cell, _, _ := strings.Cut(row, " | ")
			for _, found := range quotePattern.FindAllStringSubmatch(cell, -1) {
				m.quotes = append(m.quotes, quote{found[1], i + 1})
			}
		}
		return nil
	}

	isProgram := s.extension() == ".go" && !strings.HasSuffix(s.path, "_test.go") &&
		!strings.HasPrefix(s.path, "test/")
	if !isProgram {
		return nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), s.path, s.text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.BinaryExpr:
			m.texts = append(m.texts, textOf(node))
		case *ast.BasicLit:
			m.texts = append(m.texts, textOf(node))
		}
		return true
	})
	return nil
}

// textOf returns a string that may be written in several pieces. A part that is no constant is a
// NUL, which no quote has.
func textOf(node ast.Expr) string {
	switch node := node.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(node.Value); err == nil && node.Kind == token.STRING {
			return text
		}
	case *ast.ParenExpr:
		return textOf(node.X)
	case *ast.BinaryExpr:
		if node.Op == token.ADD {
			return textOf(node.X) + textOf(node.Y)
		}
	}
	return "\x00"
}

// faults returns a line for each quote that no message has.
func (m *messages) faults() (faults []string) {
	if len(m.quotes) == 0 {
		return []string{quotesPage + ": it quotes no message"}
	}

	all := strings.Join(m.texts, "\x00")
	for _, q := range m.quotes {
		if !strings.Contains(all, q.text) {
			faults = append(faults, fmt.Sprintf("%s:%d: no message has %q", quotesPage, q.line, q.text))
		}
	}
	return faults
}
