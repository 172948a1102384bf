"""Small networks of the kinds that people write, for the tests of the engine: name -> what it takes, how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

from leakgauge.models.adapting import adapted
from leakgauge.types import DataSpec, Part

CLASSES = 4
PICTURE, SERIES, ROW, VOLUME = (2, 6, 6), (5, 4), (12,), (1, 4, 4, 4)


def kind(shape: tuple[int, ...], parts: tuple[Part, ...] = ()) -> DataSpec:
    return DataSpec("zoo", shape, CLASSES, "other", parts=parts)


def words(length: int = 5, size: int = 6, *more: Part) -> DataSpec:
    parts = (Part("tokens", (length,), "categories", size), *more)
    return kind((sum(part.width for part in parts),), parts)


class Own(nn.Module):
    """A forward of one's own around some layers: `passed(self, *inputs)`."""

    def __init__(self, passed: Callable[..., Tensor], /, **layers: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self._passed = passed
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        return self._passed(self, *inputs, **named)


def head(width: int) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(width, CLASSES)]


def on_row(*layers: nn.Module, width: int = 6) -> nn.Module:
    return nn.Sequential(nn.Linear(12, 6), nn.Tanh(), *layers, *head(width))


def on_picture(*layers: nn.Module, width: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), *layers, *head(width))


# --- attention ------------------------------------------------------------------------------------------------------


def causal(m: Own, x: Tensor) -> Tensor:
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device, dtype=x.dtype)
    return m.fc(m.attend(x, x, x, attn_mask=mask)[0].mean(1))


def padded(m: Own, x: Tensor) -> Tensor:
    hidden = torch.zeros(x.shape[:2], dtype=torch.bool)
    hidden[:, -2:] = True
    return m.fc(m.attend(x, x, x, key_padding_mask=hidden, need_weights=False)[0].mean(1))


def own_attention(m: Own, x: Tensor) -> Tensor:
    q, k, v = m.qkv(x).unflatten(-1, (2, 6)).transpose(1, 2).chunk(3, -1)
    return m.fc(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2).mean(1))


def masked_attention(m: Own, x: Tensor) -> Tensor:
    q, k, v = m.qkv(x).unflatten(-1, (2, 6)).transpose(1, 2).chunk(3, -1)
    allowed = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    return m.fc(F.scaled_dot_product_attention(q, k, v, attn_mask=allowed).transpose(1, 2).flatten(2).mean(1))


def encoder(m: Own, x: Tensor) -> Tensor:
    return m.fc(m.encoder(x).mean(1))


def masked_encoder(m: Own, x: Tensor) -> Tensor:
    hidden = torch.zeros(x.shape[:2], dtype=torch.bool)
    hidden[:, -1] = True
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device, dtype=x.dtype)
    return m.fc(m.encoder(x, mask, hidden.to(x.dtype) * -1e9, is_causal=True)[:, 0])


def decoder(m: Own, x: Tensor) -> Tensor:
    return m.fc(m.decoder(x[:, :2], m.first(x)).mean(1))


def layer_of(kind: type[nn.Module], **more: object) -> nn.Module:
    return kind(4, 2, 8, batch_first=True, **more)


def vit(m: Own, x: Tensor) -> Tensor:
    rows = m.embed(x).flatten(2).transpose(1, 2)
    rows = torch.cat((m.token.expand(len(rows), -1, -1), rows), 1) + m.positions
    return m.fc(m.norm(m.body(rows))[:, 0])


def words_gpt(m: Own, tokens: Tensor) -> Tensor:
    """With the head tied to the embedding, as in GPT-2; the last token's logits, as four classes."""
    x = m.embed(tokens) + m.places(torch.arange(tokens.shape[1], device=tokens.device))
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device, dtype=x.dtype)
    return F.linear(m.body(x, mask, is_causal=True)[:, -1], m.embed.weight)[:, :CLASSES]


def rotary(m: Own, x: Tensor) -> Tensor:
    """Positions by turning pairs of numbers, in complex arithmetic."""
    turns = torch.polar(torch.ones(5, 2), torch.arange(5)[:, None] * torch.tensor([1.0, 0.1])).to(x.device)
    q, k, v = m.qkv(x).chunk(3, -1)

    def turned(rows: Tensor) -> Tensor:
        pairs = torch.view_as_complex(rows.unflatten(-1, (2, 2)).contiguous())
        return torch.view_as_real(pairs * turns.to(pairs.dtype)).flatten(-2)

    return m.fc(F.scaled_dot_product_attention(turned(q), turned(k), v).mean(1))


# --- recurrent ------------------------------------------------------------------------------------------------------


def recurrent(m: Own, x: Tensor) -> Tensor:
    return m.fc(m.body(x)[0][:, -1])


def hidden_state(m: Own, x: Tensor) -> Tensor:
    return m.fc(m.body(x)[1][0][-1])


def cell(m: Own, x: Tensor) -> Tensor:
    state = x.new_zeros(len(x), 3), x.new_zeros(len(x), 3)
    for row in x.unbind(1):
        state = m.cell(row, state)
    return m.fc(state[0])


# --- look-ups, several inputs, odd forwards -------------------------------------------------------------------------


def bag(m: Own, tokens: Tensor) -> Tensor:
    return m.fc(torch.tanh(m.embed(tokens)))


def table(m: Own, tokens: Tensor, numbers: Tensor) -> Tensor:
    own = [look(tokens[:, i]) for i, look in enumerate(m.looks)]
    return m.fc(torch.relu(m.first(torch.cat([*own, numbers], 1))))


def two_inputs(m: Own, left: Tensor, right: Tensor) -> Tensor:
    return m.fc(torch.tanh(m.left(left)) * torch.sigmoid(m.right(right)))


def tied(m: Own, x: Tensor) -> Tensor:
    return m.fc(F.linear(torch.tanh(m.first(x)), m.first.weight.T))


def einsum(m: Own, x: Tensor) -> Tensor:
    rows = x.view(-1, 3, 4)
    return m.fc(torch.einsum("nij,jk,nlk->nil", rows, m.weight, rows).tanh().flatten(1))


def fourier(m: Own, x: Tensor) -> Tensor:
    spectrum = torch.fft.rfft2(m.conv(x)) * torch.view_as_complex(m.filter)
    return m.fc(torch.fft.irfft2(spectrum, s=x.shape[-2:]).tanh().flatten(1))


def experts(m: Own, x: Tensor) -> Tensor:
    shares = torch.softmax(m.gate(x), -1)
    return m.fc(torch.tanh(sum(shares[:, i : i + 1] * expert(x) for i, expert in enumerate(m.experts))))


def in_a_loop(m: Own, x: Tensor) -> Tensor:
    for block in m.blocks:
        x = x + torch.tanh(block(x))
    return m.fc(x)


def again(m: Own, x: Tensor) -> Tensor:
    """One layer called three times."""
    for _ in range(3):
        x = torch.tanh(m.block(x))
    return m.fc(x)


def checkpointed(m: Own, x: Tensor) -> Tensor:
    return m.fc(checkpoint(m.block, x, use_reentrant=False))


def checkpointed_of_before(m: Own, x: Tensor) -> Tensor:
    return m.fc(checkpoint(m.block, m.first(x), use_reentrant=True))


def packed(m: Own, x: Tensor) -> Tensor:
    rows = nn.utils.rnn.pack_padded_sequence(x, torch.full((len(x),), 3), batch_first=True)
    return m.fc(m.body(rows)[1][-1])


def gathered(m: Own, x: Tensor) -> Tensor:
    order = torch.tensor([3, 1, 0, 2, 5, 4])
    rows = torch.tanh(m.first(x))
    return m.fc(rows.gather(1, order.expand(len(x), -1)).cumsum(1) + rows[:, order].cumprod(1))


def sorted_rows(m: Own, x: Tensor) -> Tensor:
    rows = torch.tanh(m.first(x))
    return m.fc(torch.sort(rows, 1).values + rows.topk(6, 1).values.flip(1))


def in_place(m: Own, x: Tensor) -> Tensor:
    rows = m.first(x)
    rows.mul_(0.5).add_(1)
    rows += m.first(x)
    return m.fc(F.relu_(rows))


def written_into(m: Own, x: Tensor) -> Tensor:
    rows = torch.tanh(m.first(x))
    out = torch.zeros_like(rows)
    out[:, ::2] = rows[:, 1::2].square()
    out[:, 1::2] = rows[:, ::2]
    return m.fc(out)


def filled(m: Own, x: Tensor) -> Tensor:
    """Writes into a buffer of zeros that it makes itself, which vmap refuses."""
    rows = torch.tanh(m.first(x))
    out = torch.zeros(len(x), 6, dtype=x.dtype)
    out[:, :3] = rows[:, 3:]
    return m.fc(out)


def branching(m: Own, x: Tensor) -> Tensor:
    rows = m.first(x)
    return m.fc(torch.tanh(rows) if rows.sum() > 0 else rows.sin())


def unfolded(m: Own, x: Tensor) -> Tensor:
    patches = F.unfold(x, 3, stride=3)
    return m.fc(F.fold(torch.tanh(m.mix(patches.transpose(1, 2))).transpose(1, 2), (6, 6), 3, stride=3).flatten(1))


def resized(m: Own, x: Tensor) -> Tensor:
    large = F.interpolate(torch.tanh(m.conv(x)), scale_factor=1.5, mode="bicubic", align_corners=False)
    return m.fc(F.interpolate(large, size=(4, 4), mode="nearest").flatten(1))


def squeezed(m: Own, x: Tensor) -> Tensor:
    x = F.silu(m.conv(x))
    weights = torch.sigmoid(m.excite(F.silu(m.squeeze(x.mean((2, 3))))))
    return m.fc(F.adaptive_avg_pool2d(x * weights[:, :, None, None], 2).flatten(1))


def residual(m: Own, x: Tensor) -> Tensor:
    x = m.first(x)
    return m.fc(F.adaptive_max_pool2d(F.relu(x + m.body(x)), 2).flatten(1))


def u_net(m: Own, x: Tensor) -> Tensor:
    first = torch.relu(m.down(x))
    up = m.up(torch.relu(m.deep(F.max_pool2d(first, 2))))
    return m.fc(torch.cat((first, up), 1).mean((2, 3)))


def own_norm(m: Own, x: Tensor) -> Tensor:
    x = m.first(x)
    return m.fc(
        m.scale * F.normalize(x - x.mean(-1, keepdim=True), dim=-1) + torch.linalg.vector_norm(x, dim=-1)[:, None]
    )


def deep_sets(m: Own, x: Tensor) -> Tensor:
    return m.fc(torch.logsumexp(m.first(x), 1) + m.first(x).amax(1))


def bilinear(m: Own, x: Tensor) -> Tensor:
    return m.fc(torch.tanh(m.both(x[:, :6], x[:, 6:])))


def adapter(m: Own, x: Tensor) -> Tensor:
    """LoRA on a frozen layer."""
    return m.fc(torch.tanh(m.base(x) + x @ m.a @ m.b))


def _adapter() -> nn.Module:
    made = Own(
        adapter,
        base=nn.Linear(12, 6),
        a=nn.Parameter(torch.randn(12, 2)),
        b=nn.Parameter(torch.randn(2, 6)),
        fc=nn.Linear(6, CLASSES),
    )
    made.base.requires_grad_(False)
    return made


def _linear(width: int = 4) -> nn.Linear:
    return nn.Linear(width, CLASSES)


Made = tuple[DataSpec, Callable[[], nn.Module]]
ZOO: Mapping[str, Made] = {
    "attention": (
        kind(SERIES),
        lambda: Own(causal, attend=nn.MultiheadAttention(4, 2, batch_first=True), fc=_linear()),
    ),
    "attention-padded": (
        kind(SERIES),
        lambda: Own(padded, attend=nn.MultiheadAttention(4, 2, batch_first=True), fc=_linear()),
    ),
    "attention-own": (kind(SERIES), lambda: Own(own_attention, qkv=nn.Linear(4, 12), fc=_linear())),
    "attention-own-mask": (kind(SERIES), lambda: Own(masked_attention, qkv=nn.Linear(4, 12), fc=_linear())),
    "attention-rotary": (kind(SERIES), lambda: Own(rotary, qkv=nn.Linear(4, 12), fc=_linear())),
    "encoder": (
        kind(SERIES),
        lambda: Own(encoder, encoder=nn.TransformerEncoder(layer_of(nn.TransformerEncoderLayer), 2), fc=_linear()),
    ),
    "encoder-masked": (
        kind(SERIES),
        lambda: Own(
            masked_encoder,
            encoder=nn.TransformerEncoder(
                layer_of(nn.TransformerEncoderLayer, activation="gelu", norm_first=True), 1, enable_nested_tensor=False
            ),
            fc=_linear(),
        ),
    ),
    "decoder": (
        kind(SERIES),
        lambda: Own(
            decoder,
            first=nn.Linear(4, 4),
            decoder=nn.TransformerDecoder(layer_of(nn.TransformerDecoderLayer), 1),
            fc=_linear(),
        ),
    ),
    "vision-transformer": (
        kind(PICTURE),
        lambda: Own(
            vit,
            embed=nn.Conv2d(2, 4, 3, stride=3),
            token=nn.Parameter(torch.randn(1, 1, 4)),
            positions=nn.Parameter(torch.randn(5, 4)),
            body=layer_of(nn.TransformerEncoderLayer, norm_first=True),
            norm=nn.LayerNorm(4),
            fc=_linear(),
        ),
    ),
    "gpt": (
        words(),
        lambda: Own(
            words_gpt,
            embed=nn.Embedding(6, 4),
            places=nn.Embedding(5, 4),
            body=nn.TransformerEncoder(layer_of(nn.TransformerEncoderLayer), 1),
        ),
    ),
    "lstm": (kind(SERIES), lambda: Own(recurrent, body=nn.LSTM(4, 3, 2, batch_first=True), fc=_linear(3))),
    "lstm-both-ways": (
        kind(SERIES),
        lambda: Own(recurrent, body=nn.LSTM(4, 3, batch_first=True, bidirectional=True), fc=_linear(6)),
    ),
    "lstm-projected": (
        kind(SERIES),
        lambda: Own(hidden_state, body=nn.LSTM(4, 3, batch_first=True, proj_size=2), fc=_linear(2)),
    ),
    "lstm-cell": (kind(SERIES), lambda: Own(cell, cell=nn.LSTMCell(4, 3), fc=_linear(3))),
    "gru": (
        kind(SERIES),
        lambda: Own(recurrent, body=nn.GRU(4, 3, 2, batch_first=True, bidirectional=True, bias=False), fc=_linear(6)),
    ),
    "rnn": (
        kind(SERIES),
        lambda: Own(recurrent, body=nn.RNN(4, 3, nonlinearity="relu", batch_first=True), fc=_linear(3)),
    ),
    "gru-packed": (kind(SERIES), lambda: Own(packed, body=nn.GRU(4, 3, batch_first=True), fc=_linear(3))),
    "lstm-on-words": (
        words(),
        lambda: Own(
            lambda m, tokens: m.fc(m.body(m.embed(tokens))[0][:, -1]),
            embed=nn.Embedding(6, 4),
            body=nn.LSTM(4, 3, batch_first=True),
            fc=_linear(3),
        ),
    ),
    "embedding-bag": (words(), lambda: Own(bag, embed=nn.EmbeddingBag(6, 4), fc=_linear())),
    "table": (
        words(2, 6, Part("numbers", (3,))),
        lambda: Own(
            table, looks=nn.ModuleList([nn.Embedding(6, 2), nn.Embedding(6, 2)]), first=nn.Linear(7, 5), fc=_linear(5)
        ),
    ),
    "two-inputs": (
        kind((7,), (Part("left", (3,)), Part("right", (4,)))),
        lambda: Own(two_inputs, left=nn.Linear(3, 5), right=nn.Linear(4, 5), fc=_linear(5)),
    ),
    "grouped": (kind(PICTURE), lambda: on_picture(nn.Conv2d(4, 4, 3, groups=2), nn.Tanh(), width=64)),
    "depthwise": (
        kind(PICTURE),
        lambda: on_picture(nn.Conv2d(4, 8, 3, groups=4), nn.Hardswish(), nn.Conv2d(8, 2, 1), width=32),
    ),
    "dilated": (kind(PICTURE), lambda: on_picture(nn.Conv2d(4, 2, 3, dilation=2), nn.Sigmoid(), width=8)),
    "transposed": (
        kind(PICTURE),
        lambda: on_picture(nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1, groups=2), nn.Tanh(), width=392),
    ),
    "conv1d": (
        kind(SERIES),
        lambda: nn.Sequential(nn.Conv1d(5, 6, 3, padding=1), nn.GELU(), nn.AdaptiveAvgPool1d(2), *head(12)),
    ),
    "conv3d": (
        kind(VOLUME),
        lambda: nn.Sequential(
            nn.Conv3d(1, 2, 2), nn.Softplus(), nn.ConvTranspose3d(2, 1, 2), nn.AvgPool3d(2), *head(8)
        ),
    ),
    "padded-convolution": (
        kind(PICTURE),
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), nn.ELU(), *head(108)),
    ),
    "weight-norm": (kind(ROW), lambda: on_row(weight_norm(nn.Linear(6, 6)), nn.Tanh())),
    "spectral-norm": (kind(ROW), lambda: on_row(spectral_norm(nn.Linear(6, 6)), nn.Tanh())),
    "orthogonal": (kind(ROW), lambda: on_row(orthogonal(nn.Linear(6, 6), orthogonal_map="cayley"), nn.Tanh())),
    "weight-norm-of-before": (kind(ROW), lambda: on_row(nn.utils.weight_norm(nn.Linear(6, 6)), nn.Tanh())),
    "tied": (kind(ROW), lambda: Own(tied, first=nn.Linear(12, 5), fc=_linear(12))),
    "one-layer-again": (kind(ROW), lambda: Own(again, block=nn.Linear(12, 12), fc=_linear(12))),
    "groupnorm": (kind(PICTURE), lambda: on_picture(nn.GroupNorm(2, 4), nn.SiLU(), width=144)),
    "layernorm": (kind(ROW), lambda: on_row(nn.LayerNorm(6), nn.GELU("tanh"))),
    "rmsnorm": (kind(ROW), lambda: on_row(nn.RMSNorm(6), nn.PReLU(6))),
    "batchnorm": (kind(PICTURE), lambda: on_picture(nn.BatchNorm2d(4), nn.GELU(), width=144)),
    "batchnorm-without-statistics": (
        kind(PICTURE),
        lambda: on_picture(nn.BatchNorm2d(4, track_running_stats=False), nn.Tanh(), width=144),
    ),
    "instancenorm": (kind(PICTURE), lambda: on_picture(nn.InstanceNorm2d(4, affine=True), nn.Mish(), width=144)),
    "own-norm": (
        kind(ROW),
        lambda: Own(own_norm, first=nn.Linear(12, 6), scale=nn.Parameter(torch.rand(6)), fc=_linear(6)),
    ),
    "einsum": (kind(ROW), lambda: Own(einsum, weight=nn.Parameter(torch.randn(4, 4)), fc=_linear(9))),
    "fourier": (
        kind(PICTURE),
        lambda: Own(fourier, conv=nn.Conv2d(2, 2, 1), filter=nn.Parameter(torch.randn(2, 6, 4, 2)), fc=_linear(72)),
    ),
    "residual": (
        kind(PICTURE),
        lambda: Own(
            residual,
            first=nn.Conv2d(2, 4, 3),
            body=nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.CELU()),
            fc=_linear(16),
        ),
    ),
    "squeeze-excite": (
        kind(PICTURE),
        lambda: Own(squeezed, conv=nn.Conv2d(2, 4, 3), squeeze=nn.Linear(4, 2), excite=nn.Linear(2, 4), fc=_linear(16)),
    ),
    "u-net": (
        kind(PICTURE),
        lambda: Own(
            u_net,
            down=nn.Conv2d(2, 3, 3, padding=1),
            deep=nn.Conv2d(3, 4, 3, padding=1),
            up=nn.ConvTranspose2d(4, 3, 2, stride=2),
            fc=_linear(6),
        ),
    ),
    "experts": (
        kind(ROW),
        lambda: Own(
            experts, gate=nn.Linear(12, 3), experts=nn.ModuleList([nn.Linear(12, 5) for _ in range(3)]), fc=_linear(5)
        ),
    ),
    "resized": (kind(PICTURE), lambda: Own(resized, conv=nn.Conv2d(2, 2, 3), fc=_linear(32))),
    "unfolded": (kind(PICTURE), lambda: Own(unfolded, mix=nn.Linear(18, 18), fc=_linear(72))),
    "gathered": (kind(ROW), lambda: Own(gathered, first=nn.Linear(12, 6), fc=_linear(6))),
    "sorted": (kind(ROW), lambda: Own(sorted_rows, first=nn.Linear(12, 6), fc=_linear(6))),
    "in-place": (kind(ROW), lambda: Own(in_place, first=nn.Linear(12, 6), fc=_linear(6))),
    "written-into": (kind(ROW), lambda: Own(written_into, first=nn.Linear(12, 6), fc=_linear(6))),
    "filled": (kind(ROW), lambda: Own(filled, first=nn.Linear(12, 6), fc=_linear(6))),
    "branching": (kind(ROW), lambda: Own(branching, first=nn.Linear(12, 6), fc=_linear(6))),
    "in-a-loop": (
        kind(ROW),
        lambda: Own(in_a_loop, blocks=nn.ModuleList([nn.Linear(12, 12) for _ in range(3)]), fc=_linear(12)),
    ),
    "checkpointed": (
        kind(ROW),
        lambda: Own(checkpointed, block=nn.Sequential(nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, 5)), fc=_linear(5)),
    ),
    "checkpointed-of-before": (
        kind(ROW),
        lambda: Own(
            checkpointed_of_before,
            first=nn.Linear(12, 6),
            block=nn.Sequential(nn.Linear(6, 6), nn.Tanh()),
            fc=_linear(6),
        ),
    ),
    "dropout": (kind(ROW), lambda: on_row(nn.Dropout(0.5), nn.SELU(), nn.AlphaDropout(0.5))),
    "sets": (kind(SERIES), lambda: Own(deep_sets, first=nn.Linear(4, 6), fc=_linear(6))),
    "bilinear": (kind(ROW), lambda: Own(bilinear, both=nn.Bilinear(6, 6, 5), fc=_linear(5))),
    "adapter": (kind(ROW), _adapter),
    "unused": (kind(ROW), lambda: Own(lambda m, x: m.fc(x.tanh()), fc=_linear(12), never=nn.Linear(3, 3))),
}


def built(name: str) -> tuple[nn.Module, DataSpec]:
    """The network, every weight away from its plain start: a scale of 1 and a shift of 0 would hide errors."""
    data, build = ZOO[name]
    torch.manual_seed(len(name))
    network = build()
    with torch.no_grad():
        for p in network.parameters():
            p += 0.3 * torch.rand_like(p)
        for label, buffer in network.named_buffers():
            if "running" in label:
                buffer += 0.3 * torch.rand_like(buffer)
    return adapted(network.eval(), data), data
