# `make help` lists the targets. Their logic is in hack/ and in the program.
GO ?= go
LDFLAGS := -s -w
TEST = GO=$(GO) hack/gotest.sh -count=1
# Programs, tests and lint use the same compiled packages: without C, with -trimpath, and without debugging information. Upstream's programs
# (lab/build) are built so too, and share the standard library.
export CGO_ENABLED := 0

.PHONY: help build image release release-check cross cross-sample demo docs guest-tools test unit explore lab-test smoke attacks netns browser results disruptions bench-probes bench-proxier zero-loss first-seed versions minors upgrades kernels conformance-matrix dataplanes verify-runs evidence upstream-e2e upstream-e2e-results upstream-rolling-update museum museum-kills museum-tried kill-score nightly nightly-merge nightly-soak lint clean packages

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

packages: ## install missing system packages that a run needs (root)
	@hack/packages.sh

build: ## build bin/hitless, a static binary
	$(GO) build -trimpath -gcflags=all=-dwarf=false -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/hitless ./cmd/hitless
ifneq ($(shell $(GO) env GOOS GOARCH | paste -sd-),linux-amd64)
	GOOS=linux GOARCH=amd64 $(GO) build -trimpath -gcflags=all=-dwarf=false -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/hitless-linux-amd64 ./cmd/hitless # of the lab's VM
endif

image: build ## build an OCI image and its bill of materials in out/image, without Docker (IMAGE=hitless:latest)
	$(GO) run -C deploy/image . -program $(CURDIR)/bin/hitless -name "$${IMAGE:-hitless:latest}" -out $(CURDIR)/out/image

release: ## make the archives, images, SBOMs and checksums of a release in out/release (VERSION=v1.2.3; by default the tag)
	@hack/release.sh

release-check: ## two releases of the commit have the same bytes, and `go install` gives a working program (half an hour)
	@hack/release-check.sh

cross: packages ## check the other platforms: build, vet, and tests under emulators; installs qemu-user if it is missing (root; an hour without a cache)
	@hack/packages.sh cross
	@hack/cross.sh

cross-sample: ## the part of `make cross` that CI runs: types on all platforms, quick tests for arm64, and the portable probe engine
	@hack/packages.sh cross
	@hack/cross.sh portable
	@hack/cross.sh sample

demo: ## install what is missing, build hitless and run a rollout behind the bundled IPVS proxier; the report is in out/demo
	@hack/demo.sh

# Without it each suite builds its own program.
lab-test smoke attacks nightly: export HITLESS_PROGRAM = $(CURDIR)/bin/hitless

test: export HITLESS_TIMES = $(CURDIR)/out/times
test: ## unit tests and tests on real kernels, not those of `make nightly`, `browser` and `cross`; at the end the slowest ones
	@rm -rf $(HITLESS_TIMES)
	@$(MAKE) unit
	@$(MAKE) lab-test
	@hack/slowest.sh

unit: ## tests without root and VM; SEED=N sets the seed of the property tests
	@hack/unit.sh

explore: ## property tests for longer, with random seeds, and fuzz tests for FUZZTIME=1m each
	@hack/unit.sh explore

lab-test: packages build ## tests on real kernels: in VMs, and in namespaces of this machine
	@hack/packages.sh tests
	@hack/lab-test.sh

smoke: packages build ## the specs with the label smoke, one or two of most suites, with the bundled proxier and kube-proxy (13 minutes without KVM)
	@hack/packages.sh tests
	$(TEST) -p $$(($$(nproc) + 1)) -timeout 30m -tags lab ./suites/*/ -ginkgo.label-filter=smoke

attacks: packages build ## proxies with one fault each, and the verdict that each must get (half an hour)
	$(TEST) -timeout 90m -tags lab ./suites/attacks

netns: build ## tests in network namespaces of this machine's kernel (a user namespace; root only to install what is missing)
	@hack/packages.sh tests
	@hack/netns.sh

browser: ## the pages in headless Chromium, and axe, which checks that they are accessible; installs chromium and npm if they are missing (root)
	@hack/packages.sh browser
	@hack/axe.sh
	$(TEST) -tags browser ./reports ./reports/compare -run Browser -args -axe=$(CURDIR)/out/axe/axe.min.js

results: packages build ## run rollout and restart again for docs/results/comparisons.md and README's picture (20 minutes); committed rows are not run again; SUBSET=restart
	@hack/results.sh

disruptions: packages build ## run most disruptions against four proxies for docs/results/disruptions.md (an hour); committed rows are not run again; SUBSET=restart,flush
	@hack/disruptions.sh

bench-probes: build ## measure the probe engine, fortio and vegeta in namespaces; writes out/bench/probes.json (a minute); SHORT=1 measures the engine alone
	@hack/bench-probes.sh

zero-loss: packages build ## run the scenarios that must cost no connection, and their red twins, on RUNS=8 seeds for docs/results/zero-loss.md (two hours); committed rows are not run again; SUBSET=restart,kill
	@hack/zero-loss.sh

first-seed: packages build ## soak kube-proxy v1.12.2 on eight seeds until it hangs, and the bundled proxier with the same churn for a week in all, for docs/results/first-seed.md (two hours and a half); a committed result is not made again
	@hack/first-seed.sh

versions: packages build ## compare two versions of kube-proxy, OLD=v1.36.1 NEW=v1.37.1 MODE=ipvs; fails when NEW is worse or loses connections (an hour)
	@OLD=$${OLD:-v1.36.1} NEW=$${NEW:-v1.37.1} MODE=$${MODE:-ipvs} hack/versions.sh

minors: packages build ## run a rollout behind each kube-proxy since 1.11 for docs/results/kube-proxy-versions.md (an hour and a half); committed rows are not run again; SUBSET=v1.25
	@hack/minors.sh

upgrades: packages build ## upgrade kube-proxy in place and back, in each mode, for docs/results/upgrades.md (an hour); committed rows are not run again; SUBSET=v1.36-ipvs-open
	@hack/upgrades.sh

kernels: packages build ## run rollout, restart, flap and reused ports on four kernels for docs/results/kernels.md (half an hour); committed rows are not run again; SUBSET=restart
	@hack/kernels.sh

conformance-matrix: packages build ## run the conformance suite against nine subjects for docs/results/conformance.md (two and a half hours); committed subjects are not run again; SUBSET=bundled FILTER=routing
	@hack/conformance.sh

dataplanes: packages build ## compare six proxies, two versions of Cilium among them, over five scenarios on four seeds for docs/results/dataplanes.md (two hours); committed rows are not run again; SUBSET=flap
	@hack/dataplanes.sh

verify-runs: packages build ## verify runs of many scenarios with their packets, for docs/results/verified.md (an hour); committed runs are not run again; SUBSET=fault,scale
	@hack/packages.sh tests
	@hack/verify.sh

museum: packages build ## run each bug of the museum against a version with it and one without, on SEEDS=4 seeds, for docs/results/museum.md (four hours after the builds); answers that tell something and are of the entry as it is now are not run again, with STALE=1 only those of this program; SUBSET=k8s-134147; SUBJECTS=kube-proxy@v1.37.1/ipvs,bundled runs the bugs against these instead, for docs/results/museum-subjects.md; SUBJECTS=versions searches the versions with each bug (two hours)
	@hack/museum.sh

kill-score: packages build ## run the conformance suite against proxies with one defect each for docs/results/kill-score.md (three hours); continues; fails when one survives; SUBSET=ignore-udp,flush
	@hack/kill-score.sh

museum-kills: packages build ## run conformance specs against the bad specimen of each bug of the museum, and against the good one where they fail, for docs/results/museum.md (three hours); continues; SUBSET=k8s-92019
	@hack/kill-score.sh -bugs

museum-tried: packages build ## run the triggers of bugs that the museum does not have, for docs/results/museum-tried.md (half an hour); committed rows are not run again; SUBSET=k8s-89392
	@hack/museum-tried.sh

evidence: $(if $(PLAN)$(MERGE),,packages) build ## make all committed results anew with this program, without the museum, the kill score, the nightly suites, and upstream's suite and rolling update; continues; PLAN=1 shows the plan only; STEPS=upgrades,kernels makes only these of the plan; SHARD=1/2 makes a part; MERGE=../first,../second copies the parts of other trees (eight hours)
	@$(if $(PLAN)$(MERGE),,hack/packages.sh tests)
	$(GO) build -o out/programs/evidence ./hack/evidence # `go run` would end with exit code 1 whatever happens
	out/programs/evidence $(if $(PLAN),-plan) $(if $(STEPS),-steps $(STEPS)) $(if $(SHARD),-shard $(SHARD)) $(if $(MERGE),-merge $(MERGE))

upstream-e2e-results: packages build ## run upstream's suite against five proxies for docs/upstream-e2e.md (four hours of an idle machine); committed rows are not run again; SUBSET=bundled
	@hack/upstream-e2e-results.sh

upstream-rolling-update: packages build ## run upstream's spec of a rolling update against a lab, and hitless watch beside it, for docs/results/upstream-rolling-update.md (17 minutes); SUBJECT=kube-proxy@v1.25.3/iptables POLICY=Local OUT=out/upstream-rolling-update
	@hack/packages.sh tests
	@hack/upstream-rolling-update.sh

upstream-e2e: packages build ## run Kubernetes' own e2e specs against a lab (40 minutes after the build, which takes 20 minutes of CPU time once); SUBJECT=kube-proxy@v1.37.1/nftables FOCUS=REGEXP OUT=out/upstream-e2e; fails when a spec fails
	@hack/upstream-e2e.sh

bench-proxier: packages build ## measure the bundled proxier and kube-proxy from API to kernel for docs/results/proxier-cost.md (an hour and a half); SERVICES=100,1000 REPEAT=3
	@hack/bench-proxier.sh

nightly: $(if $(PLAN),,packages) build ## everything that is too slow for CI: property tests, namespaces, other platforms, all specs (a night); continues; SHARD=1/4 makes a part, PLAN=1 lists it
	@$(if $(PLAN),,hack/packages.sh tests)
	@hack/nightly.sh

nightly-merge: ## join the jobs and results of nightly shards, MERGE=../first,../second; nothing is run
	@MERGE=$${MERGE:?give the trees of the shards, separated by commas} hack/nightly.sh

nightly-soak: packages build ## soak the bundled proxier for a day on two seeds (half an hour)
	bin/hitless soak --for 24h --seeds 1..2 --controlplane replay --out out/soak

guest-tools: ## pin the packages of the guest's tools that Debian 12 has now, in lab/tools/packages.txt; histories may change (3 minutes)
	$(GO) run ./hack/guesttools

docs: ## write the pictures of README.md, and the tables and pictures of docs, from docs/results, and the kinds of events in the schema (a minute)
	$(GO) run ./hack/docs

lint: ## gofmt, vet, staticcheck, shellcheck; installs shellcheck if it is missing (root)
	@hack/packages.sh lint
	@hack/lint.sh

clean: ## remove bin and out
	rm -rf bin out
