package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// maxMethods bounds the methods of a type.
const maxMethods = 30

// methodsOf has the names of the methods of types, by "folder.Type". Files for other build tags may
// have the same method.
type methodsOf map[string]map[string]bool

// add adds the methods in a file of Go that is not a test's.
func (m methodsOf) add(s source) error {
	if s.extension() != ".go" || strings.HasSuffix(s.path, "_test.go") {
		return nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), s.path, s.text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}

	for _, declared := range file.Decls {
		function, isFunction := declared.(*ast.FuncDecl)
		if !isFunction || function.Recv == nil {
			continue
		}
		owner := path.Dir(s.path) + "." + receiverOf(function.Recv.List[0].Type)
		if m[owner] == nil {
			m[owner] = make(map[string]bool)
		}
		m[owner][function.Name.Name] = true
	}
	return nil
}

// receiverOf returns the name of a receiver's type, without its pointer and its type parameters.
func receiverOf(receiver ast.Expr) string {
	switch e := receiver.(type) {
	case *ast.ParenExpr:
		return receiverOf(e.X)
	case *ast.StarExpr:
		return receiverOf(e.X)
	case *ast.IndexExpr:
		return receiverOf(e.X)
	case *ast.IndexListExpr:
		return receiverOf(e.X)
	}
	return nameOf(receiver)
}

func (m methodsOf) faults() (faults []string) {
	for _, owner := range slices.Sorted(maps.Keys(m)) {
		if n := len(m[owner]); n > maxMethods {
			faults = append(faults, fmt.Sprintf(
				"%s has %d methods, more than %d: make a part that has a state of its own a type",
				owner, n, maxMethods))
		}
	}
	return faults
}
