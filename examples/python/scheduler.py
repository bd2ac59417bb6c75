#!/usr/bin/env python3
"""A scheduler in fifty lines: it reserves a slot, starts a task, admits it, and watches until all have ended.

    pip install grpcio grpcio-tools
    python3 -m grpc_tools.protoc -I proto --python_out=. --grpc_python_out=. proto/lrs/v1/shaper.proto
    PYTHONPATH=. python3 examples/python/scheduler.py [unix:/run/lrs/lrsd.sock]
"""
import subprocess
import sys

import grpc
from lrs.v1 import shaper_pb2 as lrs
from lrs.v1.shaper_pb2_grpc import ShaperStub

# Waits for its admission, so that it cannot end before; then half a second of computing.
COMMAND = [sys.executable, "-c", "import sys, time\nsys.stdin.read()\nwhile time.process_time() < 0.5: pass"]

node = ShaperStub(grpc.insecure_channel(sys.argv[1] if sys.argv[1:] else "unix:/run/lrs/lrsd.sock"))
waiting = [f"task-{number}" for number in range(8)]
running = {}  # id: process
story = {}  # id: [name, what became of it ...]


def start(name, reservation):
    """Starts a task in the slot that was promised."""
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE)
    request = lrs.AdmitRequest(pid=process.pid, name=name, job="example", reservation=reservation.id)
    task = node.Admit(request).task
    process.stdin.close()
    running[task.id] = process
    story[task.id] = [name, lrs.Tier.Name(task.tier).removeprefix("TIER_").lower()]


def fill():
    """Starts what waits, while there are free slots."""
    while waiting:
        try:
            reservation = node.Reserve(lrs.ReserveRequest(job="example"))
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            return  # No free slot: the next event says when to ask again.
        start(waiting.pop(0), reservation)


events = node.WatchEvents(lrs.WatchEventsRequest())
events.initial_metadata()  # From here on no event is missed.
fill()
while running or waiting:
    event = next(events).event
    if event.task in running and event.type in ("promoted", "demoted", "completed"):
        story[event.task].append(event.type)
        if event.type == "completed":
            running.pop(event.task).wait()
    fill()
for task, (name, *steps) in story.items():
    print(f"{task:20} {name:8} {' -> '.join(steps)}")
