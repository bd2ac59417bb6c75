"""Right, wrong and unknown for the source's rule and ours: compare.py PASS... <CLASSIFIED.

Fails where too few programs were measured to say anything, or too many predictions are wrong.
"""

import json
import statistics
import sys

rates = {}
for name in sys.argv[1:]:
    for line in open(name):
        match line.rstrip("\n").split("\t"):
            case [program, "map" | "reduce" as kind, rate, _]:
                rates.setdefault((program, kind), []).append(float(rate))

programs = {}
text, at = sys.stdin.read(), 0
while at < len(text.rstrip()):
    found, at = json.JSONDecoder().raw_decode(text, at)
    at += len(text[at:]) - len(text[at:].lstrip())
    for program in found["programs"]:
        programs.setdefault((program["class"], program["kind"]), program)


def origin(name):
    for part in ("Hard", "hadoop.examples", "mahout", "tez"):
        if part in name:
            return part
    return "hadoop.lib" if ".lib." in name else "hadoop's tests"


totals = {}
for key, measured in rates.items():
    if key not in programs:
        continue
    program, rate = programs[key], statistics.median(measured)
    truth = "io" if rate < 0.2 else "cpu"
    path, loops = program["longest_path"], program.get("loops")
    source = None if path is None else "io" if path < program["threshold"] else "cpu"
    print(*key, f"{rate:.3f}", path, loops, source, program["predicted"], sep="\t")
    for room in (origin(key[0]), "all"):
        for rule, said in (("source", source), ("ours", program["predicted"]), ("always cpu", "cpu")):
            column = "unknown" if said is None else "right" if said == truth else "wrong"
            totals.setdefault((room, rule), {"right": 0, "wrong": 0, "unknown": 0})[column] += 1
for (room, rule), counts in totals.items():
    print(room, rule, *counts.values(), sep="\t")
ours = totals.get(("all", "ours"), {"wrong": 0})
if sum(ours.values()) < 100:
    sys.exit(f"{sum(ours.values())} programs were measured; at least 100 are wanted")
if ours["wrong"] >= 0.05 * sum(ours.values()):
    sys.exit(f"{ours['wrong']} of {sum(ours.values())} are wrong; fewer than 5 % are wanted")
