package bundle

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
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

// TestVocabulary checks that the words are those of the source.
func TestVocabulary(t *testing.T) {
	words := make(map[string]bool)
	for _, area := range []string{"cmd", "export", "fleet", "growth", "tracer"} {
		if err := addWords(words, filepath.Join("../..", area)); err != nil {
			t.Fatal(err)
		}
	}
	for number := range syscall.Errno(134) {
		addText(words, number.Error())
	}
	var sorted []string
	for word := range words {
		sorted = append(sorted, word)
	}
	slices.Sort(sorted)
	want := strings.Join(sorted, "\n") + "\n"

	if *update {
		if err := os.WriteFile("vocabulary.txt", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if vocabularyText != want {
		t.Error("vocabulary.txt is not what the source has: go generate ./export/bundle")
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
	plainWord  = regexp.MustCompile(`[A-Za-z]{2,}`)
)

func addLiteral(words map[string]bool, literal string) {
	text, err := strconv.Unquote(literal)
	if err != nil {
		return
	}
	addText(words, verb.ReplaceAllString(text, " "))
}

func addText(words map[string]bool, text string) {
	for _, pattern := range []*regexp.Regexp{flagWord, pathWord, dottedWord, plainWord} {
		for _, word := range pattern.FindAllString(text, -1) {
			words[strings.ToLower(word)] = true
		}
	}
}
