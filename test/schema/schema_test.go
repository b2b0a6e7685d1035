package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// word is how an enum is spelled.
var word = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func TestSchemas(t *testing.T) {
	code := tracertest.Must(readCode(root))(t)
	for _, d := range documents {
		t.Run(d.file, func(t *testing.T) {
			want := tracertest.Must(code.schemaOf(d.of, d.schema, d.title))(t)
			got, err := os.ReadFile(filepath.Join(root, folder, d.file))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("the file is not that of the code (%v): run go generate ./test/schema",
					err)
			}

			document := tracertest.Must(jsonschema.UnmarshalJSON(bytes.NewReader(want)))(t)
			compiler := jsonschema.NewCompiler()
			tracertest.NoError(t, compiler.AddResource(d.file, document))
			if _, err := compiler.Compile(d.file); err != nil {
				t.Error(err)
			}
			checkSpelling(t, document, "")
		})
	}
}

// checkSpelling checks the enums and the units of a schema, and that all keys are described.
func checkSpelling(t *testing.T, part any, path string) {
	t.Helper()
	switch part := part.(type) {
	case []any:
		for _, p := range part {
			checkSpelling(t, p, path)
		}
	case map[string]any:
		if values, ok := part["enum"].([]any); ok {
			for _, v := range values {
				if text, _ := v.(string); text != "" && !word.MatchString(text) {
					t.Errorf("%s: %q is not lower-case words with hyphens", path, text)
				}
			}
		}
		properties, _ := part["properties"].(map[string]any)
		for key := range properties {
			if badUnit.MatchString(key) {
				t.Errorf("%s.%s: the unit is not the end of the key", path, key)
			}
		}
		for key, p := range part {
			checkSpelling(t, p, path+"/"+key)
		}
	}
}

// badUnit are spellings of bytes, seconds and shares that the files once had.
var badUnit = regexp.MustCompile(`seconds|minutes|percent|_ms$|^rate_(low|high)$|_(kb|mb|mib)$`)

func TestSchemaRefuses(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	schema := tracertest.Must(compiler.Compile(filepath.Join(root, folder, "doctor.json")))(t)
	for text, isValid := range map[string]bool{
		`{"schema": "allocscope-doctor/1", "ready": true, "failed": 0, "checks": []}`:                                                                true,
		`{"schema": "allocscope-doctor/1", "ready": true, "failed": 0}`:                                                                              false,
		`{"schema": "allocscope-doctor/0", "ready": true, "failed": 0, "checks": []}`:                                                                false,
		`{"schema": "allocscope-doctor/1", "ready": true, "failed": 0, "checks": [{"name": "x", "state": "good", "finding": "", "required": true}]}`: false,
	} {
		var value any
		tracertest.NoError(t, json.Unmarshal([]byte(text), &value))
		if err := schema.Validate(value); (err == nil) != isValid {
			t.Errorf("%s: %v", text, err)
		}
	}
}
