package bundle

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

//go:embed vocabulary.txt
var vocabularyText string

// vocabulary has the words of allocscope's own sentences, in lower case, and the names, flags and
// paths in them. They come from the string literals in its source, and from the errors of system
// calls.
var vocabulary = set(vocabularyText)

var (
	quantity = regexp.MustCompile(
		`^[-+~±]?([0-9][0-9.,:]*(ns|us|µs|ms|s|m|h|d|min|B|KiB|MiB|GiB|TiB|[kKMGTx%])?)+$`)
	address     = regexp.MustCompile(`^[0-9]+(\.[0-9]+){3}(:[0-9]+)?$|::`) // of a host
	hexadecimal = regexp.MustCompile(`^0x[0-9a-f]+$`)
	rootForm    = regexp.MustCompile(`^\[([a-z -]+): (.+)\]$`)
	lineNumber  = regexp.MustCompile(`^(.+?)((?::[0-9]+)+)$`)
)

// separators end a chunk of a sentence: a possible name.
const separators = " \t\n()[]{},;\"'“”‘’`|<>="

// punctuation is not part of a chunk at its ends.
const punctuation = ".:!?…&@#"

// sentence returns a text of allocscope's without quotes from the process: every chunk that is no
// word of allocscope, no number and no name from a public place is replaced. isStrict replaces the
// names that were met elsewhere even if they are such words.
func (n *pseudonyms) sentence(text string, isStrict bool) string {
	if n.long != nil {
		text = n.long.Replace(text)
	}
	var out strings.Builder
	for text != "" {
		length := strings.IndexAny(text, separators)
		if length < 0 {
			length = len(text)
		}
		out.WriteString(n.chunk(text[:length], isStrict))
		text = text[length:]
		if text != "" {
			end := len(text) - len(strings.TrimLeft(text, separators))
			out.WriteString(text[:end])
			text = text[end:]
		}
	}
	return out.String()
}

// minLongName is long enough that no part of a word is taken for it.
const minLongName = 8

// setLong prepares the replacement of names that hold separators, the longest first.
func (n *pseudonyms) setLong() {
	var found []string
	for name := range n.pseudonyms {
		if len(name) >= minLongName && strings.ContainsAny(name, separators) && !n.public[name] {
			found = append(found, name)
		}
	}
	slices.SortFunc(found, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	var pairs []string
	for _, name := range found {
		pairs = append(pairs, name, n.pseudonyms[name])
	}
	n.long = strings.NewReplacer(pairs...)
}

func (n *pseudonyms) chunk(text string, isStrict bool) string {
	inner := strings.Trim(text, punctuation)
	if inner == "" {
		return text
	}
	at := strings.Index(text, inner)
	if strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../") {
		at, inner = 0, strings.TrimRight(text, punctuation)
	}
	return text[:at] + n.word(inner, isStrict) + text[at+len(inner):]
}

func (n *pseudonyms) word(text string, isStrict bool) string {
	pseudonym, isKnown := n.pseudonyms[text]
	switch {
	case isKnown && !isShort(text) && (isStrict || !vocabulary[strings.ToLower(text)]):
		return pseudonym
	case n.isHidden(text) && !n.written[text]:
		return n.qualifiedFile(text)
	case n.public[text], n.written[text], isOwnWord(text), isWellKnown(text):
		return text
	}
	if address.MatchString(text) {
		return n.replace("host", text)
	}
	if name, isMemfd := strings.CutPrefix(text, "memfd:"); isMemfd {
		return "memfd:" + n.replace("name", name)
	}
	if found := lineNumber.FindStringSubmatch(text); found != nil {
		return n.word(found[1], isStrict) + found[2]
	}
	if strings.Contains(text, "/") {
		return n.path(text)
	}
	return n.qualifiedFile(text)
}

// isShort is true of letters and numbers that are hardly the name of anything.
func isShort(text string) bool {
	return len(text) == 1 || quantity.MatchString(text) && (len(text) < 5 || !isNumber(text))
}

// qualifiedFile replaces a chunk that may be the name of a file or of a function.
func (n *pseudonyms) qualifiedFile(text string) string {
	if knownSuffix.MatchString(text) {
		return n.fileName(text)
	}
	return n.qualified(text)
}

// isOwnWord is true of a number and of words that allocscope itself writes, such as "free",
// "MiB/min", "before-tracing" and "summary.json".
func isOwnWord(text string) bool {
	switch {
	case address.MatchString(text):
		return false
	case quantity.MatchString(text),
		hexadecimal.MatchString(text),
		utf8.RuneCountInString(text) <= 1,
		vocabulary[strings.ToLower(text)],
		strings.Trim(text, joints) == "":
		return true
	}

	form, isJoined := joinedForm(text)
	return isJoined && vocabulary[form]
}

// joints are between the words of a chunk.
const joints = "-/+~:_×–—%±"

func isJoint(r rune) bool { return strings.ContainsRune(joints, r) }

var sizeUnit = regexp.MustCompile(`^([kKMGT]i?)?B$`)

// joinedForm returns a chunk of words with joints as the vocabulary has it: in lower case, with 0
// for each number and each unit of a size. Text such as node/worker/job is a name, though each of
// its words is allocscope's. isJoined is false of one word, of a path and of a flag.
func joinedForm(text string) (form string, isJoined bool) {
	text = strings.TrimLeft(text, "+~±")
	unsigned := strings.TrimPrefix(text, "-")
	if unsigned == "" || unsigned != text && ('0' > unsigned[0] || unsigned[0] > '9') ||
		unsigned[0] == '/' {
		return "", false
	}

	var out strings.Builder
	for word := unsigned; word != ""; {
		end := strings.IndexFunc(word, isJoint)
		if end < 0 {
			end = len(word)
		}

		part := word[:end]
		if quantity.MatchString(part) || sizeUnit.MatchString(part) {
			part = "0"
		}

		out.WriteString(strings.ToLower(part))
		word = word[end:]
		joint := len(word) - len(strings.TrimLeftFunc(word, isJoint))
		out.WriteString(word[:joint])
		isJoined = isJoined || joint > 0 && end > 0 && joint < len(word)
		word = word[joint:]
	}

	return out.String(), isJoined
}

// root returns the name of memory without an allocation site, such as "[file: /data/x]".
func (n *pseudonyms) root(text string) string {
	found := rootForm.FindStringSubmatch(text)
	if found == nil {
		return n.sentence(text, false)
	}
	inner := found[2]
	if strings.HasPrefix(inner, "/") {
		inner = n.path(inner)
	} else {
		inner = n.sentence(inner, false)
	}
	return "[" + n.sentence(found[1], false) + ": " + inner + "]"
}

// frame returns a frame as profile.FrameText writes it: "leak (/home/me/leak.py:12)".
func (n *pseudonyms) frame(text string) string {
	function, file, line := splitFrame(text)
	if file == "" {
		return n.root(text)
	}
	replaced := n.function(function, n.isPublic(file)) + " (" + n.path(file) + line + ")"
	n.remember(text, replaced)
	return replaced
}

// splitFrame takes a frame apart. Line begins with its colon, and is empty where there is none, as
// is file.
func splitFrame(text string) (function, file, line string) {
	at := strings.LastIndex(text, " (")
	if bare, isDeleted := strings.CutSuffix(text, deleted+")"); isDeleted {
		at = strings.LastIndex(bare, " (")
	}
	if at < 0 || !strings.HasSuffix(text, ")") {
		return text, "", ""
	}

	file = text[at+2 : len(text)-1]
	if found := lineNumber.FindStringSubmatch(file); found != nil {
		file, line = found[1], found[2]
	}
	return text[:at], file, line
}
