"""Checks of tdt_loss: value against a sum over all paths, gradient against finite differences."""
import unittest

import torch

from tdt_loss import tdt_loss

DURATIONS = (0, 1, 2, 3, 4)


def brute_force(logits, labels, frames, sigma):
    """-log of the sum over every path, by recursion, float64."""
    width = logits.shape[-1] - len(DURATIONS)
    tokens = torch.log_softmax(logits[..., :width].double(), -1) - sigma
    steps = torch.log_softmax(logits[..., width:].double(), -1)

    def rest(t, u):
        ways = []
        for i, d in enumerate(DURATIONS):
            if d >= 1 and t + d == frames and u == len(labels):
                ways.append(tokens[t, u, -1] + steps[t, u, i])
            if t + d < frames:
                if d >= 1:
                    ways.append(tokens[t, u, -1] + steps[t, u, i] + rest(t + d, u))
                if u < len(labels):
                    ways.append(tokens[t, u, labels[u]] + steps[t, u, i] + rest(t + d, u + 1))
        return torch.logsumexp(torch.stack(ways), 0) if ways else torch.tensor(float("-inf"), dtype=torch.float64)

    return -rest(0, 0)


class TDTLoss(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.logits = torch.randn(3, 6, 4, 5 + len(DURATIONS)) * 2
        self.labels = torch.tensor([[0, 3, 3], [2, 0, 0], [0, 0, 0]])
        self.frames = torch.tensor([6, 4, 5])
        self.lengths = torch.tensor([3, 1, 0])

    def test_value(self):
        for sigma in (0.0, 0.05):
            got = tdt_loss(self.logits, self.labels, self.frames, self.lengths, DURATIONS, sigma)
            for b in range(3):
                labels = self.labels[b, :self.lengths[b]].tolist()
                want = brute_force(self.logits[b], labels, int(self.frames[b]), sigma)
                self.assertAlmostEqual(float(got[b]), float(want), places=4)

    def test_gradient(self):
        weight = torch.tensor([1.0, -2.0, 0.5])
        logits = self.logits.clone().requires_grad_()
        (tdt_loss(logits, self.labels, self.frames, self.lengths, DURATIONS, 0.02) * weight).sum().backward()
        exact = self.logits.clone().double().requires_grad_()
        sum(weight[b] * brute_force(exact[b], self.labels[b, :self.lengths[b]].tolist(), int(self.frames[b]), 0.02)
            for b in range(3)).backward()
        self.assertLess(float((logits.grad - exact.grad).abs().max()), 1e-5)

    def test_finite_differences(self):
        def value(x):
            return float(tdt_loss(x, self.labels, self.frames, self.lengths, DURATIONS, 0.02).sum())
        logits = self.logits.clone().requires_grad_()
        tdt_loss(logits, self.labels, self.frames, self.lengths, DURATIONS, 0.02).sum().backward()
        generator = torch.Generator().manual_seed(2)
        for _ in range(60):
            i = int(torch.randint(self.logits.numel(), (1,), generator=generator))
            plus, minus = self.logits.clone(), self.logits.clone()
            plus.view(-1)[i] += 1e-2
            minus.view(-1)[i] -= 1e-2
            self.assertAlmostEqual((value(plus) - value(minus)) / 2e-2, float(logits.grad.view(-1)[i]), places=3)

    def test_padding_has_no_gradient(self):
        logits = self.logits.clone().requires_grad_()
        tdt_loss(logits, self.labels, self.frames, self.lengths).sum().backward()
        self.assertEqual(float(logits.grad[1, 4:].abs().max()), 0.0)
        self.assertEqual(float(logits.grad[2, :, 1:].abs().max()), 0.0)


if __name__ == "__main__":
    unittest.main()
