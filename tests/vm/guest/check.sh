#!/usr/bin/env bash
# For the checks, which source it: faults are counted, so that one run tells all of them, and
# what must come true is waited for.

faults=0
fault() {
    printf 'fault: %s\n' "$*"
    faults=$((faults + 1))
}

step() { printf -- '- %s\n' "$*"; }

# Until a condition holds, at most 90 s, for an emulated machine is slow; every condition here is
# the end of something that has begun. What must come true, in words; the rest is the command.
eventually() {
    local what=$1 end=$((SECONDS + 90))
    shift
    until "$@" >/dev/null 2>&1; do
        if [ "$SECONDS" -gt "$end" ]; then
            fault "$what: not within 90 s: $*"
            return 1
        fi
        sleep 0.1
    done
}

# The same where the condition's name says it.
await() { eventually "$1" "$@"; }
