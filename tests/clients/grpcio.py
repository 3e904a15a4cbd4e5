"""The worker on gRPC C-core; README.md beside it describes the protocol."""

import base64
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc._cython import cygrpc

# The number that C-core gives a state -> the name in the protocol.
STATES = {state.value[0]: state.name for state in grpc.ChannelConnectivity}

# More threads than any test has commands under way at a time.
MAX_COMMANDS = 64
# A hold that gets no answers must not pile up calls without end.
MAX_HELD_IN_FLIGHT = 1000


class Counts:
    """What became of the calls of one command."""

    def __init__(self):
        self.lock = threading.Lock()
        self.names = {}
        self.errors = {}
        self.first_error = None

    def add_name(self, message):
        name = message.decode("utf-8", "replace")
        with self.lock:
            self.names[name] = self.names.get(name, 0) + 1

    def add_error(self, error):
        status = error.code().name
        with self.lock:
            self.errors[status] = self.errors.get(status, 0) + 1
            self.first_error = self.first_error or error.details() or status

    def report(self):
        return {"names": self.names, "errors": self.errors, "first_error": self.first_error}


class Call:
    """One kind of call on one channel."""

    def __init__(self, channel, command):
        # Without serialisers, bytes go in and come out as they are.
        self.method = channel.unary_unary(command["method"])
        self.body = command["body"].encode()
        self.metadata = tuple(command["metadata"].items())
        self.timeout = command["timeout_ms"] / 1000

    def make(self, counts):
        try:
            counts.add_name(self.method(self.body, timeout=self.timeout, metadata=self.metadata))
        except grpc.RpcError as error:
            counts.add_error(error)

    def start(self, done):
        future = self.method.future(self.body, timeout=self.timeout, metadata=self.metadata)
        future.add_done_callback(done)


class Hold:
    """Calls at a constant rate in the background, whether or not the answers come."""

    def __init__(self, call, per_second):
        self.call = call
        self.period = 1 / per_second
        self.counts = Counts()
        self.slots = threading.Semaphore(MAX_HELD_IN_FLIGHT)
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        due = time.monotonic()
        while not self.stopping.wait(max(0, due - time.monotonic())):
            due += self.period
            self.slots.acquire()
            self.call.start(self.done)

    def done(self, future):
        if future.code() is grpc.StatusCode.OK:
            self.counts.add_name(future.result())
        else:
            self.counts.add_error(future)
        self.slots.release()

    def stop(self):
        self.stopping.set()
        self.thread.join()
        for _ in range(MAX_HELD_IN_FLIGHT):
            self.slots.acquire()
        return self.counts.report()


class Worker:
    def __init__(self):
        self.channels = {}
        self.holds = {}

    def hello(self, command):
        return {"library": "grpcio", "version": grpc.__version__}

    def open(self, command):
        self.channels[command["channel"]] = grpc.insecure_channel(command["target"])
        return {}

    def close(self, command):
        self.channels.pop(command["channel"]).close()
        return {}

    def state(self, command):
        channel = self.channels[command["channel"]]
        # The public interface tells the state to subscribers only, from a thread of its own.
        state = channel._channel.check_connectivity_state(command["connect"])
        return {"state": STATES[state]}

    def call(self, command):
        counts = Counts()
        call = Call(self.channels[command["channel"]], command)
        with ThreadPoolExecutor(command["in_flight"]) as pool:
            for call_made in [pool.submit(call.make, counts) for _ in range(command["calls"])]:
                call_made.result()
        return counts.report()

    def hold(self, command):
        call = Call(self.channels[command["channel"]], command)
        self.holds[command["hold"]] = Hold(call, command["per_second"])
        return {}

    def stop(self, command):
        return self.holds.pop(command["hold"]).stop()

    def csds(self, command):
        return {"response": base64.b64encode(cygrpc.dump_xds_configs()).decode()}


def main():
    worker = Worker()
    commands = {name: getattr(worker, name) for name in
                ("hello", "open", "close", "state", "call", "hold", "stop", "csds")}
    output = threading.Lock()

    def answer(command):
        try:
            result = {"ok": commands[command["cmd"]](command)}
        except Exception as error:  # Everything that goes wrong is the test's to judge.
            result = {"error": repr(error)}
        with output:
            print(json.dumps({"id": command["id"], **result}), flush=True)

    pool = ThreadPoolExecutor(MAX_COMMANDS)
    for line in sys.stdin:
        pool.submit(answer, json.loads(line))
    # Nobody listens any more: what is still under way is not waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
