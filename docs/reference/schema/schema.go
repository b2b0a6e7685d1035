// Package schema has the JSON schemas of allocscope's files, which test/schema makes of the Go types.
package schema

import _ "embed"

// Summary is the schema of summary.json, and Doctor the schema of allocscope doctor --json.
var (
	//go:embed summary.json
	Summary []byte
	//go:embed doctor.json
	Doctor []byte
)
