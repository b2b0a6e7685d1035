package gpusnapshot

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/page/pagetest"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// vizFolder is a folder with the viewers of PyTorch 2.6.
func vizFolder(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs files of a source package of Debian, and -short leaves them out")
	}

	command := exec.Command("../../testdata/memoryviz.sh", "trixie")
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("testdata/memoryviz.sh: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// viz has the results of the functions of a _memory_viz.py, by their names.
func viz(t *testing.T, script string, c *growth.GPUCache) (results map[string]string) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs PyTorch, and -short leaves it out")
	}

	file := filepath.Join(t.TempDir(), "gpu-snapshot.pickle")
	tracertest.NoError(t, os.WriteFile(file, written(t, c), 0o600))

	command := exec.Command("/usr/bin/python3", "testdata/viz.py", script, file)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err == nil {
		err = json.Unmarshal(out, &results)
	}
	if err != nil {
		t.Fatalf("testdata/viz.py %s: %v", script, err)
	}
	return results
}

// The fixture in the form of PyTorch 1.13, which knows neither requested sizes nor frames of blocks.
var torch113 = map[string]string{
	"stats": "{'segments': 2, 'total_size': 22.0MiB, 'active_allocated': 14.0MiB, " +
		"'active_pending_free': 2.0MiB, 'inactive': 6.0MiB}",
	"memory": `stream_0;active_allocated 8388608
stream_0;active_allocated 4194304
stream_0;active_pending_free 2097152
stream_0;inactive 6291456
stream_1439744222;active_allocated 1048576
stream_1439744222;active_allocated 1048576
`,
	"compare": `only_before = []
only_after = [139637976727552]
only_after;stream_0;seg_139637976727552;active_allocated 8388608
only_after;stream_0;seg_139637976727552;active_allocated 4194304
only_after;stream_0;seg_139637976727552;active_pending_free 2097152
only_after;stream_0;seg_139637976727552;inactive 6291456
`,
}

// Of PyTorch 2.6, with frames from the outermost on. It leaves out names with _start.
const (
	keep26  = ":0:[truncated: too deep];train.py:30:<module>;cache.py:9:Cache.keep"
	train26 = "train.py:30:<module>;linear.py:125:Linear.forward;EmptyTensor.cpp:12:at::empty_cuda"
	none26  = ":0:allocated before tracing started or not sampled"
)

var torch26 = map[string]string{
	"memory": "stream_0;active_allocated;" + keep26 + " 8388508\n" +
		"stream_0;active_allocated;<gaps> 100\n" +
		"stream_0;active_allocated;" + none26 + " 4194304\n" +
		"stream_0;active_pending_free;" + none26 + " 2097152\n" +
		"stream_0;inactive;<non-python> 0\nstream_0;inactive;<gaps> 6291456\n" +
		"stream_1439744222;active_allocated;" + train26 + " 1048576\n" +
		"stream_1439744222;active_allocated;" + keep26 + " 1048576\n",
	"trace": `Device 0 ----------------
1 entries
a = seg_0[0:8.0MiB]
TOTAL MEM: 8.0MiBDevice 2 ----------------
2 entries
a = seg_1[1048576:1.0MiB]
b = seg_1[0:1.0MiB]
TOTAL MEM: 1.0MiB`,
	"segsum": `Summary of segments >= 20.0MiB in size
[5] 20.0MiB allocated, 8.0MiB (0.0% internal) free
segments: 2
total_reserved: 22.0MiB
total_allocated: 14.0MiB
total_free: 8.0MiB (0.0% internal)
`,
}

// TestMemoryViz compares the results of PyTorch's own functions with the fixture. segsum checks that
// blocks sum to their segments.
func TestMemoryViz(t *testing.T) {
	t.Run("PyTorch 1.13", func(t *testing.T) {
		compareViz(t, viz(t, "", cache()), torch113)
	})
	t.Run("PyTorch 2.6", func(t *testing.T) {
		script := filepath.Join(vizFolder(t), "torch/cuda/_memory_viz.py")
		compareViz(t, viz(t, script, cache()), torch26)
	})
}

func compareViz(t *testing.T, got, want map[string]string) {
	t.Helper()
	for function, text := range want {
		if !strings.HasPrefix(got[function], text) {
			t.Errorf("%s returns\n%s\nwant\n%s", function, got[function], text)
		}
	}
}

// imported matches the imports of MemoryViz.js from servers: all of D3, or some of its functions.
var imported = regexp.MustCompile(`(?m)^import (?:\* as )?(.*) from "https://.*";$`)

// vizServer serves the pages that trace_plot and segment_plot make, at their names, with MemoryViz.js
// of PyTorch 2.6 and D3 of npm instead of the servers that these pages name.
func vizServer(t *testing.T, c *growth.GPUCache) *httptest.Server {
	t.Helper()
	from := vizFolder(t)
	read := func(path string) string {
		content := tracertest.Must(os.ReadFile(path))(t)
		return string(content)
	}

	script := imported.ReplaceAllString(read(from+"/torch/utils/viz/MemoryViz.js"),
		"const $1 = globalThis.d3;")
	d3 := read("../page/web/node_modules/d3/dist/d3.js")
	pages := viz(t, from+"/torch/cuda/_memory_viz.py", c)
	cdn := regexp.MustCompile(`"https://cdn[^"]*/MemoryViz.js"`)

	mux := http.NewServeMux()
	serve := func(path, kind, content string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind+"; charset=utf-8")
			fmt.Fprint(w, content)
		})
	}
	serve("/MemoryViz.js", "text/javascript", script)
	serve("/d3.js", "text/javascript", d3)
	for _, name := range []string{"trace_plot", "segment_plot"} {
		page := cdn.ReplaceAllString(pages[name], `"./MemoryViz.js"`)
		serve("/"+name, "text/html",
			strings.Replace(page, "<head>", `<head><script src="d3.js"></script>`, 1))
	}

	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// shapesOf moves the mouse over all elements of a CSS selector in a page. It returns the colour of
// each, and the text that the viewer shows.
func shapesOf(t *testing.T, page *pagetest.Page, selector string) (shapes []string) {
	t.Helper()
	if err := page.Evaluate(fmt.Sprintf(`[...document.querySelectorAll(%q)].map(e => {
		e.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}))
		const last = s => [...document.querySelectorAll(s)].at(-1)
		const text = last('pre[style*="grid-row: 2"]') ?? last("pre")
		return e.getAttribute("fill") + " " + text.textContent
	})`, selector), &shapes); err != nil {
		t.Fatal(err)
	}
	return shapes
}

// mustShow wants the shapes in any order: each has all texts of one list.
func mustShow(t *testing.T, what string, shapes []string, want ...[]string) {
	t.Helper()
	if len(shapes) != len(want) {
		t.Errorf("%s: %d shapes, want %d: %q", what, len(shapes), len(want), shapes)
		return
	}

	for _, words := range want {
		found := false
		for _, s := range shapes {
			has := true
			for _, word := range words {
				has = has && strings.Contains(s, word)
			}
			found = found || has
		}
		if !found {
			t.Errorf("%s: no shape has the words %q: %q", what, words, shapes)
		}
	}
}

const (
	keepText  = "/home/me/cache.py:9:Cache.keep\n/home/me/train.py:30:<module>"
	trainText = "EmptyTensor.cpp:12:at::empty_cuda\n/site/linear.py:125:Linear.forward\n" +
		"/home/me/train.py:30:<module>"
	noText = ":0:allocated before tracing started or not sampled"
)

// TestMemoryVizInBrowser opens the fixture in PyTorch's own viewer, and compares the shapes that it
// draws, and the stacks that it shows for them.
func TestMemoryVizInBrowser(t *testing.T) {
	browser := pagetest.StartFor(t)
	type check func(*testing.T, *pagetest.Page)
	for _, c := range []struct {
		name     string
		cache    *growth.GPUCache
		timeline check
		history  check
	}{
		{"fixture", cache(), testTimeline, testStateHistory},
		{
			"hostile", hostileCache(), testHostile(`g[clip-path] polygon`),
			testHostile(`svg g g:nth-of-type(2) rect`),
		},
	} {
		server := vizServer(t, c.cache)
		for page, checkIt := range map[string]check{
			"trace_plot": c.timeline, "segment_plot": c.history,
		} {
			t.Run(c.name+"/"+page, func(t *testing.T) {
				page, err := browser.Open(server.URL+"/"+page, pagetest.View{})
				tracertest.NoError(t, err)
				t.Cleanup(page.Close)

				err = page.Await(`document.querySelector("svg polygon, svg rect")`)
				if err == nil {
					err = page.Settle()
				}
				if err != nil {
					faults, _ := page.Faults()
					t.Fatal(err, faults)
				}

				checkIt(t, page)
				mustNotThrow(t, page)
			})
		}
	}
}

const markup = `<img src="x" onerror="throw 1">`

// hostileCache has an address of the kernel, and frames of a megabyte.
func hostileCache() *growth.GPUCache {
	stack := &growth.Stack{ID: 1, Frames: []growth.Frame{
		{Function: markup + strings.Repeat("\xff\n\u202e", mib), File: markup, Python: true},
	}}
	const address = 1<<64 - 64*mib
	return &growth.GPUCache{Segments: []growth.GPUSegment{{
		GPU: "0", Address: address, Size: 4 * mib, Stream: 1<<64 - 1, Stack: stack,
		Blocks: []growth.GPUBlock{
			{
				Address: address, Size: mib, Requested: 1 << 60, State: growth.GPUBlockAllocated,
				Stack: stack, Born: -1 << 62,
			},
			{Address: address + mib, Size: 3 * mib},
		},
	}}}
}

// testHostile wants one shape of a block.
func testHostile(selector string) func(*testing.T, *pagetest.Page) {
	return func(t *testing.T, page *pagetest.Page) {
		shapes := shapesOf(t, page, selector)
		mustShow(t, "blocks", shapes[:1], []string{"-4000000_0", markup + ":0:" + markup + "???"})
	}
}

// mustNotThrow wants no error of a page, which writes the snapshot to the console.
func mustNotThrow(t *testing.T, page *pagetest.Page) {
	t.Helper()
	faults, err := page.Faults()
	if err != nil {
		t.Error(err)
	}
	for _, fault := range faults {
		if strings.HasPrefix(fault, "exception") {
			t.Error(fault)
		}
	}
}

// chooseGPU chooses a GPU by its place in the list.
func chooseGPU(t *testing.T, page *pagetest.Page, place int) {
	t.Helper()
	err := page.Evaluate(fmt.Sprintf(`(() => {
		const list = [...document.querySelectorAll("select")].at(-1)
		document.querySelectorAll("svg").forEach(e => e.remove())
		list.selectedIndex = %d
		list.dispatchEvent(new Event("change"))
		return [...list.options].map(o => o.text).join()
	})()`, place), nil)
	if err == nil {
		err = page.Settle()
	}
	tracertest.NoError(t, err)
}

// testTimeline: blocks from before the events lie at the bottom; the last polygon is the sum of small
// ones, of which there are none.
func testTimeline(t *testing.T, page *pagetest.Page) {
	const polygons = `g[clip-path] polygon`
	sum := []string{"Small tensors"}
	mustShow(t, "GPU 0", shapesOf(t, page, polygons),
		[]string{"7f0000000000_0", "8388508 bytes", "timestamp", keepText},
		[]string{"7f0000800000_0", "4194304 bytes", noText}, sum)

	chooseGPU(t, page, 1)
	mustShow(t, "GPU 2", shapesOf(t, page, polygons),
		[]string{"7f1000000000_0", "1048576 bytes", trainText},
		[]string{"7f1000100000_0", "1048576 bytes", keepText}, sum)
}

func testStateHistory(t *testing.T, page *pagetest.Page) {
	segments := shapesOf(t, page, `svg g g:nth-of-type(1) rect`)
	mustShow(t, "segments", segments,
		[]string{"white", "7f0000000000_0: segment 20.0MiB", "free", trainText})

	blocks := shapesOf(t, page, `svg g g:nth-of-type(2) rect`)
	mustShow(t, "blocks", blocks,
		[]string{"7f0000000000_0 8.0MiB (8388508 bytes)", keepText},
		[]string{"7f0000800000_0 4.0MiB", noText},
		[]string{"7f0000c00000_0 2.0MiB", "freed but waiting", noText, "red"})
	rounding := shapesOf(t, page, `svg g g:nth-of-type(3) rect`)
	mustShow(t, "rounding", rounding, []string{"lost due to rounding 100.0B", keepText},
		[]string{noText}, []string{noText})

	chooseGPU(t, page, 1)
	mustShow(t, "blocks of GPU 2", shapesOf(t, page, `svg g g:nth-of-type(2) rect`),
		[]string{"7f1000000000_0 1.0MiB", trainText},
		[]string{"7f1000100000_0 1.0MiB", keepText})
}
