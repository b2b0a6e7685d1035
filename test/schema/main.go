// Command schema writes the JSON schemas of the JSON that allocscope prints and writes, made of the
// Go types, their comments and their constants.
package main

//go:generate go run .

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/allocscope/allocscope/export/bundle"
	"github.com/allocscope/allocscope/export/compare"
	"github.com/allocscope/allocscope/export/ranks"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/fleet/serve"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/tracer/doctor"
)

const (
	module = "github.com/allocscope/allocscope"
	root   = "../.." // of the repository, from the folder of this file
	folder = "docs/reference/schema"
)

// documents are the files, and the types that they describe.
var documents = []struct {
	file, schema, title string
	of                  any
}{
	{"summary.json", summary.Schema, "summary.json of a trace", summary.Summary{}},
	{"diff.json", compare.Schema, "allocscope diff --json", compare.Result{}},
	{"ranks.json", ranks.Schema, "allocscope ranks --json", ranks.Result{}},
	{"verdict.json", summary.VerdictSchema, "allocscope verdict --json", summary.RecordedVerdict{}},
	{"doctor.json", doctor.Schema, "allocscope doctor --json", doctor.Report{}},
	{"agent-status.json", serve.StatusSchema, "allocscope agent status --json", serve.Status{}},
	{"objects.json", summary.CountedSchema, "allocscope objects --json", summary.Counted{}},
	{"bundle.json", bundle.Schema, "bundle.json of a bundle", bundle.Contents{}},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

func run() error {
	code, err := readCode(root)
	if err != nil {
		return err
	}

	for _, d := range documents {
		text, err := code.schemaOf(d.of, d.schema, d.title)
		if err != nil {
			return fmt.Errorf("%s: %w", d.file, err)
		}
		if err := os.WriteFile(filepath.Join(root, folder, d.file), text, 0o644); err != nil {
			return err
		}
	}

	return nil
}

// schemaOf returns the schema of a type.
func (c *code) schemaOf(of any, version, title string) ([]byte, error) {
	reflector := jsonschema.Reflector{
		AllowAdditionalProperties: true, // fields may be added at any time
		ExpandedStruct:            true,
		Anonymous:                 true,
		Mapper:                    c.enum,
		LookupComment:             c.comment,
	}

	s := reflector.ReflectFromType(reflect.TypeOf(of))
	s.Title = title
	if p, ok := s.Properties.Get("schema"); ok {
		p.Const = version
	}

	parts := map[string]*jsonschema.Schema{reflect.TypeOf(of).Name(): s}
	maps.Copy(parts, s.Definitions)
	for field, constants := range fieldConstants {
		definition, key, _ := strings.Cut(field, ".")
		if parts[definition] == nil {
			continue
		}
		p, ok := parts[definition].Properties.Get(key)
		if !ok {
			return nil, fmt.Errorf("%s has no key %s", definition, key)
		}
		p.Enum = enumOf(c.constants[constants])
	}

	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(s)
	return text.Bytes(), err
}

// enum returns the schema of a string type that has constants; nil: the type is another one.
func (c *code) enum(t reflect.Type) *jsonschema.Schema {
	if t == reflect.TypeFor[diagnosis.Cause]() {
		return &jsonschema.Schema{
			Type: "string", Description: c.comments[nameOf(t)], Enum: enumOf(causes()),
		}
	}
	values := c.constants[nameOf(t)]
	if t.Kind() != reflect.String || len(values) == 0 {
		return nil
	}
	return &jsonschema.Schema{
		Type: "string", Description: c.comments[nameOf(t)], Enum: enumOf(values),
	}
}

// causes are the names of the causes of growth.
func causes() (names []string) {
	for cause := range diagnosis.NumCauses {
		names = append(names, cause.String())
	}
	return names
}

func enumOf(values []string) (enum []any) {
	for _, v := range slices.Compact(slices.Sorted(slices.Values(values))) {
		enum = append(enum, v)
	}
	return enum
}

// fieldConstants are the constants of fields whose type is string: the constants of a type, or all
// whose names begin so.
var fieldConstants = map[string]string{
	"Summary.ended":       "export/summary.Ended…",
	"Note.code":           "export/summary.Note…",
	"Source.state":        "export/summary.Source…",
	"Limit.of":            "growth.Limit…",
	"ProcessStatus.limit": "growth.Limit…",
	"GPUCurve.name":       "growth/gpu.CurveName",
	"GPUMemory.judged":    "growth/gpu.CurveName",
	"GPUMemory.diagnosis": "growth/gpu.Diagnosis",
	"Step.diagnosis":      "growth/gpu.Diagnosis",
	"Side.verdict":        "growth/verdict.Class",
	"StackRow.kind":       "growth.Kind",
}

// comment returns the comment of a type or of its field.
func (c *code) comment(t reflect.Type, field string) string {
	name := nameOf(t)
	if field != "" {
		name += "." + field
	}
	return c.comments[name]
}

func nameOf(t reflect.Type) string {
	return strings.TrimPrefix(t.PkgPath(), module+"/") + "." + t.Name()
}
