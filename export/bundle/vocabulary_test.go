package bundle

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

var update = flag.Bool("update", false, "write vocabulary.txt")

//go:generate go test -count=1 -run ^TestVocabulary$ . -update

// maxNewWords is how many words of the source may be missing in vocabulary.txt: sentences in bundles
// have pseudonyms for them, until `make generate` adds them.
const maxNewWords = 50

// TestVocabulary checks that the words are in the source, but for the newest.
func TestVocabulary(t *testing.T) {
	t.Parallel()
	words := make(map[string]bool)
	for _, area := range []string{"cmd", "export", "fleet", "growth", "record", "tracer"} {
		if err := addWords(words, filepath.Join("../..", area)); err != nil {
			t.Fatal(err)
		}
	}
	for number := range syscall.Errno(134) {
		addText(words, number.Error())
		addJoined(words, number.Error())
	}
	sorted := slices.Sorted(maps.Keys(words))

	if *update {
		text := strings.Join(sorted, "\n") + "\n"
		if err := os.WriteFile("vocabulary.txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}

	missing := slices.DeleteFunc(sorted, func(word string) bool { return vocabulary[word] })
	if len(missing) > maxNewWords {
		t.Errorf("vocabulary.txt lacks %d words, such as %q: go generate ./export/bundle",
			len(missing), missing[:10])
	}
}

// addWords adds the words of the string literals below a folder.
func addWords(words map[string]bool, folder string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		isForTests := strings.HasSuffix(path, "test") || strings.HasSuffix(path, "_test.go")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (isForTests || entry.Name() == "bundle" || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case entry.IsDir() || isForTests || !strings.HasSuffix(path, ".go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if _, isImport := node.(*ast.ImportSpec); isImport {
				return false
			}
			literal, ok := node.(*ast.BasicLit)
			if ok && literal.Kind == token.STRING {
				addLiteral(words, literal.Value)
			}
			return true
		})
		return nil
	})
}

var (
	verb       = regexp.MustCompile(`%[-+#0-9.*]*[a-zA-Z]`)
	flagWord   = regexp.MustCompile(`--[a-z][-a-z0-9]*`)
	pathWord   = regexp.MustCompile(`/(?:proc|sys|dev|run)(?:/[A-Za-z0-9_.]+)+`)
	dottedWord = regexp.MustCompile(`[A-Za-z0-9]+(?:[._][A-Za-z0-9]+)+`)
	joinedWord = regexp.MustCompile(`^[a-z0-9.]+([-/+~:×–—±]+[a-z0-9.]+)+%?$`)
	plainWord  = regexp.MustCompile(`[A-Za-z]{2,}`)
)

func addLiteral(words map[string]bool, literal string) {
	text, err := strconv.Unquote(literal)
	if err != nil {
		return
	}
	addText(words, verb.ReplaceAllString(text, " "))
	addJoined(words, verb.ReplaceAllString(text, "0"))
}

// addJoined adds the forms of chunks such as "%d-%d" and "MiB/min".
func addJoined(words map[string]bool, text string) {
	isSeparator := func(r rune) bool { return strings.ContainsRune(separators, r) }
	for _, chunk := range strings.FieldsFunc(text, isSeparator) {
		form, isJoined := joinedForm(strings.Trim(chunk, punctuation))
		if isJoined && joinedWord.MatchString(form) && !strings.Contains(form, "//") {
			words[form] = true
		}
	}
}

func addText(words map[string]bool, text string) {
	for _, pattern := range []*regexp.Regexp{flagWord, pathWord, dottedWord, plainWord} {
		for _, word := range pattern.FindAllString(text, -1) {
			words[strings.ToLower(word)] = true
		}
	}
}
