# Short names for what developers do; `.ci/run` is what must pass. No target reads standard input or needs root.
export SQLX_OFFLINE := true

PROGRAM = $(or $(CARGO_TARGET_DIR),target)/debug/settled

.PHONY: help demo test crash lint fmt sqlx fuzz openapi ci

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## the guided demonstration, with a private Postgres and fake downstreams; ARGS=--once ends after its scenes
	@cargo run --quiet -- demo $(ARGS)

test: ## all tests, with a private Postgres; ARGS='--test it ledger' for some of them
	@cargo test --no-run --quiet
	@$(PROGRAM) demo with-postgres -- cargo test --no-fail-fast $(ARGS)

crash: ## the crash suite in width, some minutes; ARGS='--seed 1 kills' repeats a run or a scene; the last line is the account
	@cargo test --no-run --quiet --test crash-wide
	@cargo test --quiet --test crash-wide -- $(ARGS)

lint: ## formatting and clippy, warnings refused
	@.ci/run fmt lint

fmt: ## format the code
	@cargo fmt

sqlx: ## refresh the query cache .sqlx/ after a change of a query or a migration
	@.ci/run sqlx

fuzz: ## every fuzz target for ARGS seconds each (60); needs cargo-fuzz, see fuzz/README.md
	@fuzz/run $(ARGS)

openapi: ## writes the description of the HTTP API into openapi.json
	@cargo run --quiet -- openapi >openapi.json

ci: ## everything that must pass before a merge
	@.ci/run
