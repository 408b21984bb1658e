import sys; sys.path.insert(0,"/tmp/work")
from nbsub import sub
S="14_sample"
sub("11_layout","""    to_clean = (kk == CLEAN) & (((qk == CLEAN) & ((kb < qb) | own)) | ((qk == NOISY) & (kb < qb)))
    to_noisy = (kk == NOISY) & (qk == NOISY) & (k.canvas[:, None] == q.canvas[:, :, None])
""","""    to_clean = (kk == CLEAN) & ((kb < qb) | ((qk == CLEAN) & own))
    to_noisy = (kk == NOISY) & (k.canvas[:, None] == q.canvas[:, :, None])
""")
sub("11_layout","""    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)[:, None]""",
"""    return seen[:, None].to(dtype).sub_(1).mul_(torch.finfo(dtype).max)""")
sub(S,"def one(conf, ent, masked, cfg): return _most(conf, masked, torch.ones(len(conf), dtype=torch.long, device=conf.device))",
"def one(conf, ent, masked, cfg): return torch.zeros_like(masked).scatter_(1, conf.masked_fill(~masked, -1).argmax(1, keepdim=True), True) & masked")
sub(S,'''def _entropy(logits, p, best):''','''def _likeliest(p):
    "Largest values of the last axis and their places: on a CPU NumPy finds them many times faster than torch."
    if p.device.type != "cpu": return p.max(-1)
    at = torch.from_numpy(p.numpy().argmax(-1))
    return torch.return_types.max((p.gather(-1, at[..., None])[..., 0], at))

def _entropy(logits, p, best):''')
sub(S,"            best = p.max(-1)\n","            best = _likeliest(p)\n")
sub(S,"        tok = logits.argmax(-1)\n","        tok = _likeliest(logits).indices\n")
sub(S,'''    was_training = model.training
    try:
        with torch.inference_mode(): out = _generate(model.eval(), ''','''    was_training = model.training
    if was_training: model.eval()                                              # both walk through all modules
    try:
        with torch.inference_mode(): out = _generate(model, ''')
sub(S,"    finally: model.train(was_training)\n","    finally:\n        if was_training: model.train()\n")
# the loop
sub(S,'''        step = 0
        while masked.any():
            q, lay = (feed, feed_layout) if size == 1 else (torch.cat([canvas, beyond], 1), place)
''','''        stamp, before = torch.zeros_like(canvas), torch.tensor([forwards[r] for r in rows], device=dev)[:, None]
        step = 0
        while any(active := masked.any(1).tolist()):
            q, lay = (feed, feed_layout) if size == 1 else (torch.cat([canvas, beyond], 1) if w < size else canvas, place)
''')
sub(S,'''            keep = columns+q.shape[1]-(size if size > 1 else 0)-1               # only''','''            keep = columns+(q.shape[1]-(size if size > 1 else 0)-1)             # only''')
sub(S,'''            active = masked.any(1)
''','')
sub(S,'''            if step == 0: choose = choose | (torch.arange(w, device=dev) == 0)  # the first token's logits will never change
            choose = choose & masked
            served = choose.any(1)
            if not served.all(): choose = choose | (one(conf, ent, masked, cfg) & (active & ~served)[:, None])
''','''            if step == 0: choose[:, 0] = True                                   # the first token's logits will never change
            choose = choose & masked
            if (idle := [a and not c for a, c in zip(active, choose.any(1).tolist())]) and any(idle): choose = choose | (one(conf, ent, masked, cfg) & torch.tensor(idle, device=dev)[:, None])
''')
sub(S,'''            busy = active.nonzero().ravel().tolist()
            width''','''            busy = [i for i, a in enumerate(active) if a]
            width''')
sub(S,'''                forwards[r] += 1
                when[r, first:first+w][choose[i]] = forwards[r]
''','''                forwards[r] += 1
''')
sub(S,'''            canvas = torch.where(choose, tok, canvas); masked = masked & ~choose
            ends =''','''            canvas, masked = torch.where(choose, tok, canvas), masked & ~choose
            stamp.masked_fill_(choose, step+1)
            ends =''')
sub(S,'''            done[r, first:first+w] = canvas[i]
''','''            done[r, first:first+w], when[r, first:first+w] = canvas[i], before[i]+stamp[i]
''')
