package objects_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/process"
)

func TestTry(t *testing.T) {
	pid, _ := strconv.Atoi(os.Getenv("TRYPID"))
	if pid == 0 {
		t.Skip()
	}
	p, err := process.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	h, err := objects.Open(p)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c, err := h.Census(context.Background(), objects.CensusOptions{Samples: 8})
	if err != nil {
		t.Fatal(err, h.NoPython)
	}
	fmt.Printf("census: wall %v cpu %v read %d MiB blocks %.0f untyped %.0f (%.0f B) inconsistent %d missing %q\n", time.Since(began), c.Took, c.ReadBytes>>20, c.Blocks, c.Untyped, c.UntypedBytes, c.Inconsistent, c.Missing)
	for i, one := range c.Types {
		if i < 20 {
			fmt.Printf("%10.0f %12.0f %s\n", one.Count, one.Bytes, one.Type)
		}
	}
	if typ := os.Getenv("TRYTYPE"); typ != "" {
		began = time.Now()
		r, err := h.Search(context.Background(), []objects.Suspect{{Type: typ, Objects: c.Samples[typ]}}, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.MarshalIndent(r, "", " ")
		fmt.Println(string(b), time.Since(began))
	}
}
