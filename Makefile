# kvad: `make help` lists what there is. The build itself is CMake's (CMakePresets.json); these are the usual names for it.
.DEFAULT_GOAL := all
PREFIX ?= /usr/local
DESTDIR ?=
# The build that the targets work on.
BUILD ?= build/release
PYTHON := /usr/bin/python3
# Tests need more packages than the program does; `make check` builds them in folders of its own.
TESTS ?= OFF
# Configure quietly; cmake speaks only when it fails.
CONFIGURE = scripts/quietly cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVAD_TESTS=$(TESTS)

.PHONY: all demo check install uninstall fuzz verify-faults format clean help

all: ## build the program and the library, in build/release
	@scripts/setup build
	@$(CONFIGURE)
	@cmake --build $(BUILD)

demo: ## install what is missing, build, and show what the cache does on the model that ships
	@scripts/setup build
	@echo "Building (a minute or so) ..."
	@$(CONFIGURE)
	@scripts/quietly cmake --build $(BUILD)
	@scripts/demo $(BUILD)

check: ## install what is missing and run every test; CHECKS="layers sizes" runs some (scripts/check --list)
	@scripts/setup check
	@scripts/check $(CHECKS)

install: ## install below PREFIX (/usr/local), staged in DESTDIR
	@$(CONFIGURE) -DCMAKE_INSTALL_PREFIX="$(PREFIX)"
	@cmake --build $(BUILD)
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD)
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then ldconfig; fi

uninstall: ## remove what `make install` with the same PREFIX and DESTDIR put there
	@$(CONFIGURE) -DCMAKE_INSTALL_PREFIX="$(PREFIX)"
	@scripts/quietly cmake --build $(BUILD)
	@scripts/uninstall $(BUILD) "$(DESTDIR)"

fuzz: ## build the libFuzzer targets (clang) in build/fuzz
	@scripts/setup check
	@cmake --preset fuzz >/dev/null
	@cmake --build build/fuzz

verify-faults: ## build with the seeded faults, in build/faults, and show which checks catch which
	@scripts/setup build
	@scripts/quietly cmake -S . -B build/faults -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVAD_FAULTS=ON -DKVAD_TESTS=OFF
	@cmake --build build/faults --target kvad
	@build/faults/cli/kvad verify --faults

format: ## lay out all C files with clang-format
	@git -c 'safe.directory=*' ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format -i

clean: ## remove everything that was built
	rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile
