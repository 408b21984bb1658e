"The views without a browser: what is packed, what it weighs, what stays text, what is closed."
import copy, json, re, shutil, subprocess
from pathlib import Path
import numpy as np, pytest, torch
from diffgr2.convert import convert
from diffgr2.core import RequestError, SettingError
from diffgr2.data import toy_market
from diffgr2.evaluate import rerank
from diffgr2.gr2 import Reranker, tiny_model, train_tokenizer
from diffgr2.prompts import Catalogue, PromptFormat, fit_levels
from diffgr2.retrieve import requests
from diffgr2.sample import BlockGenerationConfig
from diffgr2.trajectory import Step, Trajectory, load_trajectories, save_trajectories
from diffgr2 import widgets
from diffgr2.charts import attention, invalid_rates
from diffgr2.pages import module, page
from diffgr2.widgets import Live, compare, denoise, pack_run, race

HOSTILE = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "<!--<script>", "\ud800 lone surrogate", "<|rank|><|A|>"]

@pytest.fixture(scope="module")
def world():
    toy = toy_market(users=200); train, _ = requests(toy, "train", n=5); test, _ = requests(toy, "test", n=5)
    fmt = PromptFormat(n=5, edges=fit_levels(train), max_response=48)
    tok = train_tokenizer(toy.items["title"][:], fmt, vocab_size=600); cat = Catalogue.of(toy, tok)
    model = tiny_model(tok, fmt, width=32, layers=1)
    ar = Reranker(model, tok, fmt, None)
    decode = lambda r, q, **kw: rerank(r, [q], cat, BlockGenerationConfig(**(dict(max_new_tokens=48, record=True) | kw)))[0].trajectory
    left_to_right = decode(ar, test[0], block_size=1)
    return Reranker(convert(model, tok, 16), tok, fmt, None), cat, test, decode, left_to_right

def columns(run): return {k: np.frombuffer(b, d) for (k, b), d in zip(run["bytes"].items(), ("<u2", "<u2", "<u2", "u1", "u1", "<u4", "<u2", "u1"))}

def test_columns_are_the_trajectory(world):
    r, cat, test, decode, _ = world
    t = decode(r, test[0], tau=.03)
    strings = {}; run = pack_run(t, test[0], r, strings); c, words = columns(run), list(strings)
    step = np.repeat(np.arange(len(c["count"])), c["count"])
    for k, s in enumerate(t.steps):                                            # rebuild every step's canvas from the columns alone
        seen = {}
        for e in np.flatnonzero(step <= k): seen[int(c["pos"][e])] = words[c["tok"][e]], int(c["flag"][e])
        for j in range(len(s.canvas)):
            p = s.start+j
            if p >= len(t.tokens): continue
            want = t.tokens[p] if j in s.committed or s.canvas[j] != t.mask_token_id else s.draft[j]
            assert seen[p] == (r.tokenizer.decode([want]), int(j in s.committed or s.canvas[j] != t.mask_token_id)), (k, p)

@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_the_browser_decodes_the_same(world, tmp_path):
    r, cat, test, decode, _ = world
    t = decode(r, test[1], tau=.03); v = denoise(t, r, cat)
    js = module()
    (tmp_path/"views.mjs").write_text(js); (tmp_path/"data.json").write_text(json.dumps(v.data, default=lambda b: list(b)))
    (tmp_path/"run.mjs").write_text("""import { decode, at } from "./views.mjs"; import { readFileSync } from "fs";
const data = JSON.parse(readFileSync(process.argv[2])), run = data.runs[0];
for (const k in run.bytes) run.bytes[k] = new DataView(Uint8Array.from(run.bytes[k]).buffer);
const ev = decode(run), out = [];
for (let s = 0; s < run.steps; s++) out.push(ev.map(l => { const e = at(l, s); return e ? [data.strings[e.tok], e.committed] : null; }));
console.log(JSON.stringify(out));""")
    out = json.loads(subprocess.run(["node", str(tmp_path/"run.mjs"), str(tmp_path/"data.json")], capture_output=True, text=True, check=True).stdout)
    when = t.commit_step()
    for s, row in enumerate(out):
        for p, e in enumerate(row):
            if when[p] <= s: assert e == [r.tokenizer.decode([t.tokens[p]]), True]
            else: assert e is None or not e[1]
    last = [e[0] for e in out[-1]]
    assert last == [r.tokenizer.decode([i]) for i in t.tokens]

def large(r, q, tokens=512, steps=500):
    "One block of 512 tokens, written in 500 steps, all confidences changing all the time."
    g = np.random.default_rng(0); mask, words = r.tokenizer.mask_token_id, g.integers(10, 500, tokens).tolist()
    order, made, canvas = g.permutation(tokens), [], [mask]*tokens
    for k, some in enumerate(np.array_split(order, steps)):
        conf = g.random(tokens).tolist()
        draft = [w if g.random() < .9 else int(g.integers(10, 500)) for w in words]
        alts = [[d, 11, 12, 13, 14] for d in draft]
        made.append(Step(0, 0, list(canvas), draft, conf, [1.]*tokens, alts, [[c, .1, .05, .02, .01] for c in conf], some.tolist(), [0.]*len(some), k+1, k*.01))
        for j in some: canvas[j] = words[j]
    return Trajectory([1], words, tokens, mask, made, "threshold 0.9", json.dumps({k: q[k] for k in ("history", "candidates", "rank")}))

def test_a_large_decode_weighs_little(world):
    r, cat, test, *_ = world
    data = denoise(large(r, test[0]), r, cat).data
    weight = sum(map(len, data["runs"][0]["bytes"].values()))+len(json.dumps({k: v for k, v in data["runs"][0].items() if k != "bytes"}))
    assert weight < 2_000_000, weight

@pytest.mark.parametrize("title", HOSTILE)
def test_titles_are_inert(world, title):
    r, cat, test, decode, _ = world
    t = decode(r, test[0], tau=.03)
    evil = Catalogue([title]*len(cat.titles), cat.ends, cat.categories)
    text = denoise(t, r, evil).html()
    text.encode("utf-8")
    body = text[text.index("<body>"):]
    for m in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', body, re.S):
        assert "<" not in m and title.encode("utf-8", "replace").decode() in json.loads(m)["pool"][0]["title"]
    assert page([("a <b> heading", [["<i>", title.encode("utf-8", "replace").decode()]])]).count("<i>") == 0

def test_faults_are_linked(world):
    "A duplicate names both tokens; an omission names none."
    r, cat, test, *_ = world
    tok, q, mask = r.tokenizer, test[0], r.tokenizer.mask_token_id
    ids = tok("<|rank|><|A|><|B|><|A|><|D|><|E|><|done|>", add_special_tokens=False)["input_ids"]+[tok.eos_token_id]
    t = Trajectory([1], ids, 16, mask, [Step(0, 0, [mask]*8, ids, [.5]*8, [1.]*8, [[i] for i in ids], [[.5]]*8, list(range(8)), [0.]*8, 1, .1)], "x", json.dumps({k: q[k] for k in ("history", "candidates", "rank")}))
    f = {x["kind"]: x for x in denoise(t, r, cat).data["runs"][0]["drafts"][-1]["faults"]}
    assert f["duplicate"]["places"] == [1, 3] and f["duplicate"]["slot"] == 2 and f["omission"]["places"] == []

def test_views_of_several(world):
    r, cat, test, decode, ar = world
    a = decode(r, test[0], tau=.03); b = copy.deepcopy(a); b.tokens[7] = 5 if a.tokens[7] != 5 else 6
    v = race({"AR": (ar, r), "diffusion": (a, r)}, cat)
    assert [x["block"] for x in v.data["runs"]] == [1, 16] and v.data["runs"][0]["forwards"][-1] == len(ar.tokens)
    c = compare({"a": (a, r), "b": (b, r)}, cat)
    fork = c.data["runs"][0]["fork"]
    assert fork == 7 and f"committed at step {a.commit_step()[7]+1}" in c.data["note"]
    assert compare({"a": (a, r), "same": (a, r)}, cat).data["runs"][0]["fork"] is None
    with pytest.raises(SettingError, match="two"): compare({"a": (a, r)}, cat)
    with pytest.raises(RequestError, match="same request"): race({"a": (a, r), "b": (decode(r, test[1], tau=.9), r)}, cat)

def test_state_follows_and_is_followed(world):
    r, cat, test, decode, _ = world
    v = denoise(decode(r, test[0], tau=.03), r, cat); w = v.widget; seen = []
    w.observe(lambda c: seen.append(c["new"]), "step")
    w.set_state(dict(step=3))                                                  # what the browser sends
    w.step = 1
    assert seen == [3, 1] and v.widget is w

def test_running_a_cell_again_leaves_nothing(world, monkeypatch):
    from ipywidgets import Widget
    r, cat, test, decode, _ = world
    t = decode(r, test[0], tau=.03)
    from ipywidgets.widgets import widget as registry
    alive = lambda: len(registry._instances)
    run = iter(range(10**6))
    def execute(n): monkeypatch.setattr(widgets, "_cell", lambda: ("cell 1", n)); denoise(t, r, cat).widget; race({"a": (t, r)}, cat).widget
    execute(next(run)); first = alive()
    for _ in range(200): execute(next(run))
    assert alive() == first

def test_running_a_live_cell_again_leaves_nothing(world, monkeypatch):
    from ipywidgets.widgets import widget as registry
    r, cat, test, decode, _ = world
    alive = []
    groups = {"one": [decode(r, test[0], tau=.03)]}
    for n in range(12):
        monkeypatch.setattr(widgets, "_cell", lambda: ("cell 2", n))
        Live({"a": r}, [test[0]], cat); widgets.Explore(groups, r, cat); alive.append(len(registry._instances))
    assert len(set(alive[1:])) == 1

def test_behind_a_point_and_back(world):
    r, cat, test, decode, _ = world
    e = widgets.Explore({"one": [decode(r, q, tau=.03) for q in test.select(range(4))]}, r, cat)
    class Trace: name, customdata = "one: any fault", [("2", [2])]
    e.point(Trace, 0)
    assert [o[0] for o in e.pick.options] == ["one, 2", "all decodes"] and e.pick.value == ("one", 2)
    e.pick.value = None
    assert len(e.pick.options) == 4
    e.pick.value = ("one", 1); assert e.view.data == denoise(e.groups["one"][1], r, cat).data

def test_what_is_pasted_is_checked(world):
    r, cat, test, *_ = world
    live = Live({"a": r}, [test[0]], cat)
    assert all(w.index == 0 for w in (live.request, live.model, live.rule, live.size))          # nothing looks empty
    for odd in ("[1, 2]", "{", "3", '{"history": []}'): live.pasted.value = odd; live.decode(); assert live.said.value.startswith("<b>")

def test_a_draft_that_is_withdrawn_is_not_shown(world):
    r, cat, test, decode, _ = world
    t = copy.deepcopy(decode(r, test[0], tau=.03)); rank = r.tokenizer.convert_tokens_to_ids("<|rank|>")
    first, last = copy.deepcopy(t.steps[0]), t.steps[0]
    first.draft[0], last.draft = rank, [r.tokenizer.pad_token_id]*len(last.draft)
    t.tokens, t.steps = [last.draft[0]]*t.block_size, [first, last]
    d = denoise(t, r, cat).data["runs"][0]["drafts"]
    assert d[0]["slots"] is not None and d[-1] == dict(step=1, slots=None, places=[], faults=[])

def test_trajectories_round_trip_into_views(world, tmp_path):
    r, cat, test, decode, _ = world
    t = decode(r, test[0], tau=.03)
    save_trajectories([t], tmp_path/"t.parquet"); back, = load_trajectories(tmp_path/"t.parquet")
    a, b = denoise(t, r, cat).data, denoise(back, r, cat).data
    assert {k: v for k, v in a["runs"][0].items() if k != "conf"} == {k: v for k, v in b["runs"][0].items() if k != "conf"} and a["pool"] == b["pool"]

def test_bad_input(world):
    r, cat, test, decode, _ = world
    t = decode(r, test[0], tau=.03)
    with pytest.raises(RequestError, match="not recorded"): denoise(Trajectory(t.prompt, t.tokens, 16, t.mask_token_id, [], "", t.request), r, cat)
    with pytest.raises(RequestError, match="what it answers"): denoise(Trajectory(t.prompt, t.tokens, 16, t.mask_token_id, t.steps), r, cat)
    with pytest.raises(SettingError, match="share"): invalid_rates({"a": [t]}, 0, by="time")
    with pytest.raises(SettingError, match="at least 1"): attention(prompt=0)

@pytest.mark.parametrize("context,copies", [("block", 1), ("causal", 2)])
def test_attention_says_why(context, copies):
    f = attention(2, 2, 3, context, copies)
    z, why = np.asarray(f.data[0].z), f.data[0].customdata
    assert all(("does not see" in why[i][j]) != bool(z[i, j]) for i in range(len(z)) for j in range(len(z)))
