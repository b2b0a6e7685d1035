// Package page writes HTML pages of one file each. Style, script and data are inside, and a
// Content-Security-Policy forbids that anything is ever loaded from elsewhere.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"io"
	"strings"
)

// The style and the script are built from web/ by make generate, with the licences of the libraries
// in the script.
var (
	//go:embed assets/page.css
	style string
	//go:embed assets/page.js
	script string
	//go:embed assets/LICENSES.txt
	licenses string
	//go:embed page.html
	shellText string
)

var shell = template.Must(template.New("page").Parse(shellText))

// A Page is an HTML page.
type Page struct {
	Title string
	// Body is the output of an html/template, in which names are escaped.
	Body template.HTML
	// Data of the script, in the form of web/src/data.ts; nil: there is none. Any text in it is
	// safe.
	Data any
}

// Write writes a page. The error comes from w, unwrapped, or from the JSON of Data.
func Write(w io.Writer, p Page) error {
	data := []byte("null")
	if p.Data != nil {
		var err error
		data, err = json.Marshal(p.Data) // escapes <, > and &: no text ends the element
		if err != nil {
			return err
		}
	}

	var out bytes.Buffer

	err := shell.Execute(&out, struct {
		Title, Policy, Licenses string
		Style                   template.CSS
		Script                  template.JS
		Data                    template.JS
		Body                    template.HTML
	}{
		p.Title, policy, licenses, template.CSS(style), template.JS(script), template.JS(data),
		p.Body,
	})
	if err != nil {
		return err
	}

	_, err = out.WriteTo(w)
	return err
}

// policy allows the one style and the one script inside, by their hashes, and nothing else. Trusted
// types without a policy forbid the script to make elements or code from text. See
// https://www.w3.org/TR/CSP3/.
var policy = strings.Join([]string{
	"default-src 'none'", "script-src " + hashSource(script), "style-src " + hashSource(style),
	"img-src data:",
	"base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'",
	"trusted-types 'none'",
}, "; ")

func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
