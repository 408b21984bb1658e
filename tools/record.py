"Record the decodes that the package ships: the toy market's from the recipe tutorial's own models, MovieLens' from the shipped ones (item numbers only)."
import json, sys
from pathlib import Path

root = Path(__file__).parent.parent
out = root/"diffgr2"/"static"/"recorded"

def toy():
    "Run the cells of the recipe tutorial and keep what they show."
    from diffgr2.widgets import compare, denoise, race, save_view
    ns = {"display": print}
    for c in json.loads((root/"nbs"/"tutorials"/"recipe.ipynb").read_text())["cells"]:
        if c["cell_type"] == "code": exec("".join(c["source"]), ns)
        if "CFT, tau .5" in ns.get("seen", {}): break                           # later stages are not shown
    seen, cat, block = ns["seen"], ns["cat"], ns["block"]()
    ar = ns["Reranker"](ns["ar"], ns["tokenizer"], ns["fmt"], None)
    fast = seen["CFT, tau .5"]
    bad = next(k for k, (a, slow) in enumerate(zip(fast, seen["CFT"])) if "duplicate" in a.verdict.kinds and slow.verdict.valid)
    save_view(denoise(seen["CFT"][bad].trajectory, block, cat), out/"toy-denoise.json")
    save_view(denoise(seen["… in a hurry"][bad].trajectory, block, cat), out/"toy-untrained.json")
    save_view(denoise(fast[bad].trajectory, block, cat), out/"toy-duplicate.json")
    save_view(race({"AR": (seen["AR"][bad].trajectory, ar), "diffusion": (seen["CFT"][bad].trajectory, block)}, cat), out/"toy-race.json")
    save_view(compare({"CFT, tau .9": (seen["CFT"][bad].trajectory, block), "CFT, tau .5": (fast[bad].trajectory, block)}, cat), out/"toy-compare.json")

def movielens():
    "The first request whose hurried answer has a duplicate."
    from diffgr2.data import load_movielens
    from diffgr2.evaluate import rerank
    from diffgr2.gr2 import load_reranker
    from diffgr2.prompts import Catalogue
    from diffgr2.retrieve import requests
    from diffgr2.sample import BlockGenerationConfig
    from diffgr2.widgets import compare, denoise, race, save_view
    films = load_movielens(); test = requests(films, "test")[0]
    cft, ar = load_reranker("movielens-cft"), load_reranker("movielens-ar"); cat = Catalogue.of(films, cft.tokenizer)
    decode = lambda r, q, **kw: rerank(r, [q], cat, BlockGenerationConfig(record=True, **kw))[0]
    q, fast = next((q, a) for q in test for a in [decode(cft, q, tau=.7)] if "duplicate" in a.verdict.kinds)
    slow = decode(cft, q, tau=.9)
    save_view(denoise(slow.trajectory, cft, cat), out/"movielens-denoise.json", titles=False)
    save_view(denoise(fast.trajectory, cft, cat), out/"movielens-duplicate.json", titles=False)
    save_view(race({"AR": (decode(ar, q, block_size=1).trajectory, ar), "diffusion": (slow.trajectory, cft)}, cat), out/"movielens-race.json", titles=False)
    save_view(compare({"tau .9": (slow.trajectory, cft), "tau .7": (fast.trajectory, cft)}, cat), out/"movielens-compare.json", titles=False)

if __name__ == "__main__":
    for what in sys.argv[1:] or ["toy", "movielens"]: dict(toy=toy, movielens=movielens)[what]()
