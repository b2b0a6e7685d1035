package summary

import (
	"testing"

	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/verdict"
)

// Another process of the container is traced next, unless the container has ended.
func TestOutsideSteps(t *testing.T) {
	for name, c := range map[string]struct {
		outside Outside
		ended   string
		code    StepCode
		pid     int
	}{
		"process":         {Outside{Process: &ContainerRow{PID: 8}}, "", StepTrace, 8},
		"ended container": {Outside{Process: &ContainerRow{PID: 8}}, EndedOutOfMemory, StepTraceNext, 7},
		"files":           {Outside{Kind: conclude.OutsideFiles}, "", StepUnlink, 0},
		"kernel":          {Outside{Kind: conclude.OutsideKernel}, "", StepKernel, 0},
	} {
		s := &Summary{Process: Process{PID: 7}, Outside: &c.outside, Ended: c.ended}
		s.WhyCode = verdict.ReasonOutside
		if got := s.WhatNext(); len(got) == 0 || got[0].Code != c.code || got[0].PID != c.pid {
			t.Errorf("%s: %+v, want %s of PID %d", name, got, c.code, c.pid)
		}
	}
}
