"Trainers: the gradient does not depend on accumulation, and an interrupted run ends where an uninterrupted one does."
import copy
import pytest, torch
from diffgr2.cft import CFTConfig, CFTTrainer
from diffgr2.convert import convert
from diffgr2.core import SettingError
from diffgr2.metrics import reward
from diffgr2.data import toy_market
from diffgr2.gr2 import GR2Config, GR2Trainer, Reranker, encode_rows, tiny_model, train_tokenizer
from diffgr2.opd import OPDConfig, OPDTrainer
from diffgr2.prompts import Catalogue, PromptFormat, Verdict, fit_levels
from diffgr2.retrieve import requests
from diffgr2.rl import RLConfig, RLTrainer
from diffgr2.traces import Grader, teach

STAGES = "ar", "cft", "opd", "opd-slow", "ar-rl", "rl"                         # opd-slow: the same model, one token a step, teaches

@pytest.fixture(scope="module")
def world():
    toy = toy_market(); train, _ = requests(toy, "train", n=5)
    fmt = PromptFormat(n=5, edges=fit_levels(train), max_response=96)
    tok = train_tokenizer(toy.items["title"][:], fmt, vocab_size=600); cat = Catalogue.of(toy, tok)
    return fmt, tok, encode_rows(teach(train, Grader.fit(train, fmt), fmt, cat), fmt, cat, tok)[0]

def trainer(stage, world, out, **kw):
    fmt, tok, rows = world
    tok = copy.deepcopy(tok)                                                  # conversion adds a token
    model = tiny_model(tok, fmt, width=32, layers=1)
    args = dict(output_dir=str(out), max_steps=4, per_device_train_batch_size=4, warmup_steps=0, save_strategy="no", disable_tqdm=True, use_cpu=True, learning_rate=1e-2) | kw
    if stage == "ar": return GR2Trainer(model, GR2Config(**args), tok, train_dataset=rows)
    teacher = copy.deepcopy(model)
    if stage != "ar-rl": convert(model, tok, 16)
    if stage == "cft": return CFTTrainer(model, CFTConfig(**args), tok, train_dataset=rows)
    args |= dict(taus=[.02], eval_on_start=False)
    if stage == "opd-slow": teacher = copy.deepcopy(model)
    if stage.startswith("opd"): return OPDTrainer(Reranker(model, tok, fmt, None), teacher, OPDConfig(**args, temperature=1.), rows)
    t = RLTrainer(Reranker(model, tok, fmt, None), RLConfig(**(dict(group=4) | args)), rows)
    t.judge = lambda response, row: Verdict(5, sorted(range(5), key=lambda k: (sum(response[k::5]) % 7, k)), [])   # an untrained model has no valid answers: reward something that varies
    return t

weights = lambda t: torch.cat([p.detach().ravel() for p in t.model.parameters()])

@pytest.mark.parametrize("stage", STAGES)
def test_accumulation_changes_nothing(stage, world, tmp_path):
    a, b = trainer(stage, world, tmp_path/"a", max_steps=2, per_device_train_batch_size=8), trainer(stage, world, tmp_path/"b", max_steps=2, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    start = weights(a).clone(); a.train(); b.train()
    assert (weights(a)-start).abs().max() > 1e-3 and torch.allclose(weights(a), weights(b), atol=2e-4)

@pytest.mark.parametrize("stage", STAGES)
def test_gradient_checkpointing_changes_nothing(stage, world, tmp_path):
    a, b = trainer(stage, world, tmp_path/"a", max_steps=1), trainer(stage, world, tmp_path/"b", max_steps=1, gradient_checkpointing=True)
    a.train(); b.train()
    assert torch.allclose(weights(a), weights(b), atol=1e-5)

@pytest.mark.parametrize("stage", STAGES)
def test_interrupted_equals_uninterrupted(stage, world, tmp_path):
    whole = trainer(stage, world, tmp_path/"a"); whole.train()
    first = trainer(stage, world, tmp_path/"b", save_strategy="steps", save_steps=2)
    class Stop(Exception): pass
    from transformers import TrainerCallback
    class Interrupt(TrainerCallback):
        def on_step_end(self, args, state, control, **kw):
            if state.global_step == 3: raise Stop                             # a checkpoint lies at step 2
    first.add_callback(Interrupt())
    with pytest.raises(Stop): first.train()
    second = trainer(stage, world, tmp_path/"b", save_strategy="steps", save_steps=2)
    second.train(resume_from_checkpoint=True)
    assert torch.equal(weights(whole), weights(second))

def test_same_seed_same_weights(world, tmp_path):
    a, b, c = (trainer("cft", world, tmp_path/str(k), max_steps=2, seed=s) for k, s in enumerate((0, 0, 1)))
    for t in (a, b, c): t.train()
    assert torch.equal(weights(a), weights(b)) and not torch.equal(weights(a), weights(c))

def test_settings():
    for match, make in (("copies", lambda: CFTConfig("x", copies=3, use_cpu=True)), ("target", lambda: OPDConfig("x", target="set", use_cpu=True)), ("divergence", lambda: OPDConfig("x", divergence="kl", use_cpu=True)),
                        ("share", lambda: OPDConfig("x", cft_share=2, use_cpu=True)), ("group", lambda: RLConfig("x", group=1, use_cpu=True)), ("temperature", lambda: RLConfig("x", temperature=0, use_cpu=True))):
        with pytest.raises(SettingError, match=match): make()

def _process(rank, port, stage, out, batch, world):
    "One of two processes that share a training over gloo."
    import os
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1", ACCELERATE_USE_CPU="true", HF_HUB_OFFLINE="1")
    torch.set_num_threads(1)
    t = trainer(stage, world, f"{out}/two", max_steps=2, per_device_train_batch_size=batch)
    t.train()
    if rank == 0: torch.save(weights(t), f"{out}/weights.pt")
    t.leave()                                                                  # a process that leaves while the other still listens ends in an abort

@pytest.mark.parametrize("iterations", [1, 2])
def test_answers_are_used_again(iterations, world, tmp_path):
    "Two updates on one set of answers: resumed in between, it ends where an uninterrupted run does, and the ratio moves."
    run = lambda name, **kw: trainer("rl", world, tmp_path/name, iterations=iterations, save_strategy="steps", save_steps=1, **kw)
    whole = run("a"); whole.train()
    first = run("b", max_steps=1); first.train()
    second = run("b"); second.train(resume_from_checkpoint=True)
    assert torch.equal(weights(whole), weights(second))
    clipped = [h["clipped"] for h in whole.state.log_history if "clipped" in h]
    assert len(clipped) == 4 and clipped[0] == 0 and (max(clipped) > 0) == (iterations == 2)

def test_equal_answers_warn(world, tmp_path):
    t = trainer("rl", world, tmp_path, max_steps=1, temperature=1e-6, weight_decay=0.)
    before = weights(t).clone()
    with pytest.warns(UserWarning, match="all 4 answers are the same in 4 of 4 groups"): t.train()
    log = next(h for h in t.state.log_history if "dropped_groups" in h)
    assert log["dropped_groups"] == 1 and log["distinct"] == 1 and torch.equal(before, weights(t))

@pytest.mark.parametrize("stage", STAGES)
def test_two_processes_equal_one(stage, world, tmp_path):
    "Two processes of batch 4 take the same steps as one of batch 8."
    import socket
    one = trainer(stage, world, tmp_path/"one", max_steps=2, per_device_train_batch_size=8)
    one.train()
    with socket.socket() as s: s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
    torch.multiprocessing.spawn(_process, (port, stage, str(tmp_path), 4, world), nprocs=2)
    assert torch.allclose(weights(one), torch.load(tmp_path/"weights.pt", weights_only=True), atol=2e-4)

def test_rollout_settings_are_checked_and_used(world, tmp_path):
    for bad in (dict(taus=[]), dict(taus=[1.5]), dict(eval_tau=2.), dict(rule="tresh")):
        with pytest.raises(SettingError): RLConfig(output_dir=str(tmp_path), use_cpu=True, **bad)
    with pytest.raises(SettingError, match="copies"): OPDConfig(output_dir=str(tmp_path), use_cpu=True, copies=3)
    t = trainer("rl", world, tmp_path, alpha=.5, eval_on_start=True, max_steps=1); t.train()                # without rows to evaluate on nothing is evaluated
    rows = [world[2][0]]; t.seen["reward"].append(5.); t.evaluate(rows)
    assert "reward" not in t.state.log_history[-1] and t.seen["reward"] == [5.]
    t.judge = lambda response, row: Verdict(5, [0, 1, 2, 3, 4], [])
    assert t.evaluate([rows[0] | dict(rank=0)])["eval_reward"] == pytest.approx(reward(t.judge(None, None), 0, .5))
