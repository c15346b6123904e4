# Weir. `make help` lists what there is.

GO      := scripts/with-go.sh go
LINT    := scripts/with-go.sh bin/golangci-lint
VERSION ?= $(or $(shell git -c safe.directory='*' describe --tags --always --dirty --match 'v*' 2>/dev/null),devel)

PREFIX  ?= /usr/local
BINDIR  ?= $(PREFIX)/bin
UNITDIR ?= $(PREFIX)/lib/systemd/system

FUZZTIME ?= 5s
SEEDS ?= 100
COVER_MIN ?= 95
# BENCH_ARGS and DEMO_ARGS are passed on, e.g. make bench BENCH_ARGS='qcon'
BENCH_ARGS ?=
DEMO_ARGS ?=

# The programs that control the kernel's network run as root.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)

# Everything but the race detector is built without C.
export CGO_ENABLED ?= 0
export FUZZTIME COVER_MIN

.DEFAULT_GOAL := help
.PHONY: help deps build generate check-generated lint lint-go lint-sh lint-mod lint-cross lint-web lint-commits lint-selfcheck fmt check test test-all test-unit \
	test-web test-netns test-docker test-vm test-deb test-cluster test-dra test-pauses test-weka web deb release image cover explore fuzz demo demo-edge bench clean install uninstall bin/weir-dra bin/fleet

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install what is missing for everything below (Debian, Ubuntu)
	@scripts/install-deps.sh

build: ## build bin/weir, bin/weir-edge, bin/weir-sdn, bin/weir-k8s and bin/weir-lab
	sources=$$(scripts/sources.sh) && $(GO) build -trimpath -ldflags "-X github.com/weir-project/weir/internal/front/cmdline.Version=$(VERSION) -X github.com/weir-project/weir/internal/lab/bench/all.sources=$$sources" -o bin/ ./cmd/...

generate: ## compile bpf/*.c and generate everything else that is generated
	$(GO) generate ./...
	scripts/bpf-toolchain.sh >tools/bpf-toolchain

web: ## make the dashboard's files from web/ (Node)
	scripts/web.sh build

check-generated: ## fail if a generated file is not what its sources generate
	@scripts/check-generated.sh || { status=$$?; [ $$status -eq 77 ] || exit $$status; }

# The linter is pinned, with all it is made of, by tools/lint/go.mod and go.sum.
bin/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	cd tools/lint && ../../$(GO) build -trimpath -o ../../$@ \
		github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

# A node of Kubernetes for tests, pinned in the same way.
bin/kubernetes: tools/kubernetes/go.mod tools/kubernetes/go.sum test/k8s/cri.go
	cd tools/kubernetes && ../../$(GO) build -trimpath -ldflags '-s -w' -tags no_btrfs,no_devmapper,no_zfs,no_aufs -o ../../$@/ tool
	cd tools/kubernetes && ../../$(GO) build -trimpath -ldflags '-s -w' -o ../../$@/cri ../../test/k8s/cri.go
	@touch $@

# The driver of Kubernetes' dynamic resource allocation, a module of its own.
bin/weir-dra:
	cd cmd/weir-dra && ../../$(GO) build -trimpath -ldflags '-s -w -X github.com/weir-project/weir/internal/front/cmdline.Version=$(VERSION)' -o ../../$@ .

# The same for many nodes in one process, for tests.
bin/fleet:
	cd cmd/weir-dra && ../../$(GO) build -trimpath -ldflags '-s -w' -o ../../$@ ./internal/fleet

# Kubernetes itself, for tests.
bin/controlplane: tools/controlplane/go.mod tools/controlplane/go.sum
	cd tools/controlplane && CGO_ENABLED=0 ../../$(GO) build -trimpath -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2' -o ../../$@/ tool
	@touch $@

# Helm, for tests of the chart.
bin/helm: tools/helm/go.mod tools/helm/go.sum
	cd tools/helm && CGO_ENABLED=0 ../../$(GO) build -trimpath -ldflags '-s -w' -o ../../$@ helm.sh/helm/v4/cmd/helm
	@touch $@

lint: lint-go lint-sh lint-mod lint-cross lint-web lint-commits ## golangci-lint with the architecture rules, shellcheck, commits, vet for 32-bit ARM

lint-go: bin/golangci-lint
	$(LINT) run ./...

lint-sh:
	@command -v shellcheck >/dev/null || { echo "shellcheck is not installed: make deps" >&2; exit 1; }
	shellcheck -x scripts/*.sh .ci/run

# go.mod names what is imported as direct, and nothing else.
lint-mod:
	$(GO) mod tidy -diff

# Boards are 32 and 64 bits wide; what a machine of one size compiles may not fit the other.
lint-cross:
	GOARCH=arm $(GO) vet ./...

# Without Node it says so and goes on.
lint-web:
	@scripts/web.sh types || { status=$$?; [ $$status -eq 77 ] || exit $$status; }

lint-commits: ## check subjects and bodies of commits
	@scripts/lint-commits.sh

lint-selfcheck: bin/golangci-lint ## check that the lint rules catch planted violations
	@scripts/lint-selfcheck.sh

fmt: bin/golangci-lint ## format the Go code
	$(LINT) fmt ./...

test: ## install what is missing, then run what every change has to pass
	@scripts/install-deps.sh build bpf test lint vm
	@scripts/test.sh

test-all: ## test, with every kernel, reproducible builds, a Debian upgraded, 64-bit ARM
	@scripts/install-deps.sh build bpf test lint vm
	@scripts/test.sh all

check: ## in daily work: unit tests, lint, and one pass through the real kernel
	@scripts/install-deps.sh build test lint
	@scripts/test.sh units quick lint

test-unit: ## tests that need no root
	@scripts/test.sh unit

test-web: ## the dashboard in a browser
	@scripts/test.sh web

test-netns: ## tests in network namespaces (root)
	@scripts/test.sh netns

test-docker: ## tests with a container engine of their own (root)
	@scripts/test.sh docker

test-vm: ## tests on other kernels, in virtual machines
	@scripts/install-deps.sh build vm
	@scripts/test.sh machines

test-deb: ## tests of what is released: packages, the same bytes, upgrades (root)
	@scripts/install-deps.sh build
	@scripts/test.sh deb release

test-cluster: ## tests with a node of Kubernetes and its control plane (root; 8 minutes to build)
	@scripts/install-deps.sh build test
	@scripts/test.sh cluster

# A module of its own is no part of ./...
test-dra: bin/golangci-lint ## tests of weir-dra that need no cluster, its linter and its go.mod
	cd cmd/weir-dra && ../../$(GO) test ./... && ../../$(GO) mod tidy -diff && ../../scripts/with-go.sh ../../bin/golangci-lint run ./...

test-pauses: ## netns and docker WEIR_TEST_ROUNDS times (10), with helpers stopped at random (root)
	@scripts/test.sh pauses

test-weka: ## compare C4.5 with WEKA's J48 (needs Java and Maven)
	@scripts/weka.sh

cover: ## coverage of the pure packages, at least COVER_MIN %
	@scripts/cover.sh

deb: ## make dist/PROGRAM_VERSION_ARCH.deb, a package of each program (ARCH=amd64, arm64 or armhf)
	@scripts/deb.sh $(ARCH)

# No release has figures of other sources.
release: ## packages and images of a release, if the published figures are of these sources
	@scripts/sources.sh --check docs/measurements/claims.json
	@$(MAKE) --no-print-directory deb image

image: ## make images to run the agent as a container, and Weir on Kubernetes, in dist (ARCH as for deb)
	@scripts/image.sh $(ARCH)
	@IMAGE=weir-kubernetes scripts/image.sh $(ARCH)

explore: ## run the engine of weir-edge and more in simulated worlds, SEEDS of each (BEFORE=table compares)
	WEIR_EXPLORE=$(SEEDS) WEIR_EXPLORE_BEFORE=$(abspath $(BEFORE)) $(GO) test -count=1 -run Explore -v ./internal/edge/... ./internal/sdn/... ./internal/agent/... ./internal/share/...

fuzz: ## run every fuzz target for FUZZTIME
	@scripts/fuzz.sh

demo: ## install what is missing, build, and show Weir at work (root)
	@scripts/install-deps.sh build demo
	@$(MAKE) --no-print-directory build
	$(AS_ROOT) bin/weir demo $(DEMO_ARGS)

demo-edge: ## the same for weir-edge: three nodes, a crowd, a node that dies (root)
	@scripts/install-deps.sh build demo edge
	@$(MAKE) --no-print-directory build
	$(AS_ROOT) bin/weir demo edge $(DEMO_ARGS)

bench: ## install what is missing, build, and measure against the ideal allocation and against peers (root)
	@scripts/install-deps.sh build bench
	@$(MAKE) --no-print-directory build
	$(AS_ROOT) bin/weir bench $(BENCH_ARGS)

# A module of its own, as weir-dra is, is no part of `make build`.
PROGRAMS := $(filter-out $(patsubst cmd/%/go.mod,%,$(wildcard cmd/*/go.mod)),$(notdir $(wildcard cmd/*)))
UNITS := $(notdir $(wildcard packaging/*.service))

install: ## install the programs and their systemd units under DESTDIR and PREFIX
	@[ -x bin/weir-k8s ] || { echo "run 'make build' first" >&2; exit 1; }
	install -d '$(DESTDIR)$(BINDIR)' '$(DESTDIR)$(UNITDIR)' '$(DESTDIR)/etc/weir'
	install -m 755 $(PROGRAMS:%=bin/%) '$(DESTDIR)$(BINDIR)'
	for unit in $(UNITS); do \
		sed 's|@BINDIR@|$(BINDIR)|' packaging/$$unit >'$(DESTDIR)$(UNITDIR)'/$$unit && \
		chmod 644 '$(DESTDIR)$(UNITDIR)'/$$unit || exit 1; \
	done

uninstall: ## remove what install installed; the configuration stays
	rm -f $(PROGRAMS:%='$(DESTDIR)$(BINDIR)/%') $(UNITS:%='$(DESTDIR)$(UNITDIR)/%')

clean: ## remove what was built
	rm -rf bin coverage dist
