"Run every notebook's cells, and check that package, README and notebooks agree."
import json, shutil, subprocess, sys
from pathlib import Path
import pytest
from nbdev.test import test_nb as run_nb

root = Path(__file__).parent.parent
nbs = sorted(p for p in (root/"nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)

@pytest.mark.parametrize("nb", nbs, ids=lambda p: p.stem)
def test_notebook(nb, monkeypatch):
    monkeypatch.chdir(nb.parent)
    ok, secs = run_nb(nb, skip_flags=["slow"], showerr=True, basepath=root)   # cells that say `#| slow` are left out
    assert ok, f"{nb.name} failed"
