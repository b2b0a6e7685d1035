package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// code is the comments and the constants of the packages whose types become schemas. Names have the
// folder, the type and the field: "export/summary.Summary.Schema".
type code struct {
	comments  map[string]string
	constants map[string][]string // values of string types, by type
}

// readCode reads the packages below some folders of the repository.
func readCode(root string) (*code, error) {
	c := &code{make(map[string]string), make(map[string][]string)}
	for _, folder := range []string{"export", "fleet/serve", "growth", "tracer/doctor"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if d != nil && d.Name() == "node_modules" {
				return filepath.SkipDir
			}
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			pkg, err := filepath.Rel(root, filepath.Dir(path))
			c.add(filepath.ToSlash(pkg), file)
			return err
		})
		if err != nil {
			return nil, err
		}
	}

	return c, nil
}

func (c *code) add(pkg string, file *ast.File) {
	for _, d := range file.Decls {
		d, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				c.addType(pkg, d, spec)
			case *ast.ValueSpec:
				c.addConstants(pkg, spec)
			}
		}
	}
}

// addConstants adds constants of a type of the same package, or constants without a type by the
// first word of their names: "growth.Limit…".
func (c *code) addConstants(pkg string, spec *ast.ValueSpec) {
	for i, value := range spec.Values {
		literal, ok := value.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			continue
		}
		name := pkg + "." + firstWord.FindString(spec.Names[i].Name) + "…"
		if of, ok := spec.Type.(*ast.Ident); ok {
			name = pkg + "." + of.Name
		}
		c.constants[name] = append(c.constants[name], text)
	}
}

var firstWord = regexp.MustCompile(`^[A-Z][a-z]*`)

func (c *code) addType(pkg string, d *ast.GenDecl, spec *ast.TypeSpec) {
	name := pkg + "." + spec.Name.Name
	doc := d.Doc
	if spec.Doc != nil {
		doc = spec.Doc
	}

	c.comments[name] = paragraph(doc.Text())

	fields, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}

	shared := "" // the comment above, which may be of the fields below, too
	for _, f := range fields.Fields.List {
		own := paragraph(f.Doc.Text() + f.Comment.Text())
		if own != "" {
			shared = own
		}
		for _, field := range f.Names {
			isNamed := regexp.MustCompile(`\b` + field.Name + `\b`).MatchString(shared)
			if own != "" || isNamed {
				c.comments[name+"."+field.Name] = shared
			}
		}
	}
}

// paragraph is a comment in one line.
func paragraph(text string) string { return strings.Join(strings.Fields(text), " ") }
