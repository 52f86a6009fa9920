from .modeling_utils import FakeModel

MODEL_MAP = {name: FakeModel for name in ("LlamaForCausalLM", "MistralForCausalLM", "GPT2LMHeadModel")}
