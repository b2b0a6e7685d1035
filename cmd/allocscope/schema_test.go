package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// closed makes a schema refuse keys that it does not describe.
func closed(part any) {
	switch part := part.(type) {
	case []any:
		for _, p := range part {
			closed(p)
		}
	case map[string]any:
		if _, ok := part["properties"].(map[string]any); ok {
			part["additionalProperties"] = false
		}
		for _, p := range part {
			closed(p)
		}
	}
}

// mustFit validates an output against a schema of the documentation.
func mustFit(t *testing.T, file, output string) {
	t.Helper()
	raw := readFile(t, "../../docs/reference/schema", file)
	document := tracertest.Must(jsonschema.UnmarshalJSON(strings.NewReader(raw)))(t)
	closed(document)

	compiler := jsonschema.NewCompiler()
	must(t, compiler.AddResource(file, document))
	schema := tracertest.Must(compiler.Compile(file))(t)
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(output))
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		t.Errorf("%s: %v", file, err)
	}
}

// TestSchemas validates allocscope's JSON with a validator of another project.
func TestSchemas(t *testing.T) {
	target := startSteps(t)
	c, dir := tracing(t, target, "--snapshot-every", "100ms")
	do(target, "leak 1000 96")
	c.awaitSnapshots(dir, 4)
	c.interrupt()

	mustFit(t, "summary.json", readFile(t, dir, folder.SummaryFile))
	for _, axis := range [][]string{nil, {"--limit", "1GiB"}} {
		arguments := append([]string{"verdict", filepath.Join(dir, folder.TimelineFile), "--json"}, axis...)
		mustFit(t, "verdict.json", call(t, arguments...).stdout.String())
	}
	inSteps := filepath.Join(t.TempDir(), "train.log")
	var log strings.Builder
	for step := range 400 {
		log.WriteString("step=" + itoa(step) + " rss=" + itoa(9000+step) + "MB\n")
	}
	writeFile(t, inSteps, log.String(), 0o600)
	mustFit(t, "verdict.json", call(t, "verdict", inSteps, "--json").stdout.String())
	mustFit(t, "doctor.json", call(t, "doctor", "--json").stdout.String())
	mustFit(t, "doctor.json", call(t, "doctor", "--json", "--pid", itoa(target.PID())).stdout.String())
}
