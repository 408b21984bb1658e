# Two commands do everything: `make demo` and `make test`. Nothing is installed twice; the second run works offline.
PY   ?= python3
VENV ?= .venv
PIP   = $(VENV)/bin/pip --disable-pip-version-check
RECBOLE = $(VENV)/data/recbole-1.2.1-py3-none-any.whl

demo: $(VENV)/.ok $(RECBOLE)
	DIFFGR2_MOVIELENS=$(RECBOLE) $(VENV)/bin/diffgr2 demo

test: $(VENV)/.dev $(RECBOLE)
	DIFFGR2_MOVIELENS=$(abspath $(RECBOLE)) $(VENV)/bin/python -m pytest -q -rs tests

$(VENV)/.ok: pyproject.toml settings.ini constraints.txt setup.py
	$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say make PY=python3.12")'
	test -x $(VENV)/bin/python || $(PY) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt "setuptools>=77" wheel
	$(PIP) install -q -c constraints.txt torch==2.13.0
	$(PIP) install -q -c constraints.txt --no-build-isolation -e .
	touch $@

$(VENV)/.dev: $(VENV)/.ok Makefile
	$(PIP) install -q -c constraints.txt --no-build-isolation -e ".[dev,docs]"
	touch $@

# the notebooks and the public API as static HTML, in _docs/site
docs: $(VENV)/.docs
	$(VENV)/bin/python tools/docs.py
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build -q --strict
	@echo open _docs/site/index.html

$(VENV)/.docs: $(VENV)/.ok
	$(PIP) install -q -c constraints.txt --no-build-isolation -e ".[docs]"
	touch $@

# MovieLens-100K travels inside this wheel; only its data files are read, it is never installed
$(RECBOLE): $(VENV)/.ok
	$(PIP) download -q --no-deps -d $(VENV)/data recbole==1.2.1
	touch $@

.PHONY: demo test docs
