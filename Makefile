# `make run` serves the page, `make test` runs every test. Each sets up what it needs and is quick the second time:
# the stamps in .venv are older than a requirements file only when that file has changed.

PY := .venv/bin/python
PAGE := static/vendor/socket.io.esm.min.js
KERNELS := qwenvl/kernels/_build/libqwenvl_kernels.so

.PHONY: run test bench lint setup

run: .venv/.runtime $(KERNELS) $(PAGE)
	@exec .venv/bin/gunicorn -k gevent -w 1 'app:create_app()'

test: .venv/.dev $(KERNELS) $(PAGE)
	$(PY) -m pytest -q $(ARGS)

bench: .venv/.runtime $(KERNELS)
	@$(PY) -m qwenvl bench $(ARGS)

lint: .venv/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

setup: .venv/.dev $(KERNELS) $(PAGE)

.venv/.created: scripts/create_venv.sh
	@scripts/create_venv.sh
	@touch $@

.venv/.runtime: requirements.txt scripts/install_requirements.sh .venv/.created
	@scripts/install_requirements.sh $(PY) requirements.txt
	@touch $@

.venv/.dev: requirements-dev.txt requirements-plot.txt .venv/.runtime
	@scripts/install_requirements.sh $(PY) requirements-dev.txt
	@touch $@

# without a C++ compiler this says so, makes nothing, and is tried again next time
$(KERNELS): qwenvl/kernels/build.py $(wildcard qwenvl/kernels/src/*) .venv/.runtime
	@$(PY) -m qwenvl.kernels.build
	@[ ! -e $@ ] || touch $@

$(PAGE): package.json package-lock.json scripts/fetch_page_scripts.sh | .venv/.created
	@scripts/fetch_page_scripts.sh $(PY)
	@touch $@
