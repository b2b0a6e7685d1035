// Package grafana reads the dashboard with Grafana's own types: a module of its own, for these.
package grafana

import (
	"encoding/json"
	"net/url"
	"os"
	"regexp"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/grafanapyroscope"
)

// strictly decodes JSON into a type of Grafana. Keys that it does not know, and those that it lacks,
// are errors.
func strictly(t *testing.T, text []byte, into interface{ UnmarshalJSONStrict([]byte) error }) {
	t.Helper()
	// The types return an error without a text where there is none.
	if err := into.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		t.Errorf("%T: %v", into, err)
	}
}

func TestDashboard(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile("../../../deploy/grafana/allocscope.json")
	if err != nil {
		t.Fatal(err)
	}
	strictly(t, text, &dashboard.Dashboard{})

	var all dashboard.Dashboard
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if err := all.Validate(); err != nil {
		t.Error(err)
	}
	if len(all.Panels) < 20 || all.Panels[0].Panel == nil || len(all.Panels[0].Panel.Targets) == 0 {
		t.Errorf("read %d panels", len(all.Panels))
	}
}

// The links to profiles have a query of Pyroscope, in the URL of Explore.
func TestLinks(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/grafana/allocscope.json")
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`panes=([^"&]+)"`).FindAllSubmatch(text, -1)
	if len(links) == 0 {
		t.Fatal("there are no links")
	}
	for _, link := range links {
		panes, err := url.QueryUnescape(string(link[1]))
		if err != nil {
			t.Fatal(err)
		}
		var explore struct {
			Profile struct{ Queries []json.RawMessage }
		}
		if err := json.Unmarshal([]byte(panes), &explore); err != nil {
			t.Fatal(err)
		}
		for _, q := range explore.Profile.Queries {
			var query grafanapyroscope.Dataquery
			strictly(t, q, &query)
			if query.ProfileTypeId != "memory:resident_space:bytes:space:bytes" {
				t.Errorf("profiles of type %s", query.ProfileTypeId)
			}
		}
	}
}
