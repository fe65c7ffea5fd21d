"""The network and what it needs: checkpoints, weights, tokenizers, key/value buffers."""
