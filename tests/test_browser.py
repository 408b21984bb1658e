"The views in a browser: static pages from `file://`, tutorials in JupyterLab. Nothing may leave the machine, nothing may complain. Screenshots are kept in `build/screenshots`."
import json, os, re, shutil, socket, subprocess, sys, time, urllib.request
from pathlib import Path
import pytest
from diffgr2.core import load_json
from diffgr2.charts import attention, ladder
from diffgr2.cli import main
from diffgr2.data import load_movielens
from diffgr2.pages import page, save_page
from diffgr2.retrieve import requests
from diffgr2.widgets import load_view, save_view

root = Path(__file__).parent.parent
shots = root/"build"/"screenshots"
chromium = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
pytestmark = pytest.mark.skipif(not chromium, reason="no Chromium on this machine: on Debian, apt-get install chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]

@pytest.fixture(scope="module")
def browser():
    shots.mkdir(parents=True, exist_ok=True)
    with playwright.sync_playwright() as p:
        b = p.chromium.launch(executable_path=chromium, args=FLAGS)
        yield b
        b.close()

def watch(pg):
    "What the page complains about, and whom it calls."
    said, called = [], []
    pg.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
    pg.on("pageerror", lambda e: said.append(str(e)))
    pg.on("dialog", lambda d: (said.append("dialog "+d.message), d.dismiss()))
    pg.on("request", lambda r: called.append(r.url) if r.url.startswith(("http", "ws")) and "127.0.0.1" not in r.url else None)
    return said, called

def opened(browser, path):
    pg = browser.new_page(viewport=dict(width=1200, height=850))
    seen = watch(pg); pg.goto(path.as_uri()); pg.wait_for_selector(".dg, .js-plotly-plot")
    return pg, seen

def until(pg, ok, tries=200):
    "Wait by asking again: the page's own policy forbids the evaluation that Playwright's waiting is made of."
    for _ in range(tries):
        if ok(): return
        pg.wait_for_timeout(50)
    raise AssertionError("it did not happen")

VIEWS = ["toy-denoise", "toy-untrained", "toy-duplicate", "toy-race", "toy-compare", "movielens-duplicate"]
step = lambda pg: int(pg.locator(".dg").first.get_attribute("data-step"))

@pytest.mark.parametrize("name", VIEWS)
def test_page_plays(browser, tmp_path, name):
    load_view(name).save_html(tmp_path/"view.html")
    pg, (said, called) = opened(browser, tmp_path/"view.html")
    last = int(pg.locator("input[type=range]").get_attribute("max"))
    pg.click("button[aria-label='one step on']"); assert step(pg) == 1
    pg.focus("input[type=range]"); pg.keyboard.press("ArrowRight"); assert step(pg) == 2
    pg.keyboard.press("End"); assert step(pg) == last
    assert pg.locator(".t.masked, .t.draft").count() == 0                       # all is written
    pg.click("button[aria-label='to the start']"); assert step(pg) == 0
    pg.select_option("select[aria-label='speed']", label="fast"); pg.click("button[aria-label='play or pause']")
    until(pg, lambda: step(pg) >= 3)
    pg.click("button[aria-label='play or pause']"); at = step(pg); pg.wait_for_timeout(300); assert step(pg) == at
    pg.screenshot(path=shots/f"{name}.png", full_page=True)
    assert not said and not called

def test_tokens_explain_themselves_and_keys_walk(browser, tmp_path):
    load_view("toy-denoise").save_html(tmp_path/"view.html")
    pg, (said, _) = opened(browser, tmp_path/"view.html")
    pg.locator(".t").nth(3).hover(); assert "token 4:" in pg.inner_text(".tell")
    pg.locator(".t").first.focus(); pg.keyboard.press("ArrowRight"); assert "token 2:" in pg.inner_text(".tell")
    pg.keyboard.press("ArrowDown"); assert "token 10:" in pg.inner_text(".tell") and step(pg) == 0
    assert "alternatives" in pg.inner_text(".tell") or "not looked at" in pg.inner_text(".tell")
    pg.uncheck("input[type=checkbox]"); assert pg.locator(".t.draft").count() == 0
    assert not said

def test_faults_are_marked(browser, tmp_path):
    load_view("toy-duplicate").save_html(tmp_path/"view.html")
    pg, (said, _) = opened(browser, tmp_path/"view.html")
    pg.focus("input[type=range]"); pg.keyboard.press("End")
    assert pg.locator(".t.wrong").count() >= 2 and "duplicate" in pg.inner_text(".dg table") and "invalid" in pg.inner_text(".dg .say.ko")
    assert not said

def test_clock_changes(browser, tmp_path):
    load_view("toy-race").save_html(tmp_path/"view.html")
    pg, (said, _) = opened(browser, tmp_path/"view.html")
    pg.select_option("select[aria-label='clock']", "milliseconds"); pg.click("button[aria-label='one step on']")
    assert "ms" in pg.locator(".bar .say").inner_text() and not said

@pytest.mark.parametrize("title", ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "<!--<script>"])
def test_hostile_titles_do_nothing(browser, tmp_path, title):
    view = load_view("toy-denoise"); save_view(view, tmp_path/"v.json")
    d = load_json(tmp_path/"v.json")
    for c in d["data"]["pool"]: c["title"] = title
    d["data"]["history"], d["data"]["strings"] = [title], [title]*len(d["data"]["strings"])
    (tmp_path/"v.json").write_text(json.dumps(d)); load_view(tmp_path/"v.json").save_html(tmp_path/"view.html")
    pg, (said, called) = opened(browser, tmp_path/"view.html")
    pg.focus("input[type=range]"); pg.keyboard.press("End"); pg.wait_for_timeout(200)
    assert pg.locator(".dg img, .dg script").count() == 0 and title in pg.inner_text(".dg table") and not said and not called

def test_charts_and_themes(browser, tmp_path):
    (tmp_path/"p.html").write_text(page([("Mask", attention()), ("One", load_view("toy-denoise"))], "a <page>"), encoding="utf-8")
    pg, (said, called) = opened(browser, tmp_path/"p.html")
    pg.wait_for_selector(".js-plotly-plot .heatmaplayer image")
    ink = "getComputedStyle(document.querySelector('.dg')).color"
    light = pg.evaluate(ink); pg.emulate_media(color_scheme="dark"); assert pg.evaluate(ink) != light
    pg.screenshot(path=shots/"charts.png", full_page=True)
    assert not said and not called

def test_charts_follow_the_theme_and_their_numbers_can_be_read(browser, tmp_path):
    save_page([("Ladder", ladder(load_json(root/"nbs"/"results"/"movielens.json")))], tmp_path/"p.html")
    pg, (said, called) = opened(browser, tmp_path/"p.html")
    pg.wait_for_selector(".js-plotly-plot .xtick text")
    fill = lambda: pg.locator(".js-plotly-plot .xtick text").first.evaluate("x => getComputedStyle(x).fill")
    light = fill(); pg.emulate_media(color_scheme="dark"); until(pg, lambda: fill() != light)
    pg.focus("summary"); pg.keyboard.press("Enter"); assert pg.locator("details[open] tr").count() > 5
    assert not said and not called

@pytest.mark.skipif(not os.environ.get("DIFFGR2_MOVIELENS"), reason="MovieLens-100K is not here: set DIFFGR2_MOVIELENS")
def test_show_and_report_from_the_command_line(browser, tmp_path, capsys):
    q = [{k: r[k] for k in ("user", "history", "candidates")} for r in requests(load_movielens(), "test", limit=40)[0].select(range(3))]
    (tmp_path/"q.jsonl").write_text("\n".join(map(json.dumps, q)), encoding="utf-8")
    for tau in (".9", ".5"): assert main(["rerank", str(tmp_path/"q.jsonl"), "--tau", tau, "--record", str(tmp_path/f"{tau}.parquet")]) == 0
    assert main(["show", str(tmp_path/".9.parquet"), "-o", str(tmp_path/"show.html")]) == 0
    results = root/"nbs"/"results"
    assert main(["report", str(results/"movielens.json"), "--frontier", str(results/"movielens-frontier.json"), "--trajectories", str(tmp_path/".9.parquet"), str(tmp_path/".5.parquet"), "-o", str(tmp_path/"report.html")]) == 0
    for name, decodes, charts in (("show", 3, 2), ("report", 6, 5)):
        pg, (said, called) = opened(browser, tmp_path/f"{name}.html")
        until(pg, lambda: pg.locator(".js-plotly-plot").count() == charts)
        assert pg.locator(".dg").count() == decodes
        pg.locator(".dg input[type=range]").last.focus(); pg.keyboard.press("End"); assert pg.locator(".dg").last.locator(".t.masked").count() == 0
        pg.screenshot(path=shots/f"{name}.png", full_page=True)
        assert not said and not called
    (tmp_path/"odd.json").write_text('{"a": 1}')
    assert main(["report", str(tmp_path/"odd.json"), "-o", str(tmp_path/"no.html")]) == 2 and "holds no results" in capsys.readouterr().err and not (tmp_path/"no.html").exists()

@pytest.mark.skipif(not shutil.which("mkdocs", path=os.path.dirname(sys.executable)), reason="mkdocs is not installed: pip install '.[docs]'")
def test_the_documentation_site(browser, tmp_path):
    "Built as `make docs` does, opened from disk: every page of the navigation is there, pictures load, nothing is called."
    subprocess.run([sys.executable, root/"tools"/"docs.py"], check=True)
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-d", tmp_path/"site"], cwd=root, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    pg = browser.new_page(viewport=dict(width=1300, height=900)); said, called = watch(pg)
    for name, heading in (("index", "diffgr2"), ("14_sample", "Commit rules"), ("tutorials/watching", "denoise"), ("api", "generate")):
        pg.goto((tmp_path/"site"/f"{name}.html").as_uri()); pg.wait_for_selector("article, .md-content")
        assert heading in pg.inner_text(".md-content")
        broken = pg.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"); assert not broken, broken
        links = pg.evaluate("[...document.querySelectorAll('a[href]')].map(a => a.href.split('#')[0]).filter(h => h.startsWith('file:'))")
        assert not [l for l in set(links) if not Path(urllib.request.url2pathname(l[7:])).exists()]
        pg.screenshot(path=shots/f"docs-{name.replace('/', '-')}.png")
    assert not called and not said

# ── JupyterLab ──

@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    d = tmp_path_factory.mktemp("lab"); shutil.copytree(root/"nbs"/"tutorials", d/"nbs")
    s = d/"set/@jupyterlab/apputils-extension"; s.mkdir(parents=True)
    (s/"notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false, "doNotDisturbMode": true}')
    (s/"themes.jupyterlab-settings").write_text('{"adaptive-theme": true}')      # light or dark as the browser prefers
    with socket.socket() as k: k.bind(("127.0.0.1", 0)); port = k.getsockname()[1]
    env = dict(os.environ, JUPYTER_CONFIG_DIR=f"{d}/cfg", JUPYTER_RUNTIME_DIR=f"{d}/rt", JUPYTERLAB_WORKSPACES_DIR=f"{d}/ws", JUPYTERLAB_SETTINGS_DIR=f"{d}/set", IPYTHONDIR=f"{d}/ipy", DIFFGR2_QUICK="1")
    with open(d/"log", "w") as log:
        srv = subprocess.Popen([sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--allow-root", "--IdentityProvider.token=", "--ServerApp.password=", "--ServerApp.disable_check_xsrf=True",
            "--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", f"--ServerApp.root_dir={d/'nbs'}"], env=env, stdout=log, stderr=log)
    try:
        for _ in range(240):
            try: urllib.request.urlopen(f"http://127.0.0.1:{port}/api/status", timeout=1); break
            except OSError: time.sleep(.5)
        yield f"http://127.0.0.1:{port}"
    finally: srv.terminate(); srv.wait(30)

def drive(pg, lab, name, views):
    "Open a notebook, run all of it, play every view."
    pg.goto(f"{lab}/lab/tree/{name}.ipynb?reset", wait_until="domcontentloaded"); pg.wait_for_selector(".jp-Notebook .jp-Cell", timeout=120_000)
    def answer():
        d = pg.locator(".jp-Dialog button.jp-mod-accept")
        if d.count(): d.first.click()
    idle = "async path => (await (await fetch('/api/sessions')).json()).some(s => s.path == path && s.kernel.execution_state == 'idle' && s.kernel.connections > 0)"
    for _ in range(240):
        answer()
        if pg.evaluate(idle, f"{name}.ipynb"): break
        pg.wait_for_timeout(500)
    pg.click('li.lm-MenuBar-item:has-text("Run")'); pg.locator('li.lm-Menu-item:has-text("Run All Cells")').first.click(); pg.wait_for_timeout(1000); answer()
    pg.wait_for_function("() => { const c = [...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputPrompt')].map(x => x.textContent); return c.length && c.every(t => /\\[\\d+\\]/.test(t)); }", timeout=900_000)
    errors = pg.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.error']")
    assert not errors.count(), errors.all_inner_texts()
    for _ in range(40):                                                        # outputs far below are drawn when they are reached
        if pg.locator(".dg").count() >= views: break
        pg.mouse.wheel(0, 1500); pg.wait_for_timeout(300)
    assert pg.locator(".dg").count() >= views
    for k in range(views):
        view = pg.locator(".dg").nth(k); view.scroll_into_view_if_needed()
        if not view.locator("input[type=range]").count(): continue
        view.locator("button[aria-label='one step on']").click(); assert view.get_attribute("data-step") == "1"
        view.locator("input[type=range]").focus(); pg.keyboard.press("ArrowRight")
        view.locator("select[aria-label='speed']").select_option(label="fast"); view.locator("button[aria-label='play or pause']").click()
        until(pg, lambda: int(view.get_attribute("data-step")) >= min(3, int(view.locator("input[type=range]").get_attribute("max"))))

def live(pg):
    "Decode from the live view: what it says, and the view that follows."
    said, view = pg.locator(".jp-OutputArea .widget-html-content"), pg.locator(".dg").last
    pg.locator("button:has-text('decode')").click()
    until(pg, lambda: "tokens in" in said.last.inner_text(), 600)
    view.scroll_into_view_if_needed()
    until(pg, lambda: view.get_attribute("data-step") == view.locator("input[type=range]").get_attribute("max"))
    assert view.locator(".t").count() > 50 and not view.locator(".t.masked").count()

def point(pg):
    "Click on a point of the chart: the view shows a decode that is behind it."
    chart = pg.locator(".js-plotly-plot").last; chart.scroll_into_view_if_needed()
    pick = pg.locator(".widget-dropdown select").last; had = pick.locator("option").count()
    box = chart.locator(".scatterlayer .trace").first.locator("path.point").last.bounding_box()
    pg.mouse.move(box["x"]+box["width"]/2, box["y"]+box["height"]/2); pg.wait_for_timeout(300)
    pg.mouse.click(box["x"]+box["width"]/2, box["y"]+box["height"]/2)
    until(pg, lambda: 0 < pick.locator("option").count() < had)
    view = pg.locator(".dg").last; view.scroll_into_view_if_needed(); view.locator("input[type=range]").focus(); pg.keyboard.press("End")
    until(pg, lambda: view.locator(".say.ko").count())

@pytest.mark.parametrize("name,views", [("watching", 8), ("recipe", 3), ("why_invalid", 2), ("your_own_model", 0), ("exercises", 0), ("solutions", 0)])
def test_tutorial_in_lab(browser, lab, name, views):
    if name in ("why_invalid", "exercises", "solutions") and not os.environ.get("DIFFGR2_MOVIELENS"): pytest.skip("MovieLens-100K is not here: set DIFFGR2_MOVIELENS")
    dark = name == "why_invalid"                                               # one of them at night
    pg = browser.new_context(viewport=dict(width=1300, height=950), color_scheme="dark" if dark else "light").new_page(); said, called = watch(pg)
    try:
        drive(pg, lab, name, views)
        if views:
            ink, paper = (sum(map(int, re.findall(r"\d+", pg.locator(".dg").first.evaluate(f"x => getComputedStyle(x).{k}"))[:3])) for k in ("color", "backgroundColor"))
            assert abs(ink-paper) > 300 and (ink > paper) == dark
        if name == "watching" and os.environ.get("DIFFGR2_MOVIELENS"): live(pg)
        if name == "why_invalid": point(pg)
    finally:
        if pg.locator(".dg").count(): pg.locator(".dg").last.scroll_into_view_if_needed()
        pg.screenshot(path=shots/f"lab-{name}.png")
        pg.evaluate("async () => { for (const s of await (await fetch('/api/sessions')).json()) await fetch('/api/sessions/' + s.id, {method: 'DELETE'}); }")
        pg.context.close()
    assert not called and not [s for s in said if "error" in s.lower() and "favicon" not in s], said
