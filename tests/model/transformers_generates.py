"""Runs inside an environment that has transformers: greedy answers, as JSON, what our engine is compared with."""

import json
import os
import sys

sys.path.append(os.environ["WITH_TORCH"])

import torch
import transformers


@torch.inference_mode()
def answer(model, prompt, new_tokens):
    """The new tokens, and for each the distance of the best two logits."""
    found = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        max_new_tokens=new_tokens,
        eos_token_id=None,
        pad_token_id=0,
        use_cache=True,
        return_dict_in_generate=True,
        output_logits=True,
    )
    best = [logits[0].float().topk(2).values for logits in found.logits]
    return {
        "ids": found.sequences[0, len(prompt) :].tolist(),
        "gaps": [float(first - second) for first, second in best],
    }


def answers(question):
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(question["folder"], dtype=torch.float32).eval()
    return [answer(model, prompt, question["new_tokens"]) for prompt in question["prompts"]]


json.dump([answers(question) for question in json.load(sys.stdin)], sys.stdout)
