import sys; sys.path.insert(0,"/tmp/work")
from nbsub import sub
S="14_sample"
sub(S,"stamp, before = torch.zeros_like(canvas), torch.tensor([forwards[r] for r in rows], device=dev)[:, None]","stamp, before = torch.zeros_like(canvas), [forwards[r] for r in rows]")
sub(S,"            if (idle := [a and not c for a, c in zip(active, choose.any(1).tolist())]) and any(idle): choose = choose | (one(conf, ent, masked, cfg) & torch.tensor(idle, device=dev)[:, None])\n",
"""            idle = [a and not c for a, c in zip(active, choose.any(1).tolist())]
            if any(idle): choose = choose | (one(conf, ent, masked, cfg) & torch.tensor(idle, device=dev)[:, None])
""")
