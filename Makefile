# Wiretape. `make` alone lists what there is to do.

GO      ?= go
BIN     := bin
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
PREFIX  ?= /usr/local
DESTDIR ?=
LDFLAGS := -s -w -X wiretape/cmd/internal/cli.Version=$(VERSION)
export CGO_ENABLED := 0

.DEFAULT_GOAL := help
.PHONY: help build install demo test lint torture bench interop viewer fuzz clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build capture and replay into bin/
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/capture ./cmd/replay

install: ## binaries, manual pages and completions into DESTDIR and PREFIX (/usr/local)
	@test -x $(BIN)/capture && test -x $(BIN)/replay || $(MAKE) build
	@for p in capture replay; do \
	  put() { install -D -m $$1 $$2 "$(DESTDIR)$(PREFIX)/$$3" && echo "$(DESTDIR)$(PREFIX)/$$3"; }; \
	  say() { "$(BIN)/$$p" $$2 > "$(BIN)/.install" && put 644 "$(BIN)/.install" $$1; }; \
	  put 755 "$(BIN)/$$p" bin/$$p && \
	  say share/man/man1/$$p.1 man && \
	  say share/bash-completion/completions/$$p 'completion bash' && \
	  say share/zsh/site-functions/_$$p 'completion zsh' && \
	  say share/fish/vendor_completions.d/$$p.fish 'completion fish' || exit 1; done; \
	rm -f "$(BIN)/.install"

demo: build ## serve the bundled sample over a socket, record it, rebuild the archive, print the report
	@sh scripts/demo.sh

test: lint ## everything that a change must pass (under 15 minutes on two cores)
	$(GO) test -timeout 14m ./...
	sh viewer/test.sh

lint: ## gofmt and go vet
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'run gofmt -w on these'; exit 1; }
	$(GO) vet ./...

interop: build ## the checks against the real dendro crate (needs cargo)
	sh interop/run

torture: build ## the long campaigns: kill -9, faults, mutations, soaks, 4 GiB files
	WIRETAPE_TORTURE=1 $(GO) test -timeout 6h ./...
	WIRETAPE_TORTURE=1 sh viewer/test.sh

bench: build ## speed and memory, as ratios against the real peers in one run
	sh scripts/bench.sh

viewer: ## the static page into dist/viewer/, and dist/viewer.html in one file
	sh viewer/build.sh

fuzz: ## each fuzz target for a minute
	@$(GO) list ./... | while read p; do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime 60s $$p || exit 1; done; done

clean: ## remove what the targets made
	rm -rf $(BIN) dist viewer/node_modules interop/build interop/rig/target
	find replay/view/dist -type f ! -name README -delete
