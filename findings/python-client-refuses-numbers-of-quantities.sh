#!/bin/sh
# Software: kubernetes 37.0.2 of Python, whose models are of pydantic.
# Guess, written before the run: the client sends `cpu: 1` without quotes as a number.
# Behaviour: the client raises before it sends anything: a quantity has to be a string. The same
#   holds for a pod given as a dict, or read by create_from_dict. A field that the client does not
#   know is refused there, too, though it is left out where a response has it.
# Seen on 2026-11-29: the lines below.
# Needs Python 3.11 or later and PyPI. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check kubernetes==37.0.2
cat >main.py <<'PYTHON'
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from kubernetes import client, utils


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        print("received")
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
api = client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{server.server_port}"))
for limits, more in (({"cpu": "1"}, {}), ({"cpu": 1}, {}), ({"cpu": "1"}, {"newField": True})):
    container = {"name": "a", "resources": {"limits": limits}}
    spec = {"containers": [container], **more}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    for create in (utils.create_from_dict, client.CoreV1Api.create_namespaced_pod):
        print(create.__name__, limits, more, end=": ", flush=True)
        try:
            if create is utils.create_from_dict:
                create(api, pod)
            else:
                create(client.CoreV1Api(api), "default", pod)
        except ValueError as error:
            print(type(error).__name__, error.errors()[0]["type"])
text = '{"spec": {"containers": [], "newField": true}}'
print("response:", api.sanitize_for_serialization(api.deserialize(text, "V1Pod", None)))
PYTHON
venv/bin/python main.py >seen
cat seen
diff seen - <<'END'
create_from_dict {'cpu': '1'} {}: received
create_namespaced_pod {'cpu': '1'} {}: received
create_from_dict {'cpu': 1} {}: ValidationError string_type
create_namespaced_pod {'cpu': 1} {}: ValidationError string_type
create_from_dict {'cpu': '1'} {'newField': True}: ValidationError extra_forbidden
create_namespaced_pod {'cpu': '1'} {'newField': True}: ValidationError extra_forbidden
response: {'spec': {'containers': []}}
END
