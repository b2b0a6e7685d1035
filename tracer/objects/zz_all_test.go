package objects_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/process"
)

func rootText(r keeper.Root) string {
	mod := r.Module
	if mod == "__main__" {
		mod = strings.TrimSuffix(filepath.Base(r.File), ".py")
	}
	switch r.Kind {
	case keeper.RootGlobal:
		return mod + "." + r.Name
	case keeper.RootClass:
		return mod + "." + r.Owner + "." + r.Name
	case keeper.RootLocal:
		return fmt.Sprintf("local %s of %s() (%s)", r.Name, r.Owner, filepath.Base(r.File))
	case keeper.RootGenerator:
		return fmt.Sprintf("local %s of generator %s() (%s)", r.Name, r.Owner, filepath.Base(r.File))
	case keeper.RootClosure:
		return fmt.Sprintf("closure variable %s of %s()", r.Name, r.Owner)
	case keeper.RootDefault:
		return fmt.Sprintf("default argument %s of %s()", r.Name, r.Owner)
	case keeper.RootCache:
		return fmt.Sprintf("lru_cache of %s()", r.Owner)
	case keeper.RootStatic:
		return fmt.Sprintf("%s: %s+%#x", filepath.Base(r.Module), r.Name, r.Offset)
	}
	return fmt.Sprintf("%s %+v", r.Kind, r)
}

func TestAll(t *testing.T) {
	python := os.Getenv("TRYPY")
	if python == "" {
		t.Skip()
	}
	files, _ := filepath.Glob("/tmp/ot/k/" + os.Getenv("TRYPAT") + "*.py")
	good, all := 0, 0
	for _, f := range files {
		text, _ := os.ReadFile(f)
		if !strings.Contains(string(text), "KEPT BY") {
			continue
		}
		want := ""
		for _, l := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(l, "# KEPT BY: ") {
				want += "|" + strings.TrimPrefix(l, "# KEPT BY: ")
			}
		}
		c := exec.Command("timeout", "60", python, f)
		c.Dir = "/tmp/ot/k"
		in, _ := c.StdinPipe()
		out, _ := c.StdoutPipe()
		c.Start()
		var pid int
		var typ string
		var objs []uint64
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			l := sc.Text()
			fields := strings.Fields(l)
			switch {
			case strings.HasPrefix(l, "ready"):
				pid, _ = strconv.Atoi(fields[1])
			case strings.HasPrefix(l, "type"):
				typ = fields[1]
			case strings.HasPrefix(l, "objects"):
				for _, a := range fields[1:] {
					v, _ := strconv.ParseUint(strings.TrimPrefix(a, "0x"), 16, 64)
					objs = append(objs, v)
				}
			}
			if l == "done" {
				break
			}
		}
		if pid == 0 {
			fmt.Printf("%-22s NOT STARTED\n", filepath.Base(f))
			continue
		}
		all++
		p, err := process.Open(pid)
		if err != nil {
			fmt.Println(f, err)
			continue
		}
		h, err := objects.Open(p)
		if err == nil {
			var r []keeper.Search
			began := time.Now()
			r, err = h.Search(context.Background(), []objects.Suspect{{Type: typ, Objects: objs}}, 30*time.Second)
			if err == nil {
				var got []string
				for _, p := range r[0].Paths {
					var ls []string
					for _, l := range p.Links {
						ls = append(ls, fmt.Sprintf("%s(%s)%s:%d", l.How, l.Name, l.Type, l.Entries))
					}
					got = append(got, fmt.Sprintf("%s %d/%d complete %v %s", rootText(p.Root), p.Samples, r[0].Samples, p.Complete, strings.Join(ls, " -> ")))
				}
				mark := "BAD"
				if len(r[0].Paths) == 0 && strings.Contains(want, "nothing") || len(r[0].Paths) > 0 && strings.Contains(want+"|", "|"+rootText(r[0].Paths[0].Root)) {
					mark = "ok"
					good++
				}
				fmt.Printf("%-4s%-22s want %s\n      got %d samples, reason %q garbage %d (%v, wall %v)\n", mark, filepath.Base(f), want, r[0].Samples, r[0].Reason, r[0].Garbage, r[0].Took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
				for _, g := range got {
					fmt.Printf("        %s\n", g)
				}
			}
			h.Close()
		}
		if err != nil {
			fmt.Println("BAD", f, err)
		}
		p.Close()
		in.Close()
		c.Process.Kill()
		c.Wait()
	}
	fmt.Println(good, "of", all)
}
