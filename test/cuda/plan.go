package main

import "time"

// An example is a program of testdata/gpu/cases, with the expected result of its trace.
type example struct {
	name    string
	program string
	// before is how long the program runs before the trace begins, and length how long it is traced.
	before, length time.Duration
	// diagnosis of the GPU's memory; empty: any.
	diagnosis string
	// says and saysNot are patterns of the printed result, in which each gap is one space.
	says, saysNot []string
}

const advisesExpandable = `expandable_segments:True`

var cases = []example{
	{
		name: "pinned", program: "pinned", length: 50 * time.Second, diagnosis: "fragmentation",
		says: []string{
			`WHERE \d+ tensors uint8 \[2097152\] \([\d.]+ MiB\) keep \d+ segments \(`,
			`pinned\.py:\d+ Embeddings\.add\(\)`,
			`kept by pinned\.embeddings\.kept \(list`,
		},
	},
	{
		// It runs on before it is traced: most blocks are older than the trace.
		name: "late", program: "pinned", before: 20 * time.Second, length: 15 * time.Second,
	},
	{
		name: "expandable", program: "expandable", length: 50 * time.Second,
		diagnosis: "fragmentation",
		says:      []string{`WHERE \d+ tensors uint8 \[2097152\] \([\d.]+ MiB\) keep \d+ pages \(`},
		saysNot:   []string{advisesExpandable},
	},
	{name: "mixed", program: "mixed", length: 15 * time.Second},
	{
		name: "pools", program: "pools", length: 45 * time.Second, diagnosis: "private-pools",
		says: []string{
			`WHO private pools of PyTorch's cache`,
			`pools\.py:\d+ Server\.capture\(\)`,
			`kept by pools\.server\.graphs \(dict`,
		},
	},
	{
		name: "cache", program: "cache", length: 40 * time.Second,
		says: []string{`NOTE .*0\.98 GiB that empty_cache\(\) returns`},
	},
	{
		name: "fragmentation", program: "fragmentation", length: 60 * time.Second,
		diagnosis: "fragmentation",
		says:      []string{advisesExpandable},
	},
	{
		name: "leak", program: "leak", length: 50 * time.Second, diagnosis: "retained-tensors",
		says: []string{
			`leak\.py:22 History\.remember\(\)`,
			`kept by leak\.history\.losses \(list`,
		},
	},
}
