package main

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

// tick is that of the times in /proc/PID/stat: USER_HZ, which is 100 on all that Go runs on.
const tick = 10 * time.Millisecond

// A load is what the processes of a tool take while a workload works.
type load struct {
	rss, kernel int64 // bytes, the most that was seen; kernel: of BPF maps
	cores       float64
}

// watch reads what the processes take that PID has started, and itself, but for one and what that has started, until ctx ends.
func watch(ctx context.Context, pid, except int) load {
	var most load
	began, first, last := time.Now(), cpuOf(family(pid, except)), time.Duration(0)
	for tick := time.NewTicker(time.Second); ; {
		members := family(pid, except)
		if now := cpuOf(members); now > last { // the tool may have ended
			last, most.cores = now, (now-first).Seconds()/max(time.Since(began).Seconds(), 1)
		}
		var rss int64
		for _, member := range members {
			rss += rssOf(member)
		}
		most.rss, most.kernel = max(most.rss, rss), max(most.kernel, mapsOf(members))
		select {
		case <-ctx.Done():
			tick.Stop()
			return most
		case <-tick.C:
		}
	}
}

// family is a process and what it has started, but for one and what that has started.
func family(pid, except int) []int {
	if pid == except {
		return nil
	}
	members := []int{pid}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, child := range strings.Fields(string(text)) {
			if number, err := strconv.Atoi(child); err == nil {
				members = append(members, family(number, except)...)
			}
		}
	}
	return members
}

// rssOf is 0 of a process that has gone.
func rssOf(pid int) int64 {
	var size, resident int64
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	_, _ = fmt.Sscan(string(text), &size, &resident)
	return resident * int64(os.Getpagesize())
}

// cpuOf sums the user and system time of processes that are there.
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
	return time.Duration(ticks) * tick
}

// mapsOf sums the kernel's memory of the BPF maps that processes hold, each map once.
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

// mapIn is the map of a file descriptor, and its bytes.
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
