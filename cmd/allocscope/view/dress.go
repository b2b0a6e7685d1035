package view

import (
	"bytes"
	"html/template"
	"net/http"
	"regexp"
	"strings"
)

// pprofPolicy is that of pprof's pages, whose scripts and styles are inside, with the data. It keeps them from loading or sending
// anything, whatever the names in a profile make of them.
const pprofPolicy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

// unitName is a unit that may be asked for: pprof puts it into the graph's description as it is.
var unitName = regexp.MustCompile(`^[a-zA-Z]*$`)

// noGraph is in place of what pprof says where graphviz has failed.
const noGraph = "The graph cannot be drawn: dot of graphviz is not installed, or has failed, or has taken too long. The other pages do without it; " +
	"fewer nodes take less time, as by ?n=20.\n"

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
		got := newRecorded()
		page.ServeHTTP(got, r)
		body := got.body.Bytes()
		switch {
		case got.status == http.StatusNotImplemented:
			body = []byte(noGraph)
		case strings.HasPrefix(got.header.Get("Content-Type"), "text/html"):
			for _, change := range replacer {
				body = bytes.Replace(body, []byte(change[0]), []byte(change[1]), 1)
			}
			got.header.Set("Content-Type", "text/html; charset=utf-8")
		}
		got.body = *bytes.NewBuffer(body)
		got.header.Set("Content-Security-Policy", pprofPolicy)
		got.send(w)
	})
}
