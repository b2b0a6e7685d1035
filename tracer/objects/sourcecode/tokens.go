package sourcecode

import (
	"slices"
	"strings"
)

// A kind is the kind of a token.
type kind byte

const (
	kindName   kind = iota // an identifier or a keyword
	kindNumber             // a number
	kindString             // a string that holds no code
	kindFormat             // an f-string or t-string, which holds code
	kindOther              // an operator or a bracket
)

// A token is a word of Python. The text of a string is its content.
type token struct {
	kind kind
	text string
}

// A statement is a logical line. Its indent is in columns, and parent is the statement of which it
// is the body; nil: it is in the body of the module.
type statement struct {
	indent int
	tokens []token
	parent *statement
}

// is reports whether a statement has a text at a place.
func (s *statement) is(at int, text string) bool {
	return at >= 0 && at < len(s.tokens) && s.tokens[at].kind != kindString &&
		s.tokens[at].text == text
}

// startsWith reports whether the first word of a statement is one of some, "async" aside.
func (s *statement) startsWith(words ...string) bool {
	at := 0
	if s.is(0, "async") {
		at = 1
	}
	return at < len(s.tokens) && slices.Contains(words, s.tokens[at].text)
}

// A scanner divides a file into statements.
type scanner struct {
	text  string
	at    int
	depth int // of brackets
	now   *statement
	all   []*statement
	open  []*statement // the statements around the next one, outermost first
}

const tabColumns = 8

// scan returns the statements of a file; false where it is not Python as far as this can read it.
func scan(text string) ([]*statement, bool) {
	s := &scanner{text: strings.ReplaceAll(text, "\r\n", "\n")}

	for s.at < len(s.text) {
		if s.now == nil && s.depth == 0 && !s.begin() {
			continue
		}
		if !s.next() {
			return nil, false
		}
	}

	s.end()
	return s.all, s.depth == 0
}

// begin begins a statement at its indent; false for an empty line.
func (s *scanner) begin() bool {
	indent := 0
	for ; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case ' ':
			indent++
		case '\t':
			indent += tabColumns - indent%tabColumns
		case '\f':
		case '\n':
			s.at++
			return false
		case '#':
			s.skipComment()
			return false
		default:
			s.now = &statement{indent: indent}
			return true
		}
	}
	return false
}

// end ends the statement that has begun.
func (s *scanner) end() {
	if s.now == nil {
		return
	}

	for n := len(s.open); n > 0 && s.open[n-1].indent >= s.now.indent; n-- {
		s.open = s.open[:n-1]
	}

	if n := len(s.open); n > 0 {
		s.now.parent = s.open[n-1]
	}
	s.open, s.all, s.now = append(s.open, s.now), append(s.all, s.now), nil
}

func (s *scanner) skipComment() {
	for s.at < len(s.text) && s.text[s.at] != '\n' {
		s.at++
	}
}

// next reads a token, or a blank; false where it cannot.
func (s *scanner) next() bool {
	c := s.text[s.at]
	rest := s.text[s.at:]

	switch {
	case c == '\n':
		s.at++
		if s.depth == 0 {
			s.end()
		}
	case c == ' ' || c == '\t' || c == '\f':
		s.at++
	case c == '#':
		s.skipComment()
	case strings.HasPrefix(rest, "\\\n"):
		s.at += 2
	case isWord(c):
		return s.word()
	case c == '"' || c == '\'':
		return s.quoted("")
	default:
		return s.operator()
	}
	return true
}

// isWord is true for the bytes of names and numbers, of all that are not ASCII, too.
func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80
}

// word reads a name, a number, or a string with a prefix.
func (s *scanner) word() bool {
	from := s.at
	for s.at < len(s.text) && isWord(s.text[s.at]) {
		s.at++
	}

	text := s.text[from:s.at]
	isPrefix := len(text) <= 2 && strings.Trim(strings.ToLower(text), "rbuft") == ""
	if isPrefix && s.at < len(s.text) && (s.text[s.at] == '"' || s.text[s.at] == '\'') {
		return s.quoted(strings.ToLower(text))
	}

	k := kindName
	if text[0] >= '0' && text[0] <= '9' {
		k = kindNumber
	}
	s.add(k, text)
	return true
}

// quoted reads a string from its first quote on. An f-string whose braces do not match holds its
// own quotes, as of Python 3.12: it cannot be read.
func (s *scanner) quoted(prefix string) bool {
	quote := s.text[s.at : s.at+1]
	if strings.HasPrefix(s.text[s.at:], strings.Repeat(quote, 3)) {
		quote = strings.Repeat(quote, 3)
	}

	s.at += len(quote)

	for from := s.at; s.at < len(s.text); s.at++ {
		switch {
		case s.text[s.at] == '\\':
			s.at++
		case s.text[s.at] == '\n' && len(quote) == 1:
			return false
		case strings.HasPrefix(s.text[s.at:], quote):
			content := s.text[from:s.at]
			s.at += len(quote)

			if !strings.ContainsAny(prefix, "ft") {
				s.add(kindString, content)
				return true
			}
			s.add(kindFormat, content)
			return strings.Count(content, "{") == strings.Count(content, "}")
		}
	}
	return false
}

// operators of several characters on which a use depends.
var operators = []string{"==", "!=", "<=", ">=", ":=", "->", "+=", "-=", "*=", "/=", "|=", "&=", "^="}

func (s *scanner) operator() bool {
	text := s.text[s.at : s.at+1]
	for _, o := range operators {
		if strings.HasPrefix(s.text[s.at:], o) {
			text = o
		}
	}

	switch text {
	case "(", "[", "{":
		s.depth++
	case ")", "]", "}":
		if s.depth--; s.depth < 0 {
			return false
		}
	}

	s.at += len(text)
	s.add(kindOther, text)
	return true
}

// add adds a token. A statement goes on in brackets after empty lines.
func (s *scanner) add(k kind, text string) {
	if s.now == nil {
		s.now = &statement{}
	}
	s.now.tokens = append(s.now.tokens, token{k, text})
}
