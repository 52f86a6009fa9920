"""The tensors of tensorrtllm_backend's models: what each means, and how an answer becomes tensors again."""
