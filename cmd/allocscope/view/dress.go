package view

import (
	"bytes"
	"html/template"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// pprofPolicy is that of pprof's pages, whose scripts and styles are inside, with the data. It keeps them from loading or sending
// anything, whatever the names in a profile make of them.
const pprofPolicy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

// unitName is a unit that may be asked for: pprof puts it into the graph's description as it is.
var unitName = regexp.MustCompile(`^[a-zA-Z]*$`)

// What pprof writes, and is replaced.
const (
	pprofBrand   = `<h1><a href="./">pprof</a></h1>`
	pprofTitle   = "<title>"
	pprofHeadEnd = "</head>"
)

// dressed makes a page of pprof one of this site: it names its subject, leads back to the index, and hides what is off.
func (s subject) dressed(page http.Handler, source bool) http.Handler {
	hidden := "#config, #disasm"
	if !source {
		hidden += ", #list"
	}
	up := strings.Repeat("../", strings.Count(s.Path, "/")+1)
	title := template.HTMLEscapeString(s.Title)
	replacer := [][2]string{
		{pprofTitle, pprofTitle + title + ": "},
		{pprofHeadEnd, "<style>" + hidden + " { display: none } .header .title h1 { white-space: nowrap; font-size: 1.4em }</style>\n" + pprofHeadEnd},
		{pprofBrand, `<h1><a href="` + up + `" title="All profiles of this trace">allocscope</a> / <a href="./">` + title + `</a></h1>`},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !unitName.MatchString(r.URL.Query().Get("unit")) {
			http.Error(w, "The unit is not a word.", http.StatusBadRequest)
			return
		}
		got := &recorded{header: http.Header{}, status: http.StatusOK}
		page.ServeHTTP(got, r)
		body := got.body.Bytes()
		if strings.HasPrefix(got.header.Get("Content-Type"), "text/html") {
			for _, change := range replacer {
				body = bytes.Replace(body, []byte(change[0]), []byte(change[1]), 1)
			}
			got.header.Set("Content-Type", "text/html; charset=utf-8")
		}
		for name, values := range got.header {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Security-Policy", pprofPolicy)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(got.status)
		_, _ = w.Write(body) // the browser may have gone
	})
}

// recorded is a page that is not sent yet.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *recorded) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recorded) WriteHeader(status int) { r.status = status }

// Write implements http.ResponseWriter.
func (r *recorded) Write(data []byte) (int, error) { return r.body.Write(data) }
