"""Weights that are handed to the engine's process through shared memory."""

from __future__ import annotations

import os

import torch

from helpers.tiny import tiny_model
from rlanything_vllm.handover import free, put_weights, take_weights


def test_weights_come_out_as_they_went_in_and_tied_ones_take_no_room_twice():
    weights = tiny_model().network.state_dict()
    weights["half"] = torch.randn(3, 5).to(torch.bfloat16)
    weights["one"] = torch.tensor(7)
    assert torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])
    memory = os.memfd_create("test")
    places = put_weights(memory, weights)
    distinct = {tensor.data_ptr(): tensor.nbytes for tensor in weights.values()}
    size = os.fstat(memory).st_size
    assert sum(distinct.values()) <= size < sum(distinct.values()) + 64 * len(distinct)
    taken = dict(take_weights(memory, places))
    assert taken.keys() == weights.keys()
    for name, tensor in weights.items():
        assert taken[name].dtype == tensor.dtype
        assert torch.equal(taken[name], tensor)
    free(memory)
    assert os.fstat(memory).st_size == 0
    assert torch.equal(taken["half"], weights["half"])  # its own, not the memory's
    os.close(memory)
