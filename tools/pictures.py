"The pictures in README, chapters and tutorials: views as the browser shows them, and charts. Needs Chromium and MovieLens-100K; the live view is the screenshot that tests/test_browser.py leaves."
import re, shutil, tempfile, time
from pathlib import Path
import nbformat, plotly.graph_objects as go
from plotly.io import write_images
from nbconvert.preprocessors import ExecutePreprocessor
from playwright.sync_api import sync_playwright
from diffgr2.core import load_json, save_json
from diffgr2.data import load_movielens
from diffgr2.evaluate import rerank
from diffgr2.gr2 import load_reranker
from diffgr2.prompts import Catalogue, RANK
from diffgr2.retrieve import requests
from diffgr2.sample import BlockGenerationConfig
from diffgr2.charts import attention, commit_order, frontier, growth, harm, invalid_rates, learning
from diffgr2.pages import numbers
from diffgr2.widgets import load_view

root = Path(__file__).parent.parent
out, chapters, results = root/"nbs"/"tutorials"/"pictures", root/"nbs"/"pictures", root/"nbs"/"results"
for folder in (out, chapters): folder.mkdir(exist_ok=True)

def views():
    "Shipped decodes, at the step that says most."
    titles = Catalogue(load_movielens().items["title"][:], [], [])
    with tempfile.TemporaryDirectory() as d, sync_playwright() as p:
        b = p.chromium.launch(executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=["--no-sandbox"])
        for name, shipped, step in (("denoise", "movielens-duplicate", -1), ("toy", "toy-denoise", 8), ("untrained", "toy-untrained", -1), ("race", "toy-race", 15), ("compare", "toy-compare", 12)):
            load_view(shipped, titles if shipped.startswith("movielens") else None).save_html(f"{d}/v.html")
            pg = b.new_page(viewport=dict(width=1180, height=500)); pg.goto(Path(d, "v.html").as_uri())
            last = int(pg.locator("input[type=range]").get_attribute("max"))
            for _ in range(step if step >= 0 else last+1+step): pg.click("button[aria-label='one step on']")
            if pg.locator(".t.wrong").count(): pg.locator(".t.wrong").first.hover()
            pg.locator(".dg").screenshot(path=out/f"{name}.png"); pg.close()
        b.close()
    if (shot := root/"build"/"screenshots"/"lab-watching.png").exists(): shutil.copy(shot, out/"live.png")

def cells():
    "In a chapter, the picture under a cell is what the cell shows."
    figures, files = [], []
    for nb in sorted((root/"nbs").glob("*.ipynb")):
        book = nbformat.read(nb, 4)
        shown = [(c, re.match(r"!\[[^\]]*\]\((pictures/\w+\.png)\)", after.source)) for c, after in zip(book.cells, book.cells[1:]) if c.cell_type == "code" and after.cell_type == "markdown"]
        if not any(m for _, m in shown): continue
        ExecutePreprocessor(timeout=600, kernel_name="python3").preprocess(book, {"metadata": {"path": str(nb.parent)}})
        for c, m in shown:
            here = [f for o in c.outputs if m and (f := o.get("data", {}).get("application/vnd.plotly.v1+json"))]
            if m and not here and "#| export" not in c.source: raise SystemExit(f"{nb.name}: the cell above {m[1]} shows no chart")
            for f in here: figures.append(go.Figure(f["data"], f["layout"])); files.append(nb.parent/m[1])
    write_images(figures, files)
    assert not (lost := [f.name for f in files if not f.exists() or time.time()-f.stat().st_mtime > 600]), lost

def charts():
    films, models = load_movielens(), {s: load_reranker(f"movielens-{s}") for s in ("cft", "opd", "rl")}
    tok, some = models["cft"].tokenizer, requests(films, "validation", limit=120)[0].select(range(96))
    decode = lambda tau, stage="cft": [a.trajectory for a in rerank(models[stage], some, Catalogue.of(films, models[stage].tokenizer), BlockGenerationConfig(tau=tau, record=True))]
    calm, hurried, rank = decode(.9), decode(.6), tok.convert_tokens_to_ids(RANK)
    invalid_rates({"tau .9": calm, "tau .6": hurried}, rank).write_image(out/"invalid.png")
    stages = invalid_rates({s: decode(.5, s) for s in models}, rank, "step")
    save_json(numbers(stages), results/"movielens-drafts.json")                # the README's table
    stages.for_each_trace(lambda t: t.update(visible=t.name.endswith(("any fault", "duplicate")))).update_layout(title="Invalid drafts at tau .5, stage by stage").write_image(out/"stages.png")
    commit_order(calm).write_image(out/"order.png"); attention().write_image(out/"attention.png")
    if (many := results/"movielens-frontier.json").exists(): frontier(load_json(many)).write_image(out/"frontier.png")
    learning({p.stem.removesuffix("-rl"): load_json(p) for p in sorted(results.glob("*-rl.json"))}).write_image(chapters/"learning.png")
    harm().write_image(chapters/"harm.png"); growth(load_json(results/"bench.json")).write_image(chapters/"growth.png")

if __name__ == "__main__": views(); charts(); cells()
