package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// checkForeign unpacks a file for arm64, and runs its program in qemu's emulation of user space,
// with the C library of Debian's packages for cross-compiling. It can show its version there, but
// not trace: that is for `make test-kernels`.
func (c testCase) checkForeign(ctx context.Context, s settings, r *result, log io.Writer) error {
	folder, err := os.MkdirTemp(s.work, "foreign-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	beside := &root{merged: "/", log: log, env: append(os.Environ(),
		"FILE="+filepath.Join(s.dist, c.file), "FOLDER="+folder)}

	began := time.Now()
	if err := beside.run(ctx, c.unpack(), true); err != nil {
		return err
	}
	r.install = time.Since(began)

	program, err := findProgram(folder)
	if err != nil {
		return err
	}
	version, err := beside.output(ctx, "qemu-aarch64 -L /usr/aarch64-linux-gnu "+program+" version")
	if err != nil {
		return err
	}
	if !strings.Contains(version, c.version) {
		return fmt.Errorf("allocscope version says %q, but the SBOM's name %s", version, c.version)
	}
	r.traces = append(r.traces, c.file+" says its version")
	return nil
}

// unpack returns the shell code that unpacks the file into $FOLDER.
func (c testCase) unpack() string {
	switch filepath.Ext(c.file) {
	case ".deb":
		return "dpkg-deb -x $FILE $FOLDER"
	case ".rpm":
		return "rpm --root $FOLDER --initdb && " +
			"rpm --root $FOLDER --ignorearch --nodeps --noscripts -i $FILE"
	case ".whl":
		return "python3 -m zipfile -e $FILE $FOLDER && chmod +x $FOLDER/*.data/scripts/allocscope"
	}
	return "tar -C $FOLDER -xf $FILE"
}

// findProgram returns the one file called allocscope that can be executed.
func findProgram(folder string) (path string, err error) {
	err = filepath.WalkDir(folder, func(at string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "allocscope" || !d.Type().IsRegular() {
			return err
		}
		if syscall.Access(at, 1) == nil { // X_OK
			path = at
		}
		return nil
	})
	if err == nil && path == "" {
		err = fmt.Errorf("find allocscope in %s: %w", folder, os.ErrNotExist)
	}
	return path, err
}
