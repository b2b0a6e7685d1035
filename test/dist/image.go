package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ways are the options of `docker run` in docs/guides/docker.md, without those for files.
var ways = []struct{ name, options string }{
	{"privileged", "--privileged"},
	{"five capabilities", "--security-opt seccomp=unconfined --cap-add BPF --cap-add PERFMON " +
		"--cap-add SYS_PTRACE --cap-add CHECKPOINT_RESTORE --cap-add DAC_READ_SEARCH " +
		"-v $TRACEFS:/sys/kernel/tracing:ro"},
}

// checkImage loads the image into a storage of its own, traces a process of another root from a
// container of it, and removes it.
func (c testCase) checkImage(ctx context.Context, s settings, r *result, log io.Writer) error {
	storage := filepath.Join(s.work, "image") // podman takes short paths alone
	tracefs := filepath.Join(storage, "tracefs")
	if err := os.MkdirAll(tracefs, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tracefs", tracefs, "tracefs", 0, ""); err != nil {
		return fmt.Errorf("mount tracefs: %w", err)
	}

	copied, err := mountRoot(s, filepath.Join(s.roots, "debian-12"), []string{
		"FILE=" + filepath.Join(s.dist, c.file), "STORAGE=" + storage, "TRACEFS=" + tracefs,
	}, log)
	if err != nil {
		return err
	}
	err = c.useImage(ctx, copied, r)
	return errors.Join(err, copied.unmount(), unix.Unmount(tracefs, unix.MNT_DETACH))
}

// podman is Docker here, with the limits that it may raise.
const podman = "podman --root $STORAGE/root --runroot $STORAGE/run --runtime runc"

const podmanRun = podman + " run --rm --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 " +
	"--pull=never --network=none --pid=host "

func (c testCase) useImage(ctx context.Context, copied *root, r *result) error {
	began := time.Now()
	if err := copied.run(ctx, podman+" load -i $FILE", true); err != nil {
		return err
	}
	r.install = time.Since(began)

	image := "ghcr.io/allocscope/allocscope:" + c.version
	for _, way := range ways {
		folder := "/root/" + strings.ReplaceAll(way.name, " ", "-")
		if err := copied.run(ctx, "mkdir $ROOT"+folder, true); err != nil {
			return err
		}
		c.program = podmanRun + way.options + " -v $ROOT" + folder + ":/out " + image
		if err := copied.run(ctx, c.program+" version", true); err != nil {
			return err
		}

		said, err := c.trace(ctx, copied, listLeak, folder, "/out/trace")
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		if r.verdict == 0 {
			r.verdict = time.Since(began)
		}
		r.traces = append(r.traces, way.name+": "+said)
	}
	return copied.run(ctx, podman+" rmi "+image+"; test -z \"$("+podman+" images -q)\"", true)
}
