# The targets of the repository. Each one does its own set-up.

.DEFAULT_GOAL := help
.PHONY: help test demo bench prove release fmt

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## format, lints, tidiness and every test; what CI runs
	@scripts/test

demo: ## run the demo
	@scripts/demo

bench: ## run every benchmark on a release build
	@scripts/bench

prove: ## the long checks: many more seeds and cases, conformance, benches
	@scripts/prove

release: ## build target/dist/longhaul, the binary to distribute (x86-64 Linux)
	@scripts/release

fmt: ## format all Rust
	@cargo fmt --all
