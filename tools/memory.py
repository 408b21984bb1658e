"Memory over 500 steps of distillation and of reinforcement learning, rollouts included: a tiny untrained model on the toy market. Writes nbs/results/memory.json (about eight minutes). Linux."
import re, tempfile
from pathlib import Path
from transformers import TrainerCallback
from diffgr2.convert import convert
from diffgr2.core import keep_memory, save_json
from diffgr2.data import toy_market
from diffgr2.gr2 import Reranker, encode_rows, tiny_model, train_tokenizer
from diffgr2.opd import OPDConfig, OPDTrainer
from diffgr2.prompts import Catalogue, PromptFormat, fit_levels
from diffgr2.retrieve import requests
from diffgr2.rl import RLConfig, RLTrainer
from diffgr2.traces import Grader, teach

class Watch(TrainerCallback):
    "Resident memory, in MB, every 25 steps."
    def __init__(self): self.seen = {}
    def on_step_end(self, args, state, control, **kw):
        if state.global_step % 25 == 0: self.seen[state.global_step] = int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])//1024

def main():
    keep_memory()
    market = toy_market(users=300); train = requests(market, "train", n=5)[0]
    fmt = PromptFormat(n=5, edges=fit_levels(train), max_response=96)
    tok = train_tokenizer(market.items["title"][:], fmt, vocab_size=600); cat = Catalogue.of(market, tok)
    rows = encode_rows(teach(train, Grader.fit(train, fmt), fmt, cat), fmt, cat, tok)[0]
    teacher = tiny_model(tok, fmt, width=64, layers=2)
    model = convert(tiny_model(tok, fmt, width=64, layers=2), tok, 16)
    r, out = Reranker(model, tok, fmt, None), {}
    common = dict(max_steps=500, per_device_train_batch_size=4, save_strategy="no", eval_strategy="no", eval_on_start=False, use_cpu=True, disable_tqdm=True, logging_steps=100, taus=[.1])
    for name, make in (("opd", lambda d: OPDTrainer(r, teacher, OPDConfig(d, **common), rows)), ("rl", lambda d: RLTrainer(r, RLConfig(d, **(common | dict(per_device_train_batch_size=2, group=4))), rows))):
        with tempfile.TemporaryDirectory() as d:
            t = make(d); t.add_callback(w := Watch()); t.train(); out[name] = w.seen
            print(name, w.seen)
    save_json(out, Path(__file__).parent.parent/"nbs"/"results"/"memory.json")

if __name__ == "__main__": main()
