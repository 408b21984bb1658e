"Two runs that were evaluated on the same requests, compared request by request: `python tools/paired.py RUN OTHER OUT.json [STAGE …]`, after `diffgr2 evaluate` of both. Positive: RUN is better."
import sys
from pathlib import Path
from diffgr2.core import DataError, load_json, save_json
from diffgr2.evaluate import kept_answers
from diffgr2.gr2 import load_reranker, load_run
from diffgr2.metrics import accuracy, difference

def outcomes(run, stage, split="test"):
    "Requests and per-request accuracy of a stage, at tau .9 or left to right."
    reqs, r = load_run(run, split), load_reranker(run/stage)
    file = run/"answers"/f"{split}-{len(reqs)}-{stage}-{'ar-None' if stage == 'ar' else 'threshold-0.9'}.json"
    answers = kept_answers(file, reqs, r, **load_json(file)["ident"])
    return reqs, accuracy([a.verdict.ranking for a in answers], reqs["rank"][:])

def main(run, other, out, *stages):
    rows = []
    for stage in stages or ("ar", "cft"):
        (reqs, mine), (theirs, base) = (outcomes(Path(r), stage) for r in (run, other))
        if reqs["user"][:] != theirs["user"][:] or reqs["candidates"][:] != theirs["candidates"][:]: raise DataError(f"{run} and {other} hold different requests: prepare both from the same data with the same seed")
        rows.append(dict(pair=stage, n=len(reqs), **{m: difference(v, base[m], reqs["user"][:]) for m, v in mine.items()}))
    save_json(rows, out); print(*rows, sep="\n")

if __name__ == "__main__": main(*sys.argv[1:])
