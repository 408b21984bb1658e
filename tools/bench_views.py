"What a large decode weighs and how fast it scrubs: 512 tokens in one block, 500 steps. Writes nbs/results/views.json. Needs Chromium."
import json, shutil, sys, tempfile
from pathlib import Path
from playwright.sync_api import sync_playwright
from diffgr2.core import save_json

root = Path(__file__).parent.parent
sys.path.insert(0, str(root/"tests"))
from test_widgets import large
from diffgr2.data import toy_market
from diffgr2.gr2 import Reranker, train_tokenizer
from diffgr2.prompts import Catalogue, PromptFormat, fit_levels
from diffgr2.retrieve import requests
from diffgr2.widgets import denoise

toy = toy_market(users=200); train, _ = requests(toy, "train", n=5); fmt = PromptFormat(n=5, edges=fit_levels(train))
tok = train_tokenizer(toy.items["title"][:], fmt, vocab_size=600); tok.add_special_tokens(dict(mask_token="<|mask|>"))
view = denoise(large(Reranker(None, tok, fmt, None), train[0]), Reranker(None, tok, fmt, None), Catalogue.of(toy, tok))
run = view.data["runs"][0]
with tempfile.TemporaryDirectory() as d, sync_playwright() as p:
    view.save_html(f"{d}/v.html")
    b = p.chromium.launch(executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=["--no-sandbox"])
    pg = b.new_page(); pg.goto(Path(d, "v.html").as_uri()); drawn = []
    for _ in range(120): pg.click("button[aria-label='one step on']"); drawn.append(float(pg.locator(".dg").get_attribute("data-drawn")))
    pg.focus("input[type=range]")
    for key in ("End", "Home", "PageUp", "PageUp", "End"): pg.keyboard.press(key); drawn.append(float(pg.locator(".dg").get_attribute("data-drawn")))
    b.close()
out = dict(tokens=512, steps=500, payload_bytes=sum(map(len, run["bytes"].values()))+len(json.dumps({k: v for k, v in run.items() if k != "bytes"})), scrub_ms_median=sorted(drawn)[len(drawn)//2], scrub_ms_worst=max(drawn))
save_json(out, root/"nbs"/"results"/"views.json"); print(out)
