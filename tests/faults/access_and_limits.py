#!/usr/bin/env python3
"""Attacks on access, limits and durability, against a program that was built already.

    tests/faults/access_and_limits.py PROGRAM [ROW ...]

Prints a line for each row: its name, what was measured, and whether the program withstood it. Run it with the programs of two
commits to compare them. Needs Python 3.10 alone; the row of several servers also needs etcd, and the row of good JSON Web Tokens openssl.
"""

import base64
import hashlib
import http.client
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

PATIENCE = 20.0
MARK = "hush-4711-hush"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


# SETTINGS with INITIAL_WINDOW_SIZE 0, and HEADERS of `GET /`.
WITHOUT_WINDOW = PREFACE + frame(4, 0, 0, b"\0\x04\0\0\0\0") + frame(1, 5, 1, b"\x82\x86\x84")
SLOW_FORM = (
    b"POST /ui/sign-in HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-www-form-urlencoded\r\n"
    b"content-length: 4000\r\n\r\n"
)


def wait_for(what, question, limit=PATIENCE):
    """Asks again until the answer is true; None after the limit."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if found := question():
            return found
        time.sleep(0.05)
    return None


class Server:
    """A server with its own data directory. Leaving the block kills it."""

    def __init__(self, program, *flags, policy=None, data=None):
        self.dir = tempfile.mkdtemp(prefix="xds-rows-")
        self.data = data or os.path.join(self.dir, "data")
        if policy is not None:
            self.policy = os.path.join(self.dir, "access.yaml")
            self.set_policy(policy)
            flags = (*flags, f"--access-policy={self.policy}", "--tls-poll-interval=100ms")
        self.log = os.path.join(self.dir, "log")
        command = [program, "serve", "--xds-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--probe-listen=127.0.0.1:0"]
        command += ["--log-format=json", f"--data-dir={self.data}", *flags]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("XDS_SERVER_")}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.ports = wait_for("the ports", self.listening) or {}
        if "admin" not in self.ports:
            raise RuntimeError("the server does not start: " + open(self.log).read()[-2000:])

    def listening(self):
        if self.process.poll() is not None:
            return {"ended": True}
        ports = {}
        for line in open(self.log):
            try:
                fields = json.loads(line)
            except ValueError:
                continue
            fields = fields.get("fields", fields)
            if fields.get("message") == "listening":
                host, port = fields["addr"].rsplit(":", 1)
                ports[fields["service"]] = (host, int(port))
        return ports if {"xds", "admin", "probe"} <= ports.keys() else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def set_policy(self, text):
        with open(self.policy + ".new", "w") as file:
            file.write(text)
        os.replace(self.policy + ".new", self.policy)

    def ask(self, method, path, body=None, who=None, port="admin", timeout=90.0, kind="application/json"):
        """The status and the text of an answer; 0 if there is none."""
        host, number = self.ports[port]
        headers = {"content-type": kind}
        if who:
            headers["authorization"] = f"Bearer {who}"
        if path.startswith("/v1/weights"):
            headers["if-match"] = "*"
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        data = data.encode() if isinstance(data, str) else data
        request = urllib.request.Request(f"http://{host}:{number}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            return 0, ""

    def wait_ready(self):
        return wait_for("ready", lambda: self.ask("GET", "/healthz", port="probe", timeout=2)[0] == 200)

    def status_field(self, name):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith(name):
                return int(line.split()[1]) * 1024
        return 0

    def cost_of(self, action):
        """What an action returns, and its peak of memory in MB, processor seconds and seconds."""
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as file:
            file.write("5")
        before, cpu, began = self.status_field("VmRSS"), self.cpu(), time.monotonic()
        found = action()
        peak = (self.status_field("VmHWM") - before) / 1e6
        return found, peak, self.cpu() - cpu, time.monotonic() - began

    def cpu(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def policy(*principals, more=""):
    rows = [
        f"- {{ name: {name}, {terms}, tokens: [{{ sha256: {hashlib.sha256(token_of(name).encode()).hexdigest()} }}] }}\n"
        for name, terms in principals
    ]
    return more + "principals:\n" + "".join(rows)


def token_of(name):
    return f"token-of-{name}-0123456789abcdef"


def cluster(name, **more):
    return {"name": name, "connect_timeout": "1s", **more}


# The rows. Each returns what was measured, and whether the program withstood it.


class Callers:
    """Connections that begin with some bytes, go on with a byte now and then, and come again when they are cut off."""

    def __init__(self, address, n, first, further):
        self.sockets, self.is_on = [], True
        self.address, self.n, self.first, self.further = address, n, first, further
        self.fill()
        self.thread = threading.Thread(target=self.go_on, daemon=True)
        self.thread.start()

    def fill(self):
        while len(self.sockets) < self.n:
            try:
                one = socket.create_connection(self.address, timeout=1)
                one.sendall(self.first)
                one.setblocking(False)
                self.sockets.append(one)
            except OSError:
                return

    def go_on(self):
        while self.is_on:
            kept = []
            for one in self.sockets:
                try:
                    if self.further:
                        one.send(self.further)
                    while one.recv(4096):
                        pass
                    one.close()
                except BlockingIOError:
                    kept.append(one)
                except OSError:
                    one.close()
            self.sockets = kept
            self.fill()
            time.sleep(0.3)

    def end(self):
        self.is_on = False
        self.thread.join()
        for one in self.sockets:
            one.close()


def e1(program):
    n, results, good = 20, [], True
    with Server(program) as server:
        server.wait_ready()
        for what, port, callers, first, further in [
            ("admin, no window", "admin", 300, WITHOUT_WINDOW, b""),
            ("probe, no window", "probe", 80, WITHOUT_WINDOW, b""),
            ("slow sign-in", "admin", 300, SLOW_FORM, b"a"),
        ]:
            attack = Callers(server.ports[port], callers, first, further)
            time.sleep(3)
            answered = 0
            for _ in range(n):
                ask = lambda: server.ask("GET", "/healthz", port=port, timeout=3)[0] == 200
                answered += bool(wait_for("an answer", ask, 5))
                # A server that answers nobody is not asked twenty times.
                if answered == 0:
                    break
            attack.end()
            results.append(f"{what}: {answered} of {n} answered")
            good &= answered == n
    return "; ".join(results), good


# A token of `ada` that ends in 2200, and the key that verifies it; openssl made both.
KEY_X = "Mji6pHua_a8Vz8r2itMj8MWtQSQIgNDbVOjkl-oCnz8"
JWT = (
    "eyJhbGciOiJFZERTQSIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOiJ4ZHMiLCJzdWIiOiJhZGEiLCJleHAiOjcyNTgxMTg0MDB9."
    "u3IIVzIMXgewbhfeCXo4sZwrlG51TolXpWlmjbxRdyja9VYj-Ju6GPMg37CkQhd9D_098YNz2aKFKvHBO5LJAg"
)


def e1_tokens(program):
    keys = tempfile.NamedTemporaryFile("w", suffix=".json")
    json.dump({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": KEY_X}]}, keys)
    keys.flush()
    text = f"issuers: [{{ name: id, issuer: 'https://id.example', audiences: [xds], jwksFile: {keys.name} }}]\n"
    text += "principals: [{ name: ada, role: admin, jwt: [{ issuer: id, subject: ada }] }]\n"
    with Server(program, policy=text) as server:
        server.wait_ready()
        good = 0
        for _ in range(100):
            server.ask("GET", "/v1/groups", who="wrong-token-0123456789")
            server.ask("GET", "/v1/groups", who=JWT.replace("u3IIV", "u3IIW"))
            good += server.ask("GET", "/v1/groups", who=JWT)[0] == 200
    return f"{good} of 100 good tokens taken beside bad ones", good == 100


SCOPED = [
    ("admin", "role: admin"),
    ("edge", "role: admin, groups: ['edge*']"),
    ("shop", "role: admin, namespaces: [shop]"),
    ("viewer", "role: viewer, groups: ['edge*']"),
    ("operator", "role: operator, groups: ['edge*']"),
]


def scoped(program, *flags):
    server = Server(program, *flags, policy=policy(*SCOPED))
    server.wait_ready()
    admin = lambda *words: server.ask(*words, who=token_of("admin"))
    for group in ["edge", "prod"]:
        admin("PUT", f"/v1/groups/{group}", {"selector": {"nodeIds": [f"{group}-*"]}, "priority": 1000})
        admin("PUT", f"/v1/groups/{group}/resources/clusters/c", cluster("c", alt_stat_name=MARK))
    return server


def statuses(server, rows):
    """The statuses of requests, and whether each is one that it should be."""
    told, good = [], True
    for who, method, path, body, expected in rows:
        status, text = server.ask(method, path, body, who=token_of(who) if who else None)
        told.append(f"{method} {path.split('?')[0]} as {who or 'nobody'}: {status}")
        good &= status in expected and not (who != "admin" and MARK in text)
    return "; ".join(told), good


def e2(program):
    with scoped(program) as server:
        everyone = {"selector": {"all": True}, "priority": 2000}
        return statuses(server, [("edge", "PUT", "/v1/groups/edge-all", everyone, [403])])


def e3(program):
    with scoped(program) as server:
        return statuses(server, [
            ("shop", "PUT", "/v1/groups/prod", {"selector": {"nodeIds": ["x"]}}, [403]),
            ("shop", "PUT", "/v1/groups/prod/resources/clusters/c", cluster("c"), [403]),
            ("shop", "GET", "/v1/groups/prod/resources/clusters/c", None, [404]),
        ])


def e4(program):
    directory = tempfile.mkdtemp(prefix="xds-rows-")
    with scoped(program, f"--watch={directory}") as server:
        question = {"from": "current", "to": {"files": {"a.yaml": "resources: []"}}, "group": "edge"}
        told, good = statuses(server, [("viewer", "POST", "/v1/diff", question, [403])])
        with open(os.path.join(directory, f"{MARK}.yaml"), "w") as file:
            file.write("resources: 1\n")
        shown = lambda who: MARK in server.ask("GET", "/readyz", who=who and token_of(who))[1]
        wait_for("the problem", lambda: shown("admin"))
        leaks = [who or "nobody" for who in [None, "viewer"] if shown(who)]
    shutil.rmtree(directory)
    return f"{told}; readiness names a file to: {', '.join(leaks) or 'none'}", good and not leaks


def e5(program):
    # The route leads nowhere, so that no client is served something else.
    with scoped(program, "--implicit-gateway-port=0", "--mesh-address=none") as server:
        document = {"version": "xds-server/v1", "namespace": "shop", "routes": {"r": {"rules": [{"to": {"a": 9, "b": 1}}]}},
                    "backends": {"a": {"endpoints": "127.0.0.1:1"}, "b": {"endpoints": "127.0.0.1:2"}}}
        server.ask("POST", "/v1/apply?group=prod", document, who=token_of("admin"))
        weights = {"backends": {"a": 1, "b": 9}}
        return statuses(server, [("operator", "PUT", "/v1/weights/Route/shop/r/0", weights, [403, 404])])


def e6(program):
    header = {"name": "authorization", "string_match": {"exact": MARK}}
    route = {"match": {"prefix": "/", "headers": [header]}, "direct_response": {"status": 200}}
    host = {"name": "h", "domains": ["*"], "routes": [route]}
    lua = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"
    struct = {"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "type_url": "x.org/y", "value": {"password": MARK}}
    bodies = {
        "a misplaced text": ("secrets", {"name": "s", "generic_secret": MARK}),
        "a match on authorization": ("routes", {"name": "r", "virtual_hosts": [host]}),
        "a password of a struct": ("extensions", {"name": "e", "typed_config": struct}),
        "source of Lua": ("extensions", {"name": "l", "typed_config": {
            "@type": lua, "default_source_code": {"inline_string": f"local x = '{MARK}'"}}}),
    }
    leaks = []
    with Server(program) as server:
        server.wait_ready()
        for what, (kind, body) in bodies.items():
            path = f"/v1/groups/default/resources/{kind}/{body['name']}"
            texts = [server.ask("PUT", path, body)[1], server.ask("GET", path)[1]]
            texts += [server.ask("GET", read)[1] for read in ["/v1/groups/default/snapshot", "/v1/history/1", "/v1/history/2"]]
            if any(MARK in text for text in texts):
                leaks.append(what)
        if MARK in open(server.log).read():
            leaks.append("the log")
    return f"{len(leaks)} of {len(bodies) + 1} leak: {', '.join(leaks) or 'none'}", not leaks


def field(number, payload):
    """A field of a message of protocol buffers."""
    def varint(n):
        found = b""
        while n > 127:
            found, n = found + bytes([n & 127 | 128]), n >> 7
        return found + bytes([n])
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def read_fields(message):
    """The fields of a message by number, those that have lengths."""
    found, at = {}, 0

    def varint():
        nonlocal at
        n, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n

    while at < len(message):
        key = varint()
        size = varint()
        if key & 7 == 2:
            found[key >> 3] = message[at:at + size]
            at += size
    return found


class Stream:
    """A discovery stream: HTTP/2 by hand."""

    def __init__(self, address, method=b"StreamAggregatedResources"):
        self.socket = socket.create_connection(address, timeout=30)
        self.window, self.of_stream, self.buffer, self.status = 65535, 65535, b"", None
        self.data, self.messages = b"", []
        literal = lambda name, value: b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
        path = b"/envoy.service.discovery.v3.AggregatedDiscoveryService/" + method
        headers = b"\x83\x86" + literal(b":path", path) + literal(b":authority", b"localhost")
        headers += literal(b"content-type", b"application/grpc") + literal(b"te", b"trailers")
        settings = frame(4, 0, 0, b"\0\x04\x7f\xff\xff\xff")
        self.socket.sendall(PREFACE + settings + frame(8, 0, 0, b"\x7f\x00\x00\x00") + frame(1, 4, 1, headers))

    def request(self, type_url, names, node=b"attacker", answer=None):
        """A request of the State of the World; `answer` is a response that it accepts."""
        message = field(2, field(1, node)) + b"".join(field(3, name) for name in names) + field(4, type_url)
        if answer:
            message += field(1, answer[1]) + field(5, answer[5])
        self.send(message)

    def change(self, type_url, subscribe, unsubscribe):
        """An incremental request."""
        names = [field(3, name) for name in subscribe] + [field(4, name) for name in unsubscribe]
        self.send(field(1, field(1, b"attacker")) + field(2, type_url) + b"".join(names))

    def send(self, message):
        data = b"\0" + len(message).to_bytes(4, "big") + message
        while data and self.status is None:
            part = min(len(data), self.window, self.of_stream, 16384)
            if part == 0:
                self.read(5)
                continue
            self.socket.sendall(frame(0, 0, 1, data[:part]))
            data, self.window, self.of_stream = data[part:], self.window - part, self.of_stream - part

    def read(self, limit):
        """Takes frames for a while, or until the stream has ended or a message has come."""
        self.socket.settimeout(limit)
        n_before = len(self.messages)
        try:
            while self.status is None and len(self.messages) == n_before:
                while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
                    more = self.socket.recv(65536)
                    if not more:
                        self.status = "closed"
                        return
                    self.buffer += more
                size = int.from_bytes(self.buffer[:3], "big")
                kind, flags, stream = self.buffer[3], self.buffer[4], int.from_bytes(self.buffer[5:9], "big")
                payload, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
                if kind == 0:
                    self.data += payload
                    while len(self.data) >= 5 and len(self.data) >= (end := 5 + int.from_bytes(self.data[1:5], "big")):
                        self.messages.append(self.data[5:end])
                        self.data = self.data[end:]
                elif kind == 8:
                    more = int.from_bytes(payload, "big")
                    if stream:
                        self.of_stream += more
                    else:
                        self.window += more
                    return
                elif kind == 4 and not flags & 1:
                    for at in range(0, size, 6):
                        if payload[at:at + 2] == b"\0\x04":
                            self.of_stream += int.from_bytes(payload[at + 2:at + 6], "big") - 65535
                    self.socket.sendall(frame(4, 1, 0))
                elif kind == 6 and not flags & 1:
                    self.socket.sendall(frame(6, 1, 0, payload))
                elif kind in (1, 3) and flags & 1 or kind in (3, 7):
                    self.status = "ended"
        except TimeoutError:
            pass
        except OSError:
            self.status = "closed"


def e7(program):
    n_types, n_names = 20, 100_000
    with Server(program) as server:
        server.wait_ready()
        stream = Stream(server.ports["xds"])
        names = [str(n).encode() for n in range(n_names)]

        def subscribe():
            for n in range(n_types):
                stream.request(f"type.googleapis.com/unknown.Type{n}".encode(), names)
                stream.read(1)
                if stream.status:
                    return n + 1
            return n_types

        n_taken, peak, cpu, _ = server.cost_of(subscribe)
        kept = f"{n_taken} of {n_types} unknown types with {n_names:,} names, +{peak:.0f} MB, {cpu:.1f} CPU-s, stream {stream.status or 'open'}"
        return kept, peak < 100


CLUSTERS = b"type.googleapis.com/envoy.config.cluster.v3.Cluster"


def churn(address):
    """Subscribes to many names and unsubscribes from those of the round before, until it is ended."""
    before, n_names = [], 250_000
    stream = Stream(address, b"DeltaAggregatedResources")
    round_of = 0
    while True:
        after = [f"{round_of}/{n}".encode() for n in range(n_names)]
        stream.change(CLUSTERS, after, before)
        n_before = len(stream.messages)
        while stream.status is None and len(stream.messages) == n_before:
            stream.read(5)
        before, round_of = after, round_of + 1
        if stream.status:
            stream, before = Stream(address, b"DeltaAggregatedResources"), []


def e7_churn(program):
    n_changes, told, slowest = 8, [], 0.0
    with Server(program) as server:
        server.wait_ready()
        path = "/v1/groups/default/resources/clusters/c"
        server.ask("PUT", path, cluster("c"))
        healthy = Stream(server.ports["xds"])
        healthy.request(CLUSTERS, [], b"healthy")
        for what in ["alone", "beside two streams of 250,000 names"]:
            attackers = [multiprocessing.Process(target=churn, args=[server.ports["xds"]], daemon=True) for _ in range(2)]
            if what != "alone":
                for one in attackers:
                    one.start()
                time.sleep(5)
            slowest, answer = 0.0, 0.0
            for n in range(n_changes):
                while healthy.messages:
                    healthy.request(CLUSTERS, [], b"healthy", read_fields(healthy.messages.pop(0)))
                began = time.monotonic()
                writer = threading.Thread(target=server.ask, args=["PUT", path, cluster("c", alt_stat_name=f"{what[0]}{n}")])
                writer.start()
                wait_for("the change", lambda: healthy.read(0.2) or healthy.messages, 30)
                slowest = max(slowest, time.monotonic() - began)
                writer.join()
                answer = max(answer, time.monotonic() - began)
            told.append(f"{what}: slowest change {slowest:.2f} s at the client, {answer:.2f} s until the writer's answer")
            for one in attackers:
                if one.is_alive():
                    one.kill()
    return "; ".join(told), max(slowest, answer) < 1.0


def many(n_listeners, n_routes):
    lines = ["version: xds-server/v1", "listeners:"] + [f"  l{n}: {{port: {10_000 + n}}}" for n in range(n_listeners)]
    lines += ["routes:"] + [f"  r{n:03}: {{to: b}}" for n in range(n_routes)]
    return "\n".join([*lines, "backends:", '  b: {endpoints: "127.0.0.1:80"}', ""])


def e8(program):
    results, good = [], True
    text = many(300, 300)
    text += "#" * (64_000 - len(text)) + "\n"
    routes = "\n".join(["version: xds-server/v1", "listeners:", *[f"  l{n}: {{port: {10_000 + n}}}" for n in range(10)], "routes:",
                        *[f"  r{n:06}: {{match: {{path: /{n:0400}}}, to: b}}" for n in range(10_000)],
                        "backends:", '  b: {endpoints: "127.0.0.1:80"}', ""])
    numbers = cluster("c", metadata={"filter_metadata": {"a": {"b": [1] * 1_000_000}}})
    compact = json.dumps(numbers, separators=(",", ":"))
    for what, body, ask, bound in [
        ("validate 64 kB", text, lambda server: server.ask("POST", "/v1/validate", text, kind="application/yaml"), 150),
        ("dry run 64 kB", text, lambda server: server.ask("POST", "/v1/apply?dryRun=true", text, kind="application/yaml"), 150),
        ("diff 5 MB", routes, lambda server: server.ask(
            "POST", "/v1/diff", {"from": "current", "to": {"files": {"a.yaml": routes}}, "group": "default"}), 2 * 20 * 5 + 64 + 20),
        ("PUT 2 MB", compact, lambda server: server.ask(
            "PUT", "/v1/groups/default/resources/clusters/c", compact), 52),
    ]:
        with Server(program) as server:
            server.wait_ready()
            # What is done once: descriptors, caches.
            server.ask("POST", "/v1/validate", many(2, 2), kind="application/yaml")
            (status, answer), peak, cpu, seconds = server.cost_of(lambda: ask(server))
            results.append(f"{what}: {status}, +{peak:.0f} MB ({peak * 1e6 / len(body):.0f} x), {cpu:.1f} CPU-s, {seconds:.1f} s")
            good &= peak < bound
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(many(300, 300))
        file.flush()
        began = os.times()
        ran = subprocess.Popen([program, "validate", file.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, code, usage = os.wait4(ran.pid, 0)
        cpu = os.times().children_user + os.times().children_system - began.children_user - began.children_system
        peak = usage.ru_maxrss / 1e3
        results.append(f"command validate: exit {os.waitstatus_to_exitcode(code)}, {peak:.0f} MB, {cpu:.1f} CPU-s")
        good &= peak < 300
    return "; ".join(results), good


def e8_turns(program):
    with Server(program, policy=policy(("busy", "role: operator"), ("other", "role: admin"))) as server:
        server.wait_ready()
        body, is_on = many(60, 60), [True]

        def ask():
            while is_on[0]:
                server.ask("POST", "/v1/validate", body, who=token_of("busy"), kind="application/yaml")

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(20)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        statuses = [server.ask("POST", "/v1/validate", "{}", who=token_of("other"), kind="application/yaml")[0] for _ in range(30)]
        is_on[0] = False
    refused = sum(status != 200 for status in statuses)
    return f"{refused} of {len(statuses)} of another principal refused beside 20 callers of one", refused == 0


def e9(program):
    results, good = [], True
    directory = tempfile.mkdtemp(prefix="xds-rows-")
    audit = os.path.join(directory, "audit.log")
    with Server(program, f"--audit-log={audit}", policy=policy(("admin", "role: admin"), ("viewer", "role: viewer"))) as server:
        server.wait_ready()
        lines = lambda: [line for line in open(audit) if line.strip()] if os.path.exists(audit) else []

        def n_more(action):
            before = len(lines())
            action()
            wait_for("a line", lambda: len(lines()) > before, 1)
            return lines()[before:]

        for what, expected, action in [
            ("poll of clusters", 1, lambda: server.ask("POST", "/v3/discovery:clusters", {"node": {"id": "n"}}, who=token_of("admin"))),
            ("sign-in", 1, lambda: server.ask("POST", "/ui/sign-in", f"token={token_of('viewer')}&to=/", kind="application/x-www-form-urlencoded")),
            ("diff of a viewer", 0, lambda: server.ask("POST", "/v1/diff", {"from": "current", "to": "current"}, who=token_of("viewer"))),
        ]:
            found = n_more(action)
            results.append(f"{what}: {len(found)} lines")
            good &= (len(found) > 0) == (expected > 0)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait()
    with open(audit, "a") as file:
        file.write('{"ts":"torn')
    with Server(program, f"--audit-log={audit}", policy=policy(("admin", "role: admin"))) as server:
        server.wait_ready()
        server.ask("PUT", "/v1/groups/g", {"selector": {"nodeIds": ["a"]}}, who=token_of("admin"))
        wait_for("the write", lambda: any("api.write" in line for line in open(audit)), 3)
        found = not any('{"ts":"torn{' in line for line in open(audit))
        results.append(f"after a torn line the next is {'whole' if found else 'glued to it'}")
        good &= found
    shutil.rmtree(directory)
    return "; ".join(results), good


def e10(program):
    results = []
    put = lambda server, name: server.ask("PUT", f"/v1/groups/default/resources/clusters/{name}", cluster(name))[0]
    with Server(program) as first:
        first.wait_ready()
        put(first, "a")
        for name in os.listdir(first.data):
            if "lock" in name.lower():
                os.remove(os.path.join(first.data, name))
        try:
            with Server(program, data=first.data) as second:
                second.wait_ready()
                both = [put(first, "b"), put(second, "c")]
        except RuntimeError:
            both = [put(first, "b"), 0]
        results.append(f"lock removed, two servers: writes {both[0]} and {both[1]}")
        good = both.count(200) < 2
    with Server(program) as server:
        server.wait_ready()
        put(server, "a")
        shutil.rmtree(server.data)
        status = put(server, "b")
        results.append(f"directory deleted: write {status}")
        good &= status != 200
    return "; ".join(results), good


def e11(program):
    if not shutil.which("etcd"):
        return "etcd is not installed", None
    directory = tempfile.mkdtemp(prefix="xds-rows-")
    with open(os.path.join(directory, "key"), "w") as file:
        file.write("00" * 32 + "\n")
    ports = []
    for _ in range(2):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            ports.append(one.getsockname()[1])
    urls = [f"http://127.0.0.1:{port}" for port in ports]

    def etcd(n):
        return subprocess.Popen(
            ["etcd", "--data-dir", os.path.join(directory, f"etcd{n}"), "--listen-client-urls", urls[0], "--advertise-client-urls", urls[0],
             "--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1], "--initial-cluster", f"default={urls[1]}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def flags(name):
        return [f"--store=etcd://127.0.0.1:{ports[0]}/xds", f"--store-key-file={directory}/key", "--allow-plaintext-store",
                f"--instance-id={name}", "--store-timeout=2s"]

    store = etcd(1)
    try:
        with Server(program, *flags("a")) as one, Server(program, *flags("b")) as other:
            ready = lambda server: server.ask("GET", "/readyz")[0] == 200
            for server in (one, other):
                wait_for("ready", lambda: ready(server))
            put = lambda server, name: server.ask("PUT", f"/v1/groups/default/resources/clusters/{name}", cluster(name), timeout=15)[0]
            before = wait_for("a write", lambda: put(one, "c0") == 200)
            store.kill()
            store.wait()
            store = etcd(2)
            # The others notice, each by itself.
            body = cluster("c1")
            is_noticed = lambda server: "diverged" in server.ask(
                "PUT", "/v1/groups/default/resources/clusters/c1", body, timeout=15)[1]
            for server in (one, other):
                wait_for("the server to notice", lambda: is_noticed(server), 20)
            try:
                with Server(program, *flags("c")) as third:
                    wait_for("ready", lambda: ready(third), 8)
                    status, is_ready = put(third, "new"), ready(third)
            except RuntimeError:
                return f"first write: {bool(before)}; a third server with an emptied store: refuses to start", True
            told = f"first write: {bool(before)}; a third server with an emptied store: {'ready' if is_ready else 'not ready'}, write {status}"
            return told, status != 200
    finally:
        store.kill()
        store.wait()
        shutil.rmtree(directory, ignore_errors=True)


def e12(program):
    results, good = [], True
    with Server(program, policy=policy(*SCOPED)) as server:
        server.wait_ready()
        for path in ["/v1/events", "/v1/rollouts?watch=true"]:
            server.set_policy(policy(*SCOPED))
            wait_for("the principal", lambda: server.ask("GET", "/v1/groups", who=token_of("viewer"))[0] == 200)
            host, port = server.ports["admin"]
            connection = http.client.HTTPConnection(host, port, timeout=10)
            connection.request("GET", path, headers={"authorization": f"Bearer {token_of('viewer')}"})
            answer = connection.getresponse()
            server.set_policy(policy(("admin", "role: admin")))
            wait_for("the policy", lambda: server.ask("GET", "/v1/groups", who=token_of("viewer"))[0] == 401)
            is_ended = ends_within(answer, 10)
            results.append(f"{path}: {'ends' if is_ended else 'goes on'}")
            good &= is_ended
            connection.close()
    return "; ".join(results), good


def ends_within(answer, seconds):
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            if not answer.read1(4096):
                return True
    except (TimeoutError, OSError):
        return False
    except http.client.HTTPException:
        return True
    return False


def e13(program):
    with scoped(program) as server:
        test = {"apiVersion": "xds-server.io/v1", "kind": "RouteTest", "metadata": {"name": "t"},
                "spec": {"group": "prod", "policy": "refuse", "tests": [{"request": {"host": "a"}, "expect": {"status": 200}}]}}
        return statuses(server, [("edge", "POST", "/v1/apply?group=edge", test, [403])])


ROWS = [("E1", e1), ("E1 tokens", e1_tokens), ("E2", e2), ("E3", e3), ("E4", e4), ("E5", e5), ("E6", e6), ("E7", e7), ("E7 churn", e7_churn), ("E8", e8),
        ("E8 turns", e8_turns), ("E9", e9), ("E10", e10), ("E11", e11), ("E12", e12), ("E13", e13)]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:]
    all_good = True
    for name, row in ROWS:
        if wanted and name not in wanted and name.split()[0] not in wanted:
            continue
        try:
            measured, is_good = row(program)
        except Exception as error:  # A row that cannot be run harms no other.
            measured, is_good = f"{type(error).__name__}: {error}", None
        verdict = {True: "withstood", False: "FAILED", None: "not run"}[is_good]
        print(f"{name:10} {verdict:10} {measured}", flush=True)
        all_good &= is_good is not False
    sys.exit(0 if all_good else 1)


if __name__ == "__main__":
    main()
