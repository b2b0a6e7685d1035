// Package meter measures the CPU time and memory of processes while a benchmark runs.
package meter

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc/PID/stat: 1/USER_HZ, which is 1/100 s wherever Go runs.
const clockTick = 10 * time.Millisecond

// A Load is the CPU time and memory of some processes together.
type Load struct {
	RSS, PSS, Kernel int64   // peak bytes; Kernel is the memory of BPF maps
	Cores            float64 // CPU seconds per second
}

// Measure measures a process and all that it started, until ctx ends. It leaves out the process
// except, and those that except started.
func Measure(ctx context.Context, pid, except int) Load {
	var peak Load
	began, first := time.Now(), cpuOf(processTree(pid, except))
	last := time.Duration(0)
	for ticker := time.NewTicker(time.Second); ; {
		members := processTree(pid, except)
		if now := cpuOf(members); now > last { // the tool may have ended
			last, peak.Cores = now, (now-first).Seconds()/max(time.Since(began).Seconds(), 1)
		}

		var rss, pss int64
		for _, member := range members {
			rss, pss = rss+RSS(member), pss+pssOf(member)
		}
		peak.RSS, peak.PSS = max(peak.RSS, rss), max(peak.PSS, pss)
		peak.Kernel = max(peak.Kernel, mapsOf(members))

		select {
		case <-ctx.Done():
			ticker.Stop()
			return peak
		case <-ticker.C:
		}
	}
}

// processTree returns a process and its descendants, without the process except and its own.
func processTree(pid, except int) []int {
	if pid == except {
		return nil
	}

	members := []int{pid}
	for _, child := range ChildrenOf(pid) {
		members = append(members, processTree(child, except)...)
	}
	return members
}

// ChildrenOf returns the processes that a process has started.
func ChildrenOf(pid int) (children []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// RSS returns the RSS of a process in bytes; 0 if it has ended.
func RSS(pid int) int64 {
	var size, resident int64
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	_, _ = fmt.Sscan(string(text), &size, &resident)
	return resident * int64(os.Getpagesize())
}

// pssOf returns the PSS of a process in bytes; 0 if it has ended.
func pssOf(pid int) (bytes int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &bytes); err == nil {
			return bytes << 10
		}
	}
	return 0
}

// cpuOf returns the user and system time of processes. Those that have ended count as 0.
func cpuOf(pids []int) time.Duration {
	var ticks int64
	for _, pid := range pids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 13 {
			continue
		}

		for _, field := range fields[11:13] {
			number, _ := strconv.ParseInt(field, 10, 64)
			ticks += number
		}
	}
	return time.Duration(ticks) * clockTick
}

// mapsOf returns the kernel's memory of the BPF maps that processes hold, each map once.
func mapsOf(pids []int) int64 {
	sizes := make(map[string]int64)
	for _, pid := range pids {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
		for _, file := range files {
			text, _ := os.ReadFile(file)
			if id, size, ok := mapIn(string(text)); ok {
				sizes[id] = size
			}
		}
	}

	var sum int64
	for _, size := range sizes {
		sum += size
	}
	return sum
}

// mapIn returns the BPF map of a file descriptor, and its bytes.
func mapIn(fdinfo string) (id string, size int64, ok bool) {
	for line := range strings.Lines(fdinfo) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "map_id":
			id, ok = strings.TrimSpace(value), true
		case "memlock":
			size, _ = strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return id, size, ok
}
