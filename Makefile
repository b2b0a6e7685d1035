# allocscope: `make help` lists the targets.

GO      ?= go
PREFIX  ?= /usr/local
SUDO    := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
FUZZ_TIME ?= 60s
LINT    := $(GO) tool -modfile=.ci/tools.mod

# VERSION is the tag, and what was committed since; of the commit always 12 digits, as git would
# take more where a clone has more. Without a tag it is a development version of the first release.
# COMMIT ends with -dirty where files were changed.
COMMIT  := $(shell git describe --always --abbrev=40 --dirty --exclude '*' 2>/dev/null)
VERSION := $(patsubst v%,%,$(shell git describe --tags --abbrev=12 --match 'v[0-9]*' 2>/dev/null))
ifeq ($(VERSION),)
VERSION := 0.1.0-dev$(if $(COMMIT),.$(shell git rev-parse --short=12 HEAD))
endif
COMMIT_SECONDS := $(shell git log -1 --format=%ct 2>/dev/null)
COMMIT_TIME := $(if $(COMMIT_SECONDS),$(shell date -u -d @$(COMMIT_SECONDS) +%Y-%m-%dT%H:%M:%SZ))
GO_BUILD_FLAGS := -trimpath -ldflags "-X main.version=$(VERSION) -X main.commit=$(COMMIT) \
	-X main.commitTime=$(COMMIT_TIME)"

# ROOT_GO runs a command with root's rights, and with this user's Go and its caches. TARGETS is a
# folder that keeps the programs which tests build.
ROOT_GO = $(SUDO) env "PATH=$$PATH" "GOCACHE=$$($(GO) env GOCACHE)" \
	"GOMODCACHE=$$($(GO) env GOMODCACHE)" "GOFLAGS=$$($(GO) env GOFLAGS)" \
	$(if $(TARGETS),"TEST_TARGETS=$(TARGETS)")

# What compiles for the other architecture.
ifeq ($(shell uname -m),aarch64)
DIST_CROSS := gcc-x86-64-linux-gnu libc6-dev-amd64-cross
else
DIST_CROSS := gcc-aarch64-linux-gnu libc6-dev-arm64-cross
endif

# The Debian packages of each step: the compiler of the BPF objects, and what the tests build and
# run. Node builds, checks and tests the script of the HTML pages; npm may have come with it rather
# than as a package.
GENERATE_PACKAGES := clang-14 llvm-14 lld-14
NODE_PACKAGES     := nodejs npm
LINT_PACKAGES     := clang-format-14
TEST_PACKAGES     := gcc g++ libc6-dev libc6-dbg binutils gdb util-linux procps \
	python3 python3-pil python3-torch chromium debootstrap debian-archive-keyring graphviz tmux \
	wget libjemalloc-dev libgoogle-perftools-dev libmimalloc-dev musl-tools libpython3-dev xz-utils
IMAGE_PACKAGES    := chromium python3 python3-pil
BENCH_PACKAGES    := coreutils util-linux debootstrap debian-archive-keyring wget
CAMPAIGN_PACKAGES := gcc libc6-dev python3 python3-torch util-linux procps linux-perf bpftrace
GPU_PACKAGES      := gcc libc6-dev
CUDA_PACKAGES     := gcc libc6-dev binutils dpkg-dev debootstrap debian-archive-keyring python3 \
	util-linux
RUN_PACKAGES      := gcc make libc6-dev dpkg-dev debian-archive-keyring python3 python3-torch \
	libpython3.11-testsuite libjemalloc2 busybox-static sudo passwd
TRUTH_PACKAGES    := gcc g++ libc6-dev dpkg-dev xz-utils bzip2 debootstrap debian-archive-keyring \
	python3 python3-pil python3-numpy libpython3.11-testsuite python3.11-dbg stress-ng
DOCS_PACKAGES     := podman runc debootstrap slurm-wlm munge jq procps python3 python3-pil \
	python3-torch
CASES_PACKAGES    := g++ python3 python3-torch python3-numpy
FLEET_PACKAGES    := podman runc debootstrap slurm-wlm munge prometheus systemd util-linux wget \
	python3
DIST_PACKAGES     := gcc libc6-dev $(DIST_CROSS)
DIST_TEST_PACKAGES := binutils rpm rpm2cpio cpio groff-base podman runc python3
ROOTS_PACKAGES    := debootstrap debian-archive-keyring busybox-static musl musl-tools podman runc \
	rpm qemu-user libc6-arm64-cross python3 util-linux
KERNEL_PACKAGES   := gcc g++ libc6-dev libc-bin python3 qemu-system-x86 seabios \
	debian-archive-keyring qemu-system-arm gcc-aarch64-linux-gnu g++-aarch64-linux-gnu \
	libc6-dev-arm64-cross

WEB := export/page/web

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/allocscope
	$(GO) build $(GO_BUILD_FLAGS) -o bin/allocscope ./cmd/allocscope

# INSTALLED are the files of make install. A folder of a packager, DESTDIR, is the packager's own. Root
# is asked for only where this user may not write: in PREFIX, or the folder that PREFIX is made in.
INSTALL_SUDO = $(if $(DESTDIR),,$(shell d='$(PREFIX)'; \
	until [ -e "$$d" ]; do d=$$(dirname "$$d"); done; [ -w "$$d" ] || echo $(SUDO)))
INSTALLED := bin/allocscope share/bash-completion/completions/allocscope \
	share/zsh/site-functions/_allocscope share/fish/vendor_completions.d/allocscope.fish \
	share/man/man1/allocscope.1 share/man/man1/allocscope-*.1

.PHONY: install
install: build ## Install program, manual pages and completions into PREFIX (/usr/local)
	rm -rf bin/share
	$(GO) run -tags share $(GO_BUILD_FLAGS) ./cmd/allocscope share bin/share
	$(INSTALL_SUDO) install -D -m 0755 bin/allocscope "$(DESTDIR)$(PREFIX)/bin/allocscope"
	cd bin && find share -type f | while read -r file; do \
		$(INSTALL_SUDO) install -D -m 0644 "$$file" "$(DESTDIR)$(PREFIX)/$$file" || exit 1; \
	done
	@$(if $(DESTDIR),:,echo 'allocscope is in $(PREFIX)/bin. Next: sudo "$(PREFIX)/bin/allocscope" doctor')

.PHONY: uninstall
uninstall: ## Remove what make install has installed
	[ ! -d "$(DESTDIR)$(PREFIX)" ] || \
		{ cd "$(DESTDIR)$(PREFIX)" && $(INSTALL_SUDO) rm -f $(INSTALLED); }

# The files of a release say which commit they are made of.
.PHONY: one-commit
one-commit:
	@[ -n "$(COMMIT)" ] || { git rev-parse HEAD >/dev/null; echo "make dist needs the commit of a git \
	checkout (clone the repository; if it belongs to another user: git config --global --add \
	safe.directory $(CURDIR))" >&2; exit 1; }
	@case "$(COMMIT)" in *-dirty) git status --short --untracked-files=no >&2; echo "make dist needs \
	the files of one commit, but these were changed: commit or stash them" >&2; exit 1 ;; esac

.PHONY: dist
dist: one-commit $(WEB)/node_modules ## Make the files of a release in dist/: archives, packages, wheels, image
	@.ci/packages $(DIST_PACKAGES)
	rm -rf dist
	cd deploy/dist && $(GO) run . -root ../.. -out ../../dist -version "$(VERSION)" \
		-commit "$(COMMIT)" -time "$(COMMIT_SECONDS)"

.PHONY: test-reproducible
test-reproducible: ## Make dist/ twice, in two folders, compare, and check its files, 15 minutes
	@.ci/packages $(DIST_PACKAGES) $(DIST_TEST_PACKAGES)
	deploy/dist/reproduce

.PHONY: generate
generate: $(WEB)/node_modules ## Compile BPF programs and shim, bundle the pages; commit the results
	@.ci/packages $(GENERATE_PACKAGES)
	$(GO) generate ./...
	npm --prefix $(WEB) run build

$(WEB)/node_modules: $(WEB)/package-lock.json
	@command -v npm >/dev/null || .ci/packages $(NODE_PACKAGES)
	npm --prefix $(WEB) ci --no-audit --no-fund
	@touch $@

# Tests wait for programs most of the time, so that more of them run than there are cores. Those of
# package tracer take longest, one after the other: they run as four parts of one program. Linking
# without DWARF (-w) takes half as long.
TEST_BUILD := -vet=off -ldflags=-w
GO_TEST = $(ROOT_GO) $(GO) test $(TEST_BUILD) -count=1 -parallel 12 -timeout 60m
TRACER_TEST = cd tracer && $(ROOT_GO) ../bin/tracer.test -test.parallel 12 -test.timeout 60m
TRACER_PARTS := test-tracer-A-F test-tracer-G-L test-tracer-M-R test-tracer-S-Z
# While a test swaps, the kernel may swap any process: such tests run before all others.
SWAP := ^TestSwapped

# With -short a test that needs root or a browser skips itself. Such a test that does not fails here,
# for any user but root. Tests wait for programs much of the time, so that -p has more of them run.
.PHONY: quick
quick: ## Format, vet, lint, and test growth, export and fleet, a minute; any user, installs nothing
	@unformatted=$$(gofmt -l .) && [ -z "$$unformatted" ] || \
		{ echo "gofmt would change:" $$unformatted >&2; exit 1; }
	$(GO) vet -tags gpu,machine,share ./...
	$(GO) run ./test/lint
	$(GO) test -short -vet=off -ldflags=-w -p 4 ./growth/... ./export/... ./fleet/...

# Setting up interpreters takes minutes, once. A test that needs one waits for it. All tests of a run
# share the programs that they build.
.PHONY: test
test: $(WEB)/node_modules ## Run all tests; installs what they need, asks sudo for root
	@.ci/packages $(TEST_PACKAGES)
	@$(SUDO) testdata/interpreters.sh >/dev/null 2>&1 &
	npm --prefix $(WEB) test
	$(GO) test -c $(TEST_BUILD) -o bin/tracer.test ./tracer
	$(TRACER_TEST) -test.run '$(SWAP)'
	$(GO_TEST) -run '$(SWAP)' ./tracer/process
	@targets=$$(mktemp -d); trap '$(SUDO) rm -rf "$$targets"' EXIT; \
	$(MAKE) --no-print-directory -k -j5 -O "TARGETS=$$targets" $(TRACER_PARTS) test-others

.PHONY: $(TRACER_PARTS) test-others
$(TRACER_PARTS): test-tracer-%:
	$(TRACER_TEST) -test.run '^Test[$*]' -test.skip '$(SWAP)' && times

test-others:
	$(GO_TEST) -p 3 -skip '$(SWAP)' $$($(GO) list ./... | grep -v '/tracer$$')
	cd deploy/dist && $(GO_TEST) .

# A data race is in the code of allocscope, whatever it runs on. Package tracer takes too long.
.PHONY: test-race
test-race: ## Run the tests but those of package tracer with the race detector, 30 minutes
	@.ci/packages $(TEST_PACKAGES)
	$(GO_TEST) -race $$($(GO) list ./... | grep -v '/tracer$$')

.PHONY: test-keepers
test-keepers: ## Compare who keeps objects, and their number, with the truth of 60 programs, 15 minutes
	@.ci/packages $(TEST_PACKAGES)
	$(ROOT_GO) ALLOCSCOPE_KEEPERS=all $(GO) test -count=1 -timeout 1h -v \
		-run '^Test(Keepers|Census)$$' ./tracer/objects

# ROOTS chooses: names of roots or forms, such as debian-12, musl, deb, wheel, image; default all.
.PHONY: test-dist
test-dist: ## Install, run and remove each file of dist/ in empty roots, 20 minutes; ROOTS chooses
	@.ci/packages $(ROOTS_PACKAGES)
	$(ROOT_GO) test/dist/run $(ROOTS)

# The Debian packages that build-interpreters.sh needs.
INTERPRETER_PACKAGES := gcc clang-19 make libc6-dev libffi-dev zlib1g-dev dpkg-dev xz-utils \
	debian-archive-keyring

.PHONY: test-interpreters
test-interpreters: ## Compare all frames of all Pythons, after building some, half an hour once
	@.ci/packages $(TEST_PACKAGES) $(INTERPRETER_PACKAGES)
	$(SUDO) testdata/build-interpreters.sh
	$(ROOT_GO) ALLOCSCOPE_INTERPRETERS=all $(GO) test -count=1 -timeout 1h -v \
		-run '^TestPython$$' ./tracer

.PHONY: fuzz
fuzz: ## Fuzz all that reads what a process can forge, FUZZ_TIME (60s) each
	@.ci/fuzz $(FUZZ_TIME)

.PHONY: audit
audit: ## Look for known vulnerabilities (error 3); 75: the database is out of reach
	@.ci/audit

.PHONY: test-kernels
test-kernels: ## Run the BPF tests on kernels from 5.10 to the newest, in qemu; asks sudo for root
	@.ci/packages $(KERNEL_PACKAGES)
	$(ROOT_GO) test/kernels/run

.PHONY: test-one-kernel
test-one-kernel: ## Run few of these tests on one of these kernels, by turns of commits, as a part of CI
	@.ci/packages $(KERNEL_PACKAGES)
	$(ROOT_GO) test/kernels/run --turn

# PYTHON is a Python that has PyTorch with CUDA.
PYTHON ?= python3
.PHONY: test-gpu
test-gpu: ## Compare with PyTorch on a GPU, half an hour; PYTHON has CUDA; asks sudo for root
	@test/gpu/check "$(PYTHON)"
	@.ci/packages $(GPU_PACKAGES)
	$(ROOT_GO) test/gpu/run "$(PYTHON)"

# CASES chooses: names of test/cuda/plan.go, default all.
.PHONY: test-cuda
test-cuda: build ## Compare with PyTorch for CUDA on stand-ins for NVIDIA's libraries, 10 minutes; CASES
	@.ci/packages $(CUDA_PACKAGES)
	$(ROOT_GO) test/cuda/run $(CASES)

C_SOURCES := bpf/*.c bpf/include/*.h bpf/source/*.h bpf/unwind/*.h shim/*.c shim/*.h \
	tracer/gpu/nvml/*.h \
	testdata/*.c testdata/gpu/*.c testdata/peers/*.c testdata/keepers/*.c testdata/keepers/*.h test/dist/programs/*.c
.PHONY: packages
packages: ## Install what the linters, the tests and the kernels need
	@.ci/packages $(LINT_PACKAGES) $(TEST_PACKAGES) $(KERNEL_PACKAGES)

.PHONY: lint
lint: $(WEB)/node_modules ## Run the linters
	@.ci/packages $(LINT_PACKAGES)
	npm --prefix $(WEB) run check
	clang-format-14 --dry-run --Werror $(C_SOURCES)
	$(LINT) golangci-lint run --build-tags gpu,machine,share ./...
	cd deploy/dist && $(GO) tool actionlint ../../.github/workflows/*.yml
	$(GO) run ./test/lint
	@! git grep -nE '^(<<<<<<<|>>>>>>>) ' || { echo "a merge left its marks there" >&2; exit 1; }

# BENCH_PROGRAMS and BENCH_TOOLS choose: names of test/bench/plan.go. BENCH_SECONDS is the length of a
# stretch with allocscope, BENCH_ROUNDS how often each program is measured at most. OLD is an older
# build of allocscope or a commit, to compare with. Ctrl-C keeps what is complete.
BENCH_MINUTES ?= 30
BENCH_ROUNDS  ?= 5
BENCH_SECONDS ?= 40
BENCH_RESULTS ?= test/bench/results.json
.PHONY: bench
bench: build ## Measure what tracing costs, beside OLD and other tools, BENCH_MINUTES (30); BENCH_* choose
	@.ci/packages $(BENCH_PACKAGES)
	$(ROOT_GO) "OLD=$(OLD)" test/bench/run -programs "$(BENCH_PROGRAMS)" -tools "$(BENCH_TOOLS)" \
		-rounds $(BENCH_ROUNDS) -seconds $(BENCH_SECONDS) -minutes $(BENCH_MINUTES) \
		-results "$(BENCH_RESULTS)"

.PHONY: bench-short
bench-short: BENCH_PROGRAMS ?= true loop dispatch
bench-short: BENCH_TOOLS ?= attached launched attached-old launched-old
bench-short: BENCH_SECONDS = 20
bench-short: BENCH_MINUTES = 5
bench-short: BENCH_RESULTS =
bench-short: bench ## A few of these programs with allocscope alone, 5 minutes; no page is written

# BURSTS chooses: a pace, a size or both, as work/1024. BURSTS_PRELOAD is an allocator to preload.
BURSTS ?= .
BURSTS_RUNS ?= 10
.PHONY: bursts
bursts: build ## Measure how well bursts estimate leaks, 5 hours: BURSTS_RUNS of 6 programs
	@.ci/packages $(TEST_PACKAGES)
	$(ROOT_GO) "ALLOCSCOPE=$(abspath $(or $(ALLOCSCOPE),bin/allocscope))" \
		"BURSTS_RUNS=$(BURSTS_RUNS)" "BURSTS_PRELOAD=$(BURSTS_PRELOAD)" $(GO) test \
		-run '^$$' -bench 'Bursts/$(BURSTS)' -benchtime 1x -timeout 12h ./test/bursts

# CASES chooses: names of test/cases/plan.go, default all.
.PHONY: cases
cases: build ## Check what is said of programs that users have reported, 35 minutes; CASES chooses
	@.ci/packages $(BENCH_PACKAGES)
	$(ROOT_GO) test/cases/run -cases "$(CASES)" $(CASES_FLAGS)

# SLICE=1 takes a few programs of each part, for a minute each. TRUTH_FLAGS choose, as -parts leaks
# -programs "syntax_error os_error".
.PHONY: test-truth
test-truth: build ## Compare with leaks of upstream, test programs of leak checkers, 8 hours; SLICE=1: 5 minutes
	@.ci/packages $(TRUTH_PACKAGES)
	$(ROOT_GO) test/truth/run $(if $(SLICE),-slice -together 4,-results test/truth/results.json) \
		$(TRUTH_FLAGS)
	$(GO) generate ./test/truth

# As in test-truth; SLICE=1 takes a few programs, for a minute each.
.PHONY: test-sid
test-sid: build ## Check the newest Pythons, PyTorch and mallocs of Debian sid, 50 minutes; nightly
	@.ci/packages $(TRUTH_PACKAGES)
	$(ROOT_GO) test/truth/newest $(if $(SLICE),-slice,-results test/truth/results.json) $(TRUTH_FLAGS)
	$(GO) generate ./test/truth

# WAYS chooses: names of test/run/plan.go, default all.
.PHONY: test-run
test-run: build ## Start jobs in real ways below allocscope run: PyTorch, ranks, a build, 10 minutes; WAYS
	@.ci/packages $(RUN_PACKAGES)
	$(ROOT_GO) test/run/sudo
	$(ROOT_GO) test/run/run $(WAYS)

CAMPAIGN ?= 30m
.PHONY: campaign
campaign: ## Break things while a trainer is traced, and check what is left; CAMPAIGN=30m
	@.ci/packages $(CAMPAIGN_PACKAGES)
	$(ROOT_GO) test/campaign/run --defects $(CAMPAIGN)

.PHONY: campaign-slice
campaign-slice: ## A minute of the campaign, as a part of CI
	@.ci/packages $(CAMPAIGN_PACKAGES)
	$(ROOT_GO) test/campaign/run 1m

SOAK ?= 7200
.PHONY: soak
soak: build ## Trace for two hours (SOAK, in seconds), and 72 with a clock of its own: what grows
	@.ci/packages $(CAMPAIGN_PACKAGES)
	ALLOCSCOPE_HOURS=72 $(GO) test -count=1 -timeout 1h -v -run '^TestDays$$' ./record
	$(ROOT_GO) test/soak/run $(SOAK)

.PHONY: demo
demo: build ## Trace a leaking Python trainer for a minute and print what leaks
	@$(SUDO) bin/allocscope demo

DOCS_TRACE ?= 2m
.PHONY: docs-images
docs-images: build ## Trace the demo's trainer for DOCS_TRACE (2m), take pictures of the report
	@.ci/packages $(IMAGE_PACKAGES)
	@test/images/run $(DOCS_TRACE)

# DOCS chooses: docker, slurm, torchrun, dataloader, ci; default these. DOCS=tutorial prints what the
# page shows.
.PHONY: docs-run
docs-run: build ## Run the guides' commands in containers, Slurm and trainers, 10 minutes; DOCS chooses
	@.ci/packages $(DOCS_PACKAGES)
	$(ROOT_GO) test/docs/run $(DOCS)

.PHONY: docs-cases
docs-cases: build ## Trace the programs of examples/cases, write docs/cases.md: a quarter of an hour
	@.ci/packages $(CASES_PACKAGES)
	$(ROOT_GO) test/docs/run cases

# FLEET is a pattern of tests: Container, Dashboard, FullSpool, Load, Manifests, Ranks, Resent,
# SeccompProfile, Series, Slurm, Unit; default all.
.PHONY: test-fleet
test-fleet: build ## Test the agent with Pyroscope, Prometheus, Slurm, containers, 20 minutes; FLEET
	@.ci/packages $(FLEET_PACKAGES)
	$(ROOT_GO) test/fleet/run "$(FLEET)"

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin dist
