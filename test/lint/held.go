package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
)

// heldPath is the type of a path that leads to the very file that was analysed. The package that
// makes such paths is the one that keeps the files open.
const heldPath = "HeldPath"

// heldFaults returns a line for each use of link.OpenExecutable, in code that is not a test's,
// whose path is not the text of a parameter of that type: a file that somebody else has put at a
// path since would be probed, in all processes.
func heldFaults(sources []source) (faults []string, err error) {
	for _, s := range sources {
		if path.Ext(s.path) != ".go" || strings.HasSuffix(s.path, "_test.go") ||
			!strings.Contains(s.text, "OpenExecutable") {
			continue
		}

		files := token.NewFileSet()
		file, err := parser.ParseFile(files, s.path, s.text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declared := range file.Decls {
			held := make(map[ast.Node]bool) // functions of calls that are right
			ast.Inspect(declared, func(node ast.Node) bool {
				if call, isCall := node.(*ast.CallExpr); isCall && isHeld(call, declared) {
					held[call.Fun] = true
				}

				name, isName := node.(*ast.SelectorExpr)
				if isName && name.Sel.Name == "OpenExecutable" && !held[name] {
					faults = append(faults, fmt.Sprintf("%s:%d: OpenExecutable of a path that is no %s",
						s.path, files.Position(name.Pos()).Line, heldPath))
				}
				return true
			})
		}
	}
	return faults, nil
}

// isHeld reports whether the only argument of a call is the text of a held path that the function
// around the call is given.
func isHeld(call *ast.CallExpr, declared ast.Decl) bool {
	function, isFunction := declared.(*ast.FuncDecl)
	if !isFunction || len(call.Args) != 1 {
		return false
	}

	text, isCall := call.Args[0].(*ast.CallExpr)
	if !isCall {
		return false
	}
	method, isMethod := text.Fun.(*ast.SelectorExpr)
	if !isMethod || method.Sel.Name != "String" {
		return false
	}

	given, isName := method.X.(*ast.Ident)
	if !isName {
		return false
	}
	for _, parameter := range function.Type.Params.List {
		for _, name := range parameter.Names {
			if name.Name == given.Name && nameOf(parameter.Type) == heldPath {
				return true
			}
		}
	}
	return false
}

// nameOf returns the last part of a name, such as Open of os.Open.
func nameOf(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
