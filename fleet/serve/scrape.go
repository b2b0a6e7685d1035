package serve

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/allocscope/allocscope/export/metrics"
)

// A scrape answers with the metrics as they were at most maxAge ago, so that many questions cost
// little more than one.
type scrape struct {
	registry *prometheus.Registry
	maxAge   time.Duration

	mu            sync.Mutex // held while they are gathered, by one request for all
	at            time.Time
	plain, zipped []byte
	err           error
}

func newScrape(source Source, maxAge time.Duration) *scrape {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector(source.State),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &scrape{registry: registry, maxAge: maxAge}
}

var textFormat = expfmt.NewFormat(expfmt.TypeTextPlain)

// ServeHTTP implements http.Handler.
func (s *scrape) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	plain, zipped, err := s.latest()
	if err != nil {
		refuse(w, http.StatusInternalServerError, err)
		return
	}

	header := w.Header()
	header.Set("Content-Type", string(textFormat))
	header.Set("Vary", "Accept-Encoding")
	text := plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		text = zipped
	}

	header.Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // the client may have gone
}

// latest returns the metrics in Prometheus' text format, plain and compressed.
func (s *scrape) latest() (plain, zipped []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Since(s.at) >= s.maxAge {
		s.plain, s.zipped, s.err = s.gather()
		s.at = time.Now()
	}
	return s.plain, s.zipped, s.err
}

func (s *scrape) gather() (plain, zipped []byte, err error) {
	families, err := s.registry.Gather()
	if err != nil {
		return nil, nil, err
	}

	var text, compressed bytes.Buffer
	encoder := expfmt.NewEncoder(&text, textFormat)
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return nil, nil, err
		}
	}

	zipper := gzip.NewWriter(&compressed)
	if _, err := zipper.Write(text.Bytes()); err != nil {
		return nil, nil, err
	}
	if err := zipper.Close(); err != nil {
		return nil, nil, err
	}
	return text.Bytes(), compressed.Bytes(), nil
}
