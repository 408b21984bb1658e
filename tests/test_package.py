"The repository as a stranger gets it: notebooks, package, README, wheel."
import json, os, re, subprocess, sys, zipfile
from pathlib import Path
import pytest
from diffgr2.core import load_json
from diffgr2.calibration import calibration_table
from diffgr2.tables import moved, table

root = Path(__file__).parent.parent
notebooks = [p for p in sorted((root/"nbs").rglob("*.ipynb")) if ".ipynb_checkpoints" not in p.parts]
sys.path.insert(0, str(root/"tools"))

def test_notebooks_are_clean_and_small():
    for p in notebooks:
        nb = json.loads(p.read_text(encoding="utf-8"))
        assert "widgets" not in nb["metadata"] and p.stat().st_size < 300_000, p.name
        for c in nb["cells"]: assert not c["metadata"] and c.get("execution_count") is None, f"{p.name}: run nbdev_clean"

def test_readme_is_the_index_notebook():
    import readme
    assert (root/"README.md").read_text(encoding="utf-8") == readme.render(), "run: python tools/readme.py --execute"

def test_readme_tables_come_from_the_results():
    text = (root/"README.md").read_text(encoding="utf-8")
    for name in ("beauty", "movielens"):
        for line in table(load_json(root/"nbs"/"results"/f"{name}.json")).splitlines()[2:]: assert line in text, f"{name}: {line}"
        for made, kind in ((moved, "frontier"), (calibration_table, "calibration")): assert made(load_json(root/"nbs"/"results"/f"{name}-{kind}.json")) in text, f"{name}-{kind}"

def test_results_have_the_agreed_columns():
    for p in (root/"nbs"/"results").glob("*.json"):
        for r in load_json(p):
            if "stage" not in r: continue
            if p.stem.endswith("-calibration"): assert {"dataset", "seed", "stage", "split", "n", "reasoning", "answer", "slots", "sums"} <= set(r), p.name; continue
            assert {"dataset", "stage", "rule", "tau", "block_size", "n", "valid", "tpf", "nfe", "speedup", "recall@1", "ndcg@10", "mrr"} <= set(r), p.name
            assert set(r["recall@1"]) == {"value", "low", "high"}

def test_no_word_of_any_machine():
    files = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True).stdout.split()
    for f in files:
        if f.endswith((".ipynb", ".py", ".md", ".ini", ".txt", "Makefile")) and (root/f).is_file():
            assert not re.search(r"(?<![\w.])/(home/\w+|root|work)/", (root/f).read_text(encoding="utf-8", errors="ignore")), f

def test_shipped_checkpoints_are_small_and_safe():
    d = root/"diffgr2"/"pretrained"
    assert sum(p.stat().st_size for p in d.rglob("*") if p.is_file()) < 30e6
    assert {p.suffix for p in d.rglob("*") if p.is_file()} <= {".safetensors", ".json", ".jinja"}

def test_the_wheel_is_complete(tmp_path):
    "Built without network: it holds the code, the checkpoints and the settings, and asks for nothing from nbdev or Jupyter."
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(root)], check=True, env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    wheel, = tmp_path.glob("*.whl")
    z = zipfile.ZipFile(wheel); names = z.namelist()
    for must in ("diffgr2/cli.py", "diffgr2/static/views.js", "diffgr2/static/recorded/toy-denoise.json", "diffgr2/pretrained/movielens-ar/model.safetensors", "diffgr2/pretrained/movielens-cft/tokenizer.json", "diffgr2/pretrained/movielens-cft/chat_template.jinja"): assert must in names
    meta = z.read(next(n for n in names if n.endswith("METADATA"))).decode()
    need = [l for l in meta.splitlines() if l.startswith("Requires-Dist") and "extra ==" not in l]
    assert not re.search("nbdev|fastcore|jupyter|ipywidgets", " ".join(need)) and "torch" in " ".join(need)

def test_the_library_runs_without_nbdev_and_jupyter():
    code = ("import sys\nclass No:\n def find_spec(self, n, *a):\n  if n.split('.')[0] in ('nbdev','fastcore','execnb','IPython','ipywidgets','jupyterlab','plotly','anywidget'): raise ImportError(n)\n"
            "sys.meta_path.insert(0, No())\nimport diffgr2.cli as c\nc.parser().parse_args(['demo'])")
    subprocess.run([sys.executable, "-c", code], check=True)

def test_every_chapter_is_listed():
    "In the site's navigation and in the README, in order."
    chapters = sorted(p.name for p in (root/"nbs").glob("[0-9]*.ipynb"))
    for page, found in (("mkdocs.yml", r"\d\d_\w+\.ipynb"), ("nbs/index.ipynb", r"(?<=\| \[)\d\d_\w+(?=\]\(nbs/)")):
        seen = re.findall(found, (root/page).read_text(encoding="utf-8"))
        assert [x.removesuffix(".ipynb") for x in seen] == [c.removesuffix(".ipynb") for c in chapters], page
