"Small models of several architectures, and a tokenizer for them."
import copy, os
os.environ.setdefault("HF_HUB_OFFLINE", "1"); os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import pytest, torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, GemmaConfig, GPT2Config, LlamaConfig, MistralConfig, PreTrainedTokenizerFast, Qwen3Config

SMALL = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16, intermediate_size=64, max_position_embeddings=256, bos_token_id=None, eos_token_id=63, pad_token_id=62)
SHAPES = dict(
    qwen3=Qwen3Config(**SMALL, tie_word_embeddings=True), qwen3_untied=Qwen3Config(**SMALL, tie_word_embeddings=False), llama=LlamaConfig(**SMALL), gemma=GemmaConfig(**SMALL),
    mistral=MistralConfig(**SMALL, sliding_window=None), gpt2=GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2, n_positions=256, bos_token_id=None, eos_token_id=63, pad_token_id=62, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))

def letters():
    "62 words, padding and an end token."
    vocab = {f"w{i}": i for i in range(62)}|{"[PAD]": 62, "</s>": 63}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocab, unk_token="[PAD]")), unk_token="[PAD]", eos_token="</s>", pad_token="[PAD]")

def build(shape, seed=0, dtype=torch.float32):
    "An untrained model whose logits are spread out, so that argmaxes are clear."
    torch.manual_seed(seed)
    m = AutoModelForCausalLM.from_config(copy.deepcopy(SHAPES[shape]))
    for p in m.parameters():
        if p.dim() > 1: p.data.mul_(4)
    m.generation_config.eos_token_id, m.generation_config.pad_token_id = 63, 62
    return m.eval().to(dtype)

@pytest.fixture(params=list(SHAPES))
def shape(request): return request.param

@pytest.fixture
def prompts():
    "Three prompts of different lengths."
    g = torch.Generator().manual_seed(3)
    return [torch.randint(0, 60, (n,), generator=g).tolist() for n in (5, 9, 3)]

def batch(prompts, side="left", pad=62):
    P = max(map(len, prompts)); ids = torch.full((len(prompts), P), pad); att = torch.zeros_like(ids)
    for i, p in enumerate(prompts):
        at = slice(P-len(p), P) if side == "left" else slice(0, len(p))
        ids[i, at] = torch.tensor(p); att[i, at] = 1
    return ids, att
