"Run every notebook's cells, and check that package, README and notebooks agree."
import shutil, subprocess, sys
from pathlib import Path
import pytest
from nbdev.test import test_nb as run_nb

root = Path(__file__).parent.parent
nbs = sorted(p for p in (root/"nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)

@pytest.mark.parametrize("nb", nbs, ids=lambda p: p.stem)
def test_notebook(nb, monkeypatch):
    monkeypatch.chdir(nb.parent); monkeypatch.setenv("DIFFGR2_QUICK", "1")        # the recipe tutorial: a few steps a stage
    ok, secs = run_nb(nb, skip_flags=["slow"], showerr=True, basepath=root)   # cells that say `#| slow` are left out
    assert ok, f"{nb.name} failed"

def test_export_in_sync(tmp_path):
    "Export into a copy: exporting in place would heal the difference and pass the next time."
    copy = tmp_path/"copy"
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns(".git", ".venv", "*.egg-info", "build", "_docs", "runs", "__pycache__"))
    subprocess.run([sys.executable, "-c", "from nbdev.doclinks import nbdev_export; nbdev_export()"], cwd=copy, check=True)
    mine, fresh = ({p.relative_to(r): p.read_bytes() for p in (r/"diffgr2").rglob("*.py")} for r in (root, copy))
    assert mine == fresh, sorted(str(p) for p in mine.keys() | fresh.keys() if mine.get(p) != fresh.get(p))
