"""Answers what the stack asks a ticketing system and an IPAM.

Reads events, one in each line, as a webhook of the gateway would bring them, and
sends the answers to the gateway at the address given: the ticketing system signs
its answer as Standard Webhooks do, the IPAM has an API key. The standard library
is all that this needs.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
import urllib.request


def answer_to(event):
    data = event["data"]
    if event["type"] == "io.vitistack.workorder.requested":
        return "io.vitistack.workorder.approved", "/ticketing/corp", {
            "uid": data["uid"], "generation": data["generation"], "by": "kari@example.com"}
    return "io.vitistack.network.provisioned", "/ipam/corp", {
        "uid": data["uid"], "ipv4Prefix": "10.20.30.0/24", "ipv4Gateway": "10.20.30.1", "vlanId": 230}


def sign(secret, message_id, timestamp, body):
    key = base64.b64decode(secret.removeprefix("whsec_"))
    text = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()


def send(gateway, event_type, source, cause, data):
    body = json.dumps({
        "specversion": "1.0", "type": event_type, "source": source, "id": cause["id"] + ".answer",
        "subject": cause["subject"], "datacontenttype": "application/json", "data": data}).encode()
    headers = {"Content-Type": "application/cloudevents+json"}
    if source.startswith("/ticketing"):
        now = str(int(time.time()))
        headers |= {"webhook-id": cause["id"], "webhook-timestamp": now,
                    "webhook-signature": sign(os.environ["VITISTACK_SECRET"], cause["id"], now, body)}
    else:
        headers["Authorization"] = "Bearer " + os.environ["VITISTACK_KEY"]
    request = urllib.request.Request(gateway + "/api/v1/events", data=body, headers=headers, method="POST")
    with urllib.request.urlopen(request, timeout=30) as response:
        print(response.status, response.read().decode())


for line in sys.stdin:
    request = json.loads(line)
    send(sys.argv[1], *answer_to(request)[:2], request, answer_to(request)[2])
