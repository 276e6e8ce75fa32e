"""Parakeet in torch: FastConformer encoder, TDT decoder and CTC head.

Parameter names are those of Hugging Face's Parakeet checkpoints, so state_dict() is what
export.py writes. Shapes: B utterances, S mel frames, T = ceil(S / 8) encoder frames, d width.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PIECES = ["<unk>"] + ["\u2581" + w for w in WORDS]
BLANK = len(PIECES)
FIRST_DIGIT = 1

CONFIG = dict(mels=80, width=144, layers=5, heads=4, kernel=9, channels=32, hidden=64, dropout=0.05,
              durations=(0, 1, 2, 3, 4), max_symbols=10)


def frames_after(mel_frames):
    """Valid lengths after the subsampling: ceil(S / 8)."""
    return (mel_frames + 7) // 8


def position_table(length, width):
    """Sinusoids for the offsets length-1 ... -(length-1): [2 * length - 1, width]."""
    frequency = 1.0 / (10000.0 ** (torch.arange(0, width, 2).float() / width))
    angle = torch.arange(length - 1, -length, -1).float()[:, None] * frequency[None]
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1)


class Subsampling(nn.Module):
    def __init__(self, c):
        super().__init__()
        n = c["channels"]
        self.layers = nn.ModuleList([
            nn.Conv2d(1, n, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(n, n, 3, 2, 1, groups=n), nn.Conv2d(n, n, 1), nn.ReLU(),
            nn.Conv2d(n, n, 3, 2, 1, groups=n), nn.Conv2d(n, n, 1), nn.ReLU()])
        self.linear = nn.Linear(n * c["mels"] // 8, c["width"])

    def forward(self, x, lengths):
        """[B, S, mels] -> [B, T, d]; rows past the valid length are zeroed after every stage."""
        x = x[:, None]
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i in (1, 4, 7):
                lengths = (lengths - 1) // 2 + 1
                x = x * (torch.arange(x.shape[2])[None] < lengths[:, None]).to(x.dtype)[:, None, :, None]
        return self.linear(x.transpose(1, 2).flatten(2))


class Attention(nn.Module):
    tile_from = 601  # frames from which one utterance is evaluated in tiles

    def __init__(self, c):
        super().__init__()
        d, self.heads = c["width"], c["heads"]
        for name in ("q_proj", "k_proj", "v_proj", "o_proj", "relative_k_proj"):
            setattr(self, name, nn.Linear(d, d, bias=False))
        self.bias_u = nn.Parameter(torch.zeros(self.heads, d // self.heads))
        self.bias_v = nn.Parameter(torch.zeros(self.heads, d // self.heads))

    def forward(self, x, table, mask, context):
        b, t, d = x.shape
        split = lambda y: y.view(y.shape[0], -1, self.heads, d // self.heads).transpose(1, 2)
        q, k, v = split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))
        r = split(self.relative_k_proj(table)[None])
        qu, qv = q + self.bias_u[:, None], q + self.bias_v[:, None]
        if not self.training and b == 1 and t >= self.tile_from:
            out = self.tiles(qu, qv, k, v, r, context)
        else:
            position = F.pad(qv @ r.transpose(2, 3), (1, 0))
            position = position.view(b, self.heads, 2 * t, t)[:, :, 1:].reshape(b, self.heads, t, 2 * t - 1)[..., :t]
            score = (qu @ k.transpose(2, 3) + position) / math.sqrt(d // self.heads)
            if mask is not None:
                score = score + mask
            out = torch.softmax(score, -1) @ v
        return self.o_proj(out.transpose(1, 2).reshape(b, t, d))

    def tiles(self, qu, qv, k, v, r, context, size=128):
        """The same for one long utterance without T x T products (no mask: batch of 1)."""
        t, out = k.shape[2], []
        before, after = context if context else (t, t)
        for a in range(0, t, size):
            z = min(a + size, t)
            lo, hi = max(0, a - before), min(t, z + after)
            offset = torch.arange(a, z)[:, None] - torch.arange(lo, hi)[None]
            first = (t - 1) - (z - 1 - lo)
            part = qv[:, :, a:z] @ r[:, :, first:t - (a - hi + 1)].transpose(2, 3)
            index = (t - 1 - offset - first).expand(*part.shape[:2], -1, -1)
            score = (qu[:, :, a:z] @ k[:, :, lo:hi].transpose(2, 3) + part.gather(3, index)) / math.sqrt(k.shape[3])
            score = score.masked_fill((offset > before) | (offset < -after), -1e30)
            out.append(torch.softmax(score, -1) @ v[:, :, lo:hi])
        return torch.cat(out, 2)


class Convolution(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, k = c["width"], c["kernel"]
        self.pointwise_conv1 = nn.Conv1d(d, 2 * d, 1, bias=False)
        self.depthwise_conv = nn.Conv1d(d, d, k, padding=k // 2, groups=d, bias=False)
        self.norm = nn.BatchNorm1d(d, momentum=0.03)
        self.pointwise_conv2 = nn.Conv1d(d, d, 1, bias=False)

    def forward(self, x, valid):
        """x [B, T, d]; valid bool [B, T]: batch statistics are taken over valid frames only."""
        x = F.glu(F.linear(x, self.pointwise_conv1.weight[..., 0]), -1)
        x = (x * valid[..., None]).transpose(1, 2)
        x = self.depthwise_conv(x).transpose(1, 2)
        if self.training:
            packed = self.norm(x[valid])
            x = torch.zeros_like(x).masked_scatter(valid[..., None], packed)
        else:
            x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return F.linear(F.silu(x), self.pointwise_conv2.weight[..., 0])


class FeedForward(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.linear1 = nn.Linear(c["width"], 4 * c["width"], bias=False)
        self.linear2 = nn.Linear(4 * c["width"], c["width"], bias=False)

    def forward(self, x):
        return self.linear2(F.silu(self.linear1(x)))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c["width"]
        for name in ("norm_feed_forward1", "norm_self_att", "norm_conv", "norm_feed_forward2", "norm_out"):
            setattr(self, name, nn.LayerNorm(d))
        self.feed_forward1, self.feed_forward2 = FeedForward(c), FeedForward(c)
        self.self_attn, self.conv = Attention(c), Convolution(c)
        self.dropout = nn.Dropout(c["dropout"])

    def forward(self, x, table, mask, valid, context):
        drop = self.dropout
        x = x + 0.5 * drop(self.feed_forward1(self.norm_feed_forward1(x)))
        x = x + drop(self.self_attn(self.norm_self_att(x), table, mask, context))
        x = x + drop(self.conv(self.norm_conv(x), valid))
        x = x + 0.5 * drop(self.feed_forward2(self.norm_feed_forward2(x)))
        return self.norm_out(x)


class Encoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.width = c["width"]
        self.subsampling = Subsampling(c)
        self.layers = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.dropout = nn.Dropout(c["dropout"])

    def forward(self, x, lengths, context=None):
        """[B, S, mels], [B] -> [B, T, d], [B]. context (L, R) restricts keys to -R <= i - j <= L."""
        x = self.dropout(self.subsampling(x, lengths))
        frames, t = frames_after(lengths), x.shape[1]
        valid = torch.arange(t)[None] < frames[:, None]
        mask = None
        if self.training or len(x) > 1 or t < Attention.tile_from:
            allowed = valid[:, None, None, :]
            if context:
                offset = torch.arange(t)[:, None] - torch.arange(t)[None]
                allowed = allowed & (offset <= context[0]) & (offset >= -context[1])
            mask = torch.zeros(1).masked_fill(~allowed, -1e4)
        table = position_table(t, self.width)
        for layer in self.layers:
            x = layer(x, table, mask, valid, context)
        return x, frames


class Decoder(nn.Module):
    """Prediction network; the start symbol is the blank, whose embedding is zero."""

    def __init__(self, c):
        super().__init__()
        self.embedding = nn.Embedding(BLANK + 1, c["hidden"], padding_idx=BLANK)
        self.lstm = nn.LSTM(c["hidden"], c["hidden"], 1, batch_first=True)
        self.decoder_projector = nn.Linear(c["hidden"], c["hidden"])

    def forward(self, tokens, state=None):
        out, state = self.lstm(self.embedding(tokens), state)
        return self.decoder_projector(out), state


class Joint(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.head = nn.Linear(c["hidden"], BLANK + 1 + len(c["durations"]))

    def forward(self, encoded, predicted):
        return self.head(F.relu(encoded + predicted))


class Parakeet(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        c = self.config = dict(CONFIG, **(config or {}))
        self.encoder = Encoder(c)
        self.encoder_projector = nn.Linear(c["width"], c["hidden"])
        self.decoder = Decoder(c)
        self.joint = Joint(c)
        self.ctc_head = nn.Conv1d(c["width"], BLANK + 1, 1)

    def ctc_log_probs(self, encoded):
        """[B, T, d] -> [B, T, V + 1]."""
        return F.log_softmax(F.linear(encoded, self.ctc_head.weight[..., 0], self.ctc_head.bias), -1)

    def joint_lattice(self, encoded, labels):
        """Logits of every (frame, labels emitted) pair: [B, T, U + 1, V + 1 + durations]."""
        start = torch.full((len(labels), 1), BLANK, dtype=torch.long)
        predicted, _ = self.decoder(torch.cat((start, labels), 1))
        return self.joint(self.encoder_projector(encoded)[:, :, None], predicted[:, None])

    @torch.no_grad()
    def greedy_tdt(self, encoded):
        """Encoder frames [T, d] of one utterance -> list of (token, frame, duration)."""
        durations, frames = self.config["durations"], self.encoder_projector(encoded)
        predicted, state = self.decoder(torch.full((1, 1), BLANK, dtype=torch.long))
        t, symbols, out = 0, 0, []
        while t < len(frames):
            logits = self.joint(frames[t], predicted[0, 0])
            token = int(logits[:BLANK + 1].argmax())
            step = durations[int(logits[BLANK + 1:].argmax())]
            if token == BLANK:
                t, symbols = t + max(step, 1), 0
                continue
            out.append((token, t, step))
            predicted, state = self.decoder(torch.full((1, 1), token, dtype=torch.long), state)
            symbols = symbols + 1 if step == 0 else 0
            t += step
            if symbols >= self.config["max_symbols"]:
                t, symbols = t + 1, 0
        return out

    def greedy_ctc(self, encoded):
        """Encoder frames [T, d] -> token list."""
        best = self.ctc_log_probs(encoded[None])[0].argmax(-1).tolist()
        return [k for i, k in enumerate(best) if k != BLANK and (i == 0 or best[i - 1] != k)]
