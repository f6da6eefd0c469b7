#!/usr/bin/env python3
"""An IPAM for NetworkNamespaces in Python's standard library. It takes the events io.vitistack.network.requested and
io.vitistack.network.released as the subscriber of a Trigger, and replies with .provisioned or .failed:
    IPAM_PREFIX=10.20.0.0/16 IPAM_FILE=segments.json PORT=8080 python3 ipam.py"""
import ipaddress, json, os, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PARENT = ipaddress.ip_network(os.environ.get("IPAM_PREFIX", "10.20.0.0/16"))
FILE = os.environ.get("IPAM_FILE", "segments.json")
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


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with LOCK:
            segments = json.load(open(FILE)) if os.path.exists(FILE) else {}
            if self.headers["ce-type"] == "io.vitistack.network.released":
                segments.pop(request["uid"], None)
                save(segments)
                return self.send_response(202) or self.end_headers()
            try:
                kind, data = provide(segments, request)
            except ValueError as error:
                kind, data = "failed", {"uid": request["uid"], "reason": "BadSize", "message": f"parameters.size: {error}"}
        self.send_response(200)
        for name, value in {"ce-specversion": "1.0", "ce-type": "io.vitistack.network." + kind, "ce-source": "/ipam",
                            "ce-id": self.headers["ce-id"] + ".ipam", "ce-subject": self.headers["ce-subject"], "Content-Type": "application/json"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(json.dumps(data).encode())


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
