package main

// A way is a way to start a job, by a shell in a folder of its own.
type way struct {
	name string
	// command prints the same, and ends with the same status, with allocscope and without.
	command string
	// traced is how many processes must have been traced at least.
	traced int
	// unseen: the shim does not see a program's allocations, which the summary says.
	unseen bool
	// kept are the bytes that function keep of a program holds for some seconds; 0: it has none.
	kept int64
}

const mebibyte = 1 << 20

// ways are the ways. $PROGRAMS is the folder of the programs, and $PYTHON one with PyTorch.
var ways = []way{
	{
		name:    "torch",
		command: `"$PYTHON" -c 'import torch; print(torch.arange(10).sum().item())'`, traced: 1,
	},
	{name: "loader-fork", command: `"$PYTHON" "$PROGRAMS/loader.py" fork`, traced: 3},
	{name: "loader-spawn", command: `"$PYTHON" "$PROGRAMS/loader.py" spawn`, traced: 3},
	{name: "loader-forkserver", command: `"$PYTHON" "$PROGRAMS/loader.py" forkserver`, traced: 3},
	{
		// torch 1.13 on Python 3.11 starts only with these flags.
		name: "torchrun",
		command: `"$PYTHON" -m torch.distributed.run --nproc_per_node 4 --redirects 1 --tee 1 ` +
			`"$PROGRAMS/ranks.py" >log 2>&1; echo $?; cat rank*`,
		traced: 5, kept: 4 * 64 * mebibyte,
	},
	{
		name: "gcc",
		command: `tar xf "$LUA" --strip-components=1 && make -s -j2 -C src lua ` +
			`CC="gcc -std=gnu99" SYSCFLAGS="-DLUA_USE_LINUX" SYSLIBS="-Wl,-E -ldl" >make.log 2>&1 && ` +
			`sha256sum src/*.o src/lua && src/lua -e 'print(6 * 7)'`,
		traced: 1,
	},
	{
		name: "cpython",
		command: `env -u PYTHONUNBUFFERED "$PYTHON" -m test -j2 test_cmd_line test_ctypes test_embed ` +
			`test_faulthandler test_fork1 test_gc test_mmap test_multiprocessing_fork test_os ` +
			`test_posix test_pty test_signal test_subprocess test_threading >test.log 2>&1; ` +
			`sed -n '/^== Tests result/,/^Total/{/^Total/!p}' test.log; ` +
			`sleep 4`, // test_subprocess leaves a "sleep 3" behind, which has mapped the shim
		traced: 1,
	},
	{
		name:    "preload-last",
		command: `"$PYTHON" "$PROGRAMS/preload.py" last`, traced: 1, kept: 64 * mebibyte,
	},
	{name: "preload-first", command: `"$PYTHON" "$PROGRAMS/preload.py" first`, unseen: true},
	{name: "unset", command: `env -u LD_PRELOAD "$PYTHON" -c 'print(6 * 7)'`},
	{name: "forks", command: `"$PYTHON" "$PROGRAMS/forks.py"`, traced: 1},
	{name: "static", command: `busybox sh -c 'echo static; exit 3'`},
}
