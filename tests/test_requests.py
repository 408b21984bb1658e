"Untrusted and unusual input: prompts, answers, requests, files."
import copy, json, os, threading
from pathlib import Path
from http.server import BaseHTTPRequestHandler, HTTPServer
import numpy as np, pytest, torch
from hypothesis import given, settings, strategies as st
from diffgr2.constrain import UsedNames
from diffgr2.convert import convert
from diffgr2.core import CheckpointError, DataError, DiffGR2Error, RequestError, SettingError, atomic, merge_rows
from diffgr2.data import Market, load_beauty, load_movielens, toy_market
from diffgr2.evaluate import rerank
from diffgr2.gr2 import Reranker, encode_rows, load_reranker, load_run, make_run, prepare, save_reranker, tiny_model, train_tokenizer
from diffgr2.prompts import (DONE, FAULTS, RANK, SLOTS, THINK, Catalogue, PromptFormat, check_request, control_tokens, defuse, encode_prompt, fit_levels, names, parse, prompt_text, response_text)
from diffgr2.retrieve import requests
from diffgr2.sample import BlockGenerationConfig, generate
from diffgr2.sids import SID_BEGIN, SID_END, SemanticIds
from diffgr2.tables import told_apart
from diffgr2.traces import endpoint, llm_chat, llm_teach, local

MARKET = toy_market()
TRAIN, _ = requests(MARKET, "train", n=5)
EDGES = fit_levels(TRAIN)
SIDS = SemanticIds.fit(MARKET, 3, 16)

def world(scheme="slots", **kw):
    fmt = PromptFormat(scheme, 5, EDGES, **({"max_response": 96} | kw)); sids = SIDS if scheme == "sids" else None
    tok = train_tokenizer(MARKET.items["title"][:], fmt, sids, 600)
    return fmt, tok, Catalogue.of(MARKET, tok, sids), sids

WORLDS = {s: world(s) for s in ("slots", "sids")}
REQUEST = TRAIN[0]
words = st.sampled_from([*SLOTS[:7], RANK, DONE, THINK, "<|eos|>", "<|pad|>", SID_BEGIN, SID_END, *SIDS.encode(1), *SIDS.encode(77), "text", " ", "\n", "<|", "|>", "<a_99>"])

@pytest.mark.parametrize("scheme", WORLDS)
@settings(max_examples=300, deadline=None)
@given(text=st.one_of(st.text(), st.lists(words).map("".join), st.lists(words).map(lambda x: RANK+"".join(x))), partial=st.booleans())
def test_the_parser_never_raises(scheme, text, partial):
    "And its verdict is consistent: valid means a permutation, invalid names at least one known fault, and the ranking to use is always a permutation."
    fmt, tok, cat, sids = WORLDS[scheme]
    for v in (parse(text, REQUEST, fmt, sids, partial=partial), parse(tok(text, add_special_tokens=False)["input_ids"], REQUEST, fmt, sids, tok, partial)):
        if v is None: assert partial; continue
        assert sorted(v.ranking) == sorted(v.repaired) == list(range(5)) and set(v.kinds) <= set(FAULTS) and v.valid == (not v.kinds)
        if v.valid and not partial: assert sorted(v.slots) == list(range(5))
        if not v.valid: assert v.ranking == list(range(5))

@pytest.mark.parametrize("scheme", WORLDS)
@given(order=st.permutations(range(5)), trace=st.sampled_from(["", "A fits. ", "é <b>&"]))
@settings(max_examples=60, deadline=None)
def test_a_valid_permutation_round_trips(scheme, order, trace):
    fmt, tok, cat, sids = WORLDS[scheme]
    text = response_text(trace, list(order), REQUEST, fmt, cat)
    ids = tok(text, add_special_tokens=False)["input_ids"]+[tok.eos_token_id]
    for v in (parse(text, REQUEST, fmt, sids), parse(ids, REQUEST, fmt, sids, tok)): assert v.valid and v.ranking == list(order)

def test_every_fault_is_named_with_its_place():
    fmt, tok, cat, sids = WORLDS["slots"]
    r = lambda s: parse(RANK+"".join(f"<|{c}|>" for c in s)+DONE, REQUEST, fmt)
    v = r("ABCAE"); assert v.kinds == ["duplicate", "omission"]
    dup, miss = v.faults; assert (dup.slot, dup.candidate, miss.candidate) == (3, 0, 3)
    assert r("ABCD").kinds == ["omission"] and r("ABCDEA").kinds == ["duplicate", "format"] and r("ABCDZ").kinds == ["omission", "out_of_set"]
    ids = tok(RANK+"<|A|><|B|>", add_special_tokens=False)["input_ids"]
    assert parse(ids, REQUEST, fmt, tokenizer=tok).kinds == ["omission", "truncated"]
    assert parse(ids+[tok.eos_token_id], REQUEST, fmt, tokenizer=tok).kinds == ["omission", "format"]
    full = tok(RANK+"<|A|><|B|><|C|><|D|><|E|>"+DONE, add_special_tokens=False)["input_ids"]
    assert parse(full, REQUEST, fmt, tokenizer=tok).kinds == ["truncated"] and parse(full+[tok.eos_token_id], REQUEST, fmt, tokenizer=tok).valid
    assert parse(full+full[:1]+[tok.eos_token_id], REQUEST, fmt, tokenizer=tok).kinds == ["format"]

def test_sids_out_of_set_has_two_subtypes():
    fmt, tok, cat, sids = WORLDS["sids"]
    good = names(REQUEST, fmt, cat)
    other = next(i for i in range(1, 121) if i not in REQUEST["candidates"])
    stranger = "".join(names(dict(candidates=[other]), fmt, cat))
    nobody = SID_BEGIN+next(t for a in range(16) for b in range(16) for c in range(16) for t in [f"<a_{a}><b_{b}><c_{c}>"] if sids.decode([f"<a_{a}>", f"<b_{b}>", f"<c_{c}>"]) is None)+SID_END
    for bad, word in ((stranger, "catalogue"), (nobody, "nonexistent")):
        v = parse(RANK+"".join([*good[:4], bad])+DONE, REQUEST, fmt, sids)
        assert v.kinds == ["omission", "out_of_set"] and word in next(f for f in v.faults if f.kind == "out_of_set").detail
    cut = parse(RANK+"".join(good[:2])+SID_BEGIN+"<a_1>", REQUEST, fmt, sids, partial=True)
    assert cut.valid and len(cut.slots) == 2                                  # a name in the making is no fault

@pytest.mark.parametrize("scheme", WORLDS)
@given(title=st.one_of(st.text(max_size=60), st.lists(words, max_size=12).map("".join), st.just("x"*800), st.just("<script>alert(1)</script> ＜|A|＞ <|eos|>"), st.just("<|im_<|A|>start|>")))
@settings(max_examples=150, deadline=None)
def test_titles_are_only_ever_text(scheme, title):
    "Whatever is in a title, the prompt has exactly the control tokens that it has without it, in the same order."
    fmt, tok, cat, sids = WORLDS[scheme]
    added = set(tok.get_added_vocab().values())
    control = lambda t: [i for i in encode_prompt(REQUEST, fmt, Catalogue.of(Market("x", MARKET.items.select(range(120)).remove_columns("title").add_column("title", [t]*120), MARKET.sequences), tok, sids), tok)[0] if i in added]
    assert control(title) == control("plain")

def test_defuse_is_idempotent_and_keeps_plain_text():
    assert defuse("Crème & “soin” 50 ml – n°1", SLOTS) == "Crème & “soin” 50 ml – n°1"
    for t in ("<<|A|>|A|>", "<|A<|A|>|>", "<|A|><|A|>"): once = defuse(t, SLOTS); assert "<|A|>" not in once and defuse(once, SLOTS) == once

@pytest.mark.parametrize("bad, word", [
    (dict(history=[1], candidates=[1, 2, 3, 4, 4]), "more than once"), (dict(history=[1], candidates=[7]), "nothing to rank"), (dict(history=[1], candidates=list(range(1, 41))), "at most 26"), (dict(history=[1], candidates=list(range(1, 9))), "pools of 5"),
    (dict(history=[999], candidates=[1, 2, 3, 4, 5]), "unknown item"), (dict(history=["a"], candidates=[1, 2, 3, 4, 5]), "unknown item"), (dict(candidates=[1, 2, 3, 4, 5]), "history"), (dict(history=[], candidates=None), "history"), (dict(history=[1], candidates=[]), "nothing to rank")])
def test_requests_that_cannot_be_ranked(bad, word):
    fmt, tok, cat, sids = WORLDS["slots"]
    with pytest.raises(RequestError, match=word): check_request(bad, fmt, cat)

def test_short_histories_are_served():
    "An empty or one-item history and an absent target are defined: the model answers, or the retriever's order stands."
    fmt, tok, cat, sids = WORLDS["slots"]
    model = convert(tiny_model(tok, fmt, width=32, layers=1), tok, 16)
    for h in ([], [3]):
        a, = rerank(Reranker(model, tok, fmt, None), [dict(history=h, candidates=[5, 6, 7, 8, 9])], cat)
        assert sorted(a.verdict.ranking) == [0, 1, 2, 3, 4]
    assert "nothing yet" in prompt_text(dict(history=[], candidates=[5, 6, 7, 8, 9]), fmt, cat, tok)

def test_budgets():
    fmt, tok, cat, sids = WORLDS["slots"]
    model = convert(tiny_model(tok, fmt, width=32, layers=1), tok, 4)
    with pytest.raises(RequestError, match="answer alone"): rerank(Reranker(model, tok, fmt, None), [REQUEST], cat, BlockGenerationConfig(max_new_tokens=6))
    with pytest.raises(SettingError, match="answer alone"): PromptFormat("sids", 10, max_response=40)
    with pytest.raises(RequestError, match="even without titles"): encode_prompt(REQUEST, PromptFormat(n=5, edges=EDGES, max_prompt=20), cat, tok)
    tight = len(encode_prompt(REQUEST, PromptFormat(n=5, edges=EDGES, max_title=2), cat, tok)[0])
    assert encode_prompt(REQUEST, PromptFormat(n=5, edges=EDGES, max_prompt=tight), cat, tok)[1] <= 2     # titles give way
    for n in (1, 27):
        with pytest.raises(SettingError, match="2 to 26"): PromptFormat(n=n)

def test_used_names_make_ar_valid():
    "What is used is not offered again."
    fmt, tok, cat, sids = WORLDS["slots"]
    u = UsedNames(REQUEST, fmt, cat, tok); A = [tok.convert_tokens_to_ids(s) for s in SLOTS[:5]]
    assert u([5, 6]) == {} and u([5, u.rank, A[1], None]) [3] == {A[0], A[2], A[3], A[4]}
    f2, t2, c2, s2 = WORLDS["sids"]
    v = UsedNames(REQUEST, f2, c2, t2)
    assert v([v.rank, *v.names[0]])[1+v.width] == {v.names[1][0]} and v([v.rank, *v.names[0], v.names[1][0]])[2+v.width] == {n[1] for n in v.names[1:] if n[1] is not None and n[0] == v.names[1][0]}

def test_checkpoints_of_others(tmp_path):
    fmt, tok, cat, sids = WORLDS["slots"]
    with pytest.raises(CheckpointError, match="no checkpoint"): load_reranker(tmp_path/"nothing")
    m = tiny_model(tok, fmt, width=32, layers=1)
    save_reranker(m, tok, tmp_path/"ok"); load_reranker(tmp_path/"ok")
    del m.config.answer_format; save_reranker(m, tok, tmp_path/"plain")
    with pytest.raises(CheckpointError, match="answer_format"): load_reranker(tmp_path/"plain")
    other = WORLDS["sids"][1]
    m2 = tiny_model(tok, fmt, width=32, layers=1); save_reranker(m2, other, tmp_path/"mixed")
    with pytest.raises(CheckpointError, match="belong together"): load_reranker(tmp_path/"mixed")
    f2, t2, c2, s2 = WORLDS["sids"]
    m3 = tiny_model(t2, f2, width=32, layers=1, sids=s2); save_reranker(m3, t2, tmp_path/"sids", s2); load_reranker(tmp_path/"sids"); (tmp_path/"sids"/"sids.json").unlink()
    with pytest.raises(CheckpointError, match="no sids.json"): load_reranker(tmp_path/"sids")
    from diffgr2.gr2 import check_market
    m.config.market = dict(name="beauty", items=12_101)
    with pytest.raises(CheckpointError, match="trained on beauty"): check_market(m, MARKET)
    save_reranker(tiny_model(tok, fmt, width=32, layers=2), tok, tmp_path/"deep")
    (tmp_path/"deep"/"model.safetensors").write_bytes((tmp_path/"ok"/"model.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match="belong together"): load_reranker(tmp_path/"deep")
    (tmp_path/"ok"/"model.safetensors").write_bytes(b"broken")
    with pytest.raises(CheckpointError): load_reranker(tmp_path/"ok")

def test_folders_that_are_not_the_data(tmp_path):
    with pytest.raises(DataError, match="none of the known layouts"): load_beauty(tmp_path)
    (tmp_path/"sequences.txt").write_text("1 2 x\n"); (tmp_path/"items.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(DataError, match="line 1"): load_beauty(tmp_path)
    (tmp_path/"sequences.txt").write_text("1 1 2\n")
    with pytest.raises(DataError, match="item table has 1..1"): load_beauty(tmp_path)
    with pytest.raises(DataError, match="neither a folder"): load_movielens(tmp_path/"sequences.txt")
    with pytest.raises(DataError): load_run(tmp_path)

def test_s3rec_layout(tmp_path):
    (tmp_path/"Beauty.txt").write_text("1 1 2 3\n2 3 2 1\n")
    m = load_beauty(tmp_path, check=False)
    assert m.sequences["items"][:] == [[1, 2, 3], [3, 2, 1]] and len(m.items) == 3
    with pytest.raises(DataError, match="users is 2, should be 22,363"): load_beauty(tmp_path)

@pytest.fixture
def server():
    "A chat server that speaks OpenAI's protocol and always ranks backwards."
    asked = []
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = json.dumps(dict(id="1", object="chat.completion", created=0, model="m", choices=[dict(index=0, finish_reason="stop", message=dict(role="assistant", content="They like <|soap|>.\nRANKING: E, D, C, B, A"))], usage=dict(prompt_tokens=1, completion_tokens=1, total_tokens=2))).encode()
            self.send_response(200); self.send_header("Content-Type", "application/json"); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
        def log_message(self, *a): pass
    s = HTTPServer(("127.0.0.1", 0), Handler); threading.Thread(target=s.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{s.server_port}/v1", asked
    s.shutdown()

def test_llm_teacher_over_http(server, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)      # conftest goes offline; this server is ours
    url, asked = server
    fmt, tok, cat, sids = WORLDS["slots"]
    some = TRAIN.filter(lambda r: r["rank"] in (0, 4)).select(range(8))
    out, rate = llm_teach(some, endpoint(url, "m", api_key="none", temperature=.7), fmt, cat, samples=1)
    assert out["ranking"][0] == [4, 3, 2, 1, 0] and rate.get(4, 1) == 1 and rate.get(0, 0) == 0 and "<" not in out["trace"][0]
    assert asked[0]["temperature"] == .7 and asked[0]["messages"][0]["role"] == "system"
    blind = {k: v for k, v in some[0].items() if k not in ("target", "rank")}
    assert asked[0]["messages"] == llm_chat(blind, fmt, cat)                   # the teacher never sees the target
    encode_rows(out, fmt, cat, tok)                                            # its traces can be trained on

def test_llm_teacher_on_this_machine():
    fmt, tok, cat, sids = WORLDS["slots"]
    with pytest.raises(RequestError, match="valid ranking"): llm_teach(TRAIN.select(range(2)), local(tiny_model(tok, fmt, width=32, layers=1), tok, max_new_tokens=8, do_sample=False), fmt, cat, samples=1)

def test_prepare_makes_any_model_a_reranker():
    from conftest import build, letters
    m, tok, fmt = build("llama"), letters(), PromptFormat(n=5, edges=EDGES)
    prepare(m, tok, fmt); n = m.get_input_embeddings().num_embeddings
    prepare(m, tok, fmt)
    assert n == len(tok) == m.get_input_embeddings().num_embeddings and set(control_tokens(fmt)) <= set(tok.get_vocab())

@pytest.mark.parametrize("n", [2, 26])
def test_pool_sizes(n, tmp_path):
    "The whole line at the smallest and the largest pool."
    info = make_run(toy_market(users=400, items=100), tmp_path/"run", n=n, progress=False, width=32, layers=1, vocab_size=500, max_response=320, max_prompt=900)
    assert info["train"]["rows"] > 0

def test_prepare_after_convert_lets_the_control_tokens_out():
    "A converted model with spare embedding rows: `prepare` gives them to tokens, which must then be possible."
    fmt = PromptFormat(n=5, edges=EDGES); plain = PromptFormat(n=3, edges=EDGES)
    tok = train_tokenizer(MARKET.items["title"][:], plain, vocab_size=400); model = tiny_model(tok, plain, width=32, layers=1)
    model.resize_token_embeddings(len(tok)+64); convert(model, tok, 8)
    prepare(model, tok, fmt)
    new = tok.convert_tokens_to_ids(control_tokens(fmt, None)); bd = model.config.block_diffusion
    assert not set(new) & set(bd["suppressed"]) and bd["mask_token_id"] in bd["suppressed"] and set(model.config.undefined_ids) <= set(bd["suppressed"])

@pytest.mark.parametrize("facts", ["no", [[1.]*8]*4, [[float("nan")]*8]*5, [1.]*5])
def test_odd_facts_are_refused(facts):
    fmt = PromptFormat(n=5, edges=EDGES); cat = Catalogue(MARKET.items["title"][:], [], [])
    with pytest.raises(RequestError, match="facts"): check_request(TRAIN[0] | dict(facts=facts), fmt, cat)

def test_a_run_is_checked_before_its_pools_are_made(tmp_path):
    for bad in (dict(scheme="slot"), dict(reasoning="evidnce")):
        with pytest.raises(SettingError): make_run(None, tmp_path/"run", **bad)

def test_results_and_folders_survive(tmp_path, monkeypatch):
    out = merge_rows(tmp_path/"r.json", [dict(stage="ar", n=1), dict(stage="ar", n=2)]); assert out == [dict(stage="ar", n=2)]
    (tmp_path/"d").mkdir(); (tmp_path/"d"/"good").touch(); move = os.replace
    def broken(a, b):
        if str(b) == str(tmp_path/"d") and Path(a).name != "old": raise OSError("full")
        move(a, b)
    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="full"):
        with atomic(tmp_path/"d") as new: new.mkdir()
    assert (tmp_path/"d"/"good").exists()

def test_settings_that_nobody_knows(tmp_path):
    "A misspelt keyword is an error; what a file of another version holds is not."
    for odd in (dict(tua=.5), dict(do_sample=True), dict(num_beams=4)):
        with pytest.raises(SettingError): BlockGenerationConfig(**odd)
    fmt, tok, cat, sids = WORLDS["slots"]
    with pytest.raises(SettingError, match="top_p"): generate(tiny_model(tok, fmt, width=32, layers=1), torch.tensor([[1, 2]]), top_p=.5)
    c, rest = BlockGenerationConfig.from_dict(dict(tau=.5, chat_format="x", _commit_hash="y"), return_unused_kwargs=True, rule="one", foo=1)
    assert (c.tau, c.rule, rest) == (.5, "one", dict(foo=1))
    c.save_pretrained(tmp_path); again = BlockGenerationConfig.from_pretrained(tmp_path, trust_remote_code=False)
    assert (again.tau, again.rule) == (.5, "one") and copy.deepcopy(c).tau == .5

def test_calibration_rows_are_told_apart():
    r = dict(dataset="toy", stage="cft", seed=0, split="validation", n=5)
    assert told_apart([r, r | dict(stage="opd")]) == ["cft", "opd"] and told_apart([r, r | dict(split="test", seed=1)]) == ["cft, seed 0, split validation", "cft, seed 1, split test"]
