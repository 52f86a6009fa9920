"""Which rank holds what."""

import pytest

from jetway.builder.errors import OptionError
from jetway.builder.model_config import LengthLimit, ModelConfig
from jetway.builder.tensorrt import parallel
from jetway.builder.tensorrt.options import TensorRtOptions

CONFIG = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=300,
    hidden_size=64,
    num_hidden_layers=7,
    num_attention_heads=12,
    num_key_value_heads=6,
    head_size=16,
    max_position_embeddings=256,
    length_limit=LengthLimit("max_position_embeddings", 256),
)


def test_tensor_shares_count_before_stages() -> None:
    """And of 7 layers on 3 stages, the first has one more."""
    ranks = parallel.ranks(TensorRtOptions(tp_size=2, pp_size=3), 7)
    assert [(rank.index, rank.tp_rank, [*rank.layers]) for rank in ranks] == [
        (0, 0, [0, 1, 2]),
        (1, 1, [0, 1, 2]),
        (2, 0, [3, 4]),
        (3, 1, [3, 4]),
        (4, 0, [5, 6]),
        (5, 1, [5, 6]),
    ]
    assert [rank.is_first_stage for rank in ranks] == [True, True, False, False, False, False]
    assert [rank.is_last_stage for rank in ranks] == [False, False, False, False, True, True]


def test_fewer_kv_heads_than_ranks_are_held_by_neighbours() -> None:
    ranks = parallel.ranks(TensorRtOptions(tp_size=6), 7)
    assert [[*rank.kv_heads(2)] for rank in ranks] == [[0], [0], [0], [1], [1], [1]]
    assert [[*rank.kv_heads(12)] for rank in ranks][:2] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            TensorRtOptions(tp_size=5),
            "--tp-size 5: num_attention_heads 12 is not a multiple of it. Pass a divisor.",
        ),
        (
            TensorRtOptions(tp_size=4),
            (
                "--tp-size 4: num_key_value_heads 6 is neither a multiple nor a divisor of it. Pass one that divides, or "
                "that it divides."
            ),
        ),
        (
            TensorRtOptions(pp_size=8),
            "--pp-size 8: the model has num_hidden_layers 7. Pass no more than that.",
        ),
    ],
)
def test_refused(options: TensorRtOptions, message: str) -> None:
    with pytest.raises(OptionError) as refused:
        parallel.check(options, CONFIG)
    assert str(refused.value) == message


def test_columns_of_the_mlp() -> None:
    parallel.check_columns(4, 128)
    with pytest.raises(OptionError) as refused:
        parallel.check_columns(3, 128)
    assert str(refused.value) == "--tp-size 3: intermediate_size 128 is not a multiple of it. Pass a divisor."
