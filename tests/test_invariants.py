"What must hold for every architecture: see the list in the documentation of the sampler and of the converter."
import copy, torch, pytest
from conftest import SHAPES, batch, build, letters
from transformers import AutoModelForCausalLM
from diffgr2.cache import preallocated
from diffgr2.cft import block_forward
from diffgr2.convert import BlockDiffusionConfig, convert
from diffgr2.core import CheckpointError, SettingError
from diffgr2.gr2 import Reranker
from diffgr2.layout import training_layout, attends, additive
from diffgr2.sample import RULES, BlockGenerationConfig, generate
from diffgr2.speculate import speculate

def converted(shape, size=4, context="block", dtype=torch.float32, seed=0):
    m, tok = build(shape, seed, dtype), letters()
    return convert(m, tok, size, context), tok

@pytest.mark.parametrize("context", ["block", "causal"])
def test_block_size_one_is_ar(shape, prompts, context):
    "1: token for token what `generate` of the unconverted model gives, up to the first near-tie."
    original = build(shape)
    m, tok = converted(shape, context=context)
    for p in prompts:
        x = torch.tensor([p])
        ref = original.generate(x, attention_mask=torch.ones_like(x), do_sample=False, max_new_tokens=24, output_logits=True, return_dict_in_generate=True)
        mine = generate(m, x, torch.ones_like(x), block_size=1, max_new_tokens=24).responses[0]
        theirs = ref.sequences[0, x.shape[1]:].tolist()
        for a, b, l in zip(theirs, mine, ref.logits):
            top = l[0].topk(2).values
            if top[0]-top[1] < 1e-4: break
            assert a == b
        else: assert len(theirs) == len(mine)

@pytest.mark.parametrize("context", ["block", "causal"])
def test_cached_equals_uncached(shape, prompts, context):
    "2 and 5: the recorded confidences are those of one uncached forward over the training layout."
    m, tok = converted(shape, context=context)
    ids, att = batch(prompts)
    out = generate(m, ids, att, max_new_tokens=12, tau=.5, record=True)
    for i, t in enumerate(out.trajectories):
        full = torch.cat([ids[i], torch.tensor(t.tokens+[62]*(12-len(t.tokens)))])[None]
        for s in t.steps:
            canvas = full[:, -12:].clone(); canvas[0, s.start:s.start+4] = torch.tensor(s.canvas)
            with torch.no_grad(): p = block_forward(m, full, att[i:i+1], canvas[None])[0, 0].softmax(-1)[s.start:s.start+4]
            for j, c in enumerate(s.canvas):
                if c == tok.mask_token_id: assert abs(p[j].max().item()-s.confidence[j]) < 1e-4

def test_free_running_equality_in_float64(shape, prompts):
    "2, 3: in float64 a row decodes to the same tokens alone and in a batch, padded on either side."
    m, tok = converted(shape, dtype=torch.float64)
    alone = [generate(m, torch.tensor([p]), max_new_tokens=14, tau=.4).responses[0] for p in prompts]
    for side in ("left", "right"):
        ids, att = batch(prompts, side)
        assert generate(m, ids, att, max_new_tokens=14, tau=.4).responses == alone

def test_sampling_does_not_depend_on_the_batch(prompts):
    "3: the noise belongs to the request, wherever it stands."
    m, tok = converted("qwen3", dtype=torch.float64)
    ids, att = batch(prompts)
    kw = dict(max_new_tokens=12, tau=.4, temperature=1., seed=5)
    a, b = generate(m, ids, att, **kw), generate(m, ids.flip(0), att.flip(0), **kw)
    assert a.responses == b.responses[::-1] and a.responses != generate(m, ids, att, **(kw | dict(seed=6))).responses

@pytest.mark.parametrize("context", ["block", "causal"])
def test_nothing_leaks(shape, context):
    "4: change a token that a position must not see, and its logits stay; change one that it may see, and some move."
    m, tok = converted(shape, context=context, dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    P, R, S = 5, 8, 4
    ids = torch.randint(0, 60, (1, P+R), generator=g); noisy = torch.where(torch.rand(1, R, generator=g) < .5, tok.mask_token_id, ids[:, P:])
    lay = training_layout(torch.ones(1, P, dtype=torch.long), R, S)
    seen = attends(lay, lay, context)[0]
    run = lambda x: m(input_ids=x, attention_mask=additive(attends(lay, lay, context), torch.float64), position_ids=lay.position, use_cache=False).logits[0]
    x = torch.cat([ids, noisy], 1)
    with torch.no_grad():
        base, reach = run(x), torch.eye(P+2*R, dtype=torch.bool)
        for _ in range(SHAPES[shape].num_hidden_layers): reach = (seen.double()@reach.double() > 0) | reach     # what can arrive through the layers
        for k in range(P+2*R):
            y = x.clone(); y[0, k] = (y[0, k]+7) % 60
            moved = (run(y)-base).abs().amax(-1) > 1e-9
            assert not (moved & ~reach[:, k]).any(), f"token {k} leaks into {(moved & ~reach[:, k]).nonzero().ravel().tolist()}"
            assert moved[k]

@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize("budget", [4, 7, 13])
def test_every_decode_ends(rule, budget, prompts):
    "6: no mask left, never more than the budget, any rule, budgets that blocks do not divide."
    m, tok = converted("qwen3")
    ids, att = batch(prompts)
    out = generate(m, ids, att, max_new_tokens=budget, rule=rule, tau=.99, steps=3, record=True)
    assert out.sequences.shape[1] == ids.shape[1]+budget and not (out.sequences == tok.mask_token_id).any()
    assert all(len(r) <= budget for r in out.responses) and all(f <= budget for f in out.forwards)
    assert all(None not in t.commit_step() for t in out.trajectories)

def test_two_rollouts_of_one_prompt_differ():
    m, tok = converted("qwen3")
    a, b = generate(m, torch.tensor([[1, 2, 3]]*2), max_new_tokens=12, tau=.4, temperature=1.).responses
    assert a != b

def test_several_end_tokens(prompts):
    "1: a model with a list of end tokens keeps it, and stops at each of them."
    free = generate(build("llama"), torch.tensor([[1, 2, 3]]), max_new_tokens=12, block_size=1).responses[0]
    m = build("llama"); m.config.eos_token_id = m.generation_config.eos_token_id = [63, free[4]]
    convert(m, letters(), 4)
    assert m.config.eos_token_id == [63, free[4]] and generate(m, torch.tensor([[1, 2, 3]]), max_new_tokens=12, block_size=1).responses[0] == free[:free.index(free[4])+1]

def test_the_last_block_is_a_full_canvas():
    "5: also when blocks do not divide the budget, the model sees a full block, as in training."
    m, tok = converted("qwen3", 8, dtype=torch.float64); x = torch.tensor([[1, 2, 3]])
    a, b = (generate(m, x, max_new_tokens=n, tau=.0, record=True).trajectories[0].steps for n in (11, 16))
    assert a[1].canvas == b[1].canvas[:3] and max(abs(p-q) for p, q in zip(a[1].confidence, b[1].confidence)) < 1e-6

def test_end_token_stops_work():
    "6: right of the first end token everything is padding; no forward is spent there, and other rows go on."
    m, tok = converted("llama", 4)
    ids = torch.tensor([[1, 2, 3]])
    free = generate(m, ids, max_new_tokens=16, tau=.2).responses[0]
    m.config.eos_token_id = free[5]                                           # an id that comes up by itself
    out = generate(m, ids, max_new_tokens=16, tau=.2)
    r = out.responses[0]
    assert r[-1] == free[5] and len(r) <= 6 and (out.sequences[0, 3+len(r):] == 62).all() and out.forwards[0] < 16

@pytest.mark.parametrize("tied", ["qwen3", "llama"])
def test_save_load_decode(tied, prompts, tmp_path):
    "7: the same tokens after saving; AutoModelForCausalLM opens the folder; undefined ids never come out."
    m, tok = converted(tied)
    m.save_pretrained(tmp_path); tok.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert BlockDiffusionConfig.of(again) == BlockDiffusionConfig.of(m)
    ids, att = batch(prompts)
    a, b = (generate(x, ids, att, max_new_tokens=12, tau=.5) for x in (m, again))
    assert a.responses == b.responses and max(map(max, a.responses)) < len(letters())

def test_suppressed_ids_never_come_out(prompts):
    "7: even when their logits are the largest."
    m, tok = build("qwen3_untied"), letters()
    m.resize_token_embeddings(80)                                             # ids 64.. are unknown to the tokenizer
    convert(m, tok, 4)
    with torch.no_grad(): m.lm_head.weight[64:] = 100*m.lm_head.weight[:16]
    ids, att = batch(prompts)
    for size in (1, 4): assert max(map(max, generate(m, ids, att, block_size=size, max_new_tokens=12).responses)) < 64

def test_conversion_keeps_everything(shape):
    m = build(shape); before = {k: v.clone() for k, v in m.state_dict().items()}
    tied = m.get_input_embeddings().weight is m.get_output_embeddings().weight
    convert(m, letters(), 4)
    assert all(torch.equal(m.state_dict()[k][:len(v)] if v.dim() else m.state_dict()[k], v) for k, v in before.items())
    assert tied == (m.get_input_embeddings().weight is m.get_output_embeddings().weight)

def test_converting_again_changes_only_the_settings():
    m, tok = converted("qwen3"); n = len(tok)
    convert(m, tok, 8, "causal")
    assert len(tok) == n and BlockDiffusionConfig.of(m).block_size == 8

def test_sliding_window_limits_the_length():
    from transformers import MistralConfig
    from conftest import SMALL
    m = AutoModelForCausalLM.from_config(MistralConfig(**SMALL, sliding_window=16)).eval(); tok = letters(); convert(m, tok, 4)
    generate(m, torch.tensor([[1, 2, 3]]), max_new_tokens=12)
    with pytest.raises(SettingError, match="sliding window"): generate(m, torch.tensor([[1, 2, 3]]), max_new_tokens=14)

def test_eager_attention_too(prompts):
    m, tok = converted("qwen3"); e = copy.deepcopy(m); e.set_attn_implementation("eager")
    ids, att = batch(prompts)
    assert generate(m, ids, att, max_new_tokens=12, tau=.5).responses == generate(e, ids, att, max_new_tokens=12, tau=.5).responses

@pytest.mark.parametrize("bad, error", [(dict(block_size=0), SettingError), (dict(block_size=99, max_new_tokens=8), SettingError), (dict(max_new_tokens=2), SettingError), (dict(rule="magic"), SettingError), (dict(tau=1.5), SettingError),
    (dict(temperature=-1), SettingError), (dict(max_new_tokens=0), SettingError), (dict(max_new_tokens=400), SettingError)])
def test_settings_that_cannot_work(bad, error):
    m, tok = converted("qwen3")
    with pytest.raises(error): generate(m, torch.tensor([[1, 2]]), **bad)

def test_a_model_that_was_not_converted():
    with pytest.raises(CheckpointError, match="convert"): generate(build("llama"), torch.tensor([[1, 2]]), max_new_tokens=64)
    assert generate(build("llama"), torch.tensor([[1, 2]]), max_new_tokens=4, block_size=1).responses

def test_streamer_sees_drafts_and_blocks():
    class Watch:
        def __init__(self): self.put_, self.drafts, self.over = [], [], False
        def put(self, x): self.put_.append(x)
        def put_draft(self, x): self.drafts.append(x)
        def end(self): self.over = True
    m, tok = converted("qwen3"); w = Watch()
    out = generate(m, torch.tensor([[1, 2, 3]]), max_new_tokens=12, tau=.5, streamer=w)
    assert w.over and len(w.drafts) == out.forwards[0] and torch.cat(w.put_[1:]).tolist() == out.responses[0]

def test_stopping_criteria():
    m, tok = converted("qwen3")
    out = generate(m, torch.tensor([[1, 2, 3]]), max_new_tokens=12, stopping_criteria=lambda ids, scores: ids.shape[1] >= 7)
    assert len(out.responses[0]) == 4

@pytest.mark.parametrize("context", ["block", "causal"])
def test_lossless_is_the_verifier(shape, prompts, context):
    "The verifier's own greedy tokens, ragged batches, either padding, any draft length; with causal context the model verifies itself."
    m, tok = converted(shape, context=context, dtype=torch.float64)
    teacher = build(shape, seed=3).double()
    for side in ("left", "right"):
        ids, att = batch(prompts, side)
        for verifier in (teacher, None) if context == "causal" else (teacher,):
            truth = generate(verifier or m, ids, att, block_size=1, max_new_tokens=14).responses
            for draft, branches in ((None, 2), (2, 2)) if verifier else ((None, 0), (None, 2), (2, 1), (3, 9)):
                out = speculate(m, ids, att, verifier=verifier, draft=draft, branches=branches, max_new_tokens=14)
                assert out.responses == truth and all(len(o) == len(r) and max(o) == f for o, r, f in zip(out.order, out.responses, out.forwards))

@pytest.mark.parametrize("own, branches", [(False, 2), (True, 0), (True, 2)])
def test_lossless_samples_follow_the_verifier(own, branches):
    "With a temperature: the law of the first two tokens is the verifier's, whatever the drafter thinks."
    from scipy.stats import chisquare
    m, tok = converted("qwen3", context="causal")
    law_of = m if own else build("qwen3", seed=3)
    x = torch.tensor([[5, 6, 7]])
    seen = lambda ids: law_of(ids).logits[0, -1].index_fill(0, torch.tensor(BlockDiffusionConfig.of(law_of, 1).suppressed, dtype=torch.long), -torch.inf).div(.25).softmax(-1)
    out = speculate(m, x.expand(3000, -1), verifier=None if own else law_of, branches=branches, max_new_tokens=4, temperature=.25, seed=1).responses
    with torch.no_grad(): first = seen(x)
    top = int(first.argmax())
    with torch.no_grad(): second = seen(torch.tensor([[5, 6, 7, top]]))
    for drawn, law in (([r[0] for r in out], first), ([r[1] for r in out if r[0] == top and len(r) > 1], second)):
        keep = law*len(drawn) >= 5
        count = torch.bincount(torch.tensor(drawn), minlength=len(law))
        f, e = [*count[keep].tolist(), int(count[~keep].sum())], [*(law[keep]*len(drawn)).tolist(), float(law[~keep].sum()*len(drawn))]
        if e[-1] < 1: f, e = f[:-1], e[:-1]
        assert len(drawn) > 200 and chisquare(f, [v*sum(f)/sum(e) for v in e]).pvalue > 1e-3

def test_lossless_noise_belongs_to_the_request(prompts):
    m, tok = converted("qwen3", context="causal", dtype=torch.float64)
    ids, att = batch(prompts); kw = dict(max_new_tokens=12, temperature=1., seed=5)
    assert speculate(m, ids, att, **kw).responses == speculate(m, ids.flip(0), att.flip(0), **kw).responses[::-1]

@pytest.mark.parametrize("bad", [dict(draft=0), dict(branches=-1), dict(record=True), dict(verifier="large"), dict()])
def test_lossless_settings_that_cannot_work(bad, prompts):
    m, tok = converted("qwen3")                                                # block context: cannot verify itself
    if bad.get("verifier"): bad = dict(verifier=build("qwen3")); bad["verifier"].resize_token_embeddings(200)
    with pytest.raises((SettingError, CheckpointError)): speculate(m, *batch(prompts), max_new_tokens=8, **bad)

@pytest.mark.parametrize("temperature", [0., 1.])
@pytest.mark.parametrize("size", [1, 4])
def test_a_prompt_that_occurs_several_times_is_read_once(prompts, size, temperature, monkeypatch):
    m, tok = converted("qwen3", dtype=torch.float64)
    a, b = prompts[:2]
    read, forward = [], m.forward
    monkeypatch.setattr(m, "forward", lambda *args, **kw: (read.append(len(kw["input_ids"])), forward(*args, **kw))[1])
    kw = dict(max_new_tokens=11, block_size=size, temperature=temperature, seed=3, record=True)
    many = generate(m, *batch([a, b, a, a, b]), **kw)
    assert read[:2] == [2, 5]
    once = generate(m, *batch([b, a]), **kw)                                    # the first of each
    assert [many.responses[1], many.responses[0]] == once.responses and many.trajectories[1].steps[0].logp == pytest.approx(once.trajectories[0].steps[0].logp)
    distinct = {tuple(many.responses[i]) for i in (0, 2, 3)}
    assert len(distinct) == 1 if temperature == 0 else len(distinct) > 1        # a noise of its own for each

def test_rows_that_leave_keep_the_cache_packed():
    "Memory is allocated once: rows that leave are moved within it, never copied to a new one."
    layer = preallocated(8); layer.update(torch.arange(6.).view(3, 1, 2, 1), -torch.arange(6.).view(3, 1, 2, 1), 0)
    at = layer.layers[0].memory[0].data_ptr()
    layer.batch_select_indices(torch.tensor([0, 2]))
    k, v = layer.update(torch.full((2, 1, 1, 1), 9.), torch.full((2, 1, 1, 1), 8.), 0)
    assert layer.layers[0].memory[0].data_ptr() == at and k.flatten().tolist() == [0, 1, 9, 4, 5, 9] and v.flatten().tolist() == [0, -1, 8, -4, -5, 8]
