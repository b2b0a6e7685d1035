package view

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"
)

// recorded is a page that is not sent yet.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newRecorded() *recorded { return &recorded{header: http.Header{}, status: http.StatusOK} }

// Header implements http.ResponseWriter.
func (r *recorded) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recorded) WriteHeader(status int) { r.status = status }

// Write implements http.ResponseWriter.
func (r *recorded) Write(data []byte) (int, error) { return r.body.Write(data) }

// send sends the page. Its headers replace those that there are.
func (r *recorded) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.header)
	w.Header().Set("Content-Length", strconv.Itoa(r.body.Len()))
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body.Bytes()) // the browser may have gone
}
