#!/usr/bin/env bash
# A scheduler with busctl(1) alone: it reserves a slot, starts a task, admits it, and asks again when one ends.
#
#     examples/shell/scheduler.sh                                  # as root or a member of the group lrs
#     examples/shell/scheduler.sh --address=unix:path=/run/other/bus
set -euo pipefail
bus=("${@:---system}")

lrs() { busctl "${bus[@]}" call -- org.lrs.Shaper1 /org/lrs/Shaper1 org.lrs.Shaper1.Manager "$@"; }

# Waits for its admission, so that it cannot end before; then some tenths of a second of computing.
compute() { read -r _ && sha256sum < <(head -c 200M /dev/zero) >/dev/null; }

declare -A name tier
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
refused=$work/refused

for number in {0..7}; do
    # Answers: signature, id, tier, end.
    until reservation=$(lrs Reserve 'a{sv}' 1 job s example 2>"$refused"); do
        grep -qi 'no free' "$refused" || { cat "$refused" >&2 && exit 1; }
        wait -n # No free slot: a task that ends frees one.
    done
    read -r _ promised at _ <<<"${reservation//\"/}"
    mkfifo "$work/go-$number"
    compute <"$work/go-$number" &
    task=$(lrs Admit 'ia{sv}' $! 3 name s "task-$number" job s example reservation s "$promised")
    read -r _ id _ <<<"${task//\"/}"
    name[$id]=task-$number tier[$id]=$at
    echo >"$work/go-$number"
done
wait

for id in "${!name[@]}"; do
    # The task's events in their order, without the admission.
    steps=$(lrs Explain s "$id" | grep -oP '"type" s "\K(promoted|demoted|completed)' | paste -sd' ')
    echo "$id ${name[$id]} ${tier[$id]} -> ${steps// / -> }"
done | sort -V -k2
