package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// wordList has a line for each retired word: the word or phrase, a tab, and what to say instead.
//   - Several spellings have commas between them.
//   - A word that ends in * is also retired as a part of an identifier: old* refuses oldStart.
//   - A third column lists the phrases that keep the word, with commas between them.
//   - Lines that begin with # are comments.
const wordList = "docs/retired-words.txt"

// A retiredWord is one spelling of a word or phrase that must not be used.
type retiredWord struct {
	spelling     string
	words        []string // lower case
	inIdentifier bool
	instead      string
	kept         [][]string // phrases in which it may be used
}

// A vocabulary has the retired phrases by their first words.
type vocabulary map[string][]retiredWord

func parseWords(list string) (vocabulary, error) {
	v := make(vocabulary)
	for number, line := range strings.Split(list, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) < 2 || len(columns) > 3 || columns[1] == "" {
			return nil, fmt.Errorf("line %d: want WORD, a tab, what to say instead: %q",
				number+1, line)
		}

		var kept [][]string
		if len(columns) == 3 {
			for phrase := range strings.SplitSeq(columns[2], ", ") {
				kept = append(kept, strings.Fields(phrase))
			}
		}

		for spelling := range strings.SplitSeq(columns[0], ", ") {
			r := retiredWord{spelling: spelling, instead: columns[1], kept: kept}
			spelling, r.inIdentifier = strings.CutSuffix(spelling, "*")
			r.words = strings.Fields(strings.ToLower(spelling))
			if len(r.words) == 0 {
				return nil, fmt.Errorf("line %d: an empty word: %q", number+1, line)
			}
			v[r.words[0]] = append(v[r.words[0]], r)
		}
	}
	return v, nil
}

// A piece is one word of a text, or one part of an identifier in camel case or with underscores.
type piece struct {
	word string // lower case
	line int    // from 1
	// glued: nothing is between this piece and the one before, except an underscore.
	glued bool
	// apart: a mark of punctuation is between them, which no phrase has.
	apart bool
}

// wordPattern finds words, the parts of identifiers, and the ends of lines.
var wordPattern = regexp.MustCompile(`\p{Lu}+\p{Ll}*|\p{Ll}+|\n`)

// piecesOf splits a text into words. Comment marks do not separate the words of a phrase, so that
// it is found where a line ends within it.
func piecesOf(text string) (pieces []piece) {
	line, end := 1, 0 // end of the word before
	for _, at := range wordPattern.FindAllStringIndex(text, -1) {
		word := text[at[0]:at[1]]
		if word == "\n" {
			line++
			continue
		}

		gap := text[end:at[0]]
		end = at[1]
		glued := len(pieces) > 0 && strings.Trim(gap, "_") == ""
		apart := strings.Trim(gap, " \t\n/*#_-`'\"") != ""
		for i, part := range splitAcronym(word) {
			p := piece{word: strings.ToLower(part), line: line, glued: glued, apart: apart}
			if i > 0 {
				p.glued, p.apart = true, false
			}
			pieces = append(pieces, p)
		}
	}
	return pieces
}

// splitAcronym splits an acronym from the word behind it: RSSRow is RSS and Row.
func splitAcronym(word string) []string {
	letters := []rune(word)
	last := len(letters) - 1
	for last >= 0 && unicode.IsLower(letters[last]) {
		last--
	}
	if last <= 0 || last == len(letters)-1 {
		return []string{word}
	}
	return []string{string(letters[:last]), string(letters[last:])}
}

// placeholder matches a mark for text that is to come: capital letters between two @.
var placeholder = regexp.MustCompile(`@[A-Z]+@`)

// faultsIn returns a line for each retired word in a source, and in its path, and for each
// placeholder.
func (v vocabulary) faultsIn(s source) (faults []string) {
	for _, f := range v.find(piecesOf(s.path)) {
		faults = append(faults,
			fmt.Sprintf("%s: the name has %q: say %q", s.path, f.spelling, f.instead))
	}
	for _, f := range v.find(piecesOf(s.text)) {
		faults = append(faults,
			fmt.Sprintf("%s:%d: %s: say %q", s.path, f.line, f.spelling, f.instead))
	}

	for number, line := range strings.Split(s.text, "\n") {
		if mark := placeholder.FindString(line); mark != "" {
			faults = append(faults,
				fmt.Sprintf("%s:%d: %s is a placeholder: fill it in", s.path, number+1, mark))
		}
	}
	return faults
}

// A use is one use of a retired phrase.
type use struct {
	retiredWord
	line int
}

func (v vocabulary) find(pieces []piece) (uses []use) {
	for i := range pieces {
		for _, r := range v[pieces[i].word] {
			if r.isAt(pieces, i) {
				uses = append(uses, use{r, pieces[i].line})
				break
			}
		}
	}
	return uses
}

func (r retiredWord) isAt(pieces []piece, i int) bool {
	if !phraseIsAt(pieces, i, r.words) {
		return false
	}

	end := i + len(r.words)
	isGlued := func(p piece) bool { return p.glued }
	isPart := slices.ContainsFunc(pieces[i:min(end+1, len(pieces))], isGlued)
	if isPart && !r.inIdentifier {
		return false
	}

	for _, phrase := range r.kept {
		for offset := range phrase {
			if phrase[offset] == r.words[0] && phraseIsAt(pieces, i-offset, phrase) {
				return false
			}
		}
	}
	return true
}

func phraseIsAt(pieces []piece, i int, phrase []string) bool {
	if i < 0 || i+len(phrase) > len(pieces) {
		return false
	}
	for offset, word := range phrase {
		p := pieces[i+offset]
		if p.word != word || offset > 0 && p.apart {
			return false
		}
	}
	return true
}
