package trace

import "github.com/allocscope/allocscope/tracer/tracertest"

var mustSay = tracertest.MustSay
