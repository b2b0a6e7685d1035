package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/test/harness"
)

// modules of CPython's regression tests that loops/regrtest.py runs in a loop in one process.
// Modules that leave out everything without an option, or take minutes, are not here.
var modules = strings.Fields(`
	test_json test_dict test_list test_set test_unicode test_bytes test_long test_float
	test_struct test_array test_memoryview test_deque
	test_heapq test_bisect test_itertools test_functools test_collections
	test_weakref test_weakset test_gc test_copy test_pickle test_marshal test_ast test_compile
	test_dis test_generators test_coroutines test_contextlib test_context test_exceptions
	test_traceback test_descr test_typing test_abc test_enum test_dataclasses test_re
	test_csv test_io test_tempfile test_zlib test_bz2 test_lzma test_gzip test_zipfile test_tarfile
	test_hashlib test_decimal test_fractions test_random test_datetime test_threading test_queue
	test_socket test_selectors test_asyncio test_subprocess test_xml_etree test_email`)

// loopTasks returns the modules.
func loopTasks(c *campaign) (tasks []task) {
	for _, module := range modules {
		tasks = append(tasks, task{
			Row: Row{Name: module, Source: python + ", `libpython3.11-testsuite`", Truth: "no leak"},
			measure: func(ctx context.Context, c *campaign, r *Row) error {
				return c.loop(ctx, module, r)
			},
		})
	}
	return c.few(tasks, 2)
}

// loopShare is how much longer a module in a loop is traced than a leak.
const loopShare = 2

// loop traces a module that runs repeatedly.
func (c *campaign) loop(ctx context.Context, module string, r *Row) error {
	work, err := os.MkdirTemp("", "allocscope-truth-")
	if err != nil {
		return err
	}

	defer os.RemoveAll(work)

	program, err := filepath.Abs(filepath.Join(c.testdata, "truth", "loops", "regrtest.py"))
	if err != nil {
		return err
	}

	command := exec.CommandContext(ctx, "/usr/bin/python3.11", program, module)
	command.Dir = work
	harness.OwnGroup(command)
	if log, err := os.Create(filepath.Join(c.output, module+".tests.log")); err == nil {
		defer log.Close()
		command.Stdout, command.Stderr = log, log
	}
	if err := command.Start(); err != nil {
		return err
	}

	defer func() {
		_ = command.Cancel()
		_ = command.Wait() // it was killed
	}()

	long := *c
	if !c.slice {
		long.duration = loopShare * c.duration
	}

	s, slope, err := long.trace(ctx, command.Process.Pid, module, r)
	if err != nil {
		return err
	}

	a := answerOf(s)
	if a.proven() {
		r.False = 1
	}

	r.Said = fmt.Sprintf("%s; %+.1f MiB/min by the kernel", a.text, slope/mib)
	switch a.class {
	case verdict.ClassLeak, verdict.ClassSuspected:
		r.Outcome = Wrong
		r.Said += "; " + references(ctx, work, module)
	case verdict.ClassGrowing, verdict.ClassTooShort:
		r.Outcome = Undecided
	default:
		r.Outcome = Right
	}
	return nil
}

// references is the judgement of the test runner's own search for leaks, in a debug build.
func references(ctx context.Context, work, module string) string {
	ctx, stop := context.WithTimeout(ctx, 10*time.Minute)
	defer stop()

	command := exec.CommandContext(ctx, "/usr/bin/python3.11-dbg", "-m", "test", "-R", "3:3", module)
	command.Dir = work
	output, err := command.CombinedOutput()
	if err == nil {
		return "-R 3:3 finds no leak"
	}

	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, " leaked [") {
			return "-R 3:3: " + strings.TrimSpace(line)
		}
	}
	return "-R 3:3 has failed: " + lastLine(string(output))
}
