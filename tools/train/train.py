"""Train the bundled digit model: TDT + CTC, AdamW, cosine over wall-clock time.

Data parallel over processes of one thread each (on a busy machine that is much faster than one
process of several threads). Every process makes its own examples. The state (weights, optimiser,
averaged weights, time used) is saved every few minutes; the same command resumes.
"""
import argparse
import copy
import math
import os
import time

# Children inherit these: one thread each, and an allocator that keeps its pages.
ENVIRONMENT = dict(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", OMP_WAIT_POLICY="passive",
                   MALLOC_MMAP_THRESHOLD_="4000000000", MALLOC_TRIM_THRESHOLD_="8000000000")
SAVE_EVERY = 150  # seconds
LOG_EVERY = 50  # steps


def losses(model, batch, context, sigma):
    """Sums of the TDT and the CTC loss over a batch."""
    import torch
    import torch.nn.functional as F
    from model import BLANK
    from tdt_loss import tdt_loss

    mel, mel_frames = torch.from_numpy(batch["mel"]), torch.from_numpy(batch["mel_frames"])
    labels, lengths = torch.from_numpy(batch["labels"]), torch.from_numpy(batch["lengths"])
    encoded, frames = model.encoder(mel, mel_frames, context)
    log_probs = model.ctc_log_probs(encoded)
    ctc = F.ctc_loss(log_probs.transpose(0, 1), labels, frames, lengths, BLANK, reduction="none", zero_infinity=True)
    lattice = model.joint_lattice(encoded, labels)
    tdt = tdt_loss(lattice, labels, frames, lengths, model.config["durations"], sigma)
    return tdt.sum(), ctc.sum()


def average(target, source, decay):
    """Exponential moving average of weights and batch-norm statistics."""
    import torch
    with torch.no_grad():
        for a, b in zip(target.state_dict().values(), source.state_dict().values()):
            if a.dtype.is_floating_point:
                a.lerp_(b, 1 - decay)
            else:
                a.copy_(b)


class Trainer:
    def __init__(self, rank, args):
        import numpy as np
        import torch
        import torch.distributed as dist
        import data
        import features
        from model import Parakeet

        features.self_check()
        torch.set_num_threads(1)
        self.rank, self.args, self.total = rank, args, args.minutes * 60
        self.path = os.path.join(args.out, "state.pt")
        if args.processes > 1:
            dist.init_process_group("gloo", init_method="file://" + os.path.join(args.out, "rendezvous"), rank=rank,
                                    world_size=args.processes)
        torch.manual_seed(args.seed)
        self.model = Parakeet()
        self.step, self.used = 0, 0.0
        if args.init:
            self.model.load_state_dict(torch.load(args.init)["average"])
        self.smooth = copy.deepcopy(self.model)
        decayed = [p for p in self.model.parameters() if p.dim() > 1]
        plain = [p for p in self.model.parameters() if p.dim() <= 1]
        self.optimiser = torch.optim.AdamW(
            [dict(params=decayed, weight_decay=0.02), dict(params=plain, weight_decay=0.0)], lr=args.rate, betas=(0.9, 0.98))
        if os.path.exists(self.path):
            state = torch.load(self.path)
            self.model.load_state_dict(state["model"])
            self.smooth.load_state_dict(state["average"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.step, self.used = state["step"], state["used"]
        torch.manual_seed(args.seed + 1000 * rank + self.step)  # dropout differs between the processes
        people = data.load_fsdd(args.recordings, range(5, 50), exclude=args.exclude)
        self.mixer = data.Mixer(people, data.load_voices(args.voices), np.random.default_rng([args.seed, rank, self.step]))
        self.model.train()
        if rank == 0:
            self.log = open(os.path.join(args.out, "log.txt"), "a", buffering=1)
            print("parameters %d" % sum(p.numel() for p in self.model.parameters()), vars(args), file=self.log)

    def save(self):
        import torch
        torch.save(dict(model=self.model.state_dict(), average=self.smooth.state_dict(), step=self.step, used=self.used,
                        optimiser=self.optimiser.state_dict(), config=self.model.config), self.path + ".new")
        os.replace(self.path + ".new", self.path)

    def exchange(self, extra):
        """Sum the gradients and the numbers in `extra` over the processes."""
        import torch
        import torch.distributed as dist
        grads = [p.grad for p in self.model.parameters()]
        flat = torch.cat([g.flatten() for g in grads] + [torch.tensor(extra)])
        if self.args.processes > 1:
            dist.all_reduce(flat)
        at = 0
        for g in grads:
            g.copy_(flat[at:at + g.numel()].view_as(g))
            at += g.numel()
        return flat[at:].tolist()

    def one_step(self, began):
        """One optimiser step; returns (tdt, ctc, tokens, gradient norm) of all processes."""
        import numpy as np
        import torch
        import data
        progress = min(1.0, self.used / self.total)
        shared = np.random.default_rng([self.args.seed, 77, self.step])  # the same in all processes: equal work
        seconds = data.batch_seconds(shared, progress)
        context = (int(shared.integers(24, 129)),) * 2 if shared.random() < 0.5 else None
        batch = data.make_batch(self.mixer, seconds, progress, self.args.budget)
        tdt, ctc = losses(self.model, batch, context, self.args.sigma)
        self.optimiser.zero_grad(set_to_none=False)
        (tdt + self.args.ctc * ctc).backward()
        clock = time.time() - began if self.rank == 0 else 0.0
        tdt, ctc, tokens, self.used = self.exchange([float(tdt), float(ctc), float(batch["lengths"].sum()), clock])
        for p in self.model.parameters():
            p.grad /= tokens + 10
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        rate = self.args.rate * min(1.0, (self.step + 1) / self.args.warmup) * (0.005 + 0.995 * cosine)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        if torch.isfinite(norm):
            self.optimiser.step()
        self.step += 1
        return tdt, ctc, tokens, float(norm)

    def run(self):
        import numpy as np
        began, sums, saved = time.time() - self.used, np.zeros(4), time.time()
        while self.used < self.total:
            sums += self.one_step(began)
            if self.rank:
                continue
            average(self.smooth, self.model, min(0.998, 1 - 1 / (self.step / 10 + 1)))
            if self.step % LOG_EVERY == 0:
                print("%s step %d used %.1f min: tdt %.3f ctc %.3f per token, %.0f tokens a step, norm %.2f" % (
                    time.strftime("%H:%M:%S"), self.step, self.used / 60, sums[0] / sums[2], sums[1] / sums[2],
                    sums[2] / LOG_EVERY, sums[3] / LOG_EVERY), file=self.log)
                sums[:] = 0
            if time.time() - saved > SAVE_EVERY:
                self.save()
                saved = time.time()
        if self.rank == 0:
            self.save()
            print("done", file=self.log)


def process(rank, args):
    Trainer(rank, args).run()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", required=True, help="folder of the FSDD recordings")
    parser.add_argument("--voices", required=True, help="cache written by voices.py")
    parser.add_argument("--out", required=True, help="folder for the state and the log")
    parser.add_argument("--minutes", type=float, default=65, help="training time, all runs together")
    parser.add_argument("--exclude", nargs="*", default=[], help="speakers to leave out")
    parser.add_argument("--budget", type=float, default=64, help="seconds of audio per batch and process")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--warmup", type=int, default=300, help="steps")
    parser.add_argument("--sigma", type=float, default=0.02, help="logit under-normalisation of the TDT loss")
    parser.add_argument("--ctc", type=float, default=0.3, help="weight of the CTC loss")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--init", help="start from the averaged weights of this state file")
    args = parser.parse_args()
    args.out = os.path.abspath(args.out)
    os.makedirs(args.out, exist_ok=True)
    rendezvous = os.path.join(args.out, "rendezvous")
    if os.path.exists(rendezvous):
        os.remove(rendezvous)
    os.environ.update(ENVIRONMENT)
    import torch.multiprocessing
    torch.multiprocessing.spawn(process, (args,), args.processes)


if __name__ == "__main__":
    main()
