package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxColumns       = 100
	tabColumns       = 4
	maxLongLineShare = 0.01 // of the lines of Go and C

	minBlankLineShare = 0.04 // of the lines in the functions of a package
	maxBlankLineShare = 0.12
	minJudgedLines    = 100 // in the functions of a package
)

// A shape counts lines of Go and C, over all sources.
type shape struct {
	lines, longLines int
	bodies           map[string]bodyLines // of Go, by folder
	worstPath        string
	worstCount       int // long lines in worstPath
}

// bodyLines are lines in functions, without the lines of the braces.
type bodyLines struct{ all, blank int }

func (l bodyLines) blankShare() float64 { return share(l.blank, l.all) }

// add counts the lines of a source. Lines that cannot be broken do not count as long: lines of raw
// strings, and lines with a URL.
func (c *shape) add(s source) error {
	var bodies []lineRange
	raw := make(map[int]bool)
	switch s.extension() {
	case ".go":
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, s.path, s.text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		bodies, raw = bodiesOfGo(files, file), rawStringLines(s.text)
	case ".c", ".h", ".cc":
	default:
		return nil
	}

	lines := strings.Split(strings.TrimSuffix(s.text, "\n"), "\n")
	c.lines += len(lines)
	long := 0
	for i, line := range lines {
		if columnsOf(line) > maxColumns && !raw[i+1] && !strings.Contains(line, "://") {
			long++
		}
	}
	c.longLines += long
	if long > c.worstCount {
		c.worstPath, c.worstCount = s.path, long
	}

	if c.bodies == nil {
		c.bodies = make(map[string]bodyLines)
	}
	folder := path.Dir(s.path)
	count := c.bodies[folder]
	for _, body := range bodies {
		for number := body.first; number <= body.last; number++ {
			count.all++
			if strings.TrimSpace(lines[number-1]) == "" && !raw[number] {
				count.blank++
			}
		}
	}
	c.bodies[folder] = count
	return nil
}

func columnsOf(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}

// A lineRange has lines counted from 1, both ends included.
type lineRange struct{ first, last int }

func bodiesOfGo(files *token.FileSet, file *ast.File) (bodies []lineRange) {
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			continue
		}
		first := files.Position(function.Body.Lbrace).Line + 1
		last := files.Position(function.Body.Rbrace).Line - 1
		bodies = append(bodies, lineRange{first, last})
	}
	return bodies
}

// rawStringLines returns the lines of a Go file that a string of several lines covers.
func rawStringLines(text string) map[int]bool {
	covered := make(map[int]bool)
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), nil, 0)

	for {
		position, kind, literal := s.Scan()
		if kind == token.EOF {
			return covered
		}
		rows := strings.Count(literal, "\n")
		if kind != token.STRING || rows == 0 {
			continue
		}
		first := file.Line(position)
		for line := first; line <= first+rows; line++ {
			covered[line] = true
		}
	}
}

func (c shape) longLineShare() float64 { return share(c.longLines, c.lines) }

func share(part, whole int) float64 { return float64(part) / float64(max(whole, 1)) }

func (c shape) String() string {
	var sum bodyLines
	for _, l := range c.bodies {
		sum = bodyLines{sum.all + l.all, sum.blank + l.blank}
	}
	return fmt.Sprintf("%.2f%% of %d lines are over %d columns; "+
		"%.1f%% of %d lines in functions are blank",
		100*c.longLineShare(), c.lines, maxColumns, 100*sum.blankShare(), sum.all)
}

func (c shape) faults() (faults []string) {
	if c.longLineShare() >= maxLongLineShare {
		faults = append(faults, fmt.Sprintf(
			"%d lines are over %d columns, most in %s (%d): break them, below %.0f%% of all",
			c.longLines, maxColumns, c.worstPath, c.worstCount, 100*maxLongLineShare))
	}

	for _, folder := range slices.Sorted(maps.Keys(c.bodies)) {
		lines := c.bodies[folder]
		blank := lines.blankShare()
		if lines.all >= minJudgedLines && (blank < minBlankLineShare || blank > maxBlankLineShare) {
			faults = append(faults, fmt.Sprintf(
				"%s: %d of %d lines in functions are blank: separate the steps, by %.0f to %.0f%%",
				folder, lines.blank, lines.all, 100*minBlankLineShare, 100*maxBlankLineShare))
		}
	}
	return faults
}
