// This module has the types of Grafana, which the dashboard is read with.
module github.com/allocscope/allocscope/test/fleet/grafana

go 1.26.0

require github.com/grafana/grafana-foundation-sdk/go v0.0.22
