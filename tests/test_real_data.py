"Real data and the shipped models. What a machine lacks is skipped, visibly."
import io, json, os
import numpy as np, pytest
from diffgr2.cli import main, parser, serve
from diffgr2.core import DataError, load_json
from diffgr2.demo import shipped
from diffgr2.data import load_beauty, load_movielens, train_part
from diffgr2.evaluate import rerank
from diffgr2.gr2 import load_reranker
from diffgr2.prompts import Catalogue
from diffgr2.retrieve import requests
from diffgr2.sample import BlockGenerationConfig

needs_beauty = pytest.mark.skipif(not os.environ.get("DIFFGR2_BEAUTY"), reason="set DIFFGR2_BEAUTY to the folder of Amazon Beauty")
try: FILMS = load_movielens()
except DataError: FILMS = None
needs_films = pytest.mark.skipif(FILMS is None, reason="set DIFFGR2_MOVIELENS to MovieLens-100K or the recbole wheel (`make test` does)")

@needs_beauty
def test_beauty_counts_and_floor():
    "Every count of the benchmark is verified at load; the floor and the coverage are where they should be."
    m = load_beauty()
    test, coverage = requests(m, "test")
    r = np.array(test["rank"])
    assert len(test) >= 1500 and len(m.sequences) == 22_363
    assert abs((r == 0).mean()-.34) < .03 and abs((r < 5).mean()-.75) < .03
    seqs = dict(zip(m.sequences["user"], m.sequences["items"]))
    for q in test.select(range(0, len(test), 50)): assert q["target"] == seqs[q["user"]][-1] and q["history"] == seqs[q["user"]][:-1][-20:]

@needs_beauty
def test_beauty_refuses_a_changed_file(tmp_path):
    from pathlib import Path
    src = Path(os.environ["DIFFGR2_BEAUTY"])
    (tmp_path/"items.jsonl").write_text((src/"items.jsonl").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path/"sequences.txt").write_text("".join((src/"sequences.txt").open().readlines()[:-1]))
    with pytest.raises(DataError, match="users is 22,362"): load_beauty(tmp_path)

@needs_films
def test_movielens():
    test, coverage = requests(FILMS, "test")
    assert 900 < len(test) < 1100 and max(np.bincount(test["user"])) <= 5

@pytest.fixture(scope="module")
def models(): return {s: load_reranker(f"movielens-{s}") for s in ("ar", "cft")}

@needs_films
def test_shipped_models_rank_real_requests(models):
    "Most answers are permutations; the diffusion model needs a quarter of the forwards or fewer."
    test, _ = requests(FILMS, "test"); some = test.select(range(0, len(test), 16))
    out = {}
    for s, r in models.items():
        cfg = BlockGenerationConfig(max_new_tokens=r.fmt.max_response, block_size=1 if s == "ar" else None)
        out[s] = rerank(r, some, Catalogue.of(FILMS, r.tokenizer), cfg)
        assert np.mean([a.verdict.valid for a in out[s]]) >= dict(ar=.95, cft=.9)[s]
    assert sum(a.forwards for a in out["ar"]) >= 4*sum(a.forwards for a in out["cft"])

@needs_films
def test_batched_equals_single(models):
    test, _ = requests(FILMS, "test", limit=100); some = test.select(range(6)); r = models["cft"]; cat = Catalogue.of(FILMS, r.tokenizer)
    r = r._replace(model=r.model.double())
    together, alone = rerank(r, some, cat, batch_size=6), [rerank(r, [q], cat)[0] for q in some]
    r.model.float()
    assert [a.response for a in together] == [a.response for a in alone] and [a.forwards for a in together] == [a.forwards for a in alone]

@needs_films
def test_one_model_drafts_and_verifies():
    "Its lossless answers are its own left-to-right ones, in a quarter of the passes or fewer."
    r = load_reranker("movielens-causal"); cat = Catalogue.of(FILMS, r.tokenizer); some = requests(FILMS, "test", limit=200)[0].select(range(8))
    slow, fast = rerank(r, some, cat, BlockGenerationConfig(max_new_tokens=r.fmt.max_response, block_size=1)), rerank(r, some, cat, decoder="lossless")
    assert [a.response for a in slow] == [a.response for a in fast] and sum(a.forwards for a in slow) >= 4*sum(a.forwards for a in fast)

@needs_films
def test_demo(capsys):
    assert main(["demo", "--n", "4", "--show", "2"]) == 0
    said = capsys.readouterr().out
    assert "reasoning" in said and "100% of its answers are AR's, token for token" in said and said.count("what the user took next") == 2
    assert all(f"\n{s} " in said for s in ("retriever", *shipped(), "lossless"))   # a line of totals each

@needs_films
def test_rerank_lines(models, tmp_path, capsys):
    q = requests(FILMS, "test", limit=60)[0][0]
    good = dict(id="x", history=q["history"], candidates=q["candidates"])
    lines = [json.dumps(good), "not json", json.dumps(good | dict(candidates=q["candidates"][:3])), json.dumps(dict(id="new user", history=[], candidates=q["candidates"])), json.dumps(good | dict(user=[1])), ""]
    (tmp_path/"in.jsonl").write_text("\n".join(lines))
    assert main(["rerank", str(tmp_path/"in.jsonl")]) == 1                     # three lines could not be served
    a, b, c, d, e = map(json.loads, capsys.readouterr().out.splitlines())
    assert a["id"] == "x" and sorted(a["ranking"]) == sorted(q["candidates"]) and a["reasoning"] and a["forwards"] < a["tokens"] and a["valid"] in (True, False)
    assert b["line"] == "not json" and c["id"] == "x"                        # whatever a request carries comes back
    assert b["kind"] == c["kind"] == e["kind"] == "RequestError" and "pools of 10" in c["error"] and sorted(d["ranking"]) == sorted(q["candidates"])
