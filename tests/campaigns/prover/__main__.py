"""``python tests/campaigns prover``: the whole campaign, with a table; exit code 1 if it finds a hole."""

import argparse
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()
)

from campaigns.prover.attack import LEVELS, attack, different_bits
from campaigns.prover.programs import Sample, samples, twin_samples
from campaigns.prover.run import cost_of_layers, kill, prove_variants
from parity.prove.proof import prove


def main() -> int:
    """Runs the campaign and prints its findings."""
    parser = argparse.ArgumentParser(prog="python tests/campaigns prover", description=__doc__)
    parser.add_argument("--mutants", type=int, default=500, help="distinct mutants per program, at most")
    parser.add_argument("--variants", type=int, default=50, help="benign variants per program")
    parser.add_argument("--programs", nargs="*", default=[], help="only these programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--execute", action="store_true", help="run on the CPU the mutants that are not refused"
    )
    parser.add_argument(
        "--attack",
        type=int,
        default=0,
        help="run this many variants of each rule on stress inputs, all levels",
    )
    options = parser.parse_args()
    failures = _twins() + _attacks(options) + _mutants(options) + _variants(options)
    _costs()
    print("no hole found" if not failures else f"{failures} holes or false alarms")
    return 1 if failures else 0


def _twins() -> int:
    failures = 0
    for twins in twin_samples():
        proof = prove(twins.reference, twins.candidate, arguments=twins.arguments, results=twins.results)
        print(f"twins {twins.name}: {proof.outcome()}, {proof.seconds * 1e3:.0f} ms")
        failures += not proof.proved
    return failures


def _attacks(options: argparse.Namespace) -> int:
    failures = 0
    for program in ("forward", "gradient") if options.attack else ():
        for one in attack(program, variants=options.attack, seed=options.seed):
            sound = one.proved and not one.differ
            outcome = "same bits" if sound else f"proved {one.proved}, OTHER BITS on {', '.join(one.differ)}"
            print(f"rule '{one.rules[0]}' on the {program} program at levels {LEVELS}: {outcome}", flush=True)
            failures += not sound
        others = ", ".join(different_bits(program, seed=options.seed))
        print(f"float operands reordered in the {program} program: other bits on {others or 'nothing'}")
    return failures


def _mutants(options: argparse.Namespace) -> int:
    made = refused = reordered = failures = 0
    for sample in _chosen(options):
        kills = kill(sample, options.mutants, seed=options.seed, execute=options.execute)
        count, gone = sum(kills.made.values()), sum(kills.refused.values())
        made, refused, reordered = made + count, refused + gone, reordered + kills.reordered
        print(
            f"mutants of {kills.program}: {count} made, {gone} refused, {kills.reordered} of them as reordered, "
            f"{count - gone} kept, {kills.seconds:.1f} s"
        )
        for kind, number in kills.made.items():
            print(f"    {kind}: {kills.refused.get(kind, 0)} of {number} refused")
        rules = [f"{each.rule or 'NO RULE'}{_ran(each.bits)}" for each in kills.kept]
        for rule in sorted(set(rules)):
            print(f"    kept: {rules.count(rule)} x {rule}")
        for hole in kills.holes():
            print(f"    HOLE {hole.mutant.kind} at operation {hole.mutant.index}: {hole.mutant.detail}")
        failures += len(kills.holes())
        sys.stdout.flush()
    print(
        f"mutants: {made} made, {refused} refused ({reordered} as reordered), "
        f"{made - refused} kept, {failures} holes"
    )
    return failures


def _chosen(options: argparse.Namespace) -> list[Sample]:
    known = {sample.name: sample for sample in samples()}
    if unknown := set(options.programs) - set(known):
        raise SystemExit(f"--programs: got {sorted(unknown)}, expected some of {list(known)}")
    return [known[name] for name in options.programs] or list(known.values())


def _ran(bits: bool | None) -> str:
    return "" if bits is None else ", same bits" if bits else ", OTHER BITS"


def _variants(options: argparse.Namespace) -> int:
    made = failures = 0
    for sample in _chosen(options):
        for variant, proof in prove_variants(sample, options.variants, seed=options.seed):
            made += 1
            if not proof.proved:
                failures += 1
                print(f"FALSE ALARM on {sample.name} with {variant.edits}: {proof.outcome()}")
    print(f"benign variants: {made} made, {made - failures} proved")
    return failures


def _costs() -> None:
    last = None
    for layers in (50, 100, 200, 400):
        cost = min((cost_of_layers(layers) for _ in range(3)), key=lambda each: each.seconds)
        growth = f", {cost.seconds / last:.2f} x" if last else ""
        rate = cost.operations / cost.seconds
        print(f"{layers} layers: {cost.operations} operations in {cost.seconds:.2f} s, {rate:.0f}/s{growth}")
        last = cost.seconds


if __name__ == "__main__":
    sys.exit(main())
