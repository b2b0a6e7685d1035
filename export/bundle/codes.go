package bundle

import (
	"encoding/json"
	"maps"
	"sync"

	"github.com/allocscope/allocscope/docs/reference/schema"
)

// A schemaPart is a part of a JSON schema: a type, or a key of one.
type schemaPart struct {
	Properties  map[string]*schemaPart `json:"properties"`
	Definitions map[string]*schemaPart `json:"$defs"`
	Items       *schemaPart            `json:"items"`
	Enum        []string               `json:"enum"`
}

// codes are the values of allocscope's own enums, by the type and the key that have them:
// "BreakdownRow.kind". No other text is taken for a code.
var codes = sync.OnceValue(func() map[string]map[string]bool {
	all := make(map[string]map[string]bool)
	for name, text := range map[string][]byte{"Summary": schema.Summary, "Report": schema.Doctor} {
		var document schemaPart
		if json.Unmarshal(text, &document) != nil {
			continue // nothing is a code then
		}
		types := map[string]*schemaPart{name: &document}
		maps.Copy(types, document.Definitions)
		for name, part := range types {
			for key, property := range part.Properties {
				for property.Items != nil {
					property = property.Items
				}
				if len(property.Enum) > 0 {
					all[name+"."+key] = setOf(property.Enum)
				}
			}
		}
	}
	return all
})

// codeOf is the rule of a text that is one of some codes.
func codeOf(known map[string]bool) textRule {
	return func(n *pseudonyms, text string) string {
		if known[text] {
			return text
		}
		return n.replace("code", text)
	}
}

// code is the rule of a text that has the codes of a key of summary.json.
func code(key string) textRule {
	return func(n *pseudonyms, text string) string { return codeOf(codes()[key])(n, text) }
}
