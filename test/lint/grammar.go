package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
)

// clauseForms match relative clauses and pronouns in the place of a noun. A reader of such a comment
// has to look for the thing, so that the comment must name it: "the age of the last sample".
var clauseForms = []*regexp.Regexp{
	regexp.MustCompile(`(?i)(?:\bso\s+)?\b(?:that|those)\s+of\b`),
	regexp.MustCompile(`(?i)\bthat\s+(?:which|who|whose)\b`),
	regexp.MustCompile(`(?i)\bthose\s+(?:which|who|whose|with|without)\b`),
	regexp.MustCompile(`(?:[A-Za-z]+,?\s+)?\b[Ww]hat\s+[a-z]\w*`),
	regexp.MustCompile(`(?i)[a-z0-9]+\s+(?:what|who)ever\b`),
	regexp.MustCompile(sentenceStart + `Of\s+[^.,:;?!\x00]*\b(?:it|they|there|that|those|only)\b`),
}

// plainForms match phrases that clauseForms match, and that are plain English: an indirect question,
// a direction, a conjunction.
var plainForms = regexp.MustCompile(`(?i)^(?:` +
	`(?:says?|said|knows?|known|shows?|asks?|asked|sees?|decides?|explains?|describes?|` +
	`finds?|measures?|names?)\s+what\b.*|` +
	`(?:\S+\s+)?what\s+to|so\s+that\s+of|(?:and|or)\s+(?:what|who)ever)$`)

// sentenceStart matches the end of the sentence before, or the start of a comment.
const sentenceStart = `(?:^|\x00\s*|[.:;?!]\s+|\n[ \t]*\n\s*|\n\s*- )`

// grammarFaults returns a line for each clause of these forms in the comments of a source.
func grammarFaults(s source) (faults []string) {
	comments := commentsOf(s)
	for _, form := range clauseForms {
		for _, at := range form.FindAllStringIndex(comments, -1) {
			phrase := strings.TrimLeft(comments[at[0]:at[1]], " \t\n\x00.:;?!-")
			if plainForms.MatchString(phrase) {
				continue
			}
			line := 1 + strings.Count(comments[:at[1]-len(phrase)], "\n")
			faults = append(faults, fmt.Sprintf("%s:%d: %q is a clause used as a noun: name the thing",
				s.path, line, strings.Join(strings.Fields(phrase), " ")))
		}
	}
	return faults
}

// cComment matches a comment of C, or a string, in which no comment begins. A line ends in \n.
var cComment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'`)

// shellComment matches a comment of a shell script. In a string, # follows a blank seldom.
var shellComment = regexp.MustCompile(`(?m)(?:^|[ \t])#(?:[^!\n].*)?$`)

// commentsOf returns the comments of a source of Go, C or shell without their marks. Each is in the
// line that it has in the source. A zero byte is between two comments with code between them.
func commentsOf(s source) string {
	var spans [][]int
	switch s.extension() {
	case ".go":
		spans = goComments(s.text)
	case ".c", ".h", ".cc", ".S", ".inc":
		for _, span := range cComment.FindAllStringIndex(s.text, -1) {
			if s.text[span[0]] == '/' {
				spans = append(spans, span)
			}
		}
	default:
		if s.extension() == ".sh" || isScript.MatchString(s.text) {
			spans = shellComment.FindAllStringIndex(s.text, -1)
		}
	}

	var comments strings.Builder
	end := 0
	for _, span := range spans {
		gap := s.text[end:span[0]]
		if strings.TrimSpace(gap) != "" || strings.Count(gap, "\n") > 1 {
			comments.WriteByte(0)
		}
		comments.WriteString(strings.Repeat("\n", strings.Count(gap, "\n")))
		comments.WriteString(commentMark.ReplaceAllString(s.text[span[0]:span[1]], "$1 "))
		end = span[1]
	}
	return comments.String()
}

// isScript matches the first line of a shell script.
var isScript = regexp.MustCompile(`^#!/\S*(?:/env )?\b(?:ba|da)?sh\b`)

// commentMark matches the marks at the start of a line of a comment, and the mark at its end.
var commentMark = regexp.MustCompile(`(?m)(^)[ \t]*(?://|/?\*+|#)[ \t]?|\*/`)

func goComments(text string) (spans [][]int) {
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), nil, scanner.ScanComments)

	for {
		position, kind, literal := s.Scan()
		switch kind {
		case token.EOF:
			return spans
		case token.COMMENT:
			start := file.Offset(position)
			spans = append(spans, []int{start, start + len(literal)})
		}
	}
}
