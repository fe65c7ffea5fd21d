"""Runs inside an environment that has transformers: answers, as JSON, what our tokenizer is compared with."""

import json
import sys

import transformers


def answers(question):
    tokenizer = transformers.AutoTokenizer.from_pretrained(question["folder"])
    encoded = {
        str(special): [tokenizer.encode(text, add_special_tokens=special) for text in question["texts"]]
        for special in (True, False)
    }
    return {
        "encoded": encoded,
        "decoded": [
            tokenizer.decode(ids, skip_special_tokens=True) for ids in encoded["True"] + question["ids"]
        ],
        "chats": [chat(tokenizer, **options) for options in question["chats"]],
    }


def chat(tokenizer, messages, **options):
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, **options)
        ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **options)
    except Exception:
        return None
    return {"text": text, "ids": ids}


json.dump(
    {
        "version": transformers.__version__,
        "answers": [answers(question) for question in json.load(sys.stdin)],
    },
    sys.stdout,
)
