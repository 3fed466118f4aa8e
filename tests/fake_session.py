"""Session without a device: one decode step in fp32 NumPy, like a kernel, with an optional fault.

It shares nothing with the reference: dot products are summed per lane and then in a tree, softmax is online over tiles,
and everything is fp32. If it passes, the reference and the tolerances suit a real kernel, too.
"""

import numpy as np
import torch

from common.devices.kv_cache import KvCache
from common.devices.unwritten import NOT_WRITTEN, NUMBER, fill_scratch
from common.model.layout import Layout
from common.model.shapes import Model

LANES, TILE = 8, 8
REGIONS = {"mail": ("2", "taps"), "best": ("4", "max_blocks", "2")}  # regions of scratch


def dot(matrix: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Row sums of matrix * x in fp32: sequentially in each lane, then by halves."""
    lanes = np.add.accumulate((matrix * x).reshape(*matrix.shape[:-1], -1, LANES), axis=-2)[..., -1, :]
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


class FakeSession:
    """A Session of common.devices.protocol, with steps of `tokens` tokens.

    fault: name of one fault of a step, in layer `at` if it has a layer.
    """

    blocks = 1

    def __init__(self, model: Model, weights: torch.Tensor, fault: str = "", at: int = 0, tokens: int = 1) -> None:
        self.model, self.layout, self.fault, self.at = model, Layout(model, REGIONS, tokens=tokens), fault, at
        self._weights = weights.float().numpy()
        self._launches = 0
        self._cache = torch.zeros(self.layout.cache.stored, dtype=torch.bfloat16)
        self.cache = KvCache(self._cache.view(torch.int16).numpy())

    def reset(self, ids, position, history=None, forced=0, barriers=0, unwritten=NOT_WRITTEN) -> None:
        layout = self.layout
        self._scratch = torch.empty(layout.scratch_size)
        fill_scratch(self._scratch, layout, unwritten)
        self.cache.reset(history, position, unwritten)
        self._again = unwritten == NUMBER  # in a run that is compared with an earlier one only
        self._state = torch.zeros(layout.state_size, dtype=torch.int32)
        self._words("ids").fill_(-1)[: len(ids)] = torch.tensor(ids)
        self._words("position").fill_(position)
        self._words("prompt_length").fill_(max(forced, position + 1))
        if self.fault == "scratch kept":
            self._scratch[5] = 0
        if self.fault == "cache kept":
            self._cache[1, 0, 1, -1, 2] = 0
        if self.fault == "history lost" and position and not self._again:  # later runs show it first elsewhere
            self._cache[1, 0, 1, position - 1, 2] = -0.0

    def run(self, steps=1) -> None:
        self._launches += 1
        for step in range(steps):
            self._behind = 0 < step == steps - 1  # the last of queued ones
            self._step(queued=step > 0)

    def _step(self, queued: bool) -> None:
        position = int(self._words("position"))
        self._choose([self._decode(position, number, queued) for number in range(self.layout.tokens)], position)
        if self._meddles("older id overwritten"):
            self._words("ids")[0] += 1
        if self._meddles("one more draft told"):
            self._words("accepted").add_(1)
        if self._wrong("prompt length changed"):
            self._words("prompt_length").add_(1)
        if self._wrong("token word wrong"):
            self._words("token").add_(1)

    def scratch(self) -> torch.Tensor:
        return self._scratch.clone()

    def state(self) -> torch.Tensor:
        return self._state.clone()

    def close(self) -> None:
        pass

    def _words(self, name: str) -> torch.Tensor:
        return self.layout.state[name].of(self._state)

    def _weight(self, name: str, layer: int | None = None) -> np.ndarray:
        slot = self.layout.weight(name, layer)
        return self._weights[slot.offset : slot.offset + slot.size].reshape(slot.shape)

    def _leave(self, stage: str, layer: int | None, value: np.ndarray) -> np.ndarray:
        slot = self.layout.tap(stage, layer)
        if self.fault != f"no {stage} tap" or layer != self.at:
            shown = value + 1 if self._wrong(f"another {stage} tap", layer) else value
            self._own[slot.offset : slot.offset + slot.size] = torch.from_numpy(shown.ravel())
        return value

    def _wrong(self, fault: str, layer: int | None = None) -> bool:
        return self.fault == fault and layer in (None, self.at)

    def _norm(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        eps = np.float32(1e-4 if self._wrong("eps") else self.model.rms_eps)
        scale = 1 / np.sqrt(dot(x, x) / np.float32(x.shape[-1]) + eps)
        return x * scale[..., None] * weight

    def _attend(self, query: np.ndarray, layer: int, position: int, own: np.ndarray) -> np.ndarray:
        m = self.model
        heads = np.arange(m.heads)
        kv = heads % m.kv_heads if self._wrong("gqa map", layer) else heads // (m.heads // m.kv_heads)
        known = self.layout.cache.format.decode(self._cache[layer, :, kv, : position + 1], m.head_dim).float().numpy()
        if self._wrong("unrounded entry", layer):
            known[:, :, position] = own[:, kv]
        if self._wrong("stale row", layer) and position:
            known[:, :, position] = known[:, :, position - 1]
        limit = position if self._wrong("last position left out", layer) and position else position + 1
        top = np.full(m.heads, np.float32(-np.inf))
        total, out = np.zeros(m.heads, np.float32), np.zeros((m.heads, m.head_dim), np.float32)
        for start in range(0, limit, TILE):
            keys, values = known[:, :, start : min(start + TILE, limit)]
            score = dot(keys, query[:, None]) * np.float32(m.head_dim**-0.5)
            peak = np.maximum(top, score.max(1))
            if self._wrong("softmax without maximum", layer):
                peak = np.zeros_like(peak)
            decay, share = np.exp(top - peak) * np.isfinite(top), np.exp(score - peak[:, None])
            total = total * decay + share.sum(1)
            out = out * decay[:, None] + np.add.accumulate(share[:, :, None] * values, axis=1)[:, -1]
            top = peak
        return (out / total[:, None]).ravel()

    def _rounded(self, own: torch.Tensor, layer: int) -> torch.Tensor:
        """Entries as the cache has them."""
        form, bits = self.layout.cache.format, own.view(torch.int32)
        if self._wrong("truncated entry", layer):
            return (bits >> 16).to(torch.int16).view(torch.bfloat16)
        if self._wrong("half way rounds up", layer):
            return (bits + 0x8000 >> 16).to(torch.int16).view(torch.bfloat16)
        if not self.fault.endswith(" of a row") or layer != self.at:
            return form.encode(own)
        rows = own.view(-1, own.shape[-1])
        scale, zero = form.scales(rows)
        if self._wrong("twice the scale of a row", layer):
            scale *= 2
        numbers = form.nearest(rows, scale, zero)
        if self._wrong("half way rounds up of a row", layer):
            numbers = form.nearest(rows * (1 + 2.0**-20), scale, zero)
        if self._wrong("next number of a row", layer):
            numbers[0, 3] += 1
        return form.joined(numbers, scale, zero).view(*own.shape[:-1], -1)

    def _meddles(self, fault: str, layer: int | None = None) -> bool:
        """True for `fault`, and for the same in a later run only."""
        later = self._again if self.fault.endswith(" in a second run") else self._behind
        return self._wrong(fault, layer) or (later and layer in (None, self.at) and self.fault.startswith(f"{fault} "))

    @np.errstate(all="ignore")
    def _decode(self, first: int, number: int, queued: bool) -> np.ndarray:
        """The logits of token `number` of a step that begins at position `first`; any token where no draft is."""
        m, position = self.model, first + number
        self._own = self._scratch[number * self.layout.step_size :][: self.layout.step_size]
        token = max(int(self._words("ids")[position - (self.fault == "queued token stale" and queued)]), 0)
        if number and self.fault == "drafts decoded as the first token":
            token = int(self._words("ids")[first])
        x = self._leave("embed", None, self._weight("embed")[token])
        theta = 1e4 if self._wrong("theta") else m.rope_theta
        rotation = position + (self.fault == "rope position")
        angles = rotation * theta ** (-np.arange(0, m.head_dim, 2) / m.head_dim)
        cos, sin = self._leave("rope", None, np.stack((np.cos(angles), np.sin(angles))).astype(np.float32))

        def rotate(heads: np.ndarray) -> np.ndarray:
            first, second = np.split(heads, 2, axis=-1)
            if self._wrong("rope pairing"):
                first, second = heads[:, 0::2], heads[:, 1::2]
            return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)

        for i in range(m.layers):
            other = (i + 1) % m.layers if self._wrong("norm of another layer", i) else i
            normed = self._leave("input_norm", i, self._norm(x, self._weight("input_norm", other)))
            qkv = dot(self._weight("qkv", i), normed)
            if self._wrong("last row dropped", i):
                qkv[-1] = 0
            self._leave("qkv", i, qkv)
            query, key, value = (part.reshape(-1, m.head_dim) for part in np.split(qkv, (m.query, m.query + m.kv)))
            if not self._wrong("no QK-norm", i):
                query, key = self._norm(query, self._weight("q_norm", i)), self._norm(key, self._weight("k_norm", i))
            query, key = rotate(query), rotate(key)
            self._leave("qk_norm_rope", i, query.ravel())

            own = np.stack((key, value))
            entry = self._rounded(torch.from_numpy(own), i)
            row = min(position + self._wrong("entry a row later", i), m.positions - 1)
            if not self._wrong("no value stored", i):
                self._cache[i, 1, :, row] = entry[1]
            self._cache[i, 0, :, row] = entry[0]

            attention = self._leave("attention", i, self._attend(query, i, position, own))
            if self._meddles("history touched", i) and position:
                self._cache[i, 0, 0, 0, 3] = 7
            if self._wrong("later position touched", i) and position + 1 < m.positions:
                self._cache[i, 1, 0, position + 1, 0] = 7
            if self._wrong("NaN stored a position later", i) and position + 1 < m.positions:
                self._cache[i, 1, 0, position + 1, 0] = torch.nan
            branch = dot(self._weight("o", i), attention)
            x = self._leave("o_proj", i, branch if self._wrong("o_proj residual", i) else x + branch)
            normed = self._leave("post_norm", i, self._norm(x, self._weight("post_norm", i)))
            gate, up = dot(self._weight("gate", i), normed), dot(self._weight("up", i), normed)
            if self._wrong("gate and up swapped", i):
                gate, up = up, gate
            hidden = self._leave("gate_up", i, gate / (1 + np.exp(-gate)) * up)
            branch = dot(self._weight("down", i), hidden)
            x = self._leave("down", i, branch if self._wrong("down residual", i) else x + branch)

        if self.fault == "nondeterministic" and self._launches % 2:
            x[0] += 4 * np.spacing(x[0])  # a norm's rounding may hide one
        own = self._own[self.layout.global_scratch["workspace"].offset :]
        if self.fault == "unwritten memory read":  # by a maximum that skips NaN
            x[0] = own[0] if own[0] > x[0] else x[0]
        if self.fault == "result of an earlier launch used":  # below every tolerance
            x[0] = np.nextafter(x[0], np.float32(np.inf)) if own[0] == 1 else x[0]
            own[0] = 1
        logits = dot(
            self._weight("lm_head"), self._leave("final_norm", None, self._norm(x, self._weight("final_norm")))
        )
        if self.fault == "NaN between two taps":
            end = self.layout.tap("final_norm").offset + m.hidden
            self._own[end : end + 1] = torch.nan
        if self.fault.endswith("sent a turn too early"):
            slot = self.layout.global_scratch[self.fault.split()[0]]
            self._own[slot.offset + 3] = 0.5
        if self.fault == "ids of a sampler":
            self._own[self.layout.tap("seen").offset] = 0
        if self.fault == "state between two words":
            self._state[self.layout.state["token"].offset + 1] = 0x7FC00000
        if self.fault == "settings of a sampler":
            self._state[self.layout.state["sampling"].offset] = 0x7FC00000
        if self._wrong("logit NaN"):
            logits[-1] = np.nan
        return self._leave("lm_head", None, logits)

    def _best(self, logits: np.ndarray) -> int:
        known = np.where(np.isnan(logits), np.float32(-np.inf), logits)
        ties = np.flatnonzero(known == known.max())
        token = int(ties[-1] if self._wrong("tie to the higher id") else ties[0])
        return (token + self._wrong("token off by one")) % self.model.vocab

    def _choose(self, logits: list[np.ndarray], position: int) -> None:
        """Accept the drafts that are choices, or of the prompt, choose behind them, and look up new drafts."""
        tokens, given = len(logits), int(self._words("prompt_length"))
        ids, choices = self._words("ids"), [self._best(each) for each in logits]
        accepted, at = 0, position + 1
        while accepted < tokens - 1 and (
            (at < given and not self._wrong("a prompt is not accepted"))
            or (int(ids[at]) == choices[accepted] and not self._wrong("a chosen draft is never accepted"))
            or self._wrong("the last draft accepted anyhow") * (accepted == tokens - 2)
        ):
            accepted, at = accepted + 1, at + 1
        if self._wrong("a draft is never accepted"):
            accepted, at = 0, position + 1
        token = choices[0 if self._wrong("the choice of the first token") else accepted]
        self._words("token").fill_(token)
        self._words("accepted").fill_(0 if self._wrong("accepted drafts not told") else accepted)
        self._words("position").add_((1 + accepted) * (not self._wrong("position stands still")))
        if at >= given or self._wrong("prompt overwritten"):
            ids[at] = token if at >= given or ids[at] != token else token ^ 1  # the fault must change it
        known = max(at + 1, given)
        room = ids[known : at + tokens - self._wrong("a draft too few")]
        room.copy_(torch.tensor(self._drafts(ids[:known].tolist(), len(room)), dtype=torch.int32))

    def _drafts(self, ids: list[int], count: int) -> list[int]:
        """Ids behind the longest earlier match of the last three ids, the latest of equal ones; else -1."""
        best, found = 0, None
        for end in range(1, len(ids)):
            length, most = 0, 2 if self._wrong("two ids looked for") else 3
            while length < min(end, most) and ids[end - 1 - length] == ids[-1 - length]:
                length += 1
            longer = length > best if self._wrong("the earliest match") else length >= best
            if length and longer:
                best, found = length, end
        if found is None:
            return [0 if self._wrong("a draft where nothing was found") else -1] * count
        for at in range(found, found + count):
            ids.append(ids[at])
        return ids[len(ids) - count :]
