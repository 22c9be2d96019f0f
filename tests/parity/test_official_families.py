"""Networks that timm does not know, against tensors recorded from their authors' code: outputs and gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import ssl_vit.families  # noqa: F401  (registers them)
import timm
import torch
from safetensors.torch import load_file
from ssl_vit.models.families.cct import CompactTransformer
from torch import Tensor
from torch.testing import assert_close

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize(
    ("name", "classes", "count"),
    [("cct_7_3x1_32", 10, 3_760_139), ("cct_14_7x2_224", 1000, 22_367_273)],
)
def test_parameters_of_published_sizes(name: str, classes: int, count: int) -> None:
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=classes)
    assert sum(p.numel() for p in model.parameters()) == count


def _cct_name(key: str) -> str:
    """Ours, for a name of the authors'."""
    if key.startswith("tokenizer.conv_layers."):
        _, _, layer, _, kind = key.split(".")
        return f"tokenizer.{3 * int(layer)}.{kind}"
    for theirs, ours in (
        ("classifier.", ""), ("norm1", "norm2"), ("pre_norm", "norm1"), ("self_attn", "attn"), ("linear1", "mlp.fc1"),
        ("linear2", "mlp.fc2"), ("attention_pool", "attn_pool"), ("positional_emb", "pos_embed"),
    ):  # fmt: skip
        key = key.replace(theirs, ours)
    return key.replace("fc.", "head.") if key.startswith("fc.") else key


@pytest.mark.parametrize(("layers", "size"), [(1, 16), (2, 24)])
@pytest.mark.parametrize("positions", ["learnable", "sine"])
def test_cct(layers: int, size: int, positions: str) -> None:
    recorded = load_file(FIXTURES / f"cct_conv{layers}.safetensors")
    model = CompactTransformer(size, 3, 5, embed_dim=16, depth=2, num_heads=2, conv_layers=layers).double()
    state = {k.removeprefix("state."): v for k, v in recorded.items() if k.startswith("state.")}
    if positions == "sine":
        state["classifier.positional_emb"] = recorded["sine.positional_emb"]
    model.load_state_dict({_cct_name(k): v for k, v in state.items()})
    images = recorded["images"].requires_grad_()
    tokens = model.forward_features(images)
    logits = model.forward_head(tokens)
    (logits * recorded["probe.logits"]).sum().backward()
    found: dict[str, Tensor | None] = {
        "tokens": tokens, "pooled": model.forward_head(tokens, pre_logits=True), "logits": logits,
        "grad.images": images.grad,
        **{f"grad.{k}": model.get_parameter(_cct_name(k)).grad for k in state},
    }  # fmt: skip
    expected = {k.removeprefix(f"{positions}."): v for k, v in recorded.items() if k.startswith(f"{positions}.")}
    for key in expected.keys() - {"positional_emb"}:
        assert_close(found[key], expected[key], rtol=0, atol=1e-9, msg=key)
