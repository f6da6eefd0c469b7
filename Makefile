# Everything that is built or downloaded is cached outside of the tree.
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/vitistack
LOCAL := $(CACHE)/bin/viti-local
# Each checkout has its own programs, and separate ones with the race detector: RACE=1 make chaos.
BIN := $(CACHE)/bin/$(subst /,_,$(CURDIR))$(if $(RACE),-race)
export RACE
STATE ?= .run
GATEWAY_PORT ?= 9991
TOUR ?= 1
TOUR_FILES := apis/examples/tour-network.yaml apis/examples/simple-kubernetescluster.yaml apis/examples/tour-networks.yaml apis/examples/tour-dhcp.yaml
ifeq ($(TOUR),busy)
TOUR_FILES := $(STATE)/busy.yaml
endif
# The Go of go.mod comes first in PATH, also where a distribution has an older one.
ifneq ($(filter-out help,$(or $(MAKECMDGOALS),help)),)
PATH := $(shell sh tools/path.sh $(CACHE))
ifneq ($(.SHELLSTATUS),0)
$(error The stack needs Go)
endif
export PATH
endif
# Nothing here is debugged with DWARF: without it the compiler takes a quarter less CPU. Programs, tests and go vet have the same flags, so
# that each package is compiled once.
export GOFLAGS := $(strip $(filter-out -gcflags=all=-dwarf=false,$(GOFLAGS)) -gcflags=all=-dwarf=false)
RUN := go run -trimpath
# The programs of tools/build have these flags. The local engine has 2,500 packages, most of them Kubernetes.
ENGINE := cd knative/local && CGO_ENABLED=0
TOOL := go tool -modfile=tools/lint/go.mod
# Packages whose tests start programs of their own gain nothing from the race detector, unless those have it: see RACE.
WHOLE := ./tests/attack/... ./tests/e2e/... ./tests/chaos/...
PARTS = $(filter-out github.com/vitistack/stack/tests/attack% github.com/vitistack/stack/tests/e2e% github.com/vitistack/stack/tests/chaos% github.com/vitistack/stack/tests/bench,$(shell PATH="$(PATH)" go list ./...))

.PHONY: help site build engine tour plugin plugins run screenshots recording clean-run prepare judge test test-knative test-kubevirt test-kubevirt-talos clean-kubevirt test-talos test-talos-faults test-talos-simulator clean-talos test-node clean-node check style generate helm images pin deploy notes rehearse chaos roles bench vuln
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: engine ## Build the functions, the gateway, kubectl viti, the simulators and the local engine
	@$(RUN) ./tools/build -title "the functions, the gateway, kubectl viti and the simulators" -o $(BIN)/ ./functions/... ./gateway ./tests/sim ./tools/kubectl-viti

engine:
	@mkdir -p $(BIN)
	@sh knative/local/build.sh $(LOCAL)

# What the tour needs first. The first time, make run builds the rest while the tour runs.
tour: engine
	@$(RUN) ./tools/build -title "the functions and the simulators" -o $(BIN)/ ./functions/... ./tests/sim
REST := $(if $(wildcard $(BIN)/gateway),,--build '$(RUN) ./tools/build -title "the gateway and kubectl viti" -o $(BIN)/ ./gateway ./tools/kubectl-viti')

PLUGINS ?= $(HOME)/.local/bin
plugin: ## Install kubectl viti into ~/.local/bin (PLUGINS=folder of PATH)
	@mkdir -p $(PLUGINS) && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o $(PLUGINS)/ ./tools/kubectl-viti
	@$(PLUGINS)/kubectl-viti completion kubectl > $(PLUGINS)/kubectl_complete-viti && chmod +x $(PLUGINS)/kubectl_complete-viti
	@command -v kubectl-viti > /dev/null && echo "kubectl viti is installed in $(PLUGINS)." || echo "Add $(PLUGINS) to PATH: kubectl finds kubectl-viti there."

plugins: ## Build kubectl viti for all platforms into dist (VERSION=1.2.3)
	@for platform in linux-amd64 linux-arm64 darwin-amd64 darwin-arm64; do \
	  folder=dist/kubectl-viti-$$platform && mkdir -p $$folder && cp LICENSE $$folder/ && \
	  CGO_ENABLED=0 GOOS=$${platform%-*} GOARCH=$${platform#*-} go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o $$folder/kubectl-viti ./tools/kubectl-viti && \
	  printf '#!/bin/sh\nexec kubectl-viti __complete "$$@"\n' > $$folder/kubectl_complete-viti && chmod +x $$folder/kubectl_complete-viti && \
	  tar -czf dist/kubectl-viti_$(VERSION)_$$(echo $$platform | tr - _).tar.gz -C $$folder . || exit 1; done

ifeq ($(origin KUBECONFIG)/$(filter run,$(MAKECMDGOALS)),command line/run)
$(error make run starts a cluster of its own. To install into the one of KUBECONFIG: make deploy IMG=registry/repository:tag KUBECONFIG=$(KUBECONFIG))
endif
run: $(if $(REST),tour,build) ## Run the whole stack on this machine, with a tour (TOUR=0 starts empty, TOUR=busy creates 20 clusters and 200 machines)
	@mkdir -p $(STATE) $(if $(filter busy,$(TOUR)),&& $(RUN) ./tests/busy > $(STATE)/busy.yaml)
	@$(LOCAL) up --root . --state $(STATE) --bin $(BIN) --gateway-port $(GATEWAY_PORT) $(REST) \
	  --crds tests/sim/kubevirt/crds --process sim='$(BIN)/sim --state $(STATE)/sim' --await sim \
	  --config AUTH_TOKENREVIEW=true --config RESULTS_PATH=$(CURDIR)/hack/results --config BACKUP_PATH=$(abspath $(STATE))/backups --apply apis/examples/machineprovider-kubevirt.yaml --apply apis/examples/networkpool-tour.yaml \
	  $(if $(filter-out 0,$(TOUR)),$(addprefix --apply ,$(TOUR_FILES)))

screenshots: ## Take the pictures of the README from make run TOUR=busy
	@go run ./tests/screenshots --url http://127.0.0.1:$(GATEWAY_PORT) --to gateway/internal/page/docs

recording: export PATH := $(CURDIR)/$(STATE):$(BIN):$(PATH)
recording: export KUBECONFIG = $(CURDIR)/$(STATE)/kubeconfig
recording: ## Record the demonstration of the README from make run TOUR=0
	@go run ./tests/recording -to docs/demo.svg && rm -f simple-cluster.kubeconfig

clean-run: ## Delete the state of make run
	rm -rf $(STATE) hack/results

prepare: build judge ## Install what the tests need in addition to Go, from Debian's packages
	@sh tests/prepare.sh

judge: ## Build KubeVirt's admission webhooks, which validate what tests create
	@sh tests/judges/kubevirt/build.sh $(CACHE)/bin/kubevirt-judge

test: prepare ## Run all tests, on real servers
	@echo "Testing the local engine ..."
	@$(ENGINE) $(TEST) --format pkgname -- -trimpath -timeout 20m ./...
	@echo "Testing the whole stack ..."
	@$(TEST) --format pkgname -- -timeout 30m -p 1 $(WHOLE)
	@echo "Testing every part ..."
	@$(TEST) --format pkgname -- -race -parallel 4 -timeout 60m $(PARTS)
test: TEST = go tool -modfile=$(CURDIR)/tools/lint/go.mod gotestsum

check: ## Check format, compilation, lint rules, workflows, and that generated files are up to date and committed
	@test -z "$$(gofmt -l apis events functions gateway knative tests tools)" || (gofmt -l apis events functions gateway knative tests tools; echo "Run gofmt -w on these."; exit 1)
	@go build ./...
	@go vet ./...
	@$(ENGINE) go vet -trimpath ./...
	@$(TOOL) golangci-lint run --timeout 30m ./...
	@lint=$$($(TOOL) -n golangci-lint) && $(ENGINE) GOFLAGS="$(GOFLAGS) -trimpath" $$lint run --timeout 30m ./...
	@go tool -modfile=tools/workflows/go.mod actionlint
	@$(MAKE) --no-print-directory generate
	@test -z "$$(git status --porcelain)" || (git status --short; echo "Commit these, or run make generate and commit."; exit 1)

style: ## Report on structure and language: circles, long functions, words to replace; never fails
	@go run ./tests/style

site: ## Render the documentation as HTML with a search (SITE=folder)
	@go run ./tools/site -out $(or $(SITE),$(CACHE)/site)

generate: ## Generate code, CRDs and reference pages from types, schemas and code, and the chart's README from its values
	@$(TOOL) controller-gen object crd output:crd:dir=apis/crds paths=./apis/...
	@go run ./tools/crds
	@go run ./tools/reference
	@CGO_ENABLED=0 go run -C tools/ship -trimpath ./readme $(CURDIR)/charts/vitistack
	@go generate ./gateway/internal/openapi ./gateway/internal/page ./tests/e2e/changes

helm: ## Build Helm, and print its path
	@RACE= $(RUN) ./tools/build -title Helm -C tools/ship -o $(CACHE)/bin/helm helm.sh/helm/v4/cmd/helm && echo $(CACHE)/bin/helm

VERSION ?= $(or $(shell git describe --tags --always 2>/dev/null),dev)
PLATFORMS ?= linux/amd64,linux/arm64
images: ## Build all images into dist/images, and push them with IMG=registry/repository:tag (PLATFORMS=linux/amd64)
	@CGO_ENABLED=0 go run -C tools/ship -trimpath ./images -root $(CURDIR) -out $(CURDIR)/dist/images -version $(VERSION) -platforms $(PLATFORMS) $(if $(IMG),-push $(IMG))

CHART ?= charts/vitistack
pin: ## Write the images' digests into the chart's values (DIGESTS=file of lines NAME@sha256:...)
	@test -s "$(DIGESTS)" || (echo "Write make pin DIGESTS=file, with what make images prints"; exit 1)
	@sed -i "s|^  digests: .*|  digests: {$$(sed 's/@/: /' $(DIGESTS) | paste -sd,)}|" $(CHART)/values.yaml

CHANGELOG ?= CHANGELOG.md
notes: ## Print the section of CHANGELOG.md about a version (VERSION=1.2.3)
	@awk -v version='$(VERSION)' '/^## / {inside = $$2 == version; next} inside {print} inside && NF {found = 1} \
	  END {if (!found) {print "CHANGELOG.md has nothing about " version ": write ## " version " above the changes, and a line below it" > "/dev/stderr"; exit 1}}' $(CHANGELOG)

rehearse: ## Run every command of the release without publishing
	@go test -C tools/ship -count=1 -timeout 60m -v -run TestRelease ./release

# The registry may have a port, and a digest is of one image alone.
deploy: TAG = $(if $(findstring @,$(IMG)),,$(word 2,$(subst :, ,$(lastword $(subst /, ,$(IMG))))))
deploy: helm ## Install or upgrade the stack from the images IMG=registry/repository:tag (VALUES=file)
	@test -n "$(TAG)" || (echo "Write make deploy IMG=registry/repository:tag"; exit 1)
	@$(CACHE)/bin/helm upgrade --install vitistack charts/vitistack --namespace vitistack-system --create-namespace --server-side=true --force-conflicts $(if $(VALUES),--values $(VALUES)) \
	  --set image.repository=$(patsubst %:$(TAG),%,$(IMG)),image.tag=$(TAG)

chaos: build judge ## Run a random sequence of changes and faults: SEED=1 MINUTES=5 (CHAOS_SHRINK=8 tries shorter ones)
	@CHAOS_SEED=$(or $(SEED),1) CHAOS_MINUTES=$(or $(MINUTES),5) go test -count=1 -timeout 0 -v -run TestRandomSteps ./tests/chaos

roles: export VITI_AUDIT = $(BIN)/audit
roles: build judge ## Run the whole stack, and compare the requests of the functions with their Roles
	@rm -rf $(VITI_AUDIT) && go test -count=1 -timeout 30m -p 1 $(WHOLE) && go test -count=1 -run Roles ./tests/conformance

KNATIVE = $(CACHE)/bin/knative-$(shell sed -n 's/.*knative.dev\/eventing v/v/p' knative/local/go.mod)
test-knative: build judge ## Run the whole stack on Knative Eventing's own control plane
	@sh tests/knative/build.sh $(KNATIVE) && VITI_KNATIVE=$(KNATIVE) go test -count=1 -timeout 20m -v ./tests/knative

CONTROLLER = $(CACHE)/bin/virt-controller
KUBEVIRT = $(CACHE)/kubevirt
test-kubevirt: build judge ## Run the simulated KubeVirt with its own virt-controller, and a machine on the real KubeVirt with QEMU, as root
	@sh tests/judges/kubevirt/build.sh $(CONTROLLER) ./controller
	@VITI_VIRT_CONTROLLER=$(CONTROLLER) go test -count=1 -timeout 30m ./tests/sim/kubevirt
	@VITI_VIRT_CONTROLLER=$(CONTROLLER) go test -count=1 -timeout 30m -run 'TestClusterLivesAndGoes' ./tests/e2e
	@$(KUBEVIRT_PROGRAMS)
	@sh tests/stand/kubernetes/packages.sh extlinux extlinux mke2fs e2fsprogs && sh tests/kubevirt/guest.sh $(KUBEVIRT)
	@VITI_KUBEVIRT=$(KUBEVIRT) go test -count=1 -timeout 60m -v ./tests/kubevirt

KUBEVIRT_PROGRAMS = sh tests/stand/kubernetes/packages.sh mmdebstrap mmdebstrap setcap libcap2-bin cc gcc && \
	sh tests/kubevirt/build.sh $(KUBEVIRT) && sh tests/kubevirt/images.sh $(KUBEVIRT)
test-kubevirt-talos: helm ## Run a cluster of the real Talos in a virtual machine of the real KubeVirt, by the stack on the real Knative, as root
	@$(KUBEVIRT_PROGRAMS)
	@$(KNATIVE_PROGRAMS)
	@sh tests/stand/kubernetes/packages.sh extlinux extlinux mke2fs e2fsprogs udevadm udev lvm lvm2 modprobe kmod mkfs.xfs xfsprogs mkfs.vfat dosfstools cryptsetup cryptsetup-bin mksquashfs squashfs-tools sgdisk gdisk cpio cpio unxz xz-utils
	@cd tests/talos && sh build.sh $(TALOS) && sh rootfs.sh $(TALOS)
	@sh tests/kubevirt/talos.sh $(TALOS) $(KUBEVIRT)
	@VITI_KUBEVIRT=$(KUBEVIRT) VITI_NODE=$(NODE) VITI_TALOS=$(TALOS) go test -count=1 -timeout 60m -v -run '^TestCluster$$' ./tests/kubevirt

clean-kubevirt: ## Remove what a killed make test-kubevirt has left: cgroups, disks, changed sysctls
	@go run ./tests/stand/lab/clean kubevirt $(KUBEVIRT)

TALOS = $(CACHE)/talos
test-talos: TALOS_TESTS = TestTalos
test-talos: ## Run the whole stack on nodes of the real Talos, as root (RESULTS=tests/talos/RESULTS.md writes the times)
test-talos-faults: TALOS_TESTS = TestFaults
test-talos-faults: ## Have nodes of the real Talos lose their power and their data, as root (RESULTS=tests/talos/FAULTS.md writes the times)
test-talos-simulator: TALOS_TESTS = TestSimulator
test-talos-simulator: ## Compare the answers of the simulated Talos with those of a node of the real Talos, as root
test-talos test-talos-faults test-talos-simulator: build judge
	@sh tests/stand/kubernetes/packages.sh
	@cd tests/talos && sh build.sh $(TALOS) && sh rootfs.sh $(TALOS) && sh upgrade.sh $(TALOS)
	@VITI_TALOS=$(TALOS) VITI_RESULTS=$(RESULTS) go test -count=1 -timeout 40m -v -run '^($(TALOS_TESTS))$$' ./tests/talos

clean-talos: ## Remove what a killed make test-talos has left: cgroups, disks, changed sysctls
	@go run ./tests/stand/lab/clean talos $(TALOS)

NODE = $(CACHE)/node
KNATIVE_PROGRAMS = sh tests/stand/kubernetes/packages.sh && sh tests/stand/knative/build.sh $(NODE) $(KNATIVE) && \
	echo "Building the images ..." && $(MAKE) --no-print-directory --silent images PLATFORMS=linux/$$(go env GOARCH) > /dev/null 2>&1
test-node: helm ## Run the stack on a real node with the real Knative, as root (RESULTS=tests/node/RESULTS.md writes the times)
	@$(KNATIVE_PROGRAMS)
	@VITI_NODE=$(NODE) VITI_RESULTS=$(RESULTS) go test -count=1 -timeout 60m -v ./tests/node

clean-node: ## Remove what a killed make test-node has left: cgroups, disks, changed sysctls
	@go run ./tests/stand/lab/clean node $(NODE)

bench: build judge ## Measure everything, and write tests/bench/RESULTS.md (LOAD=0.1 for a tenth of the load)
	@go run ./tests/bench/results -load $(or $(LOAD),1)

GOVULNCHECK = go run golang.org/x/vuln/cmd/govulncheck@v1.8.0 $(if $(VULNDB),-db file://$(abspath $(VULNDB)))
vuln: ## Look for known vulnerabilities (VULNDB=folder of an unpacked vulndb.zip needs no network)
	@$(GOVULNCHECK) ./... && echo "Of what is not shipped, these modules have some:"
	@for of in "tools/lint tool" "tools/ship ./..." "tools/workflows tool" "knative/local ./..." "tests/judges/kubevirt ."; do set -- $$of; \
	  $(GOVULNCHECK) -C $$1 -scan package $$2 | sed -n 's/^ *Module: //p; s/^ *Found in: /  found in /p; s/^ *Fixed in: /  fixed in /p'; done
