#!/usr/bin/env python3
"""An IPAM for NetworkNamespaces in Python's standard library. It takes the events io.vitistack.network.requested and
io.vitistack.network.released as the subscriber of a Trigger, and answers .provisioned or .failed at the gateway, with a
key of the scope events:
Everyone who may send to the Broker can write such an event: docs/backends.md says what to verify before production.
    GATEWAY_URL=https://vitistack.example.com GATEWAY_KEY=... IPAM_PREFIX=10.20.0.0/16 PORT=8080 python3 ipam.py"""
import ipaddress, json, os, threading, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PARENT = ipaddress.ip_network(os.environ.get("IPAM_PREFIX", "10.20.0.0/16"))
FILE = os.environ.get("IPAM_FILE", "segments.json")
GATEWAY = os.environ["GATEWAY_URL"].rstrip("/") + "/api/v1/events"
KEY = os.environ["GATEWAY_KEY"]
LOCK = threading.Lock()  # one request at a time changes the file


def save(segments):  # before the answer is given: what was said is never forgotten
    with open(FILE + ".new", "w") as f:
        json.dump(segments, f)
    os.replace(FILE + ".new", FILE)


def provide(segments, request):
    """The same uid gets the same segment, however often it asks."""
    uid = request["uid"]
    if uid not in segments:
        size = int(request.get("parameters", {}).get("size", 24))
        taken = [ipaddress.ip_network(s["ipv4Prefix"]) for s in segments.values()]
        prefix = next((p for p in PARENT.subnets(new_prefix=size) if not any(p.overlaps(t) for t in taken)), None)
        vlan = next((v for v in range(2000, 4095) if v not in [s["vlanId"] for s in segments.values()]), None)
        if prefix is None or vlan is None:
            return "failed", {"uid": uid, "reason": "NoFreePrefix", "message": f"{PARENT} has no free /{size}: ask for a smaller one"}
        segments[uid] = {"uid": uid, "provider": request["provider"], "id": f"vlan-{vlan}", "vlanId": vlan,
                         "ipv4Prefix": str(prefix), "ipv4Gateway": str(prefix[1])}
        save(segments)
    return "provisioned", segments[uid]


def answer(kind, data, request_id, subject):
    """Functions believe what the gateway has signed, and the gateway whoever has a key."""
    event = {"specversion": "1.0", "type": "io.vitistack.network." + kind, "source": "/ipam", "id": request_id + ".ipam",
             "subject": subject, "datacontenttype": "application/json", "data": data}
    headers = {"Content-Type": "application/cloudevents+json", "Authorization": "Bearer " + KEY}
    urllib.request.urlopen(urllib.request.Request(GATEWAY, json.dumps(event).encode(), headers), timeout=10).close()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with LOCK:
            segments = json.load(open(FILE)) if os.path.exists(FILE) else {}
            if self.headers["ce-type"] == "io.vitistack.network.released":
                # Only by uid and provider: the event may name the segment of another network.
                if segments.get(request["uid"], {}).get("provider") == request["provider"]:
                    del segments[request["uid"]]
                    save(segments)
                return self.send_response(202) or self.end_headers()
            try:
                kind, data = provide(segments, request)
            except ValueError as error:
                kind, data = "failed", {"uid": request["uid"], "reason": "BadSize", "message": f"parameters.size: {error}"}
        try:
            answer(kind, data, self.headers["ce-id"], self.headers["ce-subject"])
            self.send_response(202)
        except OSError as error:  # the Broker delivers the request again
            print(f"the gateway does not take the answer: {error}", flush=True)
            self.send_response(503)
        self.end_headers()


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
