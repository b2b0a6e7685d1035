package main

import "testing"

func TestVersion(t *testing.T) {
	for text, want := range map[string]version{
		"0.1.0":                    {debian: "0.1.0", wheel: "0.1.0"},
		"1.20.3-rc2":               {debian: "1.20.3~rc2", wheel: "1.20.3rc2"},
		"0.1.0-3-g5d92ebea":        {debian: "0.1.0+3.g5d92ebea", wheel: "0.1.0.post3+g5d92ebea"},
		"0.2.0-rc1-3-g5d92ebea":    {debian: "0.2.0~rc1+3.g5d92ebea", wheel: "0.2.0rc1.post3+g5d92ebea"},
		"0.1.0-dev.5d92ebea0123":   {debian: "0.1.0~dev.5d92ebea0123", wheel: "0.1.0.dev0+5d92ebea0123"},
		"":                         {},
		"v0.1.0":                   {},
		"0.1":                      {},
		"0.1.0-beta":               {},
		"0.1.0; touch /tmp/x":      {},
		"0.1.0-dev.5d92ebea-dirty": {},
	} {
		var r release
		err := r.setVersion(text)
		if want.debian != "" {
			want.text = text
		}
		if r.version != want || (err == nil) != (want.text != "") {
			t.Errorf("%q: %+v, %v; want %+v", text, r.version, err, want)
		}
	}
}
