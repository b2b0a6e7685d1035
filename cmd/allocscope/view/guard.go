package view

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"

	"github.com/allocscope/allocscope/export/page/origin"
)

const (
	// maxConcurrentPages bounds how many pages are made at a time: each works on a copy of its
	// profile. A slow reader of a page that was made holds up no other.
	maxConcurrentPages = 4

	// maxQueryBytes of a request: each name of a profile is matched with each pattern in the query.
	maxQueryBytes = 8 << 10
)

// Guard answers only requests that read, for one of the hosts. Its headers keep browsers from
// sharing the pages with other sites.
func Guard(pages http.Handler, hosts origin.Hosts) http.Handler {
	turns := make(chan struct{}, maxConcurrentPages)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !origin.Admit(w, r, hosts) {
			return
		}

		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "These pages can only be read.", http.StatusMethodNotAllowed)
			return
		case len(r.URL.RawQuery) > maxQueryBytes:
			http.Error(w, "The query is too long.", http.StatusRequestURITooLong)
			return
		}

		select {
		case turns <- struct{}{}:
			makePage(pages, r, turns).send(w)
		case <-r.Context().Done():
		}
	})
}

// makePage makes a page and ends its turn.
func makePage(pages http.Handler, r *http.Request, turns <-chan struct{}) *recordedPage {
	defer func() { <-turns }()
	page := newRecordedPage()
	pages.ServeHTTP(page, r)
	return page
}

// recordedPage is a page that was not sent yet. It implements http.ResponseWriter.
type recordedPage struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newRecordedPage() *recordedPage {
	return &recordedPage{header: http.Header{}, status: http.StatusOK}
}

// Header implements http.ResponseWriter.
func (r *recordedPage) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recordedPage) WriteHeader(status int) { r.status = status }

// Write implements http.ResponseWriter.
func (r *recordedPage) Write(data []byte) (int, error) { return r.body.Write(data) }

// send sends the page. Its headers replace the writer's.
func (r *recordedPage) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.header)
	w.Header().Set("Content-Length", strconv.Itoa(r.body.Len()))
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body.Bytes()) // the browser may have gone
}
