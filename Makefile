# Every target says what it does in `make help`. Logic lives in hack/ and in the program, not here.
GO ?= go
LDFLAGS := -s -w

.PHONY: help build image demo test unit explore lab-test smoke netns browser results disruptions bench-probes bench-proxier zero-loss first-seed versions minors nightly nightly-soak lint clean packages

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

packages: ## install the system packages that a run needs, if they are missing (root)
	@hack/packages.sh

build: ## build bin/hitless, a static binary
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/hitless ./cmd/hitless

image: build ## put bin/hitless into an OCI image, without Docker, and say what it is made of; writes out/image (IMAGE=hitless:latest)
	$(GO) run ./deploy/image -program bin/hitless -name "$${IMAGE:-hitless:latest}" -out out/image

demo: packages build ## roll a Deployment behind the bundled IPVS proxier; the report goes to out/demo
	bin/hitless run rollout --out out/demo

test: unit lab-test ## all tests, the real-kernel ones included, but those of `make nightly`

unit: ## tests without root and without a VM; SEED=N draws the random ones from another seed
	@hack/unit.sh

explore: ## the random tests for longer, with seeds of their own
	@hack/unit.sh explore

lab-test: packages build ## tests on real kernels, in VMs and in namespaces of this machine
	$(GO) test -count=1 -timeout 60m -tags lab ./lab/vm/... ./lab/host/... ./internal/... ./deploy/...
	cd deploy/foreign && $(GO) test -count=1 .
	$(GO) test -count=1 -timeout 60m -tags lab ./suites/*/ -ginkgo.label-filter='!nightly'

smoke: packages build ## one spec of each suite, with the bundled proxier and kube-proxy (13 minutes without KVM)
	$(GO) test -p $$(($$(nproc) + 1)) -count=1 -timeout 30m -tags lab ./suites/*/ -ginkgo.label-filter=smoke

netns: build ## tests in network namespaces of the host's kernel (a user namespace, no root)
	@rm -rf out/control-plane && mkdir -p out/control-plane
	bin/hitless build control-plane | cut -sf2 | grep ^/ | xargs -I{} ln -s {} out/control-plane/
	HITLESS_BINARIES=$(CURDIR)/out/control-plane unshare -rnm $(GO) test -count=1 -tags netns ./lab/kube
	HITLESS_BINARIES=$(CURDIR)/out/control-plane unshare -rnm $(GO) test -count=1 -tags netns ./lab/kubelet
	HITLESS_BINARIES=$(CURDIR)/out/control-plane unshare -rnm $(GO) test -count=1 -tags netns -run TheRealAPIServer ./lab/replay
	unshare -rnm $(GO) test -count=1 -parallel 8 -tags netns ./probes
	unshare -rnm $(GO) test -count=1 -tags netns ./reports
	unshare -rnm $(GO) test -count=1 -tags netns ./lab/balancer
	unshare -rnm $(GO) test -count=1 -tags netns ./observers
	unshare -rnm $(GO) test -count=1 -tags netns -run FullDisk ./internal/cache
	unshare -rnm $(GO) test -count=1 -tags netns ./lab/subject
	unshare -rnm $(GO) test -count=1 -tags netns -run FullDisk ./cmd/hitless
	unshare -rnm $(GO) test -count=1 -tags netns -run InAPod ./internal/run

browser: ## the report's page in headless Chromium (the package chromium)
	$(GO) test -count=1 -tags browser ./reports -run Browser

results: packages build ## run the comparisons that belong in docs/results, and write the README's table (20 minutes)
	@hack/results.sh

disruptions: packages build ## run every disruption against four proxies, seed 1, and write the table of docs/disruptions.md (an hour); what is there is not run again
	@hack/disruptions.sh

bench-probes: build ## the probe engine beside fortio and vegeta, in namespaces; writes out/bench/probes.json (a minute)
	@hack/bench-probes.sh

zero-loss: packages build ## the bundled proxier, kube-proxy ipvs and a faulty twin through what must cost no connection, on RUNS=8 seeds (a night)
	@hack/zero-loss.sh

first-seed: packages build ## kube-proxy v1.12.2 soaked on eight seeds until it hangs, and the bundled proxier for a week in all on the same (two hours); SEEDS=1..2
	@hack/first-seed.sh

versions: packages build ## two versions of kube-proxy on the same seeds, OLD=v1.36.1 NEW=v1.37.1 MODE=ipvs: fails when NEW drops more (an hour)
	@OLD=$${OLD:-v1.36.1} NEW=$${NEW:-v1.37.1} MODE=$${MODE:-ipvs} hack/versions.sh

minors: packages build ## one kube-proxy of each minor version since 1.11, in each of its modes, through a rollout, and the table of docs/subjects.md (an hour and a half); what is there is not run again
	@hack/minors.sh

bench-proxier: packages build ## the bundled proxier beside kube-proxy, from the API to the kernel; writes out/bench/proxier*.json (an hour and a half); SERVICES=100,1000 REPEAT=3 for these alone
	@hack/bench-proxier.sh

nightly: explore netns packages build ## what CI has no time for: random tests for longer, namespaces, all specs
	$(GO) test -count=1 -timeout 180m -tags lab ./suites/*/ -ginkgo.timeout 3h -results $(CURDIR)/docs/results/suites
	$(GO) test -count=1 ./cmd/hitless -run TestTheDocsHaveTheNight -update
	$(GO) test -count=1 -timeout 60m -tags lab,nightly -run InTheNight ./internal/run

nightly-soak: packages build ## a day of soak on two seeds, with the bundled proxier (half an hour)
	bin/hitless soak --for 24h --seeds 1..2 --controlplane replay --out out/soak

lint: ## gofmt, vet, staticcheck
	@hack/lint.sh

clean: ## remove what the build and the runs made here
	rm -rf bin out
