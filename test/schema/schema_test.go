package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// word is how an enum is spelled.
var word = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func TestSchemas(t *testing.T) {
	code, err := readCode(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		t.Run(d.file, func(t *testing.T) {
			want, err := code.schemaOf(d.of, d.schema, d.title)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(root, folder, d.file))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("the file is not that of the code (%v): run go generate ./test/schema", err)
			}

			document, err := jsonschema.UnmarshalJSON(bytes.NewReader(want))
			if err != nil {
				t.Fatal(err)
			}
			compiler := jsonschema.NewCompiler()
			if err := compiler.AddResource(d.file, document); err != nil {
				t.Fatal(err)
			}
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
	schema, err := compiler.Compile(filepath.Join(root, folder, "doctor.json"))
	if err != nil {
		t.Fatal(err)
	}
	for text, isValid := range map[string]bool{
		`{"schema": "allocscope-doctor/1", "ready": true, "failed": 0, "checks": []}`:                                                                true,
		`{"schema": "allocscope-doctor/1", "ready": true, "failed": 0}`:                                                                              false,
		`{"schema": "allocscope-doctor/0", "ready": true, "failed": 0, "checks": []}`:                                                                false,
		`{"schema": "allocscope-doctor/1", "ready": true, "failed": 0, "checks": [{"name": "x", "state": "good", "finding": "", "required": true}]}`: false,
	} {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); (err == nil) != isValid {
			t.Errorf("%s: %v", text, err)
		}
	}
}
